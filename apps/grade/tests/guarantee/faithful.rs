//! Texts of tests for which two interpreters must do what one does: `faithful.py` has each with a right
//! program, and a wrong one that only differs in what could be lost on the way. Cases that no judge apart
//! from the candidate can decide are undecided, neither passed nor failed.

use grade::{Settings, Verdict};
use serde_json::json;

use crate::{grade, grader, settings};

#[tokio::test(flavor = "multi_thread")]
async fn two_interpreters_do_what_one_does_or_say_that_they_cannot() {
    let grader = grader(Settings { cpu_time: std::time::Duration::from_secs(10), ..settings() });
    let grader = grader.await;
    let (mut tasks, mut samples, mut expected) = (Vec::new(), Vec::new(), Vec::new());
    let text = format!("\n{}", include_str!("faithful.py"));
    for (is_decided, case) in text.split("\n# case: ").skip(1).flat_map(|case| {
        let mut parts = case.split("\n# undecided: ");
        let first = parts.next().map(|part| (true, part));
        first.into_iter().chain(parts.map(|part| (false, part)))
    }) {
        let (name, rest) = case.split_once('\n').unwrap();
        let (tests, programs) = rest.split_once("\n# right\n").unwrap();
        let (right, wrong) = match programs.split_once("\n# wrong\n") {
            Some((right, wrong)) => (right, Some(wrong)),
            None => (programs, None),
        };
        tasks.push(json!({ "task_id": name, "tests": tests }));
        let of_right = if is_decided { Verdict::Passed } else { Verdict::Undecided };
        let programs = [Some((right, of_right)), wrong.map(|wrong| (wrong, Verdict::Failed))];
        for (program, verdict) in programs.into_iter().flatten() {
            samples.push(json!({ "task_id": name, "solution": program }));
            expected.push(verdict);
        }
    }
    let results = grade(&grader, &tasks, &samples).await;
    assert_eq!(results.len(), expected.len());
    let mut wrong = Vec::new();
    for (graded, verdict) in results.iter().zip(expected) {
        let is_undecided = verdict == Verdict::Undecided;
        if graded.verdict != verdict || !graded.guarded || graded.credit().is_none() != is_undecided
        {
            wrong.push(format!("{verdict:?}: {graded:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
