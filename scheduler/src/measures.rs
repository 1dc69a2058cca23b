//! How long jobs took, how many end in a second, and what failed last.
//!
//! Recording is a few array writes, so whoever decides may do it under a lock; the percentiles are
//! counted when somebody asks for them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use engine::Verdict;
use hdrhistogram::Histogram;
use pool::WorkerId;

use crate::status::{ErrorStatus, Latencies, Percentiles, ProgramErrorStatus};

/// Longer times count as this one.
const LONGEST: Duration = Duration::from_secs(3600);
/// Times are told apart by so much at least: a reset takes 70 µs.
const FINEST: Duration = Duration::from_nanos(64);
/// Three digits in four histograms are 900 KiB, of which the system backs what is written to.
const DIGITS: u8 = 3;
/// The time over which the rate is measured, in seconds.
const RATE_SECONDS: u64 = 60;
/// Failures that are remembered, and errors of programs.
const ERROR_COUNT: usize = 10;
/// What is remembered of an exception's type and of its message.
const MOST_TYPE_BYTES: usize = 100;
const MOST_MESSAGE_BYTES: usize = 500;

/// What was measured since the scheduler began. Times are those since then.
#[derive(Debug)]
pub(crate) struct Measures {
    queue: Times,
    attach: Times,
    run: Times,
    reset: Times,
    /// Jobs that ended, by the second in which they did.
    ended: [Second; RATE_SECONDS as usize],
    /// The last failures, the latest last.
    errors: VecDeque<Failure>,
    /// The last errors of programs, the latest last.
    program_errors: VecDeque<ProgramError>,
}

/// The distribution of a time, in nanoseconds.
#[derive(Debug)]
struct Times(Histogram<u64>);

/// Jobs that ended in one second.
#[derive(Debug, Clone, Copy, Default)]
struct Second {
    number: u64,
    count: u64,
}

#[derive(Debug)]
struct Failure {
    at: Duration,
    job: Option<u64>,
    worker: Option<WorkerId>,
    message: String,
}

/// An error that ended a program.
#[derive(Debug)]
pub(crate) struct ProgramError {
    at: Duration,
    job: u64,
    worker: Option<WorkerId>,
    tenant: Arc<str>,
    exception: String,
    message: String,
}

impl Default for Measures {
    fn default() -> Self {
        Self {
            queue: Times::new(),
            attach: Times::new(),
            run: Times::new(),
            reset: Times::new(),
            ended: [Second::default(); RATE_SECONDS as usize],
            errors: VecDeque::with_capacity(ERROR_COUNT),
            program_errors: VecDeque::with_capacity(ERROR_COUNT),
        }
    }
}

impl Measures {
    /// A job waited for so long until it had a worker.
    pub(crate) fn record_queue(&mut self, time: Duration) {
        self.queue.record(time);
    }

    /// A worker took so long to get at the state that a job runs on.
    pub(crate) fn record_attach(&mut self, time: Duration) {
        self.attach.record(time);
    }

    /// A program ran for so long.
    pub(crate) fn record_run(&mut self, time: Duration) {
        self.run.record(time);
    }

    /// A worker's interpreter took so long to be fresh again.
    pub(crate) fn record_reset(&mut self, time: Duration) {
        self.reset.record(time);
    }

    /// A job has ended.
    pub(crate) fn ended(&mut self, now: Duration) {
        let number = now.as_secs();
        let second = &mut self.ended[(number % RATE_SECONDS) as usize];
        if second.number != number {
            *second = Second { number, count: 0 };
        }
        second.count += 1;
    }

    /// How long jobs took that have ended.
    pub(crate) fn latencies(&self) -> Latencies {
        Latencies {
            queue: self.queue.percentiles(),
            attach: self.attach.percentiles(),
            run: self.run.percentiles(),
            reset: self.reset.percentiles(),
        }
    }

    /// Jobs that ended in the last minute, or since the beginning if that is less, a second.
    pub(crate) fn jobs_per_second(&self, now: Duration) -> f64 {
        let first = (now.as_secs() + 1).saturating_sub(RATE_SECONDS);
        let counts =
            self.ended.iter().filter(|second| (first..=now.as_secs()).contains(&second.number));
        let count: u64 = counts.map(|second| second.count).sum();
        let seconds = now.saturating_sub(Duration::from_secs(first)).as_secs_f64();
        if count == 0 || seconds == 0.0 { 0.0 } else { count as f64 / seconds }
    }

    /// The sandbox or a worker failed.
    pub(crate) fn failed(
        &mut self,
        now: Duration,
        job: Option<u64>,
        worker: Option<WorkerId>,
        message: String,
    ) {
        push_last(&mut self.errors, Failure { at: now, job, worker, message });
    }

    /// A program ended with an error.
    pub(crate) fn program_failed(&mut self, error: ProgramError) {
        push_last(&mut self.program_errors, error);
    }

    /// The last failures, the latest first.
    pub(crate) fn last_errors(&self, now: Duration) -> Vec<ErrorStatus> {
        let told = |failure: &Failure| ErrorStatus {
            age: now.saturating_sub(failure.at),
            job: failure.job,
            worker: failure.worker,
            message: failure.message.clone(),
        };
        self.errors.iter().rev().map(told).collect()
    }

    /// The last errors of programs, the latest first.
    pub(crate) fn last_program_errors(&self, now: Duration) -> Vec<ProgramErrorStatus> {
        let told = |error: &ProgramError| ProgramErrorStatus {
            age: now.saturating_sub(error.at),
            job: error.job,
            worker: error.worker,
            tenant: error.tenant.to_string(),
            exception: error.exception.clone(),
            message: error.message.clone(),
        };
        self.program_errors.iter().rev().map(told).collect()
    }
}

impl ProgramError {
    /// What is remembered of a verdict, if that is a program's error.
    pub(crate) fn of(
        verdict: &Verdict,
        at: Duration,
        job: u64,
        worker: Option<WorkerId>,
        tenant: &Arc<str>,
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
        let exception = cut(exception, MOST_TYPE_BYTES);
        Some(Self { at, job, worker, tenant: Arc::clone(tenant), exception, message })
    }
}

/// Adds the latest one, in place of the oldest.
fn push_last<T>(last: &mut VecDeque<T>, latest: T) {
    if last.len() == ERROR_COUNT {
        last.pop_front();
    }
    last.push_back(latest);
}

/// As much of a text as fits, which ends with a whole character.
fn cut(text: &str, most_bytes: usize) -> String {
    text[..text.floor_char_boundary(most_bytes)].to_owned()
}

impl Times {
    fn new() -> Self {
        let (finest, longest) = (FINEST.as_nanos() as u64, LONGEST.as_nanos() as u64);
        let histogram = Histogram::new_with_bounds(finest, longest, DIGITS);
        Self(histogram.expect("the bounds are more than a factor of two apart"))
    }

    fn record(&mut self, time: Duration) {
        // Times beyond the bounds count as the bound.
        self.0.saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    fn percentiles(&self) -> Percentiles {
        // A value stands for all that three digits don't tell from it, of which it is the largest.
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

    /// To the three digits that are promised.
    fn assert_close(time: Duration, expected: Duration) {
        let error = (time.as_secs_f64() / expected.as_secs_f64() - 1.0).abs();
        assert!(error <= 0.001, "{time:?} instead of {expected:?}");
    }

    #[test]
    fn nothing_measured_is_nothing_told() {
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
                measures.record_run(unit * count);
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
        measures.record_reset(Duration::ZERO);
        measures.record_reset(Duration::from_micros(70));
        measures.record_reset(Duration::MAX);
        let Percentiles { count, p50, p95, p99, max } = measures.latencies().reset;
        assert_eq!((count, max), (3, LONGEST));
        assert_close(p50, Duration::from_micros(70));
        assert!(p50 <= p95 && p95 <= p99 && p99 <= max, "{p50:?} {p95:?} {p99:?} {max:?}");
    }

    #[test]
    fn each_step_has_its_own_times() {
        let mut measures = Measures::default();
        measures.record_queue(seconds(1.0));
        measures.record_attach(seconds(2.0));
        measures.record_run(seconds(3.0));
        measures.record_reset(seconds(4.0));
        let Latencies { queue, attach, run, reset } = measures.latencies();
        for (step, expected) in [queue, attach, run, reset].into_iter().zip(1..) {
            assert_eq!(step.count, 1);
            assert_close(step.p50, Duration::from_secs(expected));
        }
    }

    #[test]
    fn the_rate_is_that_of_the_last_minute_or_since_the_beginning() {
        let mut measures = Measures::default();
        for job in 0..100 {
            measures.ended(seconds(f64::from(job) / 10.0));
        }
        // 100 jobs in the first 10 seconds.
        assert_eq!(measures.jobs_per_second(seconds(10.0)), 10.0);
        assert_eq!(measures.jobs_per_second(seconds(40.0)), 2.5);
        // After a minute the first seconds go one by one.
        assert_eq!(measures.jobs_per_second(seconds(64.0)), 50.0 / 59.0);
        assert_eq!(measures.jobs_per_second(seconds(69.0)), 0.0);
    }

    #[test]
    fn a_second_is_counted_anew_a_minute_later() {
        let mut measures = Measures::default();
        for minute in 0..3 {
            for _ in 0..30 {
                measures.ended(seconds(60.0 * f64::from(minute) + 0.5));
            }
        }
        assert_eq!(measures.jobs_per_second(seconds(120.5)), 30.0 / 59.5);
    }

    #[test]
    fn the_last_ten_failures_are_told_the_latest_first() {
        let mut measures = Measures::default();
        for number in 0..12 {
            let job = (number % 2 == 0).then_some(number);
            let (at, worker) = (Duration::from_secs(number), Some(WorkerId(number)));
            measures.failed(at, job, worker, format!("failure {number}"));
        }
        let errors = measures.last_errors(Duration::from_secs(20));
        assert_eq!(errors.len(), ERROR_COUNT);
        let latest = &errors[0];
        assert_eq!((latest.age, latest.job), (Duration::from_secs(9), None));
        assert_eq!((&*latest.message, latest.worker), ("failure 11", Some(WorkerId(11))));
        assert_eq!((errors[9].job, errors[9].message.as_str()), (Some(2), "failure 2"));
        assert!(measures.last_program_errors(Duration::from_secs(20)).is_empty());
    }

    fn error(verdict: Verdict, job: u64) -> Option<ProgramError> {
        let at = Duration::from_secs(job);
        ProgramError::of(&verdict, at, job, Some(WorkerId(1)), &Arc::from("a"))
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
        assert_eq!((errors.len(), errors[9].job), (ERROR_COUNT, 2));
        let latest = &errors[0];
        assert_eq!((latest.age, latest.job, &*latest.tenant), (Duration::from_secs(9), 11, "a"));
        assert_eq!((&*latest.exception, &*latest.message), ("ValueError", "number 11"));
        assert!(measures.last_errors(Duration::from_secs(20)).is_empty());
    }

    #[test]
    fn errors_of_programs_are_exceptions_and_codes_and_are_cut() {
        assert!(error(Verdict::Exited { code: 0, message: None }, 1).is_none());
        assert!(error(Verdict::Cancelled, 1).is_none());
        let left = error(Verdict::Exited { code: 3, message: None }, 1).unwrap();
        assert_eq!((&*left.exception, &*left.message), ("SystemExit", "3"));
        let damaged = error(Verdict::Tampered(engine::Tampering("it lied".to_owned())), 1).unwrap();
        assert!(damaged.exception == "tampered" && damaged.message.contains("it lied"));
        let long = engine::Exception::new("ä".repeat(1000), "ä".repeat(1000), "");
        let long = error(Verdict::Raised(long.into()), 1).unwrap();
        assert_eq!(
            (long.exception.len(), long.message.len()),
            (MOST_TYPE_BYTES, MOST_MESSAGE_BYTES)
        );
    }
}
