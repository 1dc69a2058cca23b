//! Two sets of results side by side: a leaderboard line for each, the paired difference, and the tasks
//! that changed.

use std::collections::BTreeMap;

use hatchery::error::counted;
use serde::Serialize;

use crate::report::{Report, TaskReport, by_task, shown};
use crate::statistics::{Estimate, bootstrap};
use crate::verdict::Graded;

/// Tasks that a text lists.
const MOST_LISTED: usize = 20;

/// Two sets of results side by side.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Comparison {
    /// A name and pass@1 of each.
    pub lines: [(String, Option<Estimate>); 2],
    /// Tasks of which both have decided samples.
    pub tasks: usize,
    /// Tasks of which only one of them has any. They don't count towards the difference.
    pub unpaired: usize,
    /// The mean over tasks of how much more often the second passes, with its interval: the percentile
    /// bootstrap over pairs.
    pub difference: Option<Estimate>,
    /// Tasks on which the second passes more often, and less often.
    pub changed: [Vec<Change>; 2],
}

/// A task on which two sets of results differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Change {
    /// The task.
    pub task_id: String,
    /// The part of samples that pass, in the first and in the second.
    pub rates: [f64; 2],
}

impl Comparison {
    /// Compares two sets of results.
    pub fn new(first: (&str, &[Graded]), second: (&str, &[Graded])) -> Self {
        let line = |(name, results): (&str, &[Graded])| {
            (name.to_owned(), Report::new(results, &[1]).pass_at.get(&1).copied())
        };
        let (rates, others) = (rates(first.1), rates(second.1));
        let paired: Vec<(&String, [f64; 2])> = rates
            .iter()
            .filter_map(|(task, &rate)| Some((task, [rate, *others.get(task)?])))
            .collect();
        let differences: Vec<f64> = paired.iter().map(|(_, [one, other])| other - one).collect();
        let with = |is_wanted: fn(f64) -> bool| {
            let wanted = paired.iter().filter(|(_, [one, other])| is_wanted(other - one));
            wanted.map(|(task, rates)| Change { task_id: (*task).clone(), rates: *rates }).collect()
        };
        Self {
            lines: [line(first), line(second)],
            tasks: paired.len(),
            unpaired: rates.len() + others.len() - 2 * paired.len(),
            difference: bootstrap(&differences),
            changed: [with(|difference| difference > 0.0), with(|difference| difference < 0.0)],
        }
    }

    /// Returns the comparison as lines for a terminal.
    pub fn text(&self) -> String {
        let mut lines = Vec::new();
        let width = self.lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        for (name, estimate) in &self.lines {
            let estimate = estimate.as_ref().map_or_else(|| "no results".to_owned(), shown);
            lines.push(format!("{name:width$}  pass@1  {estimate}"));
        }
        if let Some(difference) = &self.difference {
            let [value, low, high] =
                [difference.value, difference.low, difference.high].map(|part| part * 100.0);
            let tasks = counted(self.tasks, "task");
            lines.push(format!(
                "difference  {value:+.1} points [{low:+.1}, {high:+.1}], paired over {tasks}"
            ));
        }
        if self.unpaired > 0 {
            lines.push(format!("only in one of them: {}", counted(self.unpaired, "task")));
        }
        for (sign, changed) in ["better", "worse"].iter().zip(&self.changed) {
            lines.push(format!("{} {sign}", counted(changed.len(), "task")));
            for Change { task_id, rates: [one, other] } in changed.iter().take(MOST_LISTED) {
                lines.push(format!("  {task_id}  {:.0} % -> {:.0} %", one * 100.0, other * 100.0));
            }
            if let Some(more) = changed.len().checked_sub(MOST_LISTED).filter(|more| *more > 0) {
                lines.push(format!("  and {more} more"));
            }
        }
        lines.join("\n")
    }
}

fn rates(results: &[Graded]) -> BTreeMap<String, f64> {
    let decided = by_task(results).into_iter().filter(|task| task.decided() > 0);
    let rate = |task: TaskReport| {
        let rate = task.passed as f64 / task.decided() as f64;
        (task.task_id, rate)
    };
    decided.map(rate).collect()
}
