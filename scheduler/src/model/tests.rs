//! The model alone: decisions one by one.

use engine::StopReason;
use pool::{JobId, SessionId, WorkerId};

use super::{Ending, Event, Model};
use crate::config::SchedulerConfig;
use crate::effect::{Effect, Settlement};
use crate::error::Refusal;
use crate::status::Phase;

mod histories;

fn model(concurrent: usize, queued_count: usize) -> Model {
    let config = SchedulerConfig { concurrent, queued_count, queued_bytes: 1000, sessions: 2 };
    Model::new(config, 2)
}

fn submit(model: &mut Model, job: u64) -> Vec<Effect> {
    model.handle(Event::Submitted { job: JobId(job), bytes: 10, session: None })
}

fn submit_to(model: &mut Model, job: u64, session: u64) -> Vec<Effect> {
    let session = Some(SessionId(session));
    model.handle(Event::Submitted { job: JobId(job), bytes: 10, session })
}

fn open(model: &mut Model, session: u64) {
    assert_eq!(model.handle(Event::SessionOpened(SessionId(session))), []);
}

fn ready(model: &mut Model, worker: u64) -> Vec<Effect> {
    model.handle(Event::Ready { worker: WorkerId(worker) })
}

fn finish(model: &mut Model, worker: u64, job: u64) -> Vec<Effect> {
    model.handle(Event::Finished { worker: WorkerId(worker), job: JobId(job) })
}

fn gone(worker: u64, is_replaced: bool, takes_session: bool) -> Event {
    let reason = "died".to_owned();
    Event::Gone { worker: WorkerId(worker), reason, is_replaced, takes_session }
}

fn ended(session: u64, reason: &str) -> Effect {
    Effect::EndSession(SessionId(session), reason.to_owned())
}

fn admit(job: u64) -> Effect {
    Effect::Admit(JobId(job))
}

fn dispatch(job: u64, worker: u64) -> Effect {
    Effect::Dispatch(JobId(job), WorkerId(worker))
}

#[test]
fn first_come_first_served() {
    let mut model = model(2, 10);
    assert_eq!(submit(&mut model, 1), [admit(1)]);
    assert_eq!(submit(&mut model, 2), [admit(2)]);
    assert_eq!(submit(&mut model, 3), [admit(3)]);
    assert_eq!(ready(&mut model, 1), [dispatch(1, 1)]);
    assert_eq!(ready(&mut model, 2), [dispatch(2, 2)]);
    assert_eq!(finish(&mut model, 2, 2), []);
    assert_eq!(ready(&mut model, 2), [dispatch(3, 2)]);
}

#[test]
fn a_full_queue_refuses_but_an_idle_worker_takes() {
    let mut model = model(2, 0);
    let refused = Refusal::QueueFull { queued: 0, limit: 0 };
    assert_eq!(submit(&mut model, 1), [Effect::Refuse(JobId(1), refused)]);
    let _ = ready(&mut model, 1);
    assert_eq!(submit(&mut model, 2), [admit(2), dispatch(2, 1)]);
}

#[test]
fn too_many_bytes_are_refused_and_freed_ones_taken_again() {
    let mut model = model(1, 10);
    let big = |job| Event::Submitted { job: JobId(job), bytes: 600, session: None };
    assert_eq!(model.handle(big(1)), [admit(1)]);
    let refused = Refusal::QueueBytes { job: 600, queued: 1200, limit: 1000 };
    assert_eq!(model.handle(big(2)), [Effect::Refuse(JobId(2), refused)]);
    let _ = model.handle(Event::EndWanted(JobId(1), Ending::Cancel));
    assert_eq!(model.handle(big(3)), [admit(3)]);
}

#[test]
fn cancelling_settles_what_waits_and_stops_what_runs() {
    let mut model = model(1, 10);
    let _ = submit(&mut model, 1);
    let _ = submit(&mut model, 2);
    let _ = ready(&mut model, 1);
    assert_eq!(
        model.handle(Event::EndWanted(JobId(1), Ending::Cancel)),
        [Effect::StopRun(JobId(1))]
    );
    let settled = Effect::Settle(JobId(2), Settlement::Cancelled);
    assert_eq!(model.handle(Event::EndWanted(JobId(2), Ending::Cancel)), [settled]);
    assert_eq!(model.handle(Event::EndWanted(JobId(2), Ending::Cancel)), []);
}

#[test]
fn a_session_is_interrupted_and_a_fresh_interpreter_stopped() {
    let mut model = model(2, 10);
    let _ = submit(&mut model, 1);
    let _ = ready(&mut model, 1);
    open(&mut model, 1);
    let _ = submit_to(&mut model, 2, 1);
    let _ = ready(&mut model, 2);
    let interrupted = |job, reason| Effect::InterruptRun(JobId(job), reason);
    for (job, ending, effect) in [
        (1, Ending::Interrupt, interrupted(1, StopReason::Interrupted)),
        (2, Ending::Interrupt, interrupted(2, StopReason::Interrupted)),
        (1, Ending::Cancel, Effect::StopRun(JobId(1))),
        (2, Ending::Cancel, interrupted(2, StopReason::Cancelled)),
        (1, Ending::Stop, Effect::StopRun(JobId(1))),
        (2, Ending::Stop, Effect::StopRun(JobId(2))),
    ] {
        assert_eq!(model.handle(Event::EndWanted(JobId(job), ending)), [effect], "{ending:?}");
    }
}

#[test]
fn a_session_runs_its_jobs_one_at_a_time_and_in_order() {
    let mut model = model(2, 10);
    open(&mut model, 1);
    assert_eq!(submit_to(&mut model, 1, 1), [admit(1)]);
    assert_eq!(submit_to(&mut model, 2, 1), [admit(2)]);
    assert_eq!(ready(&mut model, 1), [dispatch(1, 1)]);
    assert_eq!(ready(&mut model, 2), []);
    assert_eq!(finish(&mut model, 1, 1), []);
    assert_eq!(ready(&mut model, 1), [dispatch(2, 1)]);
}

#[test]
fn a_session_waits_for_the_worker_that_has_just_run_it() {
    let mut model = model(2, 10);
    open(&mut model, 1);
    let _ = ready(&mut model, 1);
    let _ = ready(&mut model, 2);
    assert_eq!(submit_to(&mut model, 1, 1), [admit(1), dispatch(1, 1)]);
    assert_eq!(finish(&mut model, 1, 1), []);
    // Worker 2 would wait for a state that worker 1 keeps.
    assert_eq!(submit_to(&mut model, 2, 1), [admit(2)]);
    assert_eq!(ready(&mut model, 1), [dispatch(2, 1)]);
}

#[test]
fn a_session_whose_worker_is_busy_with_something_else_moves() {
    let mut model = model(2, 10);
    open(&mut model, 1);
    let _ = ready(&mut model, 1);
    assert_eq!(submit_to(&mut model, 1, 1), [admit(1), dispatch(1, 1)]);
    let _ = finish(&mut model, 1, 1);
    let _ = ready(&mut model, 1);
    assert_eq!(submit(&mut model, 2), [admit(2), dispatch(2, 1)]);
    let _ = ready(&mut model, 2);
    assert_eq!(submit_to(&mut model, 3, 1), [admit(3), dispatch(3, 2)]);
}

#[test]
fn jobs_go_where_no_session_has_to_make_way() {
    let mut model = model(3, 10);
    open(&mut model, 1);
    open(&mut model, 2);
    let _ = ready(&mut model, 1);
    let _ = submit_to(&mut model, 1, 1);
    let _ = finish(&mut model, 1, 1);
    let _ = ready(&mut model, 1);
    let _ = ready(&mut model, 2);
    let _ = ready(&mut model, 3);
    assert_eq!(submit(&mut model, 2), [admit(2), dispatch(2, 2)]);
    assert_eq!(submit_to(&mut model, 3, 2), [admit(3), dispatch(3, 3)]);
    assert_eq!(submit_to(&mut model, 4, 1), [admit(4), dispatch(4, 1)]);
}

#[test]
fn a_session_whose_state_was_replaced_is_nowhere() {
    let mut model = model(2, 10);
    open(&mut model, 1);
    let _ = ready(&mut model, 1);
    let _ = submit_to(&mut model, 1, 1);
    let _ = finish(&mut model, 1, 1);
    let _ = ready(&mut model, 2);
    let _ = ready(&mut model, 1);
    assert_eq!(model.resident(WorkerId(1)), Some(SessionId(1)));
    assert_eq!(model.handle(Event::SessionMoved(SessionId(1))), []);
    assert_eq!(model.resident(WorkerId(1)), None);
    assert_eq!(submit_to(&mut model, 2, 1), [admit(2), dispatch(2, 2)]);
}

#[test]
fn sessions_and_isolated_jobs_share_what_may_run_at_once() {
    let mut model = model(1, 10);
    open(&mut model, 1);
    let _ = ready(&mut model, 1);
    let _ = ready(&mut model, 2);
    assert_eq!(submit_to(&mut model, 1, 1), [admit(1), dispatch(1, 1)]);
    assert_eq!(submit(&mut model, 2), [admit(2)]);
    assert_eq!(finish(&mut model, 1, 1), [dispatch(2, 2)]);
}

#[test]
fn a_lost_session_settles_its_jobs_and_takes_no_more() {
    let mut model = model(2, 10);
    open(&mut model, 1);
    let _ = ready(&mut model, 1);
    let _ = submit_to(&mut model, 1, 1);
    let _ = submit_to(&mut model, 2, 1);
    let lost = Event::SessionLost { session: SessionId(1), reason: "lost".to_owned() };
    let settled = Effect::Settle(JobId(2), Settlement::SessionLost("lost".to_owned()));
    assert_eq!(model.handle(lost), [settled, ended(1, "lost")]);
    assert_eq!(finish(&mut model, 1, 1), []);
    let effects = submit_to(&mut model, 3, 1);
    assert!(matches!(effects[..], [Effect::Refuse(_, Refusal::SessionGone { .. })]));
}

#[test]
fn a_closed_session_finishes_its_jobs_first() {
    let mut model = model(2, 10);
    open(&mut model, 1);
    let _ = ready(&mut model, 1);
    let _ = submit_to(&mut model, 1, 1);
    assert_eq!(model.handle(Event::SessionClosed(SessionId(1))), []);
    let effects = submit_to(&mut model, 2, 1);
    assert!(matches!(effects[..], [Effect::Refuse(_, Refusal::SessionGone { .. })]));
    assert_eq!(finish(&mut model, 1, 1), [ended(1, "it was closed")]);
}

#[test]
fn sessions_count_until_they_end() {
    let mut model = model(2, 10);
    open(&mut model, 1);
    open(&mut model, 2);
    assert_eq!(model.refuses_session(), Some(Refusal::TooManySessions { limit: 2 }));
    assert_eq!(model.handle(Event::SessionClosed(SessionId(1))), [ended(1, "it was closed")]);
    assert_eq!(model.refuses_session(), None);
}

#[test]
fn a_dead_worker_settles_its_job() {
    let mut model = model(1, 10);
    let _ = submit(&mut model, 1);
    let _ = ready(&mut model, 1);
    let settled = Effect::Settle(JobId(1), Settlement::WorkerDied("died".to_owned()));
    assert_eq!(model.handle(gone(1, true, false)), [settled]);
    assert_eq!(submit(&mut model, 2), [admit(2)]);
}

#[test]
fn a_dead_worker_takes_the_session_that_was_on_it_unless_its_state_is_elsewhere() {
    let mut model = model(2, 10);
    open(&mut model, 1);
    open(&mut model, 2);
    for worker in [1, 2] {
        let _ = ready(&mut model, worker);
        let _ = submit_to(&mut model, worker, worker);
        let _ = finish(&mut model, worker, worker);
    }
    assert_eq!(model.handle(gone(1, true, true)), [ended(1, "died")]);
    assert_eq!(model.handle(gone(2, true, false)), []);
    assert!(!model.is_open(SessionId(1)) && model.is_open(SessionId(2)));
    let _ = ready(&mut model, 3);
    assert_eq!(submit_to(&mut model, 3, 2), [admit(3), dispatch(3, 3)]);
}

#[test]
fn without_workers_nothing_waits_in_vain() {
    let mut model = model(1, 10);
    open(&mut model, 1);
    let _ = submit(&mut model, 1);
    let _ = submit_to(&mut model, 2, 1);
    assert_eq!(model.handle(gone(1, false, false)), []);
    let settled = |job| Effect::Settle(JobId(job), Settlement::NoWorker("died".to_owned()));
    assert_eq!(model.handle(gone(2, false, false)), [settled(1), settled(2)]);
    let refused = Refusal::NoWorker { reason: "died".to_owned() };
    assert_eq!(submit(&mut model, 3), [Effect::Refuse(JobId(3), refused)]);
}

#[test]
fn the_oldest_job_is_known_wherever_it_waits() {
    let mut model = model(2, 10);
    open(&mut model, 1);
    let _ = submit_to(&mut model, 1, 1);
    let _ = submit_to(&mut model, 2, 1);
    let _ = submit(&mut model, 3);
    assert_eq!(model.oldest(), Some(JobId(1)));
    let _ = ready(&mut model, 1);
    assert_eq!(model.oldest(), Some(JobId(2)));
}

#[test]
fn draining_finishes_what_was_admitted() {
    let mut model = model(1, 10);
    open(&mut model, 1);
    let _ = submit(&mut model, 1);
    assert_eq!(model.handle(Event::Draining), []);
    let refused = Effect::Refuse(JobId(2), Refusal::ShuttingDown);
    assert_eq!(submit(&mut model, 2), [refused]);
    let _ = ready(&mut model, 1);
    assert_eq!(finish(&mut model, 1, 1), [ended(1, "the pool has shut down"), Effect::Drained]);
    assert_eq!(model.phase(), Phase::Drained);
}
