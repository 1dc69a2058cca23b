//! Idle sessions: where their states go, in which order and why, and how they come back.

use std::time::Duration;

use engine::Verdict;
use pool::{BuildId, SessionId};
use scheduler::{
    DecisionKind, Decisions, EvictedTo, EvictionReason, JobRequest, Refusal, SchedulerConfig,
    SessionsConfig, WorkersConfig,
};
use tokio::time::advance;

use crate::{Rig, config, find, next, rig_with, script, script_in, standing_still, until, within};

/// Sessions stay where they are, except for what a test sets.
fn patient() -> SessionsConfig {
    let long = Duration::from_secs(100_000);
    SessionsConfig { suspend_after: long, offload_after: long, ..SessionsConfig::default() }
}

async fn rig_of(sessions: SessionsConfig) -> Rig {
    rig_with(SchedulerConfig { sessions, ..config(1) }).await
}

async fn open(rig: &Rig, name: &str) -> SessionId {
    rig.scheduler.open_session(name, BuildId::default()).await.unwrap().0
}

async fn count(rig: &Rig, session: SessionId) -> u64 {
    let outcome = rig.run(script_in("count", session)).await;
    let Verdict::Completed { value: Some(value), .. } = &outcome.verdict else {
        panic!("{outcome:?}")
    };
    value.as_u64().unwrap()
}

/// Receives the next eviction: its session, destination and reason.
async fn evicted(decisions: &mut Decisions) -> (SessionId, EvictedTo, EvictionReason) {
    find(decisions, |kind| match kind {
        DecisionKind::Evicted { session, to, reason } => Some((*session, *to, reason.clone())),
        _ => None,
    })
    .await
}

/// Receives the next session that is offloaded to disk.
async fn offloaded(decisions: &mut Decisions) -> (SessionId, EvictionReason) {
    loop {
        if let (session, EvictedTo::Disk, reason) = evicted(decisions).await {
            return (session, reason);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_is_suspended_then_offloaded_and_comes_back() {
    standing_still(async {
        let sessions = SessionsConfig {
            suspend_after: Duration::from_secs(10),
            offload_after: Duration::from_secs(60),
            ..patient()
        };
        let rig = rig_of(sessions).await;
        let mut decisions = rig.scheduler.decisions();
        let session = open(&rig, "a").await;
        for round in 1..=3 {
            assert_eq!(count(&rig, session).await, round);
            assert_eq!(rig.status().places.on_workers, 1);
            advance(Duration::from_secs(11)).await;
            until(&rig.scheduler, |status| status.places.suspended == 1).await;
            let (who, to, why) = evicted(&mut decisions).await;
            assert_eq!((who, to), (session, EvictedTo::Memory));
            let EvictionReason::Idle { rested } = why else { panic!("{why:?}") };
            assert!(rested >= Duration::from_secs(10), "{rested:?}");
            advance(Duration::from_secs(60)).await;
            // The scheduler learns of it a moment after it is there.
            until(&rig.scheduler, |status| {
                status.places.on_disk == 1 && status.memory.disk_bytes > 0
            })
            .await;
            let (who, why) = offloaded(&mut decisions).await;
            assert_eq!(who, session);
            let EvictionReason::Idle { rested } = why else { panic!("{why:?}") };
            assert!(rested >= Duration::from_secs(60), "{rested:?}");
            let status = rig.status();
            let told = status.sessions[0].evicted.as_ref().expect("the reason is known");
            assert!(told.contains("was idle for"), "{told}");
        }
        assert_eq!(count(&rig, session).await, 4);
        until(&rig.scheduler, |status| status.memory.disk_bytes == 0).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_session_that_was_copied_while_it_was_offloaded_is_offloaded_again() {
    standing_still(async {
        let (suspend_after, offload_after) = (Duration::from_secs(10), Duration::from_secs(60));
        let rig = rig_of(SessionsConfig { suspend_after, offload_after, ..patient() }).await;
        let session = open(&rig, "a").await;
        assert_eq!(count(&rig, session).await, 1);
        for _ in 0..3 {
            // Each copy is made by a worker, which has nothing to suspend afterwards.
            advance(suspend_after + Duration::from_secs(1)).await;
            until(&rig.scheduler, |status| status.places.suspended == 1).await;
            advance(offload_after).await;
            until(&rig.scheduler, |status| status.memory.disk_bytes > 0).await;
            assert!(within(rig.scheduler.capture(session)).await.unwrap().is_some());
            until(&rig.scheduler, |status| status.memory.disk_bytes == 0).await;
            assert_eq!(rig.status().places.suspended, 1);
            assert_eq!(rig.status().tenants, [], "a finished copy runs no more");
        }
        assert_eq!(count(&rig, session).await, 2);
    })
    .await;
}

#[tokio::test]
async fn beyond_in_memory_the_longest_idle_sessions_are_offloaded_first() {
    let rig = rig_of(SessionsConfig { in_memory: 2, ..patient() }).await;
    let mut decisions = rig.scheduler.decisions();
    let [a, b, c] = [open(&rig, "a").await, open(&rig, "b").await, open(&rig, "c").await];
    for session in [a, b, c] {
        assert_eq!(count(&rig, session).await, 1);
    }
    let limit = EvictionReason::TooManyInMemory { limit: 2 };
    assert_eq!(offloaded(&mut decisions).await, (a, limit.clone()));
    // It comes back, and the one that is longest idle by now is offloaded.
    assert_eq!(count(&rig, a).await, 2);
    assert_eq!(offloaded(&mut decisions).await, (b, limit.clone()));
    assert_eq!(count(&rig, c).await, 2);
    assert_eq!(count(&rig, b).await, 2);
    assert_eq!(offloaded(&mut decisions).await, (a, limit));
    until(&rig.scheduler, |status| {
        let places = status.places;
        places.on_workers + places.suspended + places.compressed <= 2 && places.on_disk == 1
    })
    .await;
}

#[tokio::test]
async fn many_sessions_move_between_memory_and_disk_and_lose_nothing() {
    let sessions = SessionsConfig { in_memory: 3, ..patient() };
    let rig = rig_with(SchedulerConfig { sessions, ..config(2) }).await;
    let mut open_ones = Vec::new();
    for number in 0..20 {
        open_ones.push(open(&rig, &number.to_string()).await);
    }
    for round in 1..=5 {
        let mut tickets = Vec::new();
        for place in 0..20 {
            let session = open_ones[(place * 7 + round) % 20];
            tickets.push(rig.submit(script_in("count", session)).await);
        }
        for ticket in tickets {
            let outcome = within(ticket.into_future()).await;
            let Verdict::Completed { value: Some(value), .. } = &outcome.verdict else {
                panic!("{outcome:?}")
            };
            assert_eq!(value.as_u64(), Some(round as u64));
        }
    }
    rig.wait_until_idle().await;
    until(&rig.scheduler, |status| status.places.on_disk >= 17).await;
    for session in open_ones {
        rig.scheduler.close_session(session);
    }
    until(&rig.scheduler, |status| status.sessions.is_empty()).await;
    until(&rig.scheduler, |status| status.memory.disk_bytes == 0).await;
}

#[tokio::test]
async fn a_session_with_jobs_is_never_evicted() {
    let sessions = SessionsConfig {
        suspend_after: Duration::ZERO,
        offload_after: Duration::ZERO,
        ..patient()
    };
    let rig = rig_of(sessions).await;
    let mut decisions = rig.scheduler.decisions();
    let session = open(&rig, "a").await;
    let running = rig.submit(script_in("wait", session)).await;
    until(&rig.scheduler, |status| status.running == 1).await;
    until(&rig.scheduler, |status| status.places.on_workers == 1).await;
    rig.source.open();
    assert!(within(running.into_future()).await.is_success());
    // No eviction may come before the job's end.
    loop {
        match next(&mut decisions).await.kind {
            DecisionKind::Ended { .. } => break,
            DecisionKind::Evicted { reason, .. } => panic!("{reason}"),
            _ => {}
        }
    }
    until(&rig.scheduler, |status| status.places.on_disk == 1).await;
    assert_eq!(count(&rig, session).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_idles_too_long_is_closed() {
    standing_still(async {
        let close_after = Some(Duration::from_secs(500));
        let rig = rig_of(SessionsConfig { close_after, ..patient() }).await;
        let mut decisions = rig.scheduler.decisions();
        let (idle, used) = (open(&rig, "idle").await, open(&rig, "used").await);
        assert_eq!(count(&rig, idle).await, 1);
        assert_eq!(count(&rig, used).await, 1);
        advance(Duration::from_secs(400)).await;
        assert_eq!(count(&rig, used).await, 2);
        advance(Duration::from_secs(150)).await;
        until(&rig.scheduler, |status| status.sessions.len() == 1).await;
        let ended = find(&mut decisions, |kind| match kind {
            DecisionKind::SessionEnded { session, .. } => Some(*session),
            _ => None,
        })
        .await;
        assert_eq!(ended, idle);
        let refused = rig.scheduler.submit(script_in("ok", idle)).await.unwrap_err();
        assert!(matches!(refused, Refusal::SessionGone(..)), "{refused}");
        assert_eq!(count(&rig, used).await, 3);
    })
    .await;
}

#[tokio::test]
async fn a_session_that_can_not_be_offloaded_stays_and_that_is_reported() {
    use test_support::fake::{Gate, Step};

    let rig = rig_of(SessionsConfig { in_memory: 1, ..patient() }).await;
    let mut decisions = rig.scheduler.decisions();
    let (first, second) = (open(&rig, "a").await, open(&rig, "b").await);
    rig.source.gate(Step::Pack, [Gate::Err]);
    assert_eq!(count(&rig, first).await, 1);
    assert_eq!(count(&rig, second).await, 1);
    let (who, error) = find(&mut decisions, |kind| match kind {
        DecisionKind::NotEvicted { session, error } => Some((*session, error.clone())),
        _ => None,
    })
    .await;
    assert_eq!(who, first);
    assert!(!error.is_empty());
    assert_eq!(count(&rig, first).await, 2);
}

#[tokio::test]
async fn short_memory_evicts_idle_sessions_then_refuses() {
    const SOURCE: usize = 2 << 20;
    let config = SchedulerConfig { memory_bytes: 64 << 20, sessions: patient(), ..config(1) };
    let rig = rig_with(config).await;
    let mut decisions = rig.scheduler.decisions();
    let (first, second) = (open(&rig, "a").await, open(&rig, "b").await);
    assert_eq!(count(&rig, first).await, 1);
    assert_eq!(count(&rig, second).await, 1);
    assert!(rig.run(script("ok")).await.is_success());
    let mut tickets = vec![rig.submit(script("wait")).await];
    until(&rig.scheduler, |status| status.running == 1).await;
    let refused = loop {
        let large = script(&format!("ok{}", " ".repeat(SOURCE)));
        match rig.scheduler.submit(large).await {
            Ok(ticket) => tickets.push(ticket),
            Err(refused) => break refused,
        }
        assert!(tickets.len() < 40, "64 MiB are 32 sources");
    };
    let Refusal::NoMemory { used, needed, limit, .. } = refused else { panic!("{refused}") };
    assert_eq!(limit, 64 << 20);
    assert!(used + needed > limit, "{refused}");
    assert!(refused.is_overload());
    let (who, _, why) = evicted_under_pressure(&mut decisions).await;
    assert_eq!(who, first, "it has been idle longest");
    assert!(matches!(why, EvictionReason::MemoryPressure { .. }), "{why:?}");
    until(&rig.scheduler, |status| status.places.on_disk == 2).await;
    rig.source.open();
    for ticket in tickets {
        assert!(within(ticket.into_future()).await.is_success());
    }
    assert_eq!(count(&rig, first).await, 2);
    assert_eq!(count(&rig, second).await, 2);
    assert!(rig.run(script(&format!("ok{}", " ".repeat(SOURCE)))).await.is_success());
}

/// Receives the next session that is evicted because memory is short.
async fn evicted_under_pressure(
    decisions: &mut Decisions,
) -> (SessionId, EvictedTo, EvictionReason) {
    loop {
        let found = evicted(decisions).await;
        if matches!(found.2, EvictionReason::MemoryPressure { .. }) {
            return found;
        }
    }
}

#[tokio::test]
async fn times_beyond_the_clock_do_no_harm() {
    let never = Duration::MAX;
    let sessions = SessionsConfig {
        suspend_after: never,
        offload_after: never,
        close_after: Some(never),
        ..SessionsConfig::default()
    };
    let workers = WorkersConfig { min: 0, shrink_after: never, ..config(1).workers };
    let rig = rig_with(SchedulerConfig { sessions, workers, ..config(1) }).await;
    let session = open(&rig, "a").await;
    assert_eq!(count(&rig, session).await, 1);
    for deadline in [Duration::from_secs(u64::MAX), never] {
        let request = JobRequest { deadline: Some(deadline), ..script("ok") };
        assert!(rig.run(request).await.is_success());
    }
    assert_eq!(count(&rig, session).await, 2);
    within(rig.scheduler.drain_for(never)).await;
}

#[tokio::test]
async fn a_displaced_session_is_reported_and_a_lost_one_says_why() {
    let rig = rig_of(patient()).await;
    let mut decisions = rig.scheduler.decisions();
    let session = open(&rig, "a").await;
    assert_eq!(count(&rig, session).await, 1);
    assert!(rig.run(script("ok")).await.is_success());
    let (moved, to, reason) = evicted(&mut decisions).await;
    assert_eq!((moved, to), (session, EvictedTo::Memory));
    assert!(matches!(reason, EvictionReason::WorkerNeeded { .. }), "{reason}");
    assert_eq!(count(&rig, session).await, 2);

    rig.run(script_in("lose", session)).await;
    let refused = rig.scheduler.submit(script_in("ok", session)).await.unwrap_err();
    let cause =
        "a run that was stopped by force took its state with it, and there was no copy".into();
    assert_eq!(refused, Refusal::SessionGone(cause));
}
