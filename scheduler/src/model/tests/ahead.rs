//! Jobs that workers get ahead.

use super::*;

const SHORT: Duration = Duration::from_micros(100);

/// A job that may go ahead.
fn brief() -> Queued {
    Queued { may_go_ahead: true, ..queued() }
}

fn report(took: Duration) -> Report {
    Report { wall: took, cpu: took, ..Report::default() }
}

/// Two workers that take eight jobs at once and run jobs 1 and 2, after jobs that took this long.
fn busy(took: Duration) -> Harness {
    let mut harness =
        Harness::new(SchedulerConfig { queued_count: 100, queued_bytes: 10_000, ..roomy() });
    harness.model.take_at_once(8);
    let _ = harness.ready(1);
    harness.run(100, brief(), took);
    assert_eq!(harness.submit_as(101, brief()), admitted([dispatch(101, 1)]));
    let _ = harness.ready(2);
    assert_eq!(harness.submit_as(102, brief()), admitted([dispatch(102, 2)]));
    harness
}

/// Has jobs wait with these numbers.
fn wait(harness: &mut Harness, jobs: std::ops::Range<u64>, queued: &Queued) {
    for job in jobs {
        assert_eq!(harness.submit_as(job, queued.clone()), admitted([]));
    }
}

/// Worker 1 finishes a job and is ready. Returns what follows.
fn next(harness: &mut Harness, finished: u64, took: Duration) -> Vec<Effect> {
    assert_eq!(harness.finish_as(1, finished, report(took)), concluded([]));
    harness.ready(1)
}

fn returned(harness: &mut Harness, jobs: &[u64]) -> Vec<Effect> {
    let jobs = jobs.iter().copied().map(JobId).collect();
    harness.send(Event::Returned { worker: WorkerId(1), jobs })
}

fn recall(job: u64) -> Effect {
    Effect::Recall(JobId(job))
}

fn went_on(job: u64) -> Effect {
    Effect::GoOn(JobId(job), WorkerId(1))
}

#[test]
fn a_worker_gets_short_jobs_ahead_and_goes_from_one_to_the_next() {
    let mut harness = busy(SHORT);
    wait(&mut harness, 1..14, &brief());
    // Half of its share of the twelve others.
    assert_eq!(next(&mut harness, 101, SHORT), [dispatch_with(1, 1, &[2, 3, 4])]);
    assert_eq!((harness.model.running(), harness.model.queue_depth()), (2, 12));
    for job in 2..5 {
        assert_eq!(
            harness.finish_as(1, job - 1, report(SHORT)),
            concluded([went_on(job)]),
            "{job}"
        );
        assert_eq!(harness.model.running(), 2);
    }
    assert_eq!(next(&mut harness, 4, SHORT), [dispatch_with(5, 1, &[6, 7])]);
}

#[test]
fn no_more_than_a_worker_takes_at_once_and_no_more_than_a_millisecond() {
    let mut harness = busy(Duration::from_micros(10));
    wait(&mut harness, 1..60, &brief());
    let effects = next(&mut harness, 101, Duration::from_micros(10));
    assert_eq!(effects, [dispatch_with(1, 1, &[2, 3, 4, 5, 6, 7, 8])]);
    let mut harness = busy(Duration::from_micros(300));
    wait(&mut harness, 1..60, &brief());
    let effects = next(&mut harness, 101, Duration::from_micros(300));
    assert_eq!(effects, [dispatch_with(1, 1, &[2, 3])]);
}

#[test]
fn what_would_change_something_for_others_goes_to_a_worker_alone() {
    let alone = |took, others: &[Queued]| {
        let mut harness = busy(took);
        wait(&mut harness, 1..2, &brief());
        for (job, other) in others.iter().enumerate() {
            wait(&mut harness, 2 + job as u64..3 + job as u64, other);
        }
        wait(&mut harness, 20..30, &brief());
        let [Effect::Dispatch { ahead, .. }] = &next(&mut harness, 101, took)[..] else { panic!() };
        assert!(ahead.is_empty(), "{others:?}: {ahead:?}");
    };
    alone(Duration::from_millis(1), &[]);
    alone(SHORT, &[queued()]);
    alone(SHORT, &[Queued { build: BuildId(1), ..brief() }]);
    alone(SHORT, &[Queued { growth: Growth { memory_bytes: 1, file_bytes: 0 }, ..brief() }]);
    alone(SHORT, &[Queued { output_bytes: 1, ..brief() }]);
    alone(SHORT, &[Queued { tenant: Arc::from("another"), ..brief() }]);
}

#[test]
fn what_a_worker_returns_runs_elsewhere_in_its_old_order() {
    let mut harness = busy(SHORT);
    wait(&mut harness, 1..14, &brief());
    assert_eq!(next(&mut harness, 101, SHORT), [dispatch_with(1, 1, &[2, 3, 4])]);
    assert_eq!(harness.finish_as(1, 1, report(SHORT)), concluded([went_on(2)]));
    // It didn't begin job 2, which the model believed to run.
    assert_eq!(returned(&mut harness, &[2, 3, 4]), [recall(2), recall(3), recall(4)]);
    assert_eq!((harness.model.running(), harness.model.queue_depth()), (1, 12));
    assert_eq!(harness.finish_as(2, 102, report(SHORT)), concluded([]));
    assert_eq!(harness.ready(2), [dispatch_with(2, 2, &[3, 4])]);
    assert_eq!(harness.ready(1), [dispatch_with(5, 1, &[6, 7])]);
}

#[test]
fn jobs_ahead_outlive_their_worker() {
    let mut harness = busy(SHORT);
    wait(&mut harness, 1..14, &brief());
    assert_eq!(next(&mut harness, 101, SHORT), [dispatch_with(1, 1, &[2, 3, 4])]);
    let recalled = [recall(2), recall(3), recall(4)];
    assert_eq!(harness.gone(1, true, false)[..3], recalled);
    assert_eq!(harness.finish_as(2, 102, report(SHORT)), concluded([]));
    let effects = harness.ready(2);
    assert!(
        matches!(&effects[..], [Effect::Dispatch { job: JobId(2), .. }]),
        "the oldest one is next: {effects:?}"
    );
}

#[test]
fn a_job_that_is_cancelled_ahead_ends_at_once_and_never_runs() {
    let mut harness = busy(SHORT);
    wait(&mut harness, 1..14, &brief());
    assert_eq!(next(&mut harness, 101, SHORT), [dispatch_with(1, 1, &[2, 3, 4])]);
    let cancelled = |job| [Effect::StopRun(JobId(job)), settle(job, Settlement::Cancelled)];
    assert_eq!(harness.end(2, Ending::Cancel), cancelled(2));
    assert_eq!(harness.finish_as(1, 1, report(SHORT)), concluded([went_on(3)]));
    // What the worker says of it comes too late.
    assert_eq!(harness.finish_as(1, 2, report(SHORT)), (Finish::Ignore, Vec::new()));
    // Job 3 is asked to end while its worker seems to run it, but it never began.
    assert_eq!(harness.end(3, Ending::Cancel), [Effect::StopRun(JobId(3))]);
    let effects = returned(&mut harness, &[2, 3, 4]);
    assert_eq!(effects, [recall(3), settle(3, Settlement::Cancelled), recall(4)]);
    let effects = harness.ready(1);
    assert!(matches!(&effects[..], [Effect::Dispatch { job: JobId(4), .. }]), "{effects:?}");
}

#[test]
fn a_drain_that_aborts_ends_jobs_ahead_as_well() {
    let mut harness = busy(SHORT);
    wait(&mut harness, 1..14, &brief());
    let _ = next(&mut harness, 101, SHORT);
    let effects = harness.send(Event::Draining { until: Some(harness.now) });
    let stopped: Vec<u64> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::StopRun(job) => Some(job.0),
            _ => None,
        })
        .collect();
    assert_eq!(stopped, [2, 3, 4, 1, 102]);
    assert_eq!(harness.model.queue_depth(), 0);
}

#[test]
fn a_job_that_an_aborted_worker_returns_ends() {
    let mut harness = busy(SHORT);
    wait(&mut harness, 1..14, &brief());
    let _ = next(&mut harness, 101, SHORT);
    assert_eq!(harness.finish_as(1, 1, report(SHORT)), concluded([went_on(2)]));
    let _ = harness.send(Event::Draining { until: Some(harness.now) });
    // It didn't begin job 2, which would run as if nothing had been aborted.
    assert_eq!(returned(&mut harness, &[2, 3, 4]), [recall(2), settle(2, Settlement::Cancelled)]);
    assert_eq!(harness.model.queue_depth(), 0);
}
