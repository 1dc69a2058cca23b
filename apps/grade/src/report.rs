//! What results say together: pass@k with intervals, partial credit, and the worst tasks; as JSON and
//! as a page of HTML.

use std::collections::BTreeMap;

use hatchery::error::counted;
use serde::Serialize;

use crate::statistics::{Count, Estimate, bootstrap, estimate};
use crate::verdict::{Graded, Verdict};

mod html;

/// What results say together.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Tasks with samples.
    pub tasks: usize,
    /// Samples.
    pub samples: usize,
    /// Samples by verdict, and `limit` by limit.
    pub verdicts: BTreeMap<String, usize>,
    /// pass@k for each k for which there are enough samples of every task. Tasks with fewer than k
    /// decided samples are left out.
    pub pass_at: BTreeMap<u64, Estimate>,
    /// The mean part of tests that pass, over tasks.
    pub credit: Option<Estimate>,
    /// Samples whose tests ran beside them, unguarded.
    pub unguarded: usize,
    /// The candidates' CPU time in all, in seconds.
    pub cpu_seconds: f64,
    /// CPU time of tests in all, in seconds.
    pub tests_cpu_seconds: f64,
    /// Each task.
    pub by_task: Vec<TaskReport>,
}

/// What the results of one task say together.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TaskReport {
    /// The task.
    pub task_id: String,
    /// Its samples.
    pub samples: u64,
    /// Those that are undecided or of a task that can't be graded, which count neither for nor against.
    pub undecided: u64,
    /// Those that passed.
    pub passed: u64,
    /// The mean part of its tests that pass; `None` if all samples are undecided.
    pub credit: Option<f64>,
    /// What the first sample that didn't pass ended with.
    pub message: String,
}

impl Report {
    /// Sums up results, with pass@k for these k.
    pub fn new(results: &[Graded], ks: &[u64]) -> Self {
        let mut verdicts = BTreeMap::new();
        for graded in results {
            let name = match &graded.limit {
                Some(limit) => format!("limit: {limit}"),
                None => graded.verdict.name().to_owned(),
            };
            *verdicts.entry(name).or_default() += 1;
        }
        let by_task = by_task(results);
        let credits: Vec<f64> = by_task.iter().filter_map(|task| task.credit).collect();
        let pass_at = ks.iter().filter_map(|&k| Some((k, pass_at(&by_task, k)?)));
        let seconds = |of: fn(&Graded) -> f64| results.iter().map(of).sum::<f64>() / 1e3;
        Self {
            tasks: by_task.len(),
            samples: results.len(),
            verdicts,
            pass_at: pass_at.collect(),
            credit: bootstrap(&credits),
            unguarded: results.iter().filter(|graded| !graded.guarded).count(),
            cpu_seconds: seconds(|graded| graded.cpu_ms),
            tests_cpu_seconds: seconds(|graded| graded.tests_cpu_ms),
            by_task,
        }
    }

    /// Returns the report as lines for a terminal.
    pub fn text(&self) -> String {
        let mut lines =
            vec![format!("{}, {}", counted(self.tasks, "task"), counted(self.samples, "sample"))];
        let verdicts: Vec<String> =
            self.verdicts.iter().map(|(name, count)| format!("{count} {name}")).collect();
        lines.push(verdicts.join(", "));
        for (k, estimate) in &self.pass_at {
            lines.push(format!("pass@{k}  {}", shown(estimate)));
        }
        if let Some(credit) = &self.credit {
            lines.push(format!("credit  {}", shown(credit)));
        }
        let undecided: u64 = self.by_task.iter().map(|task| task.undecided).sum();
        if undecided > 0 {
            lines.push(format!(
                "{} undecided or of a task that can't be graded: left out of all estimates",
                counted(undecided as usize, "sample")
            ));
        }
        if self.unguarded > 0 {
            lines.push(format!(
                "{} unguarded: their tests ran beside them",
                counted(self.unguarded, "sample")
            ));
        }
        lines.join("\n")
    }

    /// Returns the report with its results as a page of HTML that needs no other file.
    pub fn html(&self, title: &str, results: &[Graded]) -> String {
        html::page(self, title, results)
    }
}

impl TaskReport {
    /// Returns how many of its samples are decided.
    pub fn decided(&self) -> u64 {
        self.samples - self.undecided
    }
}

/// Returns pass@k over the tasks with k decided samples; `None` if a task has fewer samples.
fn pass_at(tasks: &[TaskReport], k: u64) -> Option<Estimate> {
    if tasks.iter().any(|task| task.samples < k) {
        return None;
    }
    let decided = tasks.iter().filter(|task| task.decided() >= k);
    let counts: Vec<Count> = decided.map(|task| Count::new(task.decided(), task.passed)).collect();
    estimate(&counts, k)
}

/// Returns an estimate with its interval, in percent.
pub(crate) fn shown(estimate: &Estimate) -> String {
    let Estimate { value, low, high, .. } = estimate;
    let [value, low, high] = [value, low, high].map(|part| part * 100.0);
    format!("{value:.1} % [{low:.1}, {high:.1}]")
}

/// Returns what each task's results say, in the order in which tasks come first.
pub(crate) fn by_task(results: &[Graded]) -> Vec<TaskReport> {
    let mut places = BTreeMap::new();
    let mut tasks: Vec<TaskReport> = Vec::new();
    for graded in results {
        let place = *places.entry(graded.task_id.as_str()).or_insert_with(|| {
            tasks.push(TaskReport {
                task_id: graded.task_id.clone(),
                samples: 0,
                undecided: 0,
                passed: 0,
                credit: None,
                message: String::new(),
            });
            tasks.len() - 1
        });
        let task = &mut tasks[place];
        task.samples += 1;
        task.passed += u64::from(graded.passed());
        match graded.credit() {
            Some(credit) => task.credit = Some(task.credit.unwrap_or_default() + credit),
            None => task.undecided += 1,
        }
        if graded.verdict != Verdict::Passed && task.message.is_empty() {
            task.message = graded.message.clone();
        }
    }
    for task in &mut tasks {
        let decided = task.decided() as f64;
        task.credit = task.credit.map(|credit| credit / decided);
    }
    tasks
}
