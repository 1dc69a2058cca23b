//! Which sessions are evicted, in which order and why.

use pool::{OffloadError, Tier};

use std::collections::BTreeMap;

use engine::SharedBytes;

use super::explain::reason;
use super::*;
use crate::config::TenantConfig;
use crate::explain::WaitReason;
use crate::policy::residency::ForkedSessions;

fn config() -> SchedulerConfig {
    let sessions = SessionsConfig {
        open: 100,
        in_memory: 100,
        disk_bytes: 10_000,
        suspend_after: seconds(10),
        offload_after: seconds(100),
        close_after: None,
        depth: 3,
    };
    SchedulerConfig { sessions, ..roomy() }
}

fn offload(session: u64, tier: Tier, reason: EvictionReason) -> Effect {
    Effect::Offload(SessionId(session), tier, reason)
}

fn pressure(used: u64, limit: u64) -> EvictionReason {
    EvictionReason::MemoryPressure { used, limit }
}

fn idle(rested: u64) -> EvictionReason {
    EvictionReason::Idle { rested: seconds(rested) }
}

fn offloaded(
    harness: &mut Harness,
    session: u64,
    tier: Tier,
    result: Result<u64, OffloadError>,
) -> Vec<Effect> {
    harness.send(Event::Offloaded { session: SessionId(session), tier, result })
}

fn unchanged() -> Result<u64, OffloadError> {
    Err(OffloadError::Unchanged("no".into()))
}

#[test]
fn an_idle_session_that_can_not_be_suspended_stays_until_it_is_closed() {
    let mut config = config();
    config.sessions.close_after = Some(seconds(1_000));
    let mut harness = Harness::new(config);
    harness.open(1);
    let _ = harness.ready(1);
    let _ = harness.submit_to(1, 1);
    let _ = harness.finish(1, 1);
    let (worker, build) = (WorkerId(1), BuildId(0));
    let ready = |stays| Event::Ready { worker, build, memory_bytes: 0, kept_bytes: 0, stays };
    assert_eq!(harness.send(ready(true)), []);
    assert_eq!(harness.model.next_wake(), Some(seconds(1_000)));
    assert_eq!(harness.pass(seconds(999)), []);
    assert!(!harness.pass(seconds(1)).is_empty(), "it is closed");
}

#[test]
fn an_idle_session_is_suspended_then_offloaded_then_closed() {
    let mut config = config();
    config.sessions.close_after = Some(seconds(1_000));
    let mut harness = Harness::new(config);
    harness.open(1);
    let _ = harness.ready(1);
    harness.run(1, Queued { session: Some(SessionId(1)), ..queued() }, Duration::ZERO);
    assert_eq!(harness.model.next_wake(), Some(seconds(10)));
    let vacate = Effect::Vacate(WorkerId(1), SessionId(1), idle(10));
    assert_eq!(harness.pass(seconds(10)), [vacate]);
    assert_eq!(harness.suspend(1, 600), []);
    assert_eq!(harness.ready(1), []);
    assert_eq!(harness.model.memory().session_bytes, 600);
    assert_eq!(harness.model.next_wake(), Some(seconds(100)));
    assert_eq!(harness.pass(seconds(90)), [offload(1, Tier::Disk, idle(100))]);
    assert_eq!(harness.model.next_wake(), Some(seconds(1_000)));
    assert_eq!(offloaded(&mut harness, 1, Tier::Disk, Ok(300)), []);
    assert_eq!(
        harness.model.session(SessionId(1)).and_then(|session| session.evicted.as_ref()),
        Some(&idle(100))
    );
    let memory = harness.model.memory();
    assert_eq!((memory.session_bytes, memory.disk_bytes), (0, 300));
    assert_eq!(harness.pass(seconds(900)), [ended(1, "it was idle for 1000.0 s")]);
    assert_eq!(harness.model.memory().disk_bytes, 0);
}

#[test]
fn a_session_that_never_reached_its_worker_is_evicted_all_the_same() {
    let mut harness = Harness::new(config());
    harness.open(1);
    let _ = harness.ready(1);
    // The worker could not bring up its state, so it is suspended while the model still counts it as
    // there.
    let _ = harness.submit_to(1, 1);
    let _ = harness.suspend(1, 600);
    let _ = harness.finish(1, 1);
    let _ = harness.ready(1);
    let _ = harness.pass(seconds(10));
    assert_eq!(harness.ready(1), []);
    assert_eq!(harness.model.memory().session_bytes, 600);
    assert_eq!(harness.pass(seconds(90)), [offload(1, Tier::Disk, idle(100))]);
}

#[test]
fn only_the_worker_that_holds_a_session_suspends_it() {
    let mut harness = Harness::new(config());
    harness.open(1);
    let (_, _) = (harness.ready(1), harness.submit_to(1, 1));
    let (_, _) = (harness.finish(1, 1), harness.ready(1));
    // An isolated job displaces it from one worker, and a turn brings it to the other.
    let _ = harness.submit(2);
    let (_, _) = (harness.ready(2), harness.submit_to(3, 1));
    let (_, _) = (harness.finish(2, 3), harness.ready(2));
    let _ = harness.pass(seconds(10));
    assert_eq!(harness.finish(1, 2), concluded([]));
    assert_eq!(harness.pass(seconds(1_000)), [], "the second worker has it still");
    assert_eq!(harness.ready(2), [offload(1, Tier::Disk, idle(1_010))]);
}

#[test]
fn memory_that_is_short_compresses_then_offloads_then_refuses() {
    let mut harness = Harness::new(SchedulerConfig { memory_bytes: 1_000, ..config() });
    let _ = harness.open_with(1, 390);
    harness.now = seconds(1);
    let _ = harness.open_with(2, 400);
    // From four fifths on, the longest idle sessions are compressed, one after the other.
    harness.now = seconds(2);
    assert_eq!(harness.open_with(3, 20), [offload(1, Tier::Compressed, pressure(810, 1_000))]);
    let _ = harness.submit_as(1, Queued { bytes: 190, ..queued() });
    // From nine tenths on, the longest idle session is offloaded, compressed or not.
    let effects = offloaded(&mut harness, 1, Tier::Compressed, Ok(300));
    assert_eq!(effects, [offload(1, Tier::Disk, pressure(910, 1_000))]);
    let effects = offloaded(&mut harness, 1, Tier::Disk, unchanged());
    assert_eq!(effects, [offload(2, Tier::Disk, pressure(910, 1_000))]);
    // The bytes of the present offload count as free, but no others.
    let refused = harness.submit_as(2, Queued { bytes: 500, ..queued() });
    assert!(matches!(refusal_of(&refused), Refusal::NoMemory { .. }));
    assert_eq!(harness.submit_as(3, Queued { bytes: 490, ..queued() }), admitted([]));
    let effects = offloaded(&mut harness, 2, Tier::Disk, Ok(400));
    // Session 1 is not offloaded again until it has run.
    assert_eq!(effects, [offload(3, Tier::Disk, pressure(1_000, 1_000))]);
    assert_eq!(offloaded(&mut harness, 3, Tier::Disk, Ok(20)), []);
    assert_eq!(harness.model.memory().disk_bytes, 420);
}

#[test]
fn a_full_disk_is_tried_again_later_and_what_it_did_not_take_is_compressed() {
    let mut harness = Harness::new(SchedulerConfig { memory_bytes: 1_000, ..config() });
    let _ = harness.open_with(1, 500);
    harness.now = seconds(1);
    let to_disk = harness.open_with(2, 420);
    assert_eq!(to_disk, [offload(1, Tier::Disk, pressure(920, 1_000))]);
    // It takes less memory now; nothing else is offloaded meanwhile.
    let full = || Err(OffloadError::NotWritten { cause: "full".into(), bytes: 450 });
    let next = offload(2, Tier::Compressed, pressure(870, 1_000));
    assert_eq!(offloaded(&mut harness, 1, Tier::Disk, full()), [next]);
    assert_eq!(harness.model.memory().session_bytes, 870);
    assert_eq!(
        harness.model.session(SessionId(1)).and_then(|session| session.evicted.as_ref()),
        Some(&pressure(920, 1_000))
    );
    assert_eq!(offloaded(&mut harness, 2, Tier::Compressed, Ok(410)), []);
    let refused = harness.submit_as(1, Queued { bytes: 200, ..queued() });
    assert!(matches!(refusal_of(&refused), Refusal::NoMemory { .. }), "{refused:?}");
    assert_eq!(harness.submit_as(2, Queued { bytes: 100, ..queued() }).0, Ok(()));
    assert_eq!(harness.model.next_wake(), Some(seconds(11)));
    // Smaller sessions may fit, and go first.
    let to_disk = offload(2, Tier::Disk, pressure(960, 1_000));
    assert_eq!(harness.pass(seconds(10)), [to_disk]);
    assert_eq!(offloaded(&mut harness, 2, Tier::Disk, full()), []);
    assert_eq!(harness.model.next_wake(), Some(seconds(21)));
    assert_eq!(harness.pass(seconds(10)), []);
    assert_eq!(harness.model.next_wake(), Some(seconds(61)));
    let used = harness.model.memory().used_bytes();
    let to_disk = offload(1, Tier::Disk, pressure(used, 1_000));
    assert_eq!(harness.pass(seconds(40)), [to_disk]);
    assert_eq!(offloaded(&mut harness, 1, Tier::Disk, Ok(450)), []);
    assert_eq!(harness.model.memory().disk_bytes, 450);
}

#[test]
fn beyond_in_memory_the_least_recently_used_session_is_offloaded() {
    let mut config = config();
    config.sessions.in_memory = 2;
    let mut harness = Harness::new(config);
    for session in 1..=2 {
        harness.now = seconds(session);
        assert_eq!(harness.open_with(session, 100), []);
    }
    // Session 1 is used again, so session 2 has been idle longest.
    let _ = harness.ready(1);
    harness.run(1, Queued { session: Some(SessionId(1)), ..queued() }, seconds(1));
    let many = EvictionReason::TooManyInMemory { limit: 2 };
    assert_eq!(harness.open_with(3, 100), [offload(2, Tier::Disk, many)]);
    assert_eq!(offloaded(&mut harness, 2, Tier::Disk, Ok(100)), []);
}

#[test]
fn sessions_with_jobs_are_not_evicted() {
    let mut config = config();
    config.sessions.offload_after = Duration::ZERO;
    config.concurrent = 1;
    let mut harness = Harness::new(config);
    let _ = harness.ready(1);
    let _ = harness.submit(1);
    let to_disk = harness.open_with(1, 100);
    assert_eq!(to_disk, [offload(1, Tier::Disk, idle(0))]);
    // It is wanted before it is on disk, and is taken up from wherever it is.
    let _ = harness.submit_to(2, 1);
    assert_eq!(harness.finish(1, 1), concluded([]));
    assert_eq!(harness.ready(1), [dispatch(2, 1)]);
    assert_eq!(offloaded(&mut harness, 1, Tier::Disk, unchanged()), []);
    assert_eq!(harness.model.memory().disk_bytes, 0);
    assert_eq!(harness.open_with(2, 0), []);
    let _ = harness.submit_to(3, 2);
    assert_eq!(harness.pass(seconds(50)), []);
}

#[test]
fn a_session_that_a_worker_unpacked_before_it_died_is_in_memory() {
    let mut config = config();
    config.sessions.offload_after = Duration::ZERO;
    let mut harness = Harness::new(config);
    assert_eq!(harness.open_with(1, 100), [offload(1, Tier::Disk, idle(0))]);
    assert_eq!(offloaded(&mut harness, 1, Tier::Disk, Ok(90)), []);
    let places = |harness: &Harness| {
        let memory = harness.model.memory();
        (memory.session_bytes, memory.disk_bytes)
    };
    assert_eq!(places(&harness), (0, 90));
    let _ = harness.ready(1);
    // A worker that died before it took up the state left it on disk.
    assert_eq!(harness.submit_to(1, 1), admitted([dispatch(1, 1)]));
    let _ = harness.gone(1, true, false);
    assert_eq!(places(&harness), (0, 90));
    let _ = harness.ready(2);
    assert_eq!(harness.submit_to(2, 1), admitted([dispatch(2, 2)]));
    let _ = harness.suspend(1, 100);
    assert!(harness.gone(2, true, false).contains(&offload(1, Tier::Disk, idle(0))));
    assert_eq!(places(&harness), (100, 0));
}

#[test]
fn what_does_not_fit_on_the_disk_stays() {
    let mut config = config();
    config.sessions.disk_bytes = 150;
    config.sessions.offload_after = seconds(1);
    let mut harness = Harness::new(config);
    let _ = harness.open_with(1, 200);
    let _ = harness.open_with(2, 100);
    assert_eq!(harness.pass(seconds(1)), [offload(2, Tier::Disk, idle(1))]);
    assert_eq!(offloaded(&mut harness, 2, Tier::Disk, Ok(90)), []);
    assert_eq!(harness.model.next_wake(), None);
}

#[test]
fn a_session_that_no_memory_or_disk_could_hold_is_not_opened() {
    let mut config = SchedulerConfig { memory_bytes: 1_000, ..config() };
    config.sessions.disk_bytes = 300;
    let mut harness = Harness::new(config);
    assert_eq!(harness.refused_session(1_000), None);
    let _ = harness.open_with(1, 300);
    assert_eq!(harness.refused_session(1_000), None);
    let _ = harness.open_with(2, 400);
    let refused = harness.refused_session(700);
    assert!(matches!(refused, Some(Refusal::NoMemory { used: 700, needed: 700, .. })));
}

#[test]
fn a_job_displaces_the_longest_idle_session() {
    let mut harness = Harness::new(config());
    for session in [1, 2] {
        harness.open(session);
        let _ = harness.ready(session);
        let _ = harness.submit_to(session, session);
    }
    for (at, worker) in [(1, 2), (2, 1)] {
        harness.now = seconds(at);
        let _ = harness.finish(worker, worker);
        let _ = harness.ready(worker);
    }
    assert_eq!(harness.submit(3), admitted([displace(2, 2), dispatch(3, 2)]));
    assert_eq!(harness.suspend(2, 50), []);
    assert_eq!(harness.model.memory().session_bytes, 50);
}

#[test]
fn what_forks_share_counts_once_until_the_last_of_them_has_ended() {
    let mut harness = Harness::new(config());
    let _ = harness.open_with(1, 300);
    let shared = |id| Some(SharedBytes { id, bytes: 300, whole_bytes: 300 });
    let forked = |parent, first, id, has_base| {
        let (parent, first) = (SessionId(parent), SessionId(first));
        let forked =
            ForkedSessions { parent, first, count: 10, bytes: 0, shared: shared(id), has_base };
        Event::SessionsForked(forked)
    };
    assert_eq!(harness.send(forked(1, 10, 7, true)), []);
    assert_eq!(harness.model.memory().session_bytes, 300);
    assert_eq!(harness.send(forked(1, 20, 7, true)), []);
    assert_eq!(harness.model.memory().session_bytes, 300);
    // A turn makes one of them different, and another one is restored from a checkpoint.
    let _ = harness.send(Event::SessionMoved { session: SessionId(10), bytes: 50 });
    assert_eq!(harness.model.memory().session_bytes, 350);
    let _ = harness.send(Event::SessionClosed(SessionId(1)));
    (11..29).for_each(|fork| drop(harness.send(Event::SessionClosed(SessionId(fork)))));
    assert_eq!(harness.model.memory().session_bytes, 350);
    let _ = harness.send(Event::SessionClosed(SessionId(29)));
    assert_eq!(harness.model.memory().session_bytes, 50);
}

#[test]
fn a_session_whose_forks_have_ended_is_offloaded_with_what_they_shared() {
    let mut harness = Harness::new(config());
    let _ = harness.open_with(1, 300);
    let fork = |first, has_base| {
        let shared = Some(SharedBytes { id: 7, bytes: 300, whole_bytes: 300 });
        let (parent, first, count) = (SessionId(1), SessionId(first), 2);
        Event::SessionsForked(ForkedSessions { parent, first, count, bytes: 0, shared, has_base })
    };
    let close = |harness: &mut Harness, forks: std::ops::Range<u64>| {
        forks.for_each(|fork| drop(harness.send(Event::SessionClosed(SessionId(fork)))));
    };
    let movable = |harness: &Harness| {
        let memory = harness.model.memory().session_bytes;
        (memory, harness.model.sessions.movable_bytes)
    };
    let _ = harness.send(fork(10, true));
    assert_eq!(movable(&harness), (300, 0));
    close(&mut harness, 10..12);
    assert_eq!(movable(&harness), (300, 300));
    // The same branch opens more forks.
    let _ = harness.send(fork(20, false));
    assert_eq!(movable(&harness), (300, 0));
    close(&mut harness, 20..22);
    assert_eq!(movable(&harness), (300, 300));
    let _ = harness.send(Event::SessionClosed(SessionId(1)));
    assert_eq!(movable(&harness), (0, 0));
}

#[test]
fn a_tenants_limit_counts_the_copy_that_an_idle_worker_has() {
    let ada = TenantConfig { session_bytes: 500, ..TenantConfig::default() };
    let tenants = BTreeMap::from([("ada".to_owned(), ada)]);
    let mut harness = Harness::new(SchedulerConfig { tenants, ..config() });
    let (session, tenant) = (SessionId(1), Arc::from("ada"));
    let _ = harness.send(Event::SessionOpened { session, tenant, bytes: 0 });
    let _ = harness.ready(1);
    let _ = harness.submit_to(1, 1);
    let _ = harness.finish(1, 1);
    let opening = Opening { tenant: "ada", count: 1, bytes: 0, held_bytes: 0, depth: 0 };
    assert_eq!(harness.model.refuses_sessions(&opening), None);
    let (worker, build) = (WorkerId(1), BuildId(0));
    let ready = Event::Ready { worker, build, memory_bytes: 0, kept_bytes: 500, stays: false };
    let _ = harness.send(ready);
    let refused = harness.model.refuses_sessions(&opening);
    assert!(matches!(refused, Some(Refusal::TenantSessionBytes { used: 500, .. })), "{refused:?}");
}

#[test]
fn the_limits_of_a_tenant_count_what_its_forks_share() {
    let ada = TenantConfig { sessions: 4, session_bytes: 500, ..TenantConfig::default() };
    let tenants = BTreeMap::from([("ada".to_owned(), ada)]);
    let mut harness = Harness::new(SchedulerConfig { tenants, ..config() });
    let (session, tenant, bytes) = (SessionId(1), Arc::from("ada"), 300);
    let _ = harness.send(Event::SessionOpened { session, tenant, bytes });
    let refused = |harness: &Harness, count, bytes, depth| {
        let opening = Opening { tenant: "ada", count, bytes: 0, held_bytes: bytes, depth };
        harness.model.refuses_sessions(&opening).map(|refusal| refusal.name())
    };
    assert_eq!(refused(&harness, 3, 200, 3), None);
    assert_eq!(refused(&harness, 4, 0, 1), Some("tenant_sessions"));
    assert_eq!(refused(&harness, 1, 201, 1), Some("tenant_session_bytes"));
    assert_eq!(refused(&harness, 1, 0, 4), Some("fork_depth"));
    let forked = |bytes| {
        let shared = Some(SharedBytes { id: 7, bytes, whole_bytes: bytes });
        let (parent, first, count) = (SessionId(1), SessionId(2), 3);
        ForkedSessions { parent, first, count, bytes: 0, shared, has_base: true }
    };
    // At rest it was compressed.
    let refusal = |bytes| harness.model.refuses_forks(&forked(bytes), "ada", 1);
    assert!(matches!(
        refusal(501),
        Some(Refusal::TenantSessionBytes { used: 300, needed: 201, limit: 500, .. })
    ));
    assert_eq!(refusal(500), None);
    let _ = harness.send(Event::SessionsForked(forked(300)));
    assert_eq!(refused(&harness, 1, 0, 1), Some("tenant_sessions"));
    let _ = harness.send(Event::SessionClosed(SessionId(1)));
    assert_eq!(refused(&harness, 1, 200, 1), None, "the forks hold 300 bytes");
    assert_eq!(refused(&harness, 1, 201, 1), Some("tenant_session_bytes"));
}

/// A pool whose only worker so far holds an idle session that can't be suspended.
fn with_kept_worker(most: usize) -> Harness {
    let workers = WorkersConfig { min: 1, max: most, spares: 0, ..WorkersConfig::default() };
    let mut harness = Harness::new(SchedulerConfig { workers, ..config() });
    harness.open(1);
    let _ = (harness.ready(1), harness.submit_to(1, 1));
    assert_eq!(end_turn(&mut harness, 1), []);
    harness
}

/// Ends a turn of the session, after which it still can't be suspended.
fn end_turn(harness: &mut Harness, job: u64) -> Vec<Effect> {
    let _ = harness.finish(1, job);
    let (worker, build) = (WorkerId(1), BuildId(0));
    harness.send(Event::Ready { worker, build, memory_bytes: 0, kept_bytes: 0, stays: true })
}

#[test]
fn a_job_waits_for_another_worker_rather_than_take_one_whose_session_would_be_lost() {
    let mut harness = with_kept_worker(2);
    assert_eq!(harness.submit(2), (Ok(()), vec![Effect::AddWorker]));
    assert_eq!(reason(&harness, 2), WaitReason::WorkersStarting { starting: 1 });
    // A turn of that session doesn't wait behind the job.
    let (_, effects) = harness.submit_to(3, 1);
    assert!(matches!(*effects, [Effect::Dispatch { worker: WorkerId(1), .. }]), "{effects:?}");
    assert_eq!(end_turn(&mut harness, 3), []);
    let effects = harness.ready(2);
    assert!(matches!(*effects, [Effect::Dispatch { worker: WorkerId(2), .. }]), "{effects:?}");
    let _ = harness.submit(4);
    let busy = WaitReason::WorkersBusy { running: 1, concurrent: 1 };
    assert_eq!(reason(&harness, 4), busy);
}

#[test]
fn a_session_that_can_not_be_suspended_is_lost_if_no_other_worker_can_come() {
    let mut harness = with_kept_worker(1);
    let (_, effects) = harness.submit(2);
    let lost = matches!(*effects, [Effect::Displace(SessionId(1), _), Effect::Dispatch { .. }]);
    assert!(lost, "{effects:?}");
}
