//! Forms of tasks: what counts as a test, which verdict an end has, and partial credit.

use std::time::Duration;

use grade::{Settings, Verdict};
use serde_json::json;

use crate::{grade_one, grader, settings};

#[tokio::test(flavor = "multi_thread")]
async fn every_test_counts_by_itself() {
    let grader = grader(settings()).await;
    let check = json!({
        "task_id": "check", "prompt": "def f(x):\n", "entry_point": "f",
        "canonical_solution": "    return x * 2\n",
        "test": "def check(candidate):\n    assert candidate(1) == 2\n    for x in range(3):\n        \
                 assert candidate(x) == 2 * x, 'doubled'\n    assert candidate('a') == 'aa'\n",
    });
    let list = json!({
        "task_id": 7, "text": "", "code": "def f(x):\n    return x * 2\n",
        "test_list": ["assert f(1) == 2", "assert f(2) == 4", "assert f('a') == 'aa'"],
    });
    let calls = json!({
        "task_id": "calls", "prompt": "def f(x):\n", "entry_point": "f",
        "canonical_solution": "    return x * 2\n",
        "base_input": [[1]], "plus_input": [[2], ["a"]],
    });
    let cases = json!({
        "task_id": "class", "complete_prompt": "def f(x):\n", "entry_point": "f",
        "canonical_solution": "    return x * 2\n",
        "test": "import unittest\nclass TestCases(unittest.TestCase):\n    def test_1(self):\n        \
                 self.assertEqual(f(1), 2)\n    def test_2(self):\n        self.assertEqual(f(2), 4)\n    \
                 def test_a(self):\n        self.assertEqual(f('a'), 'aa')\n",
    });
    for task in [check, list, calls, cases] {
        let half = grade_one(&grader, task.clone(), "def f(x):\n    return int(x) * 2\n").await;
        let counts = (half.verdict, half.tests_passed, half.tests_total, half.failures.len());
        assert_eq!(counts, (Verdict::Failed, 2, 3, 1), "{half:?}");
        assert!(half.message.contains("ValueError: invalid literal"), "{half:?}");
        assert!((half.credit().unwrap() - 2.0 / 3.0).abs() < 1e-9);
        let whole = grade_one(&grader, task, "def f(x):\n    return x * 2\n").await;
        assert_eq!((whole.verdict, whole.tests_passed), (Verdict::Passed, 3), "{whole:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_are_judged_as_files_on_linux() {
    let grader = grader(settings()).await;
    let task = json!({ "task_id": "t", "tests": [{ "stdin": "1 2\r\n", "stdout": "3" }] });
    for (program, verdict) in [
        ("\u{feff}print(sum(map(int, open('/dev/stdin').read().split())))", Verdict::Passed),
        (
            "import sys\nassert 'r' in sys.stdin.mode and input() == '1 2\\r'\nprint(3)",
            Verdict::Passed,
        ),
        (
            "import os\nassert os.listdir(os.path.dirname(__file__)) == ['main.py']\nprint(3)",
            Verdict::Passed,
        ),
        (
            "import os\nos.makedirs(os.path.dirname('a.txt'), exist_ok=True)\nprint(3)",
            Verdict::Failed,
        ),
    ] {
        let graded = grade_one(&grader, task.clone(), program).await;
        assert_eq!(graded.verdict, verdict, "{program}: {graded:?}");
    }
    let task = json!({
        "task_id": "t", "entry_point": "f",
        "tests": "import os\nassert os.path.dirname(__file__) == '/workspace' == f()",
    });
    let program = "\u{feff}import os\ndef f(): return os.path.dirname(__file__)";
    let graded = grade_one(&grader, task, program).await;
    assert_eq!(graded.verdict, Verdict::Passed, "{graded:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn verdicts_say_what_happened() {
    let grader = grader(settings()).await;
    let task = json!({ "task_id": "t", "tests": "assert f(1) == 2", "entry_point": "f" });
    for (program, verdict, limit, message) in [
        ("def f(x): return 2", Verdict::Passed, None, ""),
        ("def f(x): return 3", Verdict::Failed, None, "assert 1: assert f(1) == 2"),
        ("def f(x): return 1 / 0", Verdict::Failed, None, "ZeroDivisionError: division by zero"),
        ("def f(x) return 2", Verdict::Error, None, "its code can't be run: SyntaxError"),
        ("```python\ndef f(x): return 2\n```", Verdict::Error, None, "give the code alone"),
        ("1 / 0", Verdict::Error, None, "ZeroDivisionError"),
        ("", Verdict::Failed, None, "name 'f' is not defined"),
        ("def f(x):\n while True: pass", Verdict::Limit, Some("cpu"), "cpu limit"),
        // At once more than there can be: filling memory first would take CPU time.
        (
            "def f(x): return bytearray(3 << 29)",
            Verdict::Limit,
            Some("memory"),
            "1.5 GiB of memory",
        ),
        ("import os\ndef f(x): os._exit(0)", Verdict::Failed, None, "exited with the code"),
    ] {
        let graded = grade_one(&grader, task.clone(), program).await;
        let found = (graded.verdict, graded.limit.as_deref());
        assert_eq!(found, (verdict, limit), "{program}: {graded:?}");
        assert!(graded.message.contains(message), "{program}: {graded:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_its_own_solution_fails_blames_nobody_else() {
    let grader = grader(settings()).await;
    let task = json!({
        "task_id": "t", "tests": "assert f(1) == 2", "solution": "def f(x): return 3",
    });
    let graded = grade_one(&grader, task, "def f(x): return 2").await;
    assert_eq!(graded.verdict, Verdict::TaskError);
    assert!(graded.message.contains("its own solution doesn't pass its tests"), "{graded:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_may_be_changed_where_the_task_says_so_or_its_solution_does() {
    let grader = grader(settings()).await;
    let tests = "values = [3, 1]\nassert order(values) is None\nassert values == [1, 3]";
    let program = "def order(values): values.sort()";
    for task in [
        json!({ "task_id": "t", "tests": tests, "in_place": true }),
        json!({ "task_id": "t", "tests": tests, "solution": program }),
    ] {
        let graded = grade_one(&grader, task.clone(), program).await;
        assert!(graded.passed() && graded.guarded, "{graded:?}");
        let graded = grade_one(&grader, task, "def order(values): return sorted(values)").await;
        assert!(!graded.passed(), "{graded:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn checkers_compare_the_output_of_programs() {
    let grader = grader(settings()).await;
    let cases = json!([{ "stdin": "10", "stdout": "2 5" }]);
    let source = "def check(stdin, stdout, expected):\n    a, b = map(int, stdout.split())\n    \
                  return a * b == int(stdin) and 1 < a < int(stdin)\n";
    let checker = json!({ "program": source });
    for (checker, program, is_right) in [
        (json!("exact"), "print('2 5')", true),
        (json!("exact"), "print('2\\n5')", false),
        (json!("tokens"), "print('2\\n5')", true),
        (json!("tokens"), "print('5 2')", false),
        (json!({ "floats": 0.01 }), "print('2.001 4.999')", true),
        (checker.clone(), "print('5 2')", true),
        (checker.clone(), "print('1 10')", false),
        (checker.clone(), "print('x')", false),
        // It leaves with an error, or writes nothing.
        (json!("tokens"), "print('2 5'); raise SystemExit(1)", false),
        (json!("tokens"), "print('2 5'); 1 / 0", false),
        (checker, "", false),
    ] {
        let task = json!({ "task_id": "t", "tests": cases, "checker": checker });
        let graded = grade_one(&grader, task, program).await;
        assert_eq!(graded.passed(), is_right, "{program}: {graded:?}");
        assert_eq!(graded.tests_total, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn arrays_frames_and_dates_cross_as_what_they_are() {
    let grader = grader(Settings { cpu_time: Duration::from_secs(10), ..settings() }).await;
    let values = [
        "np.array([[1.5, 2], [3, np.nan]])",
        "np.float64(0.1)",
        "np.array(['a', 'bc'])",
        "pd.DataFrame({'a': [1, 2], 'b': ['x', None], 'c': [0.5, 1]}, index=['p', 'q'])",
        "pd.Series([True, False], name='flags')",
        "pd.DataFrame()",
        "[1 << 100, -0.0, 1j, None, 'ü\\ud800', b'\\x00', range(3), {1: (2, {3})}]",
        "(collections.Counter('aab'), collections.deque([1], 2), decimal.Decimal('0.10'))",
        "[datetime.datetime(2024, 2, 29, 1, 2), datetime.timedelta(1, 2, 3), fractions.Fraction(1, 3)]",
    ];
    let imports =
        "import collections, datetime, decimal, fractions\nimport numpy as np, pandas as pd\n";
    for value in values {
        let tests = format!(
            "{imports}expected, found = {value}, f()\nassert type(found) is type(expected)\n\
             if hasattr(expected, 'columns'):\n    pd.testing.assert_frame_equal(found, expected)\n\
             elif hasattr(expected, 'iloc'):\n    pd.testing.assert_series_equal(found, expected)\n\
             elif hasattr(expected, 'dtype'):\n    np.testing.assert_array_equal(found, expected)\n    \
             assert found.dtype == expected.dtype\n\
             else:\n    assert repr(found) == repr(expected) and found == expected\n"
        );
        let task = json!({ "task_id": "t", "tests": tests, "entry_point": "f" });
        let program = format!("{imports}def f(): return {value}");
        let graded = grade_one(&grader, task, &program).await;
        assert!(graded.passed(), "{value}: {graded:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_functions_and_iterators_can_be_used_but_not_judged_by_themselves() {
    let grader = grader(settings()).await;
    let stack = "s = Stack()\nassert s.push(3) is None\nassert len(s) == 1 and s[0] == 3\n\
                 s.name = 'a'\nassert s.name == 'a'\nassert [x for x in s] == [3]";
    let pair = "assert total([Pair(1, 2), Pair(3, 4)]) == 10";
    let maker = "add = adder(2)\nassert add(3) == 5\nassert applied(lambda x: x + 1, 2) == 3";
    let stream = "assert list(stream(3)) == [0, 1, 2]\nassert 2 in stream(3)";
    let equal = "assert Box(1) == Box(1)";
    for (tests, program, is_right) in [
        (stack, "class Stack(list):\n    push = list.append", true),
        (
            stack,
            "class Stack:\n    def __init__(self): self.items = []\n    \
             def push(self, x): self.items.append(x)\n    \
             def __len__(self): return len(self.items)\n    \
             def __getitem__(self, place): return self.items[place]\n    \
             def __iter__(self): return iter(self.items)",
            true,
        ),
        (
            pair,
            "class Pair:\n    def __init__(self, a, b): self.a, self.b = a, b\n\
             def total(pairs): return sum(pair.a + pair.b for pair in pairs)",
            true,
        ),
        (maker, "def adder(n): return lambda x: x + n\ndef applied(f, x): return f(x)", true),
        (stream, "def stream(n): yield from range(n)", true),
        // Only the candidate could say whether its own objects are equal.
        (
            equal,
            "class Box:\n    def __init__(self, x): pass\n    def __eq__(self, other): return True",
            false,
        ),
        (stream, "def stream(n):\n    while True: yield 0", false),
    ] {
        let task = json!({ "task_id": "t", "tests": tests });
        let graded = grade_one(&grader, task, program).await;
        assert_eq!(graded.passed(), is_right, "{tests}: {graded:?}");
    }
}
