//! Data sets' own cases, and lines that can't be used.

use std::time::Duration;

use grade::{Settings, Suite, Task, TaskOptions, Verdict, read_samples, read_tasks};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{grade, grade_tasks, grader, settings, write_lines};

/// A task of LiveCodeBench's form, with all cases public.
fn live_code_bench(kind: &str, input: &str, output: &str) -> Value {
    let cases = json!([{ "input": input, "output": output, "testtype": kind }]);
    json!({
        "question_id": "t", "question_content": "", "starter_code": "", "private_test_cases": "[]",
        "public_test_cases": cases.to_string(), "metadata": r#"{"func_name": "pairs"}"#,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn data_sets_are_graded_by_their_own_rules() {
    let grader = grader(settings()).await;
    let call = live_code_bench("functional", "[1, 2]\n10", "[[1, 10], [2, 10]]");
    let lines = live_code_bench("stdin", "2\n", "0.50\n1\n");
    let apps = |inputs: Value, outputs: Value| {
        let cases = json!({ "fn_name": "f", "inputs": inputs, "outputs": outputs });
        json!({ "id": "t", "input_output": cases.to_string() })
    };
    let tuples = apps(json!([[[1, 2]]]), json!([[[[1], [2]]]]));
    let keys = apps(json!([[{ "1": 5 }]]), json!([[5]]));
    let keyed = apps(json!([[1]]), json!([{ "1": 5 }]));
    let programs =
        json!({ "id": "t", "input_output": { "inputs": [["1", "2"]], "outputs": [["3", ""]] } });
    let contests = json!({ "id": "t", "public_tests": { "input": ["1 2"], "output": ["3"] } });
    let method_of = json!({
        "task_id": "t", "prompt": "from typing import *\n", "entry_point": "Solution().pairs",
        "test": "def check(candidate):\n    assert candidate(items=[1], n=2) == [[1, 2]]",
    });
    let module = json!({
        "task_id": "t", "solution_code": "class A:\n    def f(self): return 1",
        "test": "from solution import A\n\ndef test_f():\n    assert A().f() == 1",
    });
    // Names that the data set imports need no import.
    let method = "class Solution:\n    def pairs(self, items: List[int], n: int) -> List[List[int]]:\n        \
                  return tuple([item, n] for item in items)";
    for (task, program, is_right) in [
        (&call, method, true),
        (&call, "def pairs(items, n): return [[item, n] for item in items]", true),
        (&call, "class Solution:\n    def pairs(self, items, n): return []", false),
        (&call, "print([[1, 10], [2, 10]])", false),
        (
            &method_of,
            "class Solution:\n    def pairs(self, items, n): return [[i, n] for i in items]",
            true,
        ),
        (&method_of, "class Solution:\n    def pairs(self, items, n): return []", false),
        (&module, "class A:\n    def f(self): return 1", true),
        (&module, "class A:\n    def f(self): return 2", false),
        (&lines, "n = int(input())\nprint(1 / n)\nprint(1.0)", true),
        (&lines, "print('0.5 1')", false),
        (&lines, "print(gcd(3, 2) / 2); print(1)", true),
        (&tuples, "def f(items): return [(item,) for item in items]", true),
        (&tuples, "def f(items): return items", false),
        (&keys, "def f(items): return items[1]", true),
        (&keys, "class Solution:\n    def f(self, items): return items[1]", true),
        (&keys, "def f(items): return items", false),
        (&keyed, "def f(n): return {n: 5}", true),
        (&keyed, "def f(n): return {str(n): 5}", false),
        (&programs, "print(int(input()) + int(input()))", true),
        (&programs, "print(1)", false),
        (&contests, "print(sum(map(int, input().split())))", true),
        (&contests, "print(2)", false),
    ] {
        let samples = [json!({ "task_id": "t", "solution": program })];
        let graded = grade(&grader, std::slice::from_ref(task), &samples).await.remove(0);
        let verdict = if is_right { Verdict::Passed } else { Verdict::Failed };
        assert_eq!(graded.verdict, verdict, "{task} with {program}: {graded:?}");
    }
}

/// `import matplotlib` alone has no `lines`; the candidate's import of pyplot brings it.
#[tokio::test(flavor = "multi_thread")]
async fn tests_see_the_parts_of_matplotlib_that_pyplot_has_brought() {
    let settings = Settings { cpu_time: Duration::from_secs(30), ..settings() };
    let grader = grader(settings).await;
    let plotted = json!({
        "task_id": "BigCodeBench/1", "complete_prompt": "import matplotlib.pyplot as plt\ndef task_func():\n",
        "code_prompt": "import matplotlib.pyplot as plt\ndef task_func():",
        "canonical_solution": "    return plt.plot([1, 2])[0]", "entry_point": "task_func",
        "test": "import unittest\nimport matplotlib\nclass TestCases(unittest.TestCase):\n    \
                 def test_1(self): self.assertIsInstance(task_func(), matplotlib.lines.Line2D)\n",
    });
    let samples = [json!({
        "task_id": "BigCodeBench/1", "completion": "    return plt.plot([3, 4])[0]",
    })];
    let graded = grade(&grader, &[plotted], &samples).await.remove(0);
    assert!(graded.passed(), "{graded:?}");
}

/// Tasks in the forms in which further data sets publish theirs, each with samples that its own rules tell apart.
#[tokio::test(flavor = "multi_thread")]
async fn published_forms_are_graded_by_their_own_rules() {
    let grader = grader(settings()).await;
    let snippet = json!({
        "metadata": { "problem_id": 7 }, "prompt": "Double it.", "reference_code": "result = x * 2",
        "code_context": "import copy, tokenize, io\n\ndef generate_test_case(number):\n    \
                         given = [[1, 2], [3]][number - 1]\n    return given, copy.copy(given) * 2\n\n\
                         def exec_test(result, expected):\n    assert result == expected\n    return 1\n\n\
                         exec_context = r\"\"\"\nx = test_input\n[insert]\n\"\"\"\n\n\
                         def test_execution(solution: str):\n    \
                         code = exec_context.replace(\"[insert]\", solution)\n    \
                         for i in range(2):\n        test_input, expected = generate_test_case(i + 1)\n        \
                         test_env = {\"test_input\": test_input}\n        exec(code, test_env)\n        \
                         assert exec_test(test_env[\"result\"], expected)\n\n\
                         def test_string(solution: str):\n    \
                         read = io.BytesIO(solution.encode()).readline\n    \
                         assert 'for' not in [token.string for token in tokenize.tokenize(read)]\n",
    });
    let mut other = snippet.clone();
    let context = snippet["code_context"].as_str().unwrap();
    let told = context.replace(
        "    assert result ==",
        "    assert id(result) != id(expected)\n    assert result ==",
    );
    other["code_context"] = json!(told);
    let indented = json!({
        "task_id": 3, "prompt": "def f_3(n):\n\treturn ", "suffix": " + 0\n", "entry_point": "f_3",
        "canonical_solution": "math.floor(n)", "test_start": "\nimport math\n\ndef check(candidate):",
        "test": ["\n    assert candidate(1.5) == 1\n", "\n    assert candidate(-0.5) == -1\n"],
    });
    let calibrated = json!({
        "task_id": "BigCodeBench/0", "complete_prompt": "import math\ndef task_func(x):\n",
        "code_prompt": "import math\ndef task_func(x):", "canonical_solution": "    return math.ceil(x)",
        "entry_point": "task_func", "test": "import unittest\nclass TestCases(unittest.TestCase):\n    \
                 def test_1(self): self.assertEqual(task_func(0.5), 1)\n",
    });
    let class = json!({
        "task_id": "ClassEval_0", "skeleton": "", "class_name": "Shelf", "test_classes": ["ShelfTest"],
        "import_statement": ["import math"], "solution_code": "import math\nclass Shelf:\n    \
                 def rows(self, n): return math.ceil(n / 2)",
        "test": "import unittest\n\nclass ShelfTest(unittest.TestCase):\n    def test_rows(self):\n        \
                 self.assertEqual(Shelf().rows(3), 2)\n",
    });
    let output = json!({
        "id": "sample_0", "code": "def f(text):\n    return text[::-1]", "input": "'ab'", "output": "'ba'",
    });
    // JSON has no tuples, and MBPP+ expects some.
    let tuples = json!({
        "task_id": "Mbpp/394", "prompt": "\"\"\" Distinct? \"\"\"\n", "entry_point": "check_distinct",
        "canonical_solution": "\ndef check_distinct(t):\n    return len({t}) == 1 and len(t) == len(set(t))",
        "contract": "", "atol": 0, "base_input": [[[1, 2]], [[1, 1]]], "plus_input": [[[]]],
        "assertion": "",
    });
    let floats = |code: &str, inputs: Value| {
        json!({
            "task_id": "HumanEval/4", "prompt": "def f(x):\n", "entry_point": "f", "atol": 0,
            "canonical_solution": code, "base_input": inputs, "plus_input": [],
        })
    };
    let [flat, nested, mixed] = [
        floats("    return [x / 3]\n", json!([[1]])),
        floats("    return [[x / 3]]\n", json!([[1]])),
        floats("    return x * 2\n", json!([[0.5], [500_000_000]])),
    ];
    let module = json!({
        "task_id": 9, "prompt": "", "code": "def f(x): return x + 1", "test_imports": [],
        "test_list": ["assert f(1) == 2"],
        "test": "inputs, results = [[1], [5]], [2, 6]\n\
                 for i, (given, expected) in enumerate(zip(inputs, results)):\n    \
                 assert f(*given) == expected\n",
    });
    let program = |outputs: Value| {
        json!({
            "problem_id": 1, "question": "", "difficulty": "interview", "url": "", "starter_code": "",
            "solutions": "[\"print(1)\"]",
            "input_output": json!({ "inputs": [""], "outputs": outputs }).to_string(),
        })
    };
    let [words, numbers] = [program(json!(["b a\nc"])), program(json!(["0.33333\n2"]))];
    let lines = live_code_bench("stdin", "", "0.50");
    for (task, field, text, is_right) in [
        (&snippet, "code", "result = x + x", true),
        (&snippet, "code", "```python\nresult = x + x\n```", true),
        (&snippet, "code", "result = x * 3", false),
        (&snippet, "code", "y = x * 2", false),
        (&snippet, "code", "result = [i for i in x + x]", false),
        (&snippet, "code", "import sys\nsys.modules['copy'].copy = None\nresult = x", false),
        (&other, "code", "result = x + x", true),
        (&indented, "completion", "math.floor(n)", true),
        (&indented, "completion", "int(n)", false),
        (&indented, "solution", "def f_3(n):\n\tn = n\n    return math.floor(n)", true),
        (&calibrated, "solution", "def task_func(x): return math.ceil(x)", true),
        (&calibrated, "solution", "def task_func(x): return math.floor(x)", false),
        (&class, "solution", "class Shelf:\n    def rows(self, n): return math.ceil(n / 2)", true),
        (&class, "solution", "class Shelf:\n    def rows(self, n): return n // 2", false),
        (&output, "completion", "'b' + 'a'", true),
        (&output, "completion", "'ab'", false),
        (
            &tuples,
            "solution",
            "def check_distinct(t): return hash(t) != 0 and len(set(t)) == len(t)",
            true,
        ),
        (&tuples, "solution", "def check_distinct(t): return True", false),
        (&flat, "solution", "def f(x): return [x / 3 + 1e-9]", true),
        (&flat, "solution", "def f(x): return (x / 3 + 1e-9,)", false),
        (&nested, "solution", "def f(x): return [[x / 3 + 1e-9]]", false),
        (&mixed, "solution", "def f(x): return x + x + (x > 1)", true),
        (&mixed, "solution", "def f(x): return x + x + (x > 1) * 1000", false),
        (&module, "solution", "def f(x): return x - -1", true),
        (&module, "solution", "def f(x): return 2", false),
        (&words, "solution", "print('c\\na b')", true),
        (&words, "solution", "print('a b c')", false),
        (&words, "solution", "print('c\\na b'); sys.exit(1)", true),
        (&numbers, "solution", "print(1 / 3); print(2.0)", true),
        (&numbers, "solution", "print(1 / 3, 2)", false),
        (&lines, "solution", "print(1 / 2); sys.exit(1)", true),
        (&lines, "solution", "print(1 / 2); raise ValueError", false),
    ] {
        let id = read(&json!([task]).to_string()).0.remove(0).id;
        let sample = json!({ "task_id": id, field: text });
        let graded = grade(&grader, std::slice::from_ref(task), &[sample]).await.remove(0);
        let verdict = if is_right { Verdict::Passed } else { Verdict::Failed };
        assert_eq!(graded.verdict, verdict, "{task} with {text}: {graded:?}");
        assert!(graded.guarded, "{graded:?}");
    }
}

/// Returns the tasks and errors of a file with this text.
fn read(text: &str) -> (Vec<Task>, Vec<String>) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("tasks");
    std::fs::write(&file, text).unwrap();
    let lines = read_tasks(&file, TaskOptions::default()).unwrap();
    (lines.read, lines.bad.iter().map(ToString::to_string).collect())
}

#[test]
fn a_file_may_be_one_list() {
    let items = json!([{ "task_id": "a", "tests": "assert f()" }, 1, { "task_id": "b" }]);
    for text in [items.to_string(), format!("\u{feff}\n {items:#}")] {
        let (tasks, bad) = read(&text);
        let ids: Vec<&str> = tasks.iter().map(|task| task.id.as_str()).collect();
        assert_eq!(ids, ["a", "b"]);
        assert_eq!(bad.len(), 2, "{bad:?}");
        assert!(bad[0].starts_with("item 2 of") && bad[1].starts_with("item 3 of"), "{bad:?}");
    }
    // Lines, of which the first is a list.
    for first in ["[1]", "\n{\"task_id\": ", "null"] {
        let (tasks, bad) = read(&format!("{first}\n{}\n", items[0]));
        assert_eq!((tasks.len(), bad.len()), (1, 1), "{bad:?}");
        let line = 1 + first.matches('\n').count();
        assert!(bad[0].starts_with(&format!("line {line} of")), "{bad:?}");
    }
    // One object, on several lines.
    let (tasks, bad) = read(&format!("{:#}\n", items[0]));
    assert_eq!((tasks.len(), bad.len()), (1, 0), "{bad:?}");
}

#[test]
fn files_are_told_apart_by_their_first_bytes() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("tasks");
    let task = json!({ "task_id": "a", "tests": "assert f()" }).to_string();
    std::fs::write(&file, zstd::encode_all(task.as_bytes(), 0).unwrap()).unwrap();
    assert_eq!(read_tasks(&file, TaskOptions::default()).unwrap().read.len(), 1);
    let utf_16: Vec<u8> =
        std::iter::once(0xfeff).chain(task.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    for (bytes, told) in [
        (&b"PAR1\x15\x04PAR1"[..], "is a Parquet file; convert it to JSON lines"),
        (&b"PK\x03\x04\x14\0"[..], "is a zip archive; unpack it"),
        (&utf_16[..], "is UTF-16 text; save it as UTF-8"),
    ] {
        std::fs::write(&file, bytes).unwrap();
        let problem = read_tasks(&file, TaskOptions::default()).unwrap_err().to_string();
        assert!(problem.contains(told), "{problem}");
    }
}

/// What CRUXEval's own grader refuses: an answer that isn't one expression.
#[tokio::test(flavor = "multi_thread")]
async fn an_output_is_predicted_by_one_expression() {
    let grader = grader(settings()).await;
    let nothing = json!({ "id": "t", "code": "def f(x): pass", "input": "1", "output": "None" });
    let pair =
        json!({ "id": "t", "code": "def f(x): return x, 2", "input": "1", "output": "(1, 2)" });
    for (task, answer, is_right) in [
        (&nothing, "None", true),
        (&nothing, "", false),
        (&nothing, "\nNone", false),
        (&nothing, "# nothing", false),
        (&pair, "(1, 2)  # a pair", true),
        (&pair, "1, 2", false),
        (&pair, "f(1)", false),
    ] {
        let sample = json!({ "id": "t", "completion": answer });
        let graded = grade(&grader, std::slice::from_ref(task), &[sample]).await.remove(0);
        assert_eq!(graded.passed(), is_right, "{answer:?}: {graded:?}");
        assert!(matches!(graded.verdict, Verdict::Passed | Verdict::Failed | Verdict::Error));
    }
}

/// JSON's objects are dictionaries there, which have an order.
#[tokio::test(flavor = "multi_thread")]
async fn dictionaries_of_arguments_keep_their_order() {
    let grader = grader(settings()).await;
    let cases = r#"{"fn_name": "f", "inputs": [[{"b": 1, "a": 2}]], "outputs": ["ba"]}"#;
    let public =
        json!([{ "input": "{\"b\": 1, \"a\": 2}", "output": "\"ba\"", "testtype": "functional" }]);
    let metadata = json!({ "func_name": "f" });
    for text in [
        format!(r#"{{"id": "t", "input_output": {cases}}}"#),
        json!({ "id": "t", "input_output": cases }).to_string(),
        json!({ "id": "t", "public_test_cases": public, "metadata": metadata }).to_string(),
        r#"[{"id": "t", "prompt": "", "entry_point": "f", "atol": 0, "plus_input": null,
            "canonical_solution": "def f(items): return 'ba'", "base_input": [[{"b": 1, "a": 2}]]}]"#
            .to_owned(),
    ] {
        let tasks = read(&text).0;
        let sample = json!({ "id": "t", "solution": "def f(items): return ''.join(items)" });
        let graded = grade_tasks(&grader, tasks, &[sample]).await.remove(0);
        assert!(graded.passed(), "{text}: {graded:?}");
    }
}

/// MBPP+ has infinite numbers, as Python's `json` writes them, and `{}` for no inputs.
#[tokio::test(flavor = "multi_thread")]
async fn infinite_arguments_are_read() {
    let grader = grader(settings()).await;
    let line = r#"{"task_id": "t", "prompt": "", "entry_point": "f", "atol": 0, "plus_input": {},
        "canonical_solution": "def f(x): return '\"Infinity' if x < 0 else 1",
        "base_input": [[-Infinity], [Infinity]]}"#
        .replace('\n', "");
    for text in [format!("[{line}]"), line] {
        let (tasks, bad) = read(&text);
        assert!(bad.is_empty(), "{bad:?}");
        for (code, passes) in [("x < -1e300", true), ("x < 0 and x > -1e300", false)] {
            let code = format!("def f(x): return '\"Infinity' if {code} else 1");
            let sample = json!({ "id": "t", "solution": code });
            let graded = grade_tasks(&grader, tasks.clone(), &[sample]).await.remove(0);
            assert_eq!(graded.passed(), passes, "{text}: {graded:?}");
        }
    }
}

#[test]
fn ids_that_a_data_set_repeats_are_numbered() {
    let task = json!({
        "task_id": 5, "prompt": "def f():\n\treturn ", "suffix": "", "canonical_solution": "1",
        "test_start": "\ndef check(candidate):", "test": ["\n    assert candidate()\n"], "entry_point": "f",
    });
    let (tasks, bad) = read(&json!([task, task, task]).to_string());
    let ids: Vec<&str> = tasks.iter().map(|task| task.id.as_str()).collect();
    assert_eq!(ids, ["5", "5/2", "5/3"], "{bad:?}");
}

#[test]
fn a_line_of_samples_may_have_several_programs() {
    let tasks = read(&live_code_bench("stdin", "", "1").to_string()).0;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("samples");
    let samples = json!([
        { "question_id": "t", "code_list": ["print(1)", "print(2)"] },
        { "question_id": "t", "code_list": ["print(3)"] },
    ]);
    std::fs::write(&file, samples.to_string()).unwrap();
    let samples = read_samples(&file, &tasks).unwrap().read;
    let found: Vec<_> =
        samples.iter().map(|it| (it.number, &it.code[it.code.len() - 8..])).collect();
    assert_eq!(found, [(0, "print(1)"), (1, "print(2)"), (2, "print(3)")]);
}

#[test]
fn a_task_of_no_known_form_names_the_forms() {
    let items =
        json!([{ "task_id": "a", "question": "?" }, { "task_id": "b", "tests": "assert f()" }]);
    let (tasks, bad) = read(&items.to_string());
    assert_eq!((tasks.len(), bad.len()), (2, 1));
    let Suite::Unusable(problem) = &tasks[1].suite else { panic!("{tasks:?} are usable") };
    for form in ["DS-1000: `code_context`", "ODEX: `test_start`", "ClassEval: `solution_code`"] {
        assert!(problem.contains(form), "{problem}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_cannot_be_used_costs_no_other() {
    let folder = TempDir::new().unwrap();
    let [tasks_file, samples_file] = ["tasks", "samples"].map(|name| folder.path().join(name));
    write_lines(
        &tasks_file,
        &[
            json!({ "task_id": "bad", "input_output": { "inputs": [1], "outputs": [] } }),
            json!({ "task_id": "good", "tests": "assert f(1) == 2" }),
            json!([1]),
            json!({ "task_id": "good", "tests": "assert f(1) == 3" }),
        ],
    );
    let tasks = read_tasks(&tasks_file, TaskOptions::default()).unwrap();
    let told: Vec<String> = tasks.bad.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 3);
    assert!(told[0].starts_with("line 1 of") && told[1].starts_with("line 3 of"), "{told:?}");

    let program = "def f(x): return x + 1";
    let samples = [
        json!({ "task_id": "good", "solution": program }),
        json!({ "task_id": "other", "solution": program }),
        json!({ "task_id": "good" }),
        json!({ "solution": program }),
        json!({ "task_id": "bad", "solution": program }),
    ];
    write_lines(&samples_file, &samples);
    let read = read_samples(&samples_file, &tasks.read).unwrap();
    assert_eq!((read.read.len(), read.bad.len()), (2, 3), "{read:?}");
    let grader = grader(settings()).await;
    let usable = [samples[0].clone(), samples[4].clone()];
    let results = grade_tasks(&grader, tasks.read, &usable).await;
    assert!(results[0].passed(), "{results:?}");
    assert_eq!(results[1].verdict, Verdict::TaskError);
    assert!(results[1].message.contains("`input_output` is missing or isn't"), "{results:?}");
}

/// Outputs that a data set's own grader accepts beside the solution's, with inputs and outputs that
/// JSON has no types for.
#[tokio::test(flavor = "multi_thread")]
async fn given_outputs_are_compared_by_the_rules_of_evalplus() {
    let grader = grader(settings()).await;
    let tuple = |items: Value| json!({ "$tuple": items });
    for (name, program, input, expected, verdict) in [
        ("f", "def f(x): return x + (1,)", json!([tuple(json!([0]))]), tuple(json!([0, 1])), true),
        ("f", "def f(x): return [0, 1]", json!([0]), tuple(json!([0, 1])), false),
        ("f", "def f(x): return 0.1 + 0.2", json!([0]), json!(0.3), true),
        ("f", "def f(x): return {*x, 2}", json!([[1]]), json!({ "$set": [2, 1] }), true),
        (
            "f",
            "def f(x): return 2 ** x",
            json!([70]),
            json!({ "$int": "0x400000000000000000" }),
            true,
        ),
        ("Diff", "def Diff(a, b): return [3, 4, 4]", json!([[3], [4]]), json!([4, 3]), true),
        (
            "find_zero",
            "def find_zero(xs): return -xs[0] / xs[1]",
            json!([[2, 1]]),
            json!(-1.9),
            true,
        ),
        ("find_zero", "def find_zero(xs): return 2", json!([[2, 1]]), json!(2), false),
        ("check_str", "def check_str(s): return s", json!(["a"]), json!(true), true),
        ("are_equivalent", "def are_equivalent(*_): return 0", json!([1, 2]), json!(true), true),
        ("sum_div", "def sum_div(n): return 0", json!([8]), json!(7), true),
        ("surface_Area", "def surface_Area(b, h): return 35", json!([3, 4]), json!(34), true),
        ("surface_Area", "def surface_Area(b, h): return 30", json!([3, 4]), json!(34), false),
        (
            "digit_distance_nums",
            "def digit_distance_nums(*_): return 2",
            json!([123, 4]),
            json!(9),
            false,
        ),
        (
            "digit_distance_nums",
            "def digit_distance_nums(*_): return 4",
            json!([123, 4]),
            json!(9),
            true,
        ),
    ] {
        let task = json!({
            "task_id": "t", "prompt": "", "entry_point": name, "base_input": [input.to_string()],
            "expected": [expected.to_string()],
        });
        let graded = crate::grade_one(&grader, task, program).await;
        assert_eq!(graded.passed(), verdict, "{program}: {graded:?}");
    }
}
