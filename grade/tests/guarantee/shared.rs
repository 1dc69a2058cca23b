//! Tests beside their candidate: only where the task's solution shows that they need it, only if it is
//! allowed, and never silently.

use grade::{Settings, Verdict};
use serde_json::{Value, json};

use crate::{grade_one, grader, settings};

const SOLUTION: &str = "import time\ndef now():\n    return time.time() + 1\n";

/// A task whose tests replace what the candidate calls.
fn task() -> Value {
    let test = "import unittest\nfrom unittest.mock import patch\nclass TestCases(unittest.TestCase):\n    \
                @patch('time.time', return_value=41)\n    def test_now(self, clock):\n        \
                self.assertEqual(now(), 42)\n        clock.assert_called_once()\n";
    json!({
        "task_id": "t", "complete_prompt": "", "canonical_solution": SOLUTION, "entry_point": "now",
        "test": test,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn tests_that_need_the_candidates_interpreter_run_there_only_if_allowed() {
    let strict = grader(settings()).await;
    let graded = grade_one(&strict, task(), SOLUTION).await;
    assert_eq!(graded.verdict, Verdict::Error, "{graded:?}");
    assert!(graded.message.contains("`--allow-shared`"), "{graded:?}");

    let lenient = grader(Settings { allow_shared: true, ..settings() }).await;
    let graded = grade_one(&lenient, task(), SOLUTION).await;
    assert!(graded.passed() && !graded.guarded, "{graded:?}");
    // What is cheap to notice is noticed.
    for (program, message) in [
        ("import time\ndef now(): return time.time()", "test_now"),
        ("raise SystemExit(0)", "it left its interpreter"),
        ("import os\ndef now(): os._exit(0)", "it left its interpreter"),
        (
            "import unittest\nunittest.TestCase.assertEqual = print\ndef now(): pass",
            "changed `unittest.TestCase.assertEqual`",
        ),
        (
            "import builtins\ndef now():\n    builtins.isinstance = print",
            "its functions changed `builtins.isinstance`",
        ),
        ("import sys\nsys.settrace(lambda *_: None)\ndef now(): pass", "the trace function"),
        ("class now:\n    __eq__ = lambda *_: True", "test_now"),
    ] {
        let graded = grade_one(&lenient, task(), program).await;
        assert!(!graded.passed(), "{program}: {graded:?}");
        assert!(graded.message.contains(message), "{program}: {graded:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_candidate_cannot_choose_to_run_beside_its_tests() {
    let lenient = grader(Settings { allow_shared: true, ..settings() }).await;
    let task = json!({
        "task_id": "t", "tests": "assert f() == 1", "solution": "def f(): return 1",
    });
    let graded =
        grade_one(&lenient, task, "class One:\n    __eq__ = lambda *_: True\nf = One").await;
    assert!(!graded.passed() && graded.guarded, "{graded:?}");
}
