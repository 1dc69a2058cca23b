//! Shows the progress of a batch: as a bar, as lines for people, or as JSON for programs.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use batch::{Ending, Error, Event, Shard, Summary, Tally, count_lines};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use super::clock::now;
use crate::args::ProgressForm;
use crate::terminal;

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

/// What observes a batch.
type Observe = Box<dyn FnMut(Event<'_>)>;

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

    /// Runs a batch, to which it gives what observes it, and shows how far that is.
    pub(super) async fn following<B>(
        mut self,
        run: impl FnOnce(Observe) -> B,
    ) -> Result<Summary, Error>
    where
        B: Future<Output = Result<Summary, Error>>,
    {
        let tally = Rc::new(Cell::new(Tally::default()));
        let observe = observer(Rc::clone(&tally), self.total.clone());
        let mut running = std::pin::pin!(run(observe));
        let summary = loop {
            tokio::select! {
                summary = &mut running => break summary,
                () = self.due() => self.show(&tally.get(), false),
            }
        };
        // Whoever no longer reads results reads no progress.
        if !matches!(summary, Err(Error::Write(_))) {
            self.show(&tally.get(), true);
        }
        summary
    }

    /// Waits until the next update is due. Cancel-safe.
    async fn due(&mut self) {
        match self.form {
            Form::Nothing => std::future::pending().await,
            _ => self.interval.tick().await,
        };
    }

    /// Shows how far the batch is, or how it has ended.
    fn show(&self, tally: &Tally, is_over: bool) {
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

/// Returns what keeps the tally of a batch and its exact total, and reports what couldn't be kept.
fn observer(latest: Rc<Cell<Tally>>, total: Total) -> Observe {
    Box::new(move |event| match event {
        Event::Done { tally, .. } => latest.set(*tally),
        Event::AllRead { lines } => total.0.store(lines, Ordering::Relaxed),
        Event::NotKept { id, problem } => {
            terminal::error(format_args!("line with id {id}: {problem}"));
        }
        _ => {}
    })
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
            if let Ok(count) = count_lines(&jobs, shard) {
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
        let ended = self.tally.done() - self.tally.earlier();
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
        let counts = Ending::ALL.into_iter().map(|ending| (ending, self.tally.of(ending)));
        let some = counts.filter(|(ending, count)| *count > 0 || *ending == Ending::Succeeded);
        let name = |ending| match ending {
            Ending::Malformed => "invalid".to_owned(),
            ending => ending.name().replace('_', " "),
        };
        let mut parts: Vec<String> =
            some.map(|(ending, count)| format!("{count} {}", name(ending))).collect();
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
            "earlier": self.tally.earlier(),
            "elapsed_seconds": self.elapsed.as_secs_f64(),
            "jobs_per_second": self.rate(),
            "left_seconds": self.left().map(|left| left.as_secs_f64()),
            "is_over": self.is_over,
        });
        for ending in Ending::ALL {
            value[ending.name()] = self.tally.of(ending).into();
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the tally of five lines, of which this many ended in an earlier run.
    fn tally(earlier: usize) -> Tally {
        use Ending::{Limited, Malformed, Refused, Succeeded};
        let mut tally = Tally::default();
        for (place, ending) in
            [Succeeded, Succeeded, Limited, Refused, Malformed].into_iter().enumerate()
        {
            if place < earlier { tally.count_earlier(ending) } else { tally.count(ending) }
        }
        tally
    }

    fn state(tally: &Tally, total: Option<u64>) -> State<'_> {
        State { tally, total, elapsed: Duration::from_secs(2), is_over: false }
    }

    #[test]
    fn a_line_has_the_kinds_of_endings_the_rate_and_the_time_that_is_left() {
        let tally = tally(0);
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
        let tally = tally(3);
        let value = state(&tally, Some(6)).json();
        assert_eq!((&value["jobs_per_second"], &value["left_seconds"]), (&json!(1.0), &json!(1.0)));
        assert_eq!((&value["done"], &value["succeeded"]), (&json!(5), &json!(2)));
    }
}
