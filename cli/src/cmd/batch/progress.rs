//! Shows the progress of a batch: as a bar, as lines for people, or as JSON for programs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use batch::{Ending, Error, Event, Pace, Shard, Summary, Tally, count_lines};
use indicatif::ProgressBar;
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

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
type Observe = Box<dyn FnMut(Event<'_>) + Send>;

/// The number of lines that get a result; 0 until they have been counted.
type Total = Arc<AtomicU64>;

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
            ProgressForm::Auto | ProgressForm::Bar => {
                (Form::Bar(terminal::bar("{pos}/{len} {wide_bar} {msg}", None)), BAR_EVERY)
            }
            ProgressForm::Lines => (Form::Lines, LINE_EVERY),
            ProgressForm::Json => (Form::Json, JSON_EVERY),
            ProgressForm::None => (Form::Nothing, LINE_EVERY),
        };
        let total = Total::default();
        if !matches!(form, Form::Nothing) {
            count(&total, jobs, shard);
        }
        let mut interval = interval(every);
        interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
        interval.reset();
        Self { form, interval, began: Instant::now(), total }
    }

    /// Runs a batch, to which it gives what observes it, and shows how far that is.
    pub(super) async fn following<B>(
        mut self,
        run: impl FnOnce(Observe) -> B,
    ) -> Result<Summary, Error>
    where
        B: Future<Output = Result<Summary, Error>>,
    {
        let (latest, tally) = watch::channel(Tally::default());
        let observe = observer(latest, self.total.clone());
        let mut running = std::pin::pin!(run(observe));
        let summary = loop {
            tokio::select! {
                summary = &mut running => break summary,
                () = self.due() => self.show(*tally.borrow(), false),
            }
        };
        // A reader that is gone reads no progress either.
        if !matches!(summary, Err(Error::Write(_))) {
            self.show(*tally.borrow(), true);
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
    fn show(&self, tally: Tally, is_over: bool) {
        let total = Some(self.total.load(Ordering::Relaxed)).filter(|total| *total > 0);
        let pace = Pace { tally, total, elapsed: self.began.elapsed(), is_over };
        match &self.form {
            // The summary at the end of every batch takes its place.
            Form::Bar(bar) if is_over => bar.finish_and_clear(),
            Form::Bar(bar) => {
                match pace.total {
                    Some(total) => bar.set_length(total),
                    None => bar.unset_length(),
                }
                bar.set_position(tally.done() as u64);
                bar.set_message(details(&pace));
            }
            Form::Lines => terminal::error(line(&pace)),
            Form::Json => terminal::say(&format!("{}\n", pace.json())),
            Form::Nothing => {}
        }
    }
}

/// Returns what keeps the tally of a batch and its exact total, and reports what couldn't be kept.
fn observer(latest: watch::Sender<Tally>, total: Total) -> Observe {
    Box::new(move |event| match event {
        Event::Done { tally, .. } => {
            latest.send_replace(*tally);
        }
        Event::AllRead(lines) => total.store(lines, Ordering::Relaxed),
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

/// Counts the lines of a file on another thread. A stream can't be read twice.
fn count(total: &Total, jobs: &Path, shard: Option<Shard>) {
    if !jobs.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return;
    }
    let (total, jobs) = (Arc::clone(total), jobs.to_owned());
    tokio::task::spawn_blocking(move || {
        if let Ok(count) = count_lines(&jobs, shard) {
            // If the batch has read all lines meanwhile, its own count stands.
            let _ = total.compare_exchange(0, count, Ordering::Relaxed, Ordering::Relaxed);
        }
    });
}

/// Formats a line for people.
fn line(pace: &Pace) -> String {
    let done = match pace.total {
        Some(total) => format!("{} of {total} done", pace.tally.done()),
        None => format!("{} done", pace.tally.done()),
    };
    format!("{done}: {}", details(pace))
}

/// Lists the endings, the rate and the remaining time.
fn details(pace: &Pace) -> String {
    let counts = Ending::ALL.iter().map(|&ending| (ending, pace.tally.of(ending)));
    let some = counts.filter(|(ending, count)| *count > 0 || *ending == Ending::Succeeded);
    let name = |ending| match ending {
        Ending::Malformed => "invalid".to_owned(),
        ending => ending.name().replace('_', " "),
    };
    let mut parts: Vec<String> =
        some.map(|(ending, count)| format!("{count} {}", name(ending))).collect();
    parts.extend(pace.rate().map(|rate| format!("{rate:.1}/s")));
    if !pace.is_over {
        let whole = |left: Duration| Duration::from_secs(left.as_secs());
        let left = pace.left().map(|left| humantime::format_duration(whole(left)));
        parts.extend(left.map(|left| format!("{left} left")));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_kinds_of_endings_the_rate_and_the_time_that_is_left() {
        use Ending::{Limited, Malformed, Refused, Succeeded};
        let mut tally = Tally::default();
        for ending in [Succeeded, Succeeded, Limited, Refused, Malformed] {
            tally.count(ending);
        }
        let of = |tally, total| {
            line(&Pace { tally, total, elapsed: Duration::from_secs(2), is_over: false })
        };
        assert_eq!(
            of(tally, Some(30)),
            "5 of 30 done: 2 succeeded, 1 limited, 1 refused, 1 invalid, 2.5/s, 10s left"
        );
        assert_eq!(of(tally, None), "5 done: 2 succeeded, 1 limited, 1 refused, 1 invalid, 2.5/s");
        assert_eq!(of(Tally::default(), Some(30)), "0 of 30 done: 0 succeeded");
    }
}
