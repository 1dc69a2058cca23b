//! Tests that could pass without having tested a candidate, and honest candidates that a judge could
//! blame for what they didn't do.

use std::time::Duration;

use grade::{Settings, Verdict};
use serde_json::{Value, json};

use crate::{grade_one, grader, settings};

/// A task of EvalPlus's form.
fn calls(solution: &str, inputs: &Value) -> Value {
    json!({
        "task_id": "t", "prompt": "", "entry_point": "f", "canonical_solution": solution,
        "base_input": inputs, "plus_input": [],
    })
}

/// A plain task with a solution, which may be none.
fn plain(tests: &str, solution: Option<&str>) -> Value {
    json!({ "task_id": "t", "tests": tests, "solution": solution })
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_else_is_tested_in_the_place_of_a_candidate() {
    let grader = grader(settings()).await;
    let recursive = "def f(n):\n    return n if n < 2 else f(n - 1) + f(n - 2)\n";
    let numbers = calls(recursive, &json!([[3], [5], [8]]));
    let lambda = plain("assert f(1) == 2", Some("f = lambda x: x + 1"));
    let inner = plain("assert f(1) == 2", Some("if True:\n    def f(x): return x + 1"));
    let huge = calls("def f(n):\n    return 1 << n\n", &json!([[20_000]]));
    let raised = plain("assert f() == 1", None);
    let loops = plain("assert all(map(lambda x: f(x) == x, [1, 2]))", None);
    let hidden = plain("if __name__ == '__main__':\n    assert f(1) == 2", None);
    let some = plain("assert f(1) == 2\nif f(1) != 2:\n    assert f(2) == 3", None);
    let refused = plain("try:\n    f() + 1\nexcept Exception:\n    pass\nassert f", None);
    let given =
        plain("class A: pass\ntry:\n    f(A())\nexcept Exception:\n    pass\nassert f", None);
    for (task, program, is_right) in [
        (&numbers, "def f(n): return 0", false),
        (&numbers, recursive, true),
        (&lambda, "x = 1", false),
        (&lambda, "f = lambda x: 2", true),
        (&inner, "x = 1", false),
        (&inner, "def f(x): return 2", true),
        // Numbers too long to be shown.
        (&huge, "def f(n): return 1 << n", true),
        (&huge, "def f(n): return 3 << n", false),
        (&raised, "def f(): raise KeyError(1 << 20_000)", false),
        (&loops, "def f(x): return x", true),
        (&hidden, "def f(x): return 2", true),
        (&hidden, "def f(x): return 3", false),
        (&some, "def f(x): return 2", true),
        (&refused, "def f(): return object()", true),
        (&refused, "def f(): raise TypeError", true),
        (&given, "def f(a): return 1", true),
    ] {
        let graded = grade_one(&grader, task.clone(), program).await;
        assert_eq!(graded.passed(), is_right, "{task} with {program}: {graded:?}");
        let verdict = if is_right { Verdict::Passed } else { Verdict::Failed };
        assert_eq!(graded.verdict, verdict, "{task} with {program}: {graded:?}");
    }
    // What only the candidate could say is undecided, even where the tests catch every error.
    let own = "class Own:\n    def __add__(self, other): return 1\ndef f(): return Own()";
    let caught = plain("try:\n    f() + 1\nexcept BaseException:\n    pass\nassert f", None);
    let ungiven = plain(
        "import _thread\ntry:\n    f(_thread.allocate_lock())\nexcept BaseException:\n    \
                         pass\nassert f",
        None,
    );
    let starts = "import subprocess, sys\ntry:\n    subprocess.run([sys.executable, '-c', f()])\n\
                  except BaseException:\n    pass\nassert f";
    let starts = plain(starts, None);
    for (task, program) in [
        (&refused, own),
        (&caught, own),
        // It would end the judge as if all tests had passed.
        (&starts, "def f(): return 'import os; os._exit(0)'"),
        (&ungiven, "def f(a): return 1"),
        // In one interpreter, it would end the loop of the tests.
        (&loops, "def f(x): raise StopIteration"),
    ] {
        let graded = grade_one(&grader, task.clone(), program).await;
        assert_eq!(graded.verdict, Verdict::Undecided, "{task} with {program}: {graded:?}");
        assert!(graded.message.contains("`--allow-shared`"), "{graded:?}");
    }
    // A test that failed before that has failed.
    let first = plain("assert f(1) == 3\nassert f(2) + 1 == 2", None);
    let graded = grade_one(
        &grader,
        first,
        "class Own:\n    def __add__(self, other): return 1\ndef f(x): return Own() if x > 1 else 2",
    )
    .await;
    assert_eq!(graded.verdict, Verdict::Failed, "{graded:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checker_has_cpu_time_of_its_own() {
    let grader = grader(settings()).await;
    // More CPU time than a candidate may use, on any machine and beside any load.
    let source = "def check(stdin, stdout, expected):\n    \
                  for _ in range(5 * 10**7): pass\n    return stdout == expected\n";
    let task = json!({
        "task_id": "t", "tests": [{ "stdin": "", "stdout": "2\n" }], "checker": { "program": source },
    });
    let graded = grade_one(&grader, task, "print(2)").await;
    assert!(graded.passed(), "{graded:?}");
    assert!(graded.tests_cpu_ms > 500.0, "{graded:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_candidate_that_goes_on_after_its_tests_is_stopped_and_counted() {
    let grader = grader(Settings { cpu_time: Duration::from_secs(60), ..settings() }).await;
    // What serves it raises this when the tests have ended.
    let program = "import sys\nclass Forever(BaseException):\n    def __init__(self):\n        \
                   while True: pass\n\
                   def f():\n    sys._getframe(1).f_globals['_Ended'] = Forever\n    return 1\n";
    let graded = grade_one(&grader, plain("assert f() == 1", None), program).await;
    assert!(graded.passed(), "{graded:?}");
    // It ran on until it was stopped, and no longer.
    assert!(graded.cpu_ms > 50.0 && graded.cpu_ms < 30_000.0, "{graded:?}");
}
