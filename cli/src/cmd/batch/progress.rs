//! Shows the progress of a batch: as a bar, as lines for people, or as JSON for programs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use super::clock::now;
use super::results::Tally;
use crate::args::ProgressForm;
use crate::shard::Shard;
use crate::{lines, terminal};

/// How often each form is updated.
const BAR_EVERY: Duration = Duration::from_millis(200);
const LINE_EVERY: Duration = Duration::from_secs(10);
const JSON_EVERY: Duration = Duration::from_secs(1);

/// Shows the progress of a batch until it is dropped.
pub(super) struct Progress {
    form: Form,
    interval: Interval,
    began: Instant,
    total: Total,
}

enum Form {
    Bar(ProgressBar),
    Lines,
    Json,
    Nothing,
}

/// The number of lines that get a result; 0 until they have been counted.
#[derive(Clone, Default)]
struct Total(Arc<AtomicU64>);

impl Progress {
    /// Starts showing the progress of a batch.
    pub(super) fn begin(
        form: ProgressForm,
        jobs: &Path,
        has_out: bool,
        shard: Option<Shard>,
    ) -> Self {
        let (form, every) = match form {
            ProgressForm::Auto if !suits_bar(has_out) => (Form::Nothing, LINE_EVERY),
            ProgressForm::Auto | ProgressForm::Bar => (Form::Bar(bar()), BAR_EVERY),
            ProgressForm::Lines => (Form::Lines, LINE_EVERY),
            ProgressForm::Json => (Form::Json, JSON_EVERY),
            ProgressForm::None => (Form::Nothing, LINE_EVERY),
        };
        let total = Total::default();
        if !matches!(form, Form::Nothing) {
            total.count(jobs, shard);
        }
        let mut interval = interval(every);
        interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
        interval.reset();
        Self { form, interval, began: now(), total }
    }

    /// Sets the exact total once all lines have been read.
    pub(super) fn set_total(&self, lines: u64) {
        self.total.0.store(lines, Ordering::Relaxed);
    }

    /// Waits until the next update is due. Cancel-safe.
    pub(super) async fn due(&mut self) {
        match self.form {
            Form::Nothing => std::future::pending().await,
            _ => self.interval.tick().await,
        };
    }

    /// Shows how far the batch is, or how it has ended.
    pub(super) fn show(&self, tally: &Tally, is_over: bool) {
        let total = Some(self.total.0.load(Ordering::Relaxed)).filter(|total| *total > 0);
        let state = State { tally, total, elapsed: now() - self.began, is_over };
        match &self.form {
            // The summary at the end of every batch takes its place.
            Form::Bar(bar) if is_over => bar.finish_and_clear(),
            Form::Bar(bar) => {
                match state.total {
                    Some(total) => bar.set_length(total),
                    None => bar.unset_length(),
                }
                bar.set_position(state.done());
                bar.set_message(state.details());
            }
            Form::Lines => terminal::error(state.line()),
            Form::Json => terminal::say(&format!("{}\n", state.json())),
            Form::Nothing => {}
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Form::Bar(bar) = &self.form {
            bar.finish_and_clear();
        }
    }
}

/// Returns whether a bar would be visible, and not be torn by results.
fn suits_bar(has_out: bool) -> bool {
    use std::io::IsTerminal;
    let is_free = has_out || !std::io::stdout().is_terminal();
    std::io::stderr().is_terminal() && is_free && !terminal::is_quiet()
}

fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{pos}/{len} {wide_bar} {msg}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    terminal::bars().add(ProgressBar::no_length().with_style(style))
}

impl Total {
    /// Counts the lines of a file on another thread. A stream can't be read twice.
    fn count(&self, jobs: &Path, shard: Option<Shard>) {
        if !jobs.metadata().is_ok_and(|metadata| metadata.is_file()) {
            return;
        }
        let (total, jobs) = (self.clone(), jobs.to_owned());
        tokio::task::spawn_blocking(move || {
            let is_counted = |line: &[u8]| shard.is_none_or(|shard| shard.has(line));
            if let Ok(count) = lines::count(&jobs, is_counted) {
                // If the batch has read all lines meanwhile, its own count stands.
                let _ = total.0.compare_exchange(0, count, Ordering::Relaxed, Ordering::Relaxed);
            }
        });
    }
}

/// A snapshot of the progress.
struct State<'a> {
    tally: &'a Tally,
    /// `None` while it isn't known.
    total: Option<u64>,
    elapsed: Duration,
    is_over: bool,
}

impl State<'_> {
    fn done(&self) -> u64 {
        self.tally.done() as u64
    }

    /// Returns the jobs that ended in this run per second; `None` before the first.
    fn rate(&self) -> Option<f64> {
        let ended = self.tally.done() - self.tally.earlier;
        let seconds = self.elapsed.as_secs_f64();
        (ended > 0 && seconds > 0.0).then(|| ended as f64 / seconds)
    }

    /// Estimates the remaining time at the current rate.
    fn left(&self) -> Option<Duration> {
        let rest = self.total?.saturating_sub(self.done());
        Duration::try_from_secs_f64(rest as f64 / self.rate()?).ok()
    }

    /// Formats a line for people.
    fn line(&self) -> String {
        let done = match self.total {
            Some(total) => format!("{} of {total} done", self.done()),
            None => format!("{} done", self.done()),
        };
        format!("{done}: {}", self.details())
    }

    /// Lists the endings, the rate and the remaining time.
    fn details(&self) -> String {
        let named = self.tally.endings().chain([("invalid", self.tally.malformed)]);
        let some = named.filter(|(name, count)| *count > 0 || *name == "succeeded");
        let mut parts: Vec<String> =
            some.map(|(name, count)| format!("{count} {}", name.replace('_', " "))).collect();
        parts.extend(self.rate().map(|rate| format!("{rate:.1}/s")));
        if !self.is_over {
            let whole = |left: Duration| Duration::from_secs(left.as_secs());
            let left = self.left().map(|left| humantime::format_duration(whole(left)));
            parts.extend(left.map(|left| format!("{left} left")));
        }
        parts.join(", ")
    }

    fn json(&self) -> Value {
        let mut value = json!({
            "done": self.done(),
            "total": self.total,
            "malformed": self.tally.malformed,
            "earlier": self.tally.earlier,
            "elapsed_seconds": self.elapsed.as_secs_f64(),
            "jobs_per_second": self.rate(),
            "left_seconds": self.left().map(|left| left.as_secs_f64()),
            "is_over": self.is_over,
        });
        for (name, count) in self.tally.endings() {
            value[name] = count.into();
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::batch::results::Ending;

    fn tally() -> Tally {
        let mut tally = Tally { malformed: 1, ..Tally::default() };
        for ending in [Ending::Succeeded, Ending::Succeeded, Ending::Limited, Ending::Refused] {
            tally.count(ending);
        }
        tally
    }

    fn state(tally: &Tally, total: Option<u64>) -> State<'_> {
        State { tally, total, elapsed: Duration::from_secs(2), is_over: false }
    }

    #[test]
    fn a_line_has_the_kinds_of_endings_the_rate_and_the_time_that_is_left() {
        let tally = tally();
        let line = state(&tally, Some(30)).line();
        assert_eq!(
            line,
            "5 of 30 done: 2 succeeded, 1 limited, 1 refused, 1 invalid, 2.5/s, 10s left"
        );
        let line = state(&tally, None).line();
        assert_eq!(line, "5 done: 2 succeeded, 1 limited, 1 refused, 1 invalid, 2.5/s");
    }

    #[test]
    fn nothing_is_estimated_before_a_job_ended() {
        let tally = Tally::default();
        let state = state(&tally, Some(30));
        assert_eq!(state.line(), "0 of 30 done: 0 succeeded");
        assert_eq!(state.json()["left_seconds"], Value::Null);
    }

    #[test]
    fn earlier_results_do_not_count_in_the_rate() {
        let mut tally = tally();
        tally.earlier = 3;
        let value = state(&tally, Some(6)).json();
        assert_eq!((&value["jobs_per_second"], &value["left_seconds"]), (&json!(1.0), &json!(1.0)));
        assert_eq!((&value["done"], &value["succeeded"]), (&json!(5), &json!(2)));
    }
}
