//! Sessions: their turns, and which workers hold them.

use super::*;

#[test]
fn a_session_runs_its_jobs_one_at_a_time_and_in_order() {
    let mut harness = Harness::small(2, 10);
    harness.open(1);
    assert_eq!(harness.submit_to(1, 1), admitted([]));
    assert_eq!(harness.submit_to(2, 1), admitted([]));
    assert_eq!(harness.ready(1), [dispatch(1, 1)]);
    assert_eq!(harness.ready(2), []);
    assert_eq!(harness.finish(1, 1), concluded([]));
    assert_eq!(harness.ready(1), [dispatch(2, 1)]);
}

#[test]
fn the_turns_of_a_session_keep_their_order_whatever_their_priorities() {
    let mut harness = Harness::small(2, 10);
    harness.open(1);
    let turn = |priority| Queued { priority, session: Some(SessionId(1)), ..queued() };
    let _ = harness.submit_as(1, turn(Priority::Low));
    let _ = harness.submit_as(2, turn(Priority::High));
    assert_eq!(harness.ready(1), [dispatch(1, 1)]);
}

#[test]
fn a_session_waits_for_the_worker_that_has_just_run_it() {
    let mut harness = Harness::small(2, 10);
    harness.open(1);
    let _ = harness.ready(1);
    let _ = harness.ready(2);
    assert_eq!(harness.submit_to(1, 1), admitted([dispatch(1, 2)]));
    assert_eq!(harness.finish(2, 1), concluded([]));
    // Worker 1 would have to wait for a state that worker 2 keeps.
    assert_eq!(harness.submit_to(2, 1), admitted([]));
    assert_eq!(harness.ready(2), [dispatch(2, 2)]);
}

#[test]
fn a_session_whose_worker_is_busy_with_something_else_moves() {
    let mut harness = Harness::small(2, 10);
    harness.open(1);
    let _ = harness.ready(1);
    assert_eq!(harness.submit_to(1, 1), admitted([dispatch(1, 1)]));
    let _ = harness.finish(1, 1);
    let _ = harness.ready(1);
    assert_eq!(harness.submit(2), admitted([displace(1, 1), dispatch(2, 1)]));
    let needed = EvictionReason::WorkerNeeded { worker: WorkerId(1) };
    assert_eq!(
        harness.model.session(SessionId(1)).and_then(|session| session.evicted.as_ref()),
        Some(&needed)
    );
    let _ = harness.ready(2);
    assert_eq!(harness.submit_to(3, 1), admitted([dispatch(3, 2)]));
    // Worker 1's late report is outdated.
    assert_eq!(harness.suspend(1, 500), []);
    assert_eq!(harness.model.resident(WorkerId(2)), Some(SessionId(1)));
    assert_eq!(harness.model.memory().session_bytes, 0);
}

#[test]
fn jobs_go_to_vacant_workers_first() {
    let mut harness = Harness::small(2, 10);
    harness.open(1);
    harness.open(2);
    let _ = harness.ready(1);
    harness.run(1, Queued { session: Some(SessionId(1)), ..queued() }, seconds(1));
    let _ = harness.ready(2);
    assert_eq!(harness.submit(2), admitted([dispatch(2, 2)]));
    assert_eq!(harness.submit_to(3, 1), admitted([dispatch(3, 1)]));
}

#[test]
fn the_most_recently_used_worker_is_used_next_so_that_others_idle() {
    let mut harness = Harness::small(2, 10);
    let _ = harness.ready(1);
    harness.now = seconds(1);
    let _ = harness.ready(2);
    assert_eq!(harness.submit(1), admitted([dispatch(1, 2)]));
    harness.now = seconds(2);
    let _ = harness.finish(2, 1);
    let _ = harness.ready(2);
    assert_eq!(harness.submit(2), admitted([dispatch(2, 2)]));
}

#[test]
fn a_session_whose_state_was_replaced_is_on_no_worker() {
    let mut harness = Harness::small(2, 10);
    harness.open(1);
    let _ = harness.ready(1);
    harness.run(1, Queued { session: Some(SessionId(1)), ..queued() }, seconds(1));
    assert_eq!(harness.model.resident(WorkerId(1)), Some(SessionId(1)));
    let moved = Event::SessionMoved { session: SessionId(1), bytes: 70 };
    assert_eq!(harness.send(moved), []);
    assert_eq!(harness.model.resident(WorkerId(1)), None);
    assert_eq!(harness.model.memory().session_bytes, 70);
    assert_eq!(harness.submit_to(2, 1), admitted([dispatch(2, 1)]));
    assert_eq!(harness.model.memory().session_bytes, 0);
}

#[test]
fn sessions_and_isolated_jobs_share_what_may_run_at_once() {
    let mut harness = Harness::small(1, 10);
    harness.open(1);
    let _ = harness.ready(1);
    let _ = harness.ready(2);
    assert_eq!(harness.submit_to(1, 1), admitted([dispatch(1, 2)]));
    assert_eq!(harness.submit(2), admitted([]));
    assert_eq!(harness.finish(2, 1), concluded([dispatch(2, 1)]));
}

#[test]
fn a_lost_session_settles_its_jobs_and_takes_no_more() {
    let mut harness = Harness::small(2, 10);
    harness.open(1);
    let _ = harness.ready(1);
    let _ = harness.submit_to(1, 1);
    let _ = harness.submit_to(2, 1);
    let lost = Event::SessionLost { session: SessionId(1), reason: "lost".into() };
    let settled = settle(2, Settlement::SessionLost("lost".into()));
    assert_eq!(harness.send(lost), [settled, ended(1, "lost")]);
    assert_eq!(harness.finish(1, 1), concluded([]));
    let refused = harness.submit_to(3, 1);
    assert!(matches!(refusal_of(&refused), Refusal::SessionGone(..)));
}

#[test]
fn a_closed_session_finishes_its_jobs_first() {
    let mut harness = Harness::small(2, 10);
    harness.open(1);
    let _ = harness.ready(1);
    let _ = harness.submit_to(1, 1);
    assert_eq!(harness.send(Event::SessionClosed(SessionId(1))), []);
    let refused = harness.submit_to(2, 1);
    assert!(matches!(refusal_of(&refused), Refusal::SessionGone(..)));
    assert_eq!(harness.finish(1, 1), concluded([ended(1, "it was closed")]));
}

#[test]
fn sessions_count_until_they_end() {
    let mut harness = Harness::small(2, 10);
    harness.open(1);
    harness.open(2);
    assert_eq!(harness.refused_session(0), Some(Refusal::TooManySessions(2)));
    assert_eq!(harness.send(Event::SessionClosed(SessionId(1))), [ended(1, "it was closed")]);
    assert_eq!(harness.refused_session(0), None);
}

#[test]
fn a_copy_counts_as_a_turn_and_ends_without_an_outcome() {
    let mut harness = Harness::small(2, 10);
    harness.open(1);
    let _ = harness.ready(1);
    harness.run(1, Queued { session: Some(SessionId(1)), ..queued() }, seconds(1));
    assert_eq!(harness.submit_to(2, 1), admitted([dispatch(2, 1)]));
    assert_eq!(harness.submit_to(3, 1), admitted([]));
    let copied = Event::Captured { worker: WorkerId(1), job: JobId(2) };
    assert_eq!(harness.send(copied), []);
    assert_eq!(harness.ready(1), [dispatch(3, 1)]);
}
