//! Tests beside their candidate: only where the task's solution shows that they need it, only if it is
//! allowed, and never silently.

use std::time::Duration;

use grade::{Settings, Verdict};
use serde_json::{Value, json};

use crate::{grade_one, grader, settings};

const SOLUTION: &str = "class Base:\n    def now(self):\n        return self.clock() + 1\n";

/// A task whose tests derive from the candidate's class.
fn task() -> Value {
    let test = "import unittest\nfrom unittest.mock import mock_open\n\
                class TestCases(unittest.TestCase):\n    def test_now(self):\n        mock_open()\n        \
                class Fixed(Base):\n            clock = lambda self: 41\n        \
                self.assertEqual(Fixed().now(), 42)\n";
    json!({
        "task_id": "t", "complete_prompt": "", "canonical_solution": SOLUTION, "entry_point": "Base",
        "test": test,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn tests_that_need_the_candidates_interpreter_run_there_only_if_allowed() {
    let strict = grader(settings()).await;
    let graded = grade_one(&strict, task(), SOLUTION).await;
    assert_eq!(graded.verdict, Verdict::Undecided, "{graded:?}");
    assert!(graded.guarded && graded.message.contains("`--allow-shared`"), "{graded:?}");

    let lenient = grader(Settings { allow_shared: true, ..settings() }).await;
    let graded = grade_one(&lenient, task(), SOLUTION).await;
    assert!(graded.passed() && !graded.guarded, "{graded:?}");
    // What is cheap to notice is noticed.
    for (program, message) in [
        ("class Base:\n    def now(self): return self.clock()", "test_now"),
        ("raise SystemExit(0)", "it exited with the code"),
        ("import os\nclass Base:\n    def now(self): os._exit(0)", "it exited with the code"),
        (
            "import unittest\nunittest.TestCase.assertEqual = print\nclass Base: now = print",
            "changed `unittest.TestCase.assertEqual`",
        ),
        (
            "import builtins\nclass Base:\n    def now(self):\n        builtins.ascii = print\n        \
             return 42",
            "changed `builtins.ascii`",
        ),
        (
            "import sys\nsys.settrace(lambda *_: None)\nclass Base: now = print",
            "the trace function",
        ),
        ("class Base:\n    now = __eq__ = lambda *_: False", "test_now"),
    ] {
        let graded = grade_one(&lenient, task(), program).await;
        assert!(!graded.passed(), "{program}: {graded:?}");
        assert!(graded.message.contains(message), "{program}: {graded:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_undecided_is_decided_beside_the_tests_if_that_is_allowed() {
    let lenient = grader(Settings { allow_shared: true, ..settings() }).await;
    // Without a solution, nobody knows that the tests can be kept apart.
    let task = json!({ "task_id": "t", "tests": "assert Box(1) == Box(1)" });
    let boxed = "class Box:\n    def __init__(self, x): self.y = -x\n    \
                 def __eq__(self, other): return self.y";
    for (equal, verdict) in [(" == other.y", Verdict::Passed), (" != other.y", Verdict::Failed)] {
        let graded = grade_one(&lenient, task.clone(), &format!("{boxed}{equal}")).await;
        assert_eq!((graded.verdict, graded.guarded), (verdict, false), "{graded:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_tests_change_is_not_the_candidates() {
    let lenient = grader(Settings { allow_shared: true, ..settings() }).await;
    for (change, verdict) in [
        ("import multiprocessing; math.floor = lambda x: 41", Verdict::Passed),
        (
            "import inspect; math.floor = lambda x: 41 * ('now' in inspect.getsource(Base))",
            Verdict::Passed,
        ),
        ("setattr(math, 'floor', lambda x: 41)", Verdict::Passed),
        // Which nobody says that it is of the tests.
        ("vars(math)['floor'] = lambda x: 41", Verdict::Undecided),
        ("mock.patch('math.floor', return_value=41).start()", Verdict::Undecided),
        ("math.floor = lambda x: 40", Verdict::Failed),
    ] {
        let tests = format!(
            "import math\nfrom unittest import mock\n{change}\nclass Own(Base): pass\n\
             assert Own().now() == 41"
        );
        let program = "import math\nclass Base:\n    def now(self): return math.floor(1.5)";
        let graded = grade_one(&lenient, json!({ "task_id": "t", "tests": tests }), program).await;
        assert_eq!(graded.verdict, verdict, "{change}: {graded:?}");
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

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_the_sandbox_decides_nothing_beside_the_tests_either() {
    let cpu_time = Duration::from_secs(10);
    let lenient = grader(Settings { allow_shared: true, cpu_time, ..settings() }).await;
    // Each derives from the candidate's class, so that it can't be decided apart from it.
    for (tests, method, told) in [
        (
            "assert Own().f() == 1",
            "return list({2 ** 61, 2 ** 62, 1 / 3})[0]",
            "the order of a set",
        ),
        (
            "import numpy\ntry: Own().f()\nexcept FloatingPointError: pass\nelse: assert False",
            "import numpy; numpy.array([1.0]) / 0",
            "NumPy raises no errors of floats",
        ),
        ("assert open('solution.py').read() and Own().f()", "return 1", "no source of a program"),
        ("assert Own().f() == 1", "import cv2; return 1", "the package `cv2`"),
    ] {
        let tests = format!("class Own(Base): pass\n{tests}");
        let task = json!({ "task_id": "t", "tests": tests });
        let program = format!("class Base:\n    def f(self): {method}");
        let graded = grade_one(&lenient, task, &program).await;
        assert_eq!(graded.verdict, Verdict::Undecided, "{tests}: {graded:?}");
        assert!(graded.message.contains(told), "{tests}: {graded:?}");
    }
}
