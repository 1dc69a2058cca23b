//! The scheduler with real programs: deadlines, tenants, memory, and its reports about them.

use std::fs;
use std::time::Duration;

use hatchery::decision::{DecisionKind, Decisions, EvictedTo, JobState, NextDecision, WaitReason};
use hatchery::status::{Phase, Status};
use hatchery::{
    Error, Hatchery, Job, LimitKind, Limits, Outcome, Priority, Refusal, Session, SessionsConfig,
    TenantConfig, Verdict,
};
use serde_json::{Value, json};

use crate::support::{builder, calm, next_output, value, with_own_pool};

async fn until(pool: &Hatchery, condition: impl Fn(&Status) -> bool) {
    while !condition(&pool.status()) {
        tokio::task::yield_now().await;
    }
}

/// Runs a job of a session, which must succeed, and returns the value of its last expression.
async fn ask(session: &Session, source: &str) -> Value {
    value(&session.run(Job::code(source)).await.expect("the session accepts jobs"))
}

fn endless() -> Job {
    Job::code("print('on')\nwhile True: pass")
}

#[track_caller]
fn is_due(outcome: &Outcome) {
    match &outcome.verdict {
        Verdict::Limit(hit) => assert_eq!(hit.limit, LimitKind::Deadline),
        verdict => panic!("{verdict:?}"),
    }
}

#[track_caller]
fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> Refusal {
    match result {
        Err(Error::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

/// Waits for the next decision for which `picks` returns a value.
async fn find<T>(decisions: &mut Decisions, picks: impl Fn(&DecisionKind) -> Option<T>) -> T {
    loop {
        let next = decisions.next().await;
        let Some(NextDecision::Decision(decision)) = next else { panic!("{next:?}") };
        if let Some(found) = picks(&decision.kind) {
            return found;
        }
    }
}

#[test]
fn a_deadline_ends_running_and_waiting_jobs_and_costs_no_session() {
    with_own_pool(builder(), |pool| async move {
        // Each is far longer than the scheduler would expect from the ones before.
        let due = Duration::from_millis(300);
        is_due(&pool.run(endless().deadline(due)).await.unwrap());
        let session = pool.session("due").await.unwrap();
        ask(&session, "x = 41\nx").await;
        is_due(&session.run(endless().deadline(due * 3)).await.unwrap());
        assert_eq!(ask(&session, "x + 1").await, json!(42));
        // The shorter of the two limits applies.
        let timeout = endless().deadline(Duration::from_secs(20)).timeout(due);
        assert!(pool.run(timeout).await.unwrap().is_timeout());

        let blockers =
            [pool.submit(endless()).await.unwrap(), pool.submit(endless()).await.unwrap()];
        until(&pool, |status| status.running == 2).await;
        let waiting = pool.submit(Job::code("1").deadline(due * 4)).await;
        match waiting {
            Ok(waiting) => is_due(&waiting.await),
            // By the measured times of the endless ones it can't be met.
            Err(refused) => {
                let refused = refusal::<()>(Err(refused));
                assert!(matches!(refused, Refusal::DeadlineTooSoon { .. }), "{refused}");
            }
        }
        drop(blockers);
        assert_eq!(value(&pool.run(Job::code("1").deadline(due * 20)).await.unwrap()), json!(1));
    });
}

#[test]
fn a_capped_tenant_leaves_the_other_workers_to_others() {
    let capped = TenantConfig { concurrent: 1, queued_count: 2, ..TenantConfig::default() };
    with_own_pool(builder().tenant("capped", capped), |pool| async move {
        let mut running = pool.submit(endless().tenant("capped")).await.unwrap();
        assert!(next_output(&mut running.events()).await.is_some());
        let first = pool.submit(Job::code("1").tenant("capped")).await.unwrap();
        let urgent = Job::code("2").tenant("capped").priority(Priority::High);
        let second = pool.submit(urgent).await.unwrap();
        let refused = refusal(pool.submit(Job::code("3").tenant("capped")).await);
        assert!(
            matches!(refused, Refusal::QueueFull { tenant: Some(_), queued: 2, .. }),
            "{refused}"
        );
        for _ in 0..10 {
            let other = Job::code("4").tenant("other").idempotent(false);
            assert_eq!(value(&pool.run(other).await.unwrap()), json!(4));
        }

        let explained = pool.explain(first.job_id()).await.unwrap();
        assert_eq!(explained.tenant, "capped");
        let JobState::Waiting { reason, ahead_in_tenant, .. } = &explained.state else {
            panic!("{explained}")
        };
        assert_eq!(*reason, WaitReason::TenantAtLimit { running: 1, limit: 1 });
        assert_eq!(*ahead_in_tenant, 1, "only the urgent job");
        assert!(explained.to_string().contains("`capped`"), "{explained}");
        let explained = pool.explain(running.job_id()).await.unwrap();
        assert!(matches!(explained.state, JobState::Running { .. }), "{explained}");

        let status = pool.status();
        assert_eq!((status.running, status.queue_depth), (1, 2));
        running.cancel();
        assert_eq!(running.outcome().await.verdict, Verdict::Cancelled);
        assert_eq!(value(&second.await), json!(2));
        assert_eq!(value(&first.await), json!(1));
        assert!(pool.explain(running.job_id()).await.is_none());
    });
}

#[test]
fn draining_for_a_time_finishes_what_it_can_and_stops_the_rest() {
    with_own_pool(builder(), |pool| async move {
        let session = pool.session("s").await.unwrap();
        ask(&session, "x = 1\nx").await;
        let mut quick = Vec::new();
        for number in 0..20 {
            quick.push(pool.submit(Job::code(number.to_string())).await.unwrap());
        }
        let long = pool.submit(endless()).await.unwrap();
        let turn = session.submit(endless()).await.unwrap();
        pool.drain_for(Duration::from_millis(1_500)).await;
        for (number, ticket) in quick.into_iter().enumerate() {
            assert_eq!(value(&ticket.await), json!(number));
        }
        for ticket in [long, turn] {
            assert_eq!(ticket.await.verdict, Verdict::Cancelled);
        }
        let status = pool.status();
        assert_eq!(status.phase, Phase::Drained);
        assert!(status.workers.is_empty() && status.sessions.is_empty(), "{status:?}");
        assert_eq!(refusal(pool.run(Job::code("1")).await), Refusal::ShuttingDown);
    });
}

#[test]
fn every_decision_about_a_job_is_reported() {
    with_own_pool(builder(), |pool| async move {
        let mut decisions = pool.decisions();
        let ticket = pool.submit(Job::code("1 / 0").tenant("t")).await.unwrap();
        let id = ticket.job_id();
        assert!(matches!(ticket.await.verdict, Verdict::Raised(_)));
        let tenant = find(&mut decisions, |kind| match kind {
            DecisionKind::Admitted { job, tenant } if *job == id => Some(tenant.clone()),
            _ => None,
        })
        .await;
        assert_eq!(tenant, "t");
        let worker = find(&mut decisions, |kind| match kind {
            DecisionKind::Dispatched { job, worker } if *job == id => Some(*worker),
            _ => None,
        })
        .await;
        assert!(pool.status().workers.iter().any(|status| status.worker == worker));
        let how = find(&mut decisions, |kind| match kind {
            DecisionKind::Ended { job, how } if *job == id => Some(*how),
            _ => None,
        })
        .await;
        assert_eq!(how, "failed");
        pool.drain().await;
        while let Some(next) = decisions.next().await {
            assert!(matches!(next, NextDecision::Decision(_)), "{next:?}");
        }
    });
}

/// The state of a session that must survive a round trip to disk: variables, an open file with its
/// position, a module's state, random number generators, and a mounted folder.
#[test]
fn a_offloaded_session_continues_where_it_was() {
    let sessions = SessionsConfig {
        suspend_after: Duration::from_millis(1),
        offload_after: Duration::from_millis(50),
        ..SessionsConfig::default()
    };
    with_own_pool(builder().sessions(sessions), |pool| async move {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("given.txt"), "given").unwrap();
        let mut decisions = pool.decisions();
        let session = pool.session("offloaded").await.unwrap();
        let begin = "import collections, random\n\
                     kept = collections.Counter('abracadabra')\n\
                     numbers = random.Random(5)\n\
                     file = open('log.txt', 'w+'); file.write('one two three'); file.seek(4)\n\
                     given = open('/data/given.txt')\n\
                     seen = [numbers.random(), file.read(3), given.read(2)]";
        let begin = Job::code(begin).mount(folder.path(), "/data").unwrap();
        assert!(session.run(begin).await.unwrap().is_success());
        let expected = "import random\nnumbers = random.Random(5)\n\
                        [numbers.random(), numbers.random(), numbers.random()]";
        let expected = value(&pool.run(Job::code(expected)).await.unwrap());

        for round in 1..=2 {
            // The scheduler learns of it a moment after it is there.
            until(&pool, |status| status.places.on_disk == 1 && status.memory.disk_bytes > 0).await;
            let id = pool.status().sessions[0].session;
            find(&mut decisions, |kind| match kind {
                DecisionKind::Evicted { session, to: EvictedTo::Disk, .. } => {
                    (*session == id).then_some(())
                }
                _ => None,
            })
            .await;
            assert_eq!(ask(&session, "numbers.random()").await, expected[round]);
        }
        until(&pool, |status| status.places.on_disk == 1).await;
        let rest = "[kept['a'], seen[1:], file.read(), given.read(), \
                    open('/data/given.txt').read()]";
        let expected = json!([5, ["two", "gi"], " three", "ven", "given"]);
        assert_eq!(ask(&session, rest).await, expected);
        let told = pool.status().sessions[0].evicted.clone().unwrap();
        assert!(told.contains("was idle for"), "{told}");
        session.close();
        until(&pool, |status| status.memory.disk_bytes == 0).await;
    });
}

/// Returns the memory that an idle pool takes here, in bytes.
fn bytes_at_rest() -> u64 {
    let (sender, receiver) = std::sync::mpsc::channel();
    with_own_pool(builder(), |pool| async move {
        let both = tokio::join!(pool.run(Job::code("1")), pool.run(Job::code("1")));
        assert!(both.0.is_ok() && both.1.is_ok());
        until(&pool, |status| status.running == 0 && status.memory.in_flight_bytes == 0).await;
        sender.send(pool.status().memory.used_bytes()).expect("the receiver is alive");
    });
    receiver.recv().expect("the pool became idle")
}

#[test]
fn sessions_beyond_the_memory_limit_are_offloaded_or_refused() {
    const SESSIONS: usize = 12;
    // They are random, so compressing them gains nothing.
    const FILL: &str = "import os\nkept = os.urandom(16 << 20)\nkept[0]";
    // Everything that these limits allow is reserved for a running job.
    let small = Limits { memory_bytes: 80 << 20, file_bytes: 4 << 20, ..calm() };
    let limit = bytes_at_rest() + (224 << 20);
    let builder = builder().limits(small.clone()).memory_limit_bytes(limit);
    with_own_pool(builder, |pool| async move {
        let mut open: Vec<(Session, Value)> = Vec::new();
        for number in 0..SESSIONS {
            let filled = match pool.session(&number.to_string()).await {
                Ok(session) => match session.run(Job::code(FILL)).await {
                    Ok(outcome) => Ok((session, value(&outcome))),
                    Err(refused) => Err(refused),
                },
                Err(refused) => Err(refused),
            };
            match filled {
                Ok(filled) => open.push(filled),
                Err(refused) => {
                    assert!(refused.is_overloaded(), "{refused}");
                    let refused = refusal::<()>(Err(refused));
                    assert!(matches!(refused, Refusal::NoMemory { .. }), "{refused}");
                }
            }
        }
        assert!(open.len() > 3, "{} sessions", open.len());
        until(&pool, |status| status.memory.used_bytes() <= limit).await;
        until(&pool, |status| status.places.on_disk > 0).await;
        for (session, first) in &open {
            assert_eq!(ask(session, "kept[0]").await, *first);
        }

        // A job that would have to wait in memory is refused.
        let little = Limits { display_bytes: 0, ..small };
        let blocker = || endless().tenant("blockers").limits(little.clone());
        let mut blockers = Vec::new();
        while blockers.len() < 2 {
            // Until the sessions that were resumed have made room again.
            match pool.submit(blocker()).await {
                Ok(blocker) => blockers.push(blocker),
                Err(refused) => assert!(refused.is_overloaded(), "{refused}"),
            }
        }
        until(&pool, |status| status.running == 2).await;
        let mut waiting = Vec::new();
        let refused = loop {
            match pool.submit(Job::code("1").stdin(vec![b'x'; 32 << 20])).await {
                Ok(ticket) => waiting.push(ticket),
                Err(refused) => break refusal::<()>(Err(refused)),
            }
            assert!(waiting.len() < 8, "only a few fit beside the sessions");
        };
        let is_overload = refused.is_overload();
        assert!(matches!(refused, Refusal::NoMemory { .. }) && is_overload, "{refused}");
        drop(blockers);
        for ticket in waiting {
            assert_eq!(value(&ticket.await), json!(1));
        }
    });
}

#[test]
fn a_failure_that_no_other_interpreter_would_avoid_is_not_retried_and_renews_none() {
    with_own_pool(builder(), |pool| async move {
        let session = pool.session("in its way").await.unwrap();
        assert!(session.run(Job::code("open('a', 'w')")).await.unwrap().is_success());
        let job = Job::code("1").input("a/b", "").unwrap();
        let outcome = session.run(job).await.unwrap();
        assert!(matches!(outcome.verdict, Verdict::SandboxFailed(_)), "{outcome:?}");
        until(&pool, |status| status.running == 0).await;
        let status = pool.status();
        assert_eq!((status.totals.sandbox_failed, status.totals.retried), (1, 0));
        assert!(status.workers.iter().all(|worker| worker.renewals == 0), "{:?}", status.workers);
    });
}

#[test]
fn instances_that_have_served_their_runs_are_replaced_unnoticed() {
    let builder = builder().workers(1).runs_per_instance(3);
    with_own_pool(builder, |pool| async move {
        let session = pool.session("long").await.unwrap();
        assert!(session.run(Job::code("count = 0")).await.unwrap().is_success());
        for turn in 1..=20 {
            let outcome = session.run(Job::code("count += 1; count")).await.unwrap();
            assert_eq!(value(&outcome), json!(turn));
            if turn % 2 == 0 {
                let outcome = pool.run(Job::code("'count' in globals()")).await.unwrap();
                assert_eq!(value(&outcome), json!(false));
            }
        }
        let status = pool.status();
        assert!(status.last_errors.is_empty(), "{:?}", status.last_errors);
        session.close();
    });
}
