//! How long jobs took, how many end per second, and what failed last.
//!
//! Recording is a few array writes, cheap enough under a lock; percentiles are computed on request.

use std::collections::VecDeque;
use std::time::Duration;

use engine::Verdict;
use hdrhistogram::Histogram;
use pool::{JobId, SessionId, WorkerId};

use crate::status::{ErrorStatus, LastEnded, Latencies, Percentiles, ProgramErrorStatus};

/// Longer durations are recorded as this one.
const LONGEST: Duration = Duration::from_secs(3600);
/// The finest resolution: a reset takes 70 µs.
const FINEST: Duration = Duration::from_nanos(64);
/// With three digits, four histograms take 900 KiB, of which only written pages are backed.
const DIGITS: u8 = 3;
/// The window over which the rate is measured, in seconds.
const RATE_SECONDS: u64 = 60;
/// How many failures and how many program errors are remembered.
const ERROR_COUNT: usize = 10;
/// How much of an exception's type name and of its message is remembered.
const MOST_TYPE_BYTES: usize = 100;
const MOST_MESSAGE_BYTES: usize = 500;
/// How much of the end of a traceback is.
const MOST_TRACEBACK_BYTES: usize = 4000;

/// What was measured since the scheduler began. Times are relative to that.
#[derive(Debug)]
pub(crate) struct Measures {
    /// From a job's submission to its dispatch.
    pub(crate) queue: DurationHistogram,
    /// Bringing up the state for a job.
    pub(crate) resume: DurationHistogram,
    pub(crate) run: DurationHistogram,
    /// Resetting an interpreter.
    pub(crate) reset: DurationHistogram,
    /// When the last job ended, and how.
    last_ended: Option<(Duration, &'static str)>,
    /// Jobs that ended, in a ring of seconds.
    ended: [Second; RATE_SECONDS as usize],
    /// The last failures, the latest last. Their ages are those of the scheduler when they happened.
    errors: VecDeque<ErrorStatus>,
    /// The last program errors, likewise.
    program_errors: VecDeque<ProgramErrorStatus>,
}

/// The distribution of a duration, in nanoseconds.
#[derive(Debug)]
pub(crate) struct DurationHistogram(Histogram<u64>);

/// Jobs that ended in one second.
#[derive(Debug, Clone, Copy, Default)]
struct Second {
    number: u64,
    count: u64,
}

impl Default for Measures {
    fn default() -> Self {
        Self {
            queue: DurationHistogram::new(),
            resume: DurationHistogram::new(),
            run: DurationHistogram::new(),
            reset: DurationHistogram::new(),
            last_ended: None,
            ended: [Second::default(); RATE_SECONDS as usize],
            errors: VecDeque::with_capacity(ERROR_COUNT),
            program_errors: VecDeque::with_capacity(ERROR_COUNT),
        }
    }
}

impl Measures {
    /// Counts a job that has ended; `how` is the name that `Totals::count` returned.
    pub(crate) fn ended(&mut self, now: Duration, how: &'static str) {
        self.last_ended = Some((now, how));
        let number = now.as_secs();
        let second = &mut self.ended[(number % RATE_SECONDS) as usize];
        if second.number != number {
            *second = Second { number, count: 0 };
        }
        second.count += 1;
    }

    /// Returns how long jobs that have ended took.
    pub(crate) fn latencies(&self) -> Latencies {
        Latencies {
            queue: self.queue.percentiles(),
            resume: self.resume.percentiles(),
            run: self.run.percentiles(),
            reset: self.reset.percentiles(),
        }
    }

    /// Returns the jobs that ended per second in the last minute, or since the start if that is
    /// less.
    pub(crate) fn jobs_per_second(&self, now: Duration) -> f64 {
        let first = (now.as_secs() + 1).saturating_sub(RATE_SECONDS);
        let counts =
            self.ended.iter().filter(|second| (first..=now.as_secs()).contains(&second.number));
        let count: u64 = counts.map(|second| second.count).sum();
        let seconds = now.saturating_sub(Duration::from_secs(first)).as_secs_f64();
        if count == 0 || seconds == 0.0 { 0.0 } else { count as f64 / seconds }
    }

    /// Records a failure of the sandbox or of a worker.
    pub(crate) fn failed(
        &mut self,
        now: Duration,
        job: Option<JobId>,
        worker: Option<WorkerId>,
        session: Option<SessionId>,
        message: String,
    ) {
        push_last(&mut self.errors, ErrorStatus { age: now, job, worker, session, message });
    }

    /// Records an error that ended a program.
    pub(crate) fn program_failed(&mut self, error: ProgramErrorStatus) {
        push_last(&mut self.program_errors, error);
    }

    /// Returns when the last job ended, and how.
    pub(crate) fn last_ended(&self, now: Duration) -> Option<LastEnded> {
        let (at, outcome) = self.last_ended?;
        Some(LastEnded { age: now.saturating_sub(at), outcome })
    }

    /// Returns the last failures, the latest first.
    pub(crate) fn last_errors(&self, now: Duration) -> Vec<ErrorStatus> {
        let aged = |error: &ErrorStatus| ErrorStatus {
            age: now.saturating_sub(error.age),
            ..error.clone()
        };
        self.errors.iter().rev().map(aged).collect()
    }

    /// Returns the last program errors, the latest first.
    pub(crate) fn last_program_errors(&self, now: Duration) -> Vec<ProgramErrorStatus> {
        let aged = |error: &ProgramErrorStatus| ProgramErrorStatus {
            age: now.saturating_sub(error.age),
            ..error.clone()
        };
        self.program_errors.iter().rev().map(aged).collect()
    }
}

impl ProgramErrorStatus {
    /// Returns the error that ended a program at this time, if one did.
    pub(crate) fn of(
        verdict: &Verdict,
        at: Duration,
        job: JobId,
        worker: Option<WorkerId>,
        session: Option<SessionId>,
        tenant: &str,
    ) -> Option<Self> {
        let (exception, message) = match verdict {
            Verdict::Raised(raised) => {
                (&*raised.type_name, cut(&raised.message, MOST_MESSAGE_BYTES))
            }
            Verdict::Exited { code: 0, .. } => return None,
            Verdict::Exited { code, message } => match message {
                Some(message) => ("SystemExit", cut(message, MOST_MESSAGE_BYTES)),
                None => ("SystemExit", code.to_string()),
            },
            Verdict::Tampered(tampering) => {
                (verdict.name(), cut(&tampering.to_string(), MOST_MESSAGE_BYTES))
            }
            _ => return None,
        };
        let traceback = match verdict {
            Verdict::Raised(raised) => Some(end_of(&raised.traceback, MOST_TRACEBACK_BYTES)),
            _ => None,
        };
        let exception = cut(exception, MOST_TYPE_BYTES);
        let tenant = tenant.to_string();
        Some(Self { age: at, job, worker, session, tenant, exception, message, traceback })
    }
}

/// Appends the latest entry, and drops the oldest if the queue is full.
fn push_last<T>(last: &mut VecDeque<T>, latest: T) {
    if last.len() == ERROR_COUNT {
        last.pop_front();
    }
    last.push_back(latest);
}

/// Returns the longest prefix of whole characters that fits.
fn cut(text: &str, most_bytes: usize) -> String {
    text[..text.floor_char_boundary(most_bytes)].to_owned()
}

/// Returns the longest end of whole characters that fits.
fn end_of(text: &str, most_bytes: usize) -> String {
    text[text.ceil_char_boundary(text.len().saturating_sub(most_bytes))..].to_owned()
}

impl DurationHistogram {
    fn new() -> Self {
        let (finest, longest) = (FINEST.as_nanos() as u64, LONGEST.as_nanos() as u64);
        let histogram = Histogram::new_with_bounds(finest, longest, DIGITS);
        Self(histogram.expect("the bounds are more than a factor of two apart"))
    }

    pub(crate) fn record(&mut self, time: Duration) {
        // Durations out of bounds are recorded as the bound.
        self.0.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    fn percentiles(&self) -> Percentiles {
        // The histogram returns the largest value of a bucket, which may exceed the longest
        // duration.
        let longest = self.0.max().min(LONGEST.as_nanos() as u64);
        let [p50, p95, p99] = [0.50, 0.95, 0.99]
            .map(|quantile| self.0.value_at_quantile(quantile).min(longest))
            .map(Duration::from_nanos);
        let max = Duration::from_nanos(longest);
        Percentiles { count: self.0.len(), p50, p95, p99, max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// Asserts equality to three digits.
    fn assert_close(time: Duration, expected: Duration) {
        let error = (time.as_secs_f64() / expected.as_secs_f64() - 1.0).abs();
        assert!(error <= 0.001, "{time:?} instead of {expected:?}");
    }

    #[test]
    fn without_measurements_everything_is_zero() {
        let measures = Measures::default();
        assert_eq!(measures.latencies(), Latencies::default());
        assert_eq!(measures.jobs_per_second(Duration::ZERO), 0.0);
        assert_eq!(measures.jobs_per_second(seconds(1e9)), 0.0);
        assert_eq!(measures.last_errors(seconds(1.0)), []);
    }

    #[test]
    fn percentiles_have_three_digits_from_microseconds_to_an_hour() {
        for unit in [Duration::from_micros(1), Duration::from_millis(1), Duration::from_secs(3)] {
            let mut measures = Measures::default();
            for count in 1..=1000_u32 {
                measures.run.record(unit * count);
            }
            let run = measures.latencies().run;
            assert_eq!(run.count, 1000);
            if unit > Duration::from_micros(1) {
                assert_close(run.p50, unit * 500);
            }
            assert_close(run.p95, unit * 950);
            assert_close(run.p99, unit * 990);
            assert_close(run.max, unit * 1000);
        }
    }

    #[test]
    fn percentiles_are_in_order_and_times_out_of_bounds_count_as_the_bound() {
        let mut measures = Measures::default();
        measures.reset.record(Duration::ZERO);
        measures.reset.record(Duration::from_micros(70));
        measures.reset.record(Duration::MAX);
        let Percentiles { count, p50, p95, p99, max } = measures.latencies().reset;
        assert_eq!((count, max), (3, LONGEST));
        assert_close(p50, Duration::from_micros(70));
        assert!(p50 <= p95 && p95 <= p99 && p99 <= max, "{p50:?} {p95:?} {p99:?} {max:?}");
    }

    #[test]
    fn each_step_has_its_own_times() {
        let mut measures = Measures::default();
        measures.queue.record(seconds(1.0));
        measures.resume.record(seconds(2.0));
        measures.run.record(seconds(3.0));
        measures.reset.record(seconds(4.0));
        let Latencies { queue, resume, run, reset } = measures.latencies();
        for (step, expected) in [queue, resume, run, reset].into_iter().zip(1..) {
            assert_eq!(step.count, 1);
            assert_close(step.p50, Duration::from_secs(expected));
        }
    }

    #[test]
    fn the_rate_is_that_of_the_last_minute_or_since_the_beginning() {
        let mut measures = Measures::default();
        for job in 0..100 {
            measures.ended(seconds(f64::from(job) / 10.0), "succeeded");
        }
        // 100 jobs end in the first 10 seconds.
        assert_eq!(measures.jobs_per_second(seconds(10.0)), 10.0);
        assert_eq!(measures.jobs_per_second(seconds(40.0)), 2.5);
        // After a minute, the first seconds leave the window one by one.
        assert_eq!(measures.jobs_per_second(seconds(64.0)), 50.0 / 59.0);
        assert_eq!(measures.jobs_per_second(seconds(69.0)), 0.0);
    }

    #[test]
    fn a_second_is_counted_anew_a_minute_later() {
        let mut measures = Measures::default();
        for minute in 0..3 {
            for _ in 0..30 {
                measures.ended(seconds(60.0 * f64::from(minute) + 0.5), "failed");
            }
        }
        assert_eq!(measures.jobs_per_second(seconds(120.5)), 30.0 / 59.5);
    }

    #[test]
    fn the_last_ten_failures_are_reported_latest_first() {
        let mut measures = Measures::default();
        for number in 0..12 {
            let job = (number % 2 == 0).then_some(JobId(number));
            let (at, worker) = (Duration::from_secs(number), Some(WorkerId(number)));
            let session = Some(SessionId(number));
            measures.failed(at, job, worker, session, format!("failure {number}"));
        }
        let errors = measures.last_errors(Duration::from_secs(20));
        assert_eq!(errors.len(), ERROR_COUNT);
        let latest = &errors[0];
        assert_eq!((latest.age, latest.job), (Duration::from_secs(9), None));
        assert_eq!((&*latest.message, latest.worker), ("failure 11", Some(WorkerId(11))));
        assert_eq!(latest.session, Some(SessionId(11)));
        assert_eq!((errors[9].job, errors[9].message.as_str()), (Some(JobId(2)), "failure 2"));
        assert!(measures.last_program_errors(Duration::from_secs(20)).is_empty());
    }

    fn error(verdict: Verdict, job: u64) -> Option<ProgramErrorStatus> {
        let at = Duration::from_secs(job);
        let (worker, session) = (Some(WorkerId(1)), Some(SessionId(2)));
        ProgramErrorStatus::of(&verdict, at, JobId(job), worker, session, "a")
    }

    #[test]
    fn the_last_ten_errors_of_programs_are_told_apart_from_failures() {
        let mut measures = Measures::default();
        for job in 0..12 {
            let message = format!("number {job}");
            let raised = engine::Exception::new("ValueError", message, "");
            measures.program_failed(error(Verdict::Raised(raised.into()), job).unwrap());
        }
        let errors = measures.last_program_errors(Duration::from_secs(20));
        assert_eq!((errors.len(), errors[9].job), (ERROR_COUNT, JobId(2)));
        let latest = &errors[0];
        assert_eq!(
            (latest.age, latest.job, &*latest.tenant),
            (Duration::from_secs(9), JobId(11), "a")
        );
        assert_eq!((&*latest.exception, &*latest.message), ("ValueError", "number 11"));
        assert_eq!(latest.session, Some(SessionId(2)));
        assert!(measures.last_errors(Duration::from_secs(20)).is_empty());
    }

    #[test]
    fn errors_of_programs_are_exceptions_and_codes_and_are_cut() {
        assert!(error(Verdict::Exited { code: 0, message: None }, 1).is_none());
        assert!(error(Verdict::Cancelled, 1).is_none());
        let left = error(Verdict::Exited { code: 3, message: None }, 1).unwrap();
        assert_eq!((&*left.exception, &*left.message), ("SystemExit", "3"));
        let damaged = error(Verdict::Tampered(engine::Tampering::new("it lied")), 1).unwrap();
        assert!(damaged.exception == "tampered" && damaged.message.contains("it lied"));
        let long = engine::Exception::new("ä".repeat(1000), "ä".repeat(1000), "");
        let long = error(Verdict::Raised(long.into()), 1).unwrap();
        assert_eq!(
            (long.exception.len(), long.message.len()),
            (MOST_TYPE_BYTES, MOST_MESSAGE_BYTES)
        );
    }
}
