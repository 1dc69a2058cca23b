//! Jobs are submitted, run and end.

use engine::StopReason;

use super::*;

#[test]
fn first_come_first_served() {
    let mut harness = Harness::small(2, 10);
    assert_eq!(harness.submit(1), admitted([]));
    assert_eq!(harness.submit(2), admitted([]));
    assert_eq!(harness.submit(3), admitted([]));
    assert_eq!(harness.ready(1), [dispatch(1, 1)]);
    assert_eq!(harness.ready(2), [dispatch(2, 2)]);
    assert_eq!(harness.finish(2, 2), concluded([]));
    assert_eq!(harness.ready(2), [dispatch(3, 2)]);
}

#[test]
fn a_full_queue_refuses_but_an_idle_worker_takes() {
    let mut harness = Harness::small(2, 0);
    let refusal = Refusal::QueueFull { tenant: None, queued: 0, limit: 0, retry_after: None };
    assert_eq!(harness.submit(1), refused(refusal));
    let _ = harness.ready(1);
    assert_eq!(harness.submit(2), admitted([dispatch(2, 1)]));
}

#[test]
fn too_many_bytes_are_refused_and_freed_ones_taken_again() {
    let mut harness = Harness::small(1, 10);
    let big = || Queued { bytes: 600, ..queued() };
    assert_eq!(harness.submit_as(1, big()), admitted([]));
    let refusal = Refusal::QueueBytes {
        tenant: None,
        job: 600,
        queued: 1200,
        limit: 1000,
        retry_after: None,
    };
    assert_eq!(harness.submit_as(2, big()), refused(refusal));
    let _ = harness.end(1, StopKind::Cancel);
    assert_eq!(harness.submit_as(3, big()), admitted([]));
}

#[test]
fn cancelling_settles_what_waits_and_stops_what_runs() {
    let mut harness = Harness::small(1, 10);
    let _ = harness.submit(1);
    let _ = harness.submit(2);
    let _ = harness.ready(1);
    assert_eq!(harness.end(1, StopKind::Cancel), [Effect::StopRun(JobId(1))]);
    assert_eq!(harness.end(2, StopKind::Cancel), [settle(2, Settlement::Cancelled)]);
    assert_eq!(harness.end(2, StopKind::Cancel), []);
}

#[test]
fn a_session_is_interrupted_and_a_fresh_interpreter_stopped() {
    let mut harness = Harness::small(2, 10);
    let _ = harness.submit(1);
    let _ = harness.ready(1);
    harness.open(1);
    let _ = harness.submit_to(2, 1);
    let _ = harness.ready(2);
    let interrupted = |job, reason| Effect::InterruptRun(JobId(job), reason);
    for (job, ending, effect) in [
        (1, StopKind::Interrupt, interrupted(1, StopReason::Interrupted)),
        (2, StopKind::Interrupt, interrupted(2, StopReason::Interrupted)),
        (1, StopKind::Cancel, Effect::StopRun(JobId(1))),
        (2, StopKind::Cancel, interrupted(2, StopReason::Cancelled)),
        (1, StopKind::Kill, Effect::StopRun(JobId(1))),
        (2, StopKind::Kill, Effect::StopRun(JobId(2))),
    ] {
        assert_eq!(harness.end(job, ending), [effect], "{ending:?}");
    }
}

#[test]
fn the_oldest_job_is_known_wherever_it_waits() {
    let mut harness = Harness::small(2, 10);
    harness.open(1);
    let _ = harness.submit_to(1, 1);
    harness.now = seconds(1);
    let _ = harness.submit_to(2, 1);
    harness.now = seconds(2);
    let _ = harness.submit(3);
    assert_eq!(harness.model.oldest(), Some(seconds(0)));
    let _ = harness.ready(1);
    assert_eq!(harness.model.oldest(), Some(seconds(1)));
}

#[test]
fn draining_finishes_what_was_admitted() {
    let mut harness = Harness::small(1, 10);
    harness.open(1);
    let _ = harness.submit(1);
    assert_eq!(harness.send(Event::Draining { until: None }), []);
    assert_eq!(harness.submit(2), refused(Refusal::ShuttingDown));
    let _ = harness.ready(1);
    let ends =
        concluded([ended(1, "the pool has shut down"), Effect::Record(DecisionKind::Drained)]);
    assert_eq!(harness.finish(1, 1), ends);
    assert_eq!(harness.model.phase, Phase::Drained);
}

#[test]
fn draining_for_a_time_ends_what_has_not_ended_by_then() {
    let mut harness = Harness::small(1, 10);
    let _ = harness.ready(1);
    let _ = harness.submit(1);
    let _ = harness.submit(2);
    assert_eq!(harness.send(Event::Draining { until: Some(seconds(5)) }), []);
    assert_eq!(harness.model.next_wake(), Some(seconds(5)));
    assert_eq!(harness.pass(seconds(4)), []);
    // A later call can only shorten the time.
    assert_eq!(harness.send(Event::Draining { until: Some(seconds(50)) }), []);
    let stopped = [settle(2, Settlement::Cancelled), Effect::StopRun(JobId(1))];
    assert_eq!(harness.pass(seconds(1)), stopped);
    assert_eq!(harness.pass(seconds(1)), []);
    assert_eq!(harness.finish(1, 1), concluded([Effect::Record(DecisionKind::Drained)]));
}

#[test]
fn draining_at_once_is_to_abort() {
    let mut harness = Harness::small(1, 10);
    let _ = harness.submit(1);
    let effects = harness.send(Event::Draining { until: Some(Time::ZERO) });
    assert_eq!(effects, [settle(1, Settlement::Cancelled), Effect::Record(DecisionKind::Drained)]);
}
