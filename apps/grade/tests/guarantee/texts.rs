//! Texts of tests in many forms: whatever pytest or unittest runs is run, a right candidate never fails, and
//! a wrong one never passes.
//!
//! `texts.py` has the texts, each with a right and a wrong candidate, which are the same for most; or with
//! what is reported of a text that can't be graded.

use std::time::Duration;

use grade::{Settings, Verdict};
use serde_json::{Value, json};

use crate::{grade, grader, settings};

const RIGHT: &str = "def f(x):\n    return x + 1\n";
const WRONG: &str = "def f(x):\n    return x\n";

/// A text of tests.
struct Text {
    name: &'static str,
    tests: &'static str,
    right: &'static str,
    wrong: &'static str,
    /// Why it can't be graded, if it can't.
    problem: Option<&'static str>,
}

fn texts() -> Vec<Text> {
    let parts = include_str!("texts.py").split("# text: ").skip(1);
    let text = |part: &'static str| {
        let (name, rest) = part.split_once('\n').unwrap();
        let (rest, wrong) = rest.split_once("# wrong:\n").unwrap_or((rest, WRONG));
        let (tests, right) = rest.split_once("# right:\n").unwrap_or((rest, RIGHT));
        let told = tests.strip_prefix("# task: ").and_then(|rest| rest.split_once('\n'));
        let (problem, tests) = told.map_or((None, tests), |(told, tests)| (Some(told), tests));
        Text { name, tests, right, wrong, problem }
    };
    parts.map(text).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn right_candidates_pass_texts_of_every_form_and_wrong_ones_do_not() {
    let texts = texts();
    assert!(texts.len() > 120);
    let task = |text: &Text| json!({ "task_id": text.name, "tests": text.tests });
    let tasks: Vec<Value> = texts.iter().map(task).collect();
    let samples: Vec<Value> = texts
        .iter()
        .flat_map(|text| [text.right, text.wrong].map(|program| (text.name, program)))
        .map(|(name, program)| json!({ "task_id": name, "solution": program }))
        .collect();
    // Some import NumPy, or asyncio.
    let grader = grader(Settings { cpu_time: Duration::from_secs(20), ..settings() }).await;
    let results = grade(&grader, &tasks, &samples).await;
    let mut wrong = Vec::new();
    for (text, pair) in texts.iter().zip(results.chunks(2)) {
        let expected = match text.problem {
            None => [Verdict::Passed, Verdict::Failed],
            Some(_) => [Verdict::TaskError; 2],
        };
        let told = text.problem.unwrap_or_default();
        let is_as_expected = pair.iter().zip(expected).all(|(graded, expected)| {
            graded.guarded && graded.verdict == expected && graded.message.contains(told)
        });
        if !is_as_expected {
            wrong.push(format!("{}: {pair:#?}", text.name));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), texts.len(), wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn items_of_lists_and_functions_that_check_count_whatever_they_are() {
    let grader = grader(settings()).await;
    let check = |test: &str| {
        json!({
            "task_id": "t", "prompt": "def f(x):\n", "entry_point": "f", "test": test,
            "canonical_solution": "    return x + 1\n",
        })
    };
    for task in [
        json!({ "task_id": "t", "tests": ["def test_a():\n    assert f(1) == 2", "one = 1"] }),
        json!({ "task_id": "t", "tests": ["class TestF:\n    def test_f(self):\n        assert f(1) == 2"] }),
        json!({ "task_id": "t", "tests": ["import sys", "assert f(1) == 2", "sys.exit(0)"] }),
        json!({ "task_id": "t", "setup": "def test_f():\n    assert f(1) == 2", "tests": "one = f(1)" }),
        check(
            "def check(candidate):\n    if candidate(1) != 2:\n        raise ValueError('wrong')",
        ),
        check("def check(candidate):\n    return candidate(1) == 2"),
        check("def check(candidate):\n    pass\n\ndef test_f():\n    assert f(1) == 2"),
        check("assert f(1) == 2"),
    ] {
        let samples = [RIGHT, WRONG].map(|program| json!({ "task_id": "t", "solution": program }));
        let results = grade(&grader, std::slice::from_ref(&task), &samples).await;
        let verdicts = [results[0].verdict, results[1].verdict];
        assert_eq!(verdicts, [Verdict::Passed, Verdict::Failed], "{task}: {results:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_message_says_is_the_cause() {
    let grader = grader(settings()).await;
    let task = json!({ "task_id": "t", "tests": "value = f(1)\nassert value == 2" });
    let prompt = |prompt: &str| {
        let test = "def check(candidate):\n    assert candidate(1) == 2";
        json!({ "task_id": "t", "prompt": prompt, "entry_point": "f", "test": test })
    };
    for (task, sample, verdict, message) in [
        (
            &task,
            json!({ "solution": "def f(x): return 1 / 0" }),
            Verdict::Failed,
            "line 1: ZeroDivisionError",
        ),
        (
            &task,
            json!({ "solution": "def f(x):\nreturn x" }),
            Verdict::Error,
            "its code can't be run: IndentationError: expected an indented block after function \
             definition on line 1 (<solution>, line 2)",
        ),
        (
            &task,
            json!({ "solution": "raise ValueError('a', {1: (2, 3)})" }),
            Verdict::Error,
            "its code can't be run: ValueError: ('a', {1: (2, 3)})",
        ),
        // A prompt that ends where a body begins is no mistake, nor is one in words.
        (&prompt("def f(x):\n"), json!({ "completion": "    return x + 1" }), Verdict::Passed, ""),
        (&prompt("Add one to a number."), json!({ "solution": RIGHT }), Verdict::Passed, ""),
        (
            &prompt("def f(x:\n"),
            json!({ "completion": "    return x + 1" }),
            Verdict::TaskError,
            "its prompt isn't Python",
        ),
    ] {
        let mut sample = sample;
        sample["task_id"] = json!("t");
        let graded = grade(&grader, std::slice::from_ref(task), &[sample]).await.remove(0);
        assert_eq!(graded.verdict, verdict, "{task}: {graded:?}");
        assert!(graded.message.contains(message), "{message}: {graded:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_is_too_large_to_pass_is_a_limit_and_names_its_option() {
    let task = json!({ "task_id": "t", "tests": "assert len(f(30_000)) == 30_000" });
    let program = "def f(n): return list(range(n))";
    let samples = [json!({ "task_id": "t", "solution": program })];
    for (value_bytes, verdict) in [(1 << 20, Verdict::Passed), (10_000, Verdict::Limit)] {
        let grader = grader(Settings { value_bytes, ..settings() }).await;
        let graded = grade(&grader, std::slice::from_ref(&task), &samples).await.remove(0);
        assert_eq!(graded.verdict, verdict, "{graded:?}");
        assert_eq!(
            graded.message.contains("`--value-bytes`"),
            verdict == Verdict::Limit,
            "{graded:?}"
        );
    }
    // What the tests give is as large.
    let task = json!({ "task_id": "t", "tests": "assert f(list(range(30_000))) == 30_000" });
    let samples = [json!({ "task_id": "t", "solution": "f = len" })];
    let grader = grader(Settings { value_bytes: 10_000, ..settings() }).await;
    let graded = grade(&grader, &[task], &samples).await.remove(0);
    assert_eq!(graded.verdict, Verdict::Limit, "{graded:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fixtures_that_look_at_the_candidates_interpreter_are_decided_there() {
    let strict = grader(settings()).await;
    let lenient = grader(Settings { allow_shared: true, ..settings() }).await;
    for (tests, right, wrong) in [
        (
            "def test_f(capsys):\n    f()\n    assert capsys.readouterr().out == 'a\\n'",
            "def f(): print('a')",
            "def f(): print('b')",
        ),
        (
            "def test_f(monkeypatch, tmp_path):\n    monkeypatch.setattr('time.time', lambda: 41)\n    \
             monkeypatch.setenv('HOME', str(tmp_path))\n    monkeypatch.chdir(tmp_path)\n    \
             (tmp_path / 'a').write_text('b')\n    assert f() == (41, 'b')\n\
             def test_undone():\n    import time\n    assert time.time() != 41 and f",
            "import os, time\ndef f(): return time.time(), open(os.environ['HOME'] + '/a').read()",
            "import time\ndef f(): return time.time(), ''",
        ),
        (
            "import pytest\ndef test_f():\n    with pytest.warns(UserWarning, match='old'):\n        f()",
            "import warnings\ndef f(): warnings.warn('old')",
            "def f(): pass",
        ),
        (
            "import unittest\nclass TestF(unittest.TestCase):\n    def test_f(self):\n        \
             with self.assertLogs() as logs, self.assertWarns(UserWarning):\n            f()",
            "import logging, warnings\ndef f():\n    logging.error('a')\n    warnings.warn('old')",
            "def f(): pass",
        ),
        (
            "import warnings\nwith warnings.catch_warnings(record=True) as caught:\n    \
             warnings.simplefilter('always')\n    f()\n    assert len(caught) == 1",
            "import warnings\ndef f(): warnings.warn('old')",
            "def f(): pass",
        ),
    ] {
        let task = [json!({ "task_id": "t", "tests": tests })];
        let samples = [right, wrong].map(|code| json!({ "task_id": "t", "solution": code }));
        let results = grade(&lenient, &task, &samples).await;
        let verdicts = [results[0].verdict, results[1].verdict];
        assert_eq!(verdicts, [Verdict::Passed, Verdict::Failed], "{tests}: {results:?}");
        // Kept apart from the tests, no right candidate fails and no wrong one passes.
        let results = grade(&strict, &task, &samples).await;
        assert_ne!(results[0].verdict, Verdict::Failed, "{tests}: {results:?}");
        assert_ne!(results[1].verdict, Verdict::Passed, "{tests}: {results:?}");
    }
}
