//! The report on all results, as JSON and HTML: pass@k with intervals, partial credit, and the
//! worst tasks.

use std::collections::BTreeMap;
use std::fmt::Write;

use hatchery::error::counted;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::verdict::{Graded, Verdict};

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
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
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
            *verdicts.entry(verdict(graded)).or_default() += 1;
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
                "{} undecided or of a task that can't be graded; no estimate includes them",
                counted(undecided as usize, "sample")
            ));
        }
        if self.unguarded > 0 {
            lines.push(format!(
                "{} unguarded: their tests ran in their own interpreters",
                counted(self.unguarded, "sample")
            ));
        }
        lines.join("\n")
    }

    /// Returns the report with its results as a page of HTML that needs no other file.
    pub fn html(&self, title: &str, results: &[Graded]) -> String {
        let mut page = String::new();
        let title = escaped(title);
        // Writing to a text can't fail.
        let _ = write!(
            page,
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
             <style>{STYLE}</style></head><body><h1>{title}</h1>\n<table>\n"
        );
        let mut row = |name: &str, value: &str| {
            let (name, value) = (escaped(name), escaped(value));
            let _ = writeln!(page, "<tr><th>{name}</th><td>{value}</td></tr>");
        };
        row("Tasks", &self.tasks.to_string());
        row("Samples", &self.samples.to_string());
        for (name, count) in &self.verdicts {
            row(name, &count.to_string());
        }
        for (k, estimate) in &self.pass_at {
            row(&format!("pass@{k}, 95 % interval"), &shown(estimate));
        }
        if let Some(credit) = &self.credit {
            row("Tests passed, mean over tasks", &shown(credit));
        }
        if self.unguarded > 0 {
            row("Unguarded samples", &self.unguarded.to_string());
        }
        row("CPU time of samples", &format!("{:.1} s", self.cpu_seconds));
        row("CPU time of tests", &format!("{:.1} s", self.tests_cpu_seconds));
        page.push_str(
            "</table>\n<h2>Samples</h2>\n<table>\n<tr><th>Task</th><th class=\"number\">Sample\
            </th><th>Verdict</th><th class=\"number\">Tests</th><th class=\"number\">CPU</th>\
            <th>Failures</th></tr>\n",
        );
        results.iter().for_each(|graded| sample(&mut page, graded));
        page.push_str("</table>\n</body></html>\n");
        page
    }
}

/// Returns a verdict, with the limit if it is one.
fn verdict(Graded { verdict, limit, .. }: &Graded) -> String {
    limit.as_ref().map_or_else(|| verdict.name().to_owned(), |limit| format!("limit: {limit}"))
}

impl TaskReport {
    /// Returns how many of its samples are decided.
    pub fn decided(&self) -> u64 {
        self.samples - self.undecided
    }
}

/// Returns pass@k over the tasks with k decided samples; `None` if a task has fewer samples.
fn pass_at(tasks: &[TaskReport], k: u64) -> Option<Estimate> {
    if k == 0 || tasks.iter().any(|task| task.samples < k) {
        return None;
    }
    let decided: Vec<&TaskReport> = tasks.iter().filter(|task| task.decided() >= k).collect();
    if k == 1 && !decided.is_empty() && decided.iter().all(|task| task.decided() == 1) {
        let passed = decided.iter().map(|task| task.passed).sum();
        return Some(wilson(passed, decided.len() as u64));
    }
    let each = decided.iter().map(|task| pass_at_k(task.decided(), task.passed, k));
    bootstrap(&each.collect::<Vec<f64>>())
}

/// Returns an estimate with its interval, in percent.
fn shown(estimate: &Estimate) -> String {
    let Estimate { value, low, high, .. } = estimate;
    let [value, low, high] = [value, low, high].map(|part| part * 100.0);
    format!("{value:.1} % [{low:.1}, {high:.1}]")
}

/// Returns what each task's results say, in the order in which tasks come first.
fn by_task(results: &[Graded]) -> Vec<TaskReport> {
    let mut tasks: IndexMap<&str, TaskReport> = IndexMap::new();
    for graded in results {
        let task = tasks.entry(&graded.task_id).or_default();
        task.task_id.clone_from(&graded.task_id);
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
    let with_mean = |task: TaskReport| {
        let credit = task.credit.map(|credit| credit / task.decided() as f64);
        TaskReport { credit, ..task }
    };
    tasks.into_values().map(with_mean).collect()
}

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;\
padding:0 1rem;color:#222;background:#fff}h1{font-size:1.4rem}table{border-collapse:collapse;\
width:100%;margin:1rem 0}th,td{text-align:left;padding:.25rem .6rem;border-bottom:1px solid #ddd;\
vertical-align:top}td.number,th.number{text-align:right;font-variant-numeric:tabular-nums}\
.passed{color:#176b2c}.failed,.error,.task_error{color:#a11616}.limit,.undecided{color:#8a5a00}.sandbox{color:#6b2fa0}\
pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:0;font-size:.85em}\
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}th,td{border-color:#444}\
.passed{color:#6fce87}.failed,.error,.task_error{color:#ff8f8f}.limit,.undecided{color:#e5b45e}.sandbox{color:#c79df2}}";

fn sample(page: &mut String, graded: &Graded) {
    let (name, verdict) = (graded.verdict.name(), verdict(graded));
    let guard = if graded.guarded { "" } else { " (unguarded)" };
    let _ = write!(
        page,
        "<tr><td>{}</td><td class=\"number\">{}</td><td class=\"{name}\">{}{guard}</td>\
         <td class=\"number\">{}/{}</td><td class=\"number\">{:.1} ms</td><td>",
        escaped(&graded.task_id),
        graded.sample,
        escaped(&verdict),
        graded.tests_passed,
        graded.tests_total,
        graded.cpu_ms,
    );
    if graded.failures.is_empty() {
        let _ = write!(page, "<pre>{}</pre>", escaped(&graded.message));
    } else {
        let _ = write!(page, "<details><summary>{}</summary>", escaped(&graded.message));
        for failure in &graded.failures {
            let (test, message) = (escaped(&failure.test), escaped(&failure.message));
            let _ = write!(page, "<pre>{test}: {message}</pre>");
        }
        page.push_str("</details>");
    }
    page.push_str("</td></tr>\n");
}

fn escaped(text: &str) -> String {
    // Other control characters have no meaning in HTML.
    let is_other = |character: char| character.is_control() && !"\n\t".contains(character);
    let escaped = text.replace(is_other, "\u{fffd}").replace('&', "&amp;");
    escaped.replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

// pass@k and its interval.
//
// pass@k is the unbiased estimator of Chen et al., "Evaluating Large Language Models Trained on Code"
// (2021). If c of n samples pass, a task has `1 - C(n - c, k) / C(n, k)`, and the estimate is the mean
// over tasks. With one sample of each task, pass@1 is a proportion, whose 95 % interval is Wilson's score
// interval (Wilson 1927). Otherwise it is the percentile bootstrap over tasks (Efron 1979).

/// Bootstrap resamples: the ends of an interval then vary by less than a hundredth of its width.
const RESAMPLES: usize = 10_000;

/// Half of what a 95 % interval leaves out.
const TAIL: f64 = 0.025;

/// The quantile of the normal distribution for a 95 % interval.
const Z: f64 = 1.959_963_984_540_054;

/// An estimate with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end.
    pub high: f64,
    /// How the interval was computed.
    pub method: Method,
}

/// How an interval was computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Method {
    /// Wilson's score interval.
    Wilson,
    /// The percentile bootstrap over tasks.
    Bootstrap,
}

/// Returns the estimate of pass@k for one task: how likely one of k of its samples passes.
fn pass_at_k(total: u64, passed: u64, k: u64) -> f64 {
    let failed = total.saturating_sub(passed);
    if failed < k {
        return 1.0;
    }
    let none = (failed + 1..=total).map(|number| 1.0 - k as f64 / number as f64);
    1.0 - none.product::<f64>()
}

/// Returns a proportion with Wilson's score interval. `total` isn't 0.
fn wilson(passed: u64, total: u64) -> Estimate {
    let (n, p) = (total as f64, passed as f64 / total as f64);
    let spread = Z * Z / n;
    let centre = (p + spread / 2.0) / (1.0 + spread);
    let half = Z / (1.0 + spread) * (p * (1.0 - p) / n + spread / (4.0 * n)).sqrt();
    let (low, high) = ((centre - half).max(0.0), (centre + half).min(1.0));
    Estimate { value: p, low, high, method: Method::Wilson }
}

/// Returns the mean of values with its percentile bootstrap interval; `None` without values. The same
/// values give the same interval.
fn bootstrap(values: &[f64]) -> Option<Estimate> {
    if values.is_empty() {
        return None;
    }
    let n = values.len() as f64;
    let value = values.iter().sum::<f64>() / n;
    let mut random = fastrand::Rng::with_seed(0);
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| values.iter().map(|_| values[random.usize(..values.len())]).sum::<f64>() / n)
        .collect();
    means.sort_by(f64::total_cmp);
    let at = |part: f64| means[((RESAMPLES - 1) as f64 * part).round() as usize];
    Some(Estimate { value, low: at(TAIL), high: at(1.0 - TAIL), method: Method::Bootstrap })
}

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
            lines.push(format!("only in one file: {}", counted(self.unpaired, "task")));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pass_at_k_is_the_share_of_subsets_with_a_pass() {
        for total in 1..8_u64 {
            for passed in 0..=total {
                for k in 1..=total {
                    let subsets =
                        (0_u32..1 << total).filter(|set| u64::from(set.count_ones()) == k);
                    let (mut all, mut with) = (0.0, 0.0);
                    for set in subsets {
                        all += 1.0;
                        with += f64::from(u8::from(set & ((1 << passed) - 1) != 0));
                    }
                    let estimated = pass_at_k(total, passed, k);
                    assert!((estimated - with / all).abs() < 1e-12, "{total} {passed} {k}");
                }
            }
        }
    }

    #[test]
    fn wilsons_interval_is_that_of_published_examples() {
        // Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
        for (passed, total, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            let found = wilson(passed, total);
            assert!((found.low - low).abs() < 1e-4, "{found:?}");
            assert!((found.high - high).abs() < 1e-4, "{found:?}");
        }
    }

    #[test]
    fn a_bootstrap_is_near_the_normal_interval_and_repeatable() {
        let values: Vec<f64> = (0..400).map(|place| f64::from(u8::from(place % 4 == 0))).collect();
        let found = bootstrap(&values).unwrap();
        let half = Z * (0.25 * 0.75 / 400.0_f64).sqrt();
        assert_eq!(found.value, 0.25);
        assert!((found.low - (0.25 - half)).abs() < 0.005, "{found:?}");
        assert!((found.high - (0.25 + half)).abs() < 0.005, "{found:?}");
        assert_eq!(bootstrap(&values), Some(found));
    }

    #[test]
    fn an_estimate_needs_k_samples_of_each_task() {
        let of = |samples, passed| TaskReport { samples, passed, ..TaskReport::default() };
        let tasks = [of(3, 1), of(2, 2)];
        assert!(pass_at(&tasks, 2).is_some_and(|found| found.method == Method::Bootstrap));
        assert!(pass_at(&[of(1, 1)], 1).is_some_and(|found| found.method == Method::Wilson));
        assert_eq!([pass_at(&tasks, 3), pass_at(&tasks, 0), pass_at(&[], 1)], [None; 3]);
    }
}
