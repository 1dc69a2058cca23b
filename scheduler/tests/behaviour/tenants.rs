//! Who runs next: shares of tenants, their caps, priorities and deadlines.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine::{LimitKind, Verdict};
use pool::BuildId;
use scheduler::{
    DecisionKind, Decisions, JobRequest, JobState, Priority, Refusal, SchedulerConfig,
    TenantConfig, WaitReason,
};

use crate::{Rig, config, find, rig, rig_with, script, script_in, script_of, until, within};

fn tenants<const N: usize>(named: [(&str, TenantConfig); N]) -> BTreeMap<String, TenantConfig> {
    named.into_iter().map(|(name, config)| (name.to_owned(), config)).collect()
}

fn weight(weight: u32) -> TenantConfig {
    TenantConfig { weight, ..TenantConfig::default() }
}

/// Occupies one worker until the gate is opened, as a tenant of its own.
async fn block(rig: &Rig) -> scheduler::Ticket {
    let blocker = rig.submit(script_of("wait", "blocker")).await;
    until(&rig.scheduler, |status| status.running == 1).await;
    blocker
}

/// Receives the next dispatched job.
async fn dispatched(decisions: &mut Decisions) -> pool::JobId {
    find(decisions, |kind| match kind {
        DecisionKind::Dispatched { job, .. } => Some(*job),
        _ => None,
    })
    .await
}

/// The CPU time in microseconds that each of two tenants gets while both want more of it. Each
/// contender is a name and the CPU time of its jobs.
async fn fair_queue(rig: &Rig, contenders: [(&str, u64); 2]) -> [f64; 2] {
    // The decisions on all of them are fewer than a reader may be behind, so that none is missed.
    let jobs = 250;
    let blocker = block(rig).await;
    let mut tickets = BTreeMap::new();
    for _ in 0..jobs {
        for (place, (tenant, cost)) in contenders.into_iter().enumerate() {
            let ticket = rig.submit(script_of(&format!("cpu {cost}"), tenant)).await;
            tickets.insert(ticket.job_id(), (place, ticket));
        }
    }
    let mut decisions = rig.scheduler.decisions();
    rig.source.open();
    assert!(within(blocker.into_future()).await.is_success());
    let mut got = [0.0; 2];
    let mut seen = 0;
    // Neither tenant runs out of jobs before that.
    while seen < jobs {
        if let Some((place, _)) = tickets.get(&dispatched(&mut decisions).await) {
            got[*place] += contenders[*place].1 as f64;
            seen += 1;
        }
    }
    got
}

#[tokio::test]
async fn a_weight_of_two_gets_twice_the_service_of_one() {
    let tenants = tenants([("heavy", weight(2)), ("light", weight(1))]);
    let rig = rig_with(SchedulerConfig { tenants, ..config(1) }).await;
    let [heavy, light] = fair_queue(&rig, [("heavy", 1_000), ("light", 1_000)]).await;
    let ratio = heavy / light;
    assert!((1.9..=2.1).contains(&ratio), "{heavy} against {light}: {ratio}");
}

#[tokio::test]
async fn service_is_cpu_time_and_not_the_number_of_jobs() {
    let rig = rig(1).await;
    let [long, short] = fair_queue(&rig, [("long", 3_000), ("short", 1_000)]).await;
    let ratio = long / short;
    assert!((0.95..=1.05).contains(&ratio), "{long} against {short}: {ratio}");
}

#[tokio::test]
async fn a_tenant_that_ran_alone_is_neither_penalized_nor_favoured_later() {
    let rig = rig(1).await;
    for _ in 0..100 {
        assert!(rig.run(script_of("cpu 1000", "early")).await.is_success());
    }
    let [early, late] = fair_queue(&rig, [("early", 1_000), ("late", 1_000)]).await;
    let ratio = early / late;
    assert!((0.95..=1.05).contains(&ratio), "{early} against {late}: {ratio}");
}

#[tokio::test]
async fn a_tenant_runs_no_more_jobs_than_it_may_and_others_go_on() {
    let capped = TenantConfig { concurrent: 1, ..TenantConfig::default() };
    let rig = rig_with(SchedulerConfig { tenants: tenants([("a", capped)]), ..config(3) }).await;
    let mut tickets = Vec::new();
    for _ in 0..5 {
        tickets.push(rig.submit(script_of("wait", "a")).await);
    }
    for _ in 0..10 {
        assert!(rig.run(script_of("ok", "b")).await.is_success());
    }
    until(&rig.scheduler, |status| status.running == 1 && status.queue_depth == 4).await;
    let waiting = rig.scheduler.explain(tickets[3].job_id()).await.unwrap();
    let JobState::Waiting { reason, ahead_in_tenant, .. } = waiting.state else {
        panic!("{waiting:?}")
    };
    assert_eq!(reason, WaitReason::TenantAtLimit { running: 1, limit: 1 });
    assert_eq!(ahead_in_tenant, 2);
    rig.source.open();
    for ticket in tickets {
        assert!(within(ticket.into_future()).await.is_success());
    }
}

#[tokio::test]
async fn a_tenant_with_a_full_queue_is_refused_and_others_are_not() {
    let few = TenantConfig { queued_count: 2, ..TenantConfig::default() };
    let small = TenantConfig { queued_bytes: 100, ..TenantConfig::default() };
    let tenants = tenants([("few", few), ("small", small)]);
    let rig = rig_with(SchedulerConfig { tenants, ..config(1) }).await;
    let blocker = block(&rig).await;
    let mut tickets = vec![blocker];
    for _ in 0..2 {
        tickets.push(rig.submit(script_of("ok", "few")).await);
    }
    let refused = rig.scheduler.submit(script_of("ok", "few")).await.unwrap_err();
    assert!(
        matches!(&refused, Refusal::QueueFull { tenant: Some(tenant), queued: 2, limit: 2, .. } if tenant == "few"),
        "{refused}"
    );
    assert_eq!((refused.name(), refused.is_overload()), ("tenant_queue_full", true));
    let large = script_of(&format!("ok{}", " ".repeat(200)), "small");
    let refused = rig.scheduler.submit(large).await.unwrap_err();
    assert!(
        matches!(&refused, Refusal::QueueBytes { tenant: Some(tenant), limit: 100, .. } if tenant == "small"),
        "{refused}"
    );
    tickets.push(rig.submit(script_of("ok", "small")).await);
    tickets.push(rig.submit(script_of("ok", "other")).await);
    rig.source.open();
    for ticket in tickets {
        assert!(within(ticket.into_future()).await.is_success());
    }
    assert_eq!(rig.status().totals.refused, 2);
}

#[tokio::test]
async fn urgent_jobs_overtake_within_their_tenant() {
    let by_priority = [Priority::High, Priority::Normal, Priority::Low];
    for (step, expected) in [
        (Duration::from_secs(30), by_priority),
        // Then they have no effect.
        (Duration::ZERO, [Priority::Low, Priority::Normal, Priority::High]),
    ] {
        let rig = rig_with(SchedulerConfig { priority_step: step, ..config(1) }).await;
        let blocker = block(&rig).await;
        let mut tickets = BTreeMap::new();
        for priority in [Priority::Low, Priority::Normal, Priority::High] {
            let ticket = rig.submit(JobRequest { priority, ..script("ok") }).await;
            tickets.insert(ticket.job_id(), (priority, ticket));
        }
        let tenants = rig.status().tenants;
        let default = tenants.iter().find(|status| status.tenant == "default").unwrap();
        assert_eq!(default.queued.map(|queued| queued.priority), Priority::ALL);
        assert_eq!(default.queued.map(|queued| queued.depth), [1, 1, 1]);
        let mut decisions = rig.scheduler.decisions();
        rig.source.open();
        let mut order = Vec::new();
        while order.len() < 3 {
            if let Some((priority, _)) = tickets.get(&dispatched(&mut decisions).await) {
                order.push(*priority);
            }
        }
        assert_eq!(order, expected, "{step:?}");
        assert!(within(blocker.into_future()).await.is_success());
    }
}

#[tokio::test]
async fn priorities_are_among_the_jobs_of_one_tenant_alone() {
    let rig = rig(1).await;
    let blocker = block(&rig).await;
    let mut tickets = BTreeMap::new();
    for number in 0..40 {
        let (tenant, priority) = match number % 2 {
            0 => ("pushy", Priority::High),
            _ => ("modest", Priority::Low),
        };
        let ticket = rig.submit(JobRequest { priority, ..script_of("cpu 1000", tenant) }).await;
        tickets.insert(ticket.job_id(), (tenant, ticket));
    }
    let mut decisions = rig.scheduler.decisions();
    rig.source.open();
    let mut modest = 0;
    let mut seen = 0;
    while seen < 20 {
        if let Some((tenant, _)) = tickets.get(&dispatched(&mut decisions).await) {
            seen += 1;
            modest += usize::from(*tenant == "modest");
        }
    }
    assert!((9..=11).contains(&modest), "{modest} of 20");
    assert!(within(blocker.into_future()).await.is_success());
}

#[tokio::test]
async fn a_job_whose_deadline_passes_while_it_waits_ends_with_that_limit() {
    let rig = rig(1).await;
    let blocker = block(&rig).await;
    let deadline = Some(Duration::from_millis(20));
    let session = rig.scheduler.open_session("a", BuildId::default()).await.unwrap().0;
    let late = rig.submit(JobRequest { deadline, ..script("ok") }).await;
    let turn = rig.submit(JobRequest { deadline, ..script_in("ok", session) }).await;
    let other = rig.submit(script("ok")).await;
    for ticket in [late, turn] {
        let outcome = within(ticket.into_future()).await;
        let Verdict::Limit(hit) = &outcome.verdict else { panic!("{outcome:?}") };
        assert_eq!(hit.limit, LimitKind::Deadline);
    }
    assert_eq!(rig.status().queue_depth, 1);
    rig.source.open();
    assert!(within(blocker.into_future()).await.is_success());
    assert!(within(other.into_future()).await.is_success());
    assert!(rig.run(script_in("ok", session)).await.is_success(), "the session lives on");
    let totals = rig.status().totals;
    assert_eq!((totals.limited, totals.succeeded), (2, 3));
}

#[tokio::test]
async fn a_deadline_that_can_not_be_met_is_refused_at_once_with_the_estimate() {
    let rig = rig(1).await;
    let hopeful = JobRequest { deadline: Some(Duration::from_secs(60)), ..script("spin 10000") };
    for _ in 0..5 {
        assert!(rig.run(hopeful.clone()).await.is_success());
    }
    let blocker = block(&rig).await;
    let mut tickets = vec![blocker];
    for _ in 0..20 {
        tickets.push(rig.submit(script("spin 10000")).await);
    }
    // 20 jobs of 10 ms are ahead.
    let due_in = Duration::from_millis(5);
    let late = JobRequest { deadline: Some(due_in), ..script("spin 10000") };
    let refused = rig.scheduler.submit(late).await.unwrap_err();
    let Refusal::DeadlineTooSoon { due_in: due, estimate, retry_after } = refused.clone() else {
        panic!("{refused}")
    };
    assert_eq!(due, due_in);
    assert!(estimate > Duration::from_millis(20), "{estimate:?}");
    assert!(retry_after.is_none_or(|after| after < Duration::from_secs(60)), "{retry_after:?}");
    assert_eq!((refused.name(), refused.is_overload()), ("deadline", true));
    tickets.push(rig.submit(hopeful).await);
    rig.source.open();
    for ticket in tickets {
        assert!(within(ticket.into_future()).await.is_success());
    }
}

#[tokio::test]
async fn turns_of_a_session_keep_their_order_whatever_their_priority() {
    let rig = rig(2).await;
    let session = rig.scheduler.open_session("a", BuildId::default()).await.unwrap().0;
    let mut tickets = Vec::new();
    for number in 0..30 {
        let priority = Priority::ALL[(number * 7) % 3];
        let turn =
            JobRequest { priority, tenant: Some(Arc::from("t")), ..script_in("count", session) };
        tickets.push(rig.submit(turn).await);
    }
    for (number, ticket) in tickets.into_iter().enumerate() {
        let outcome = within(ticket.into_future()).await;
        let Verdict::Completed { value: Some(value), .. } = outcome.verdict else {
            panic!("{outcome:?}")
        };
        assert_eq!(value.as_u64(), Some(number as u64 + 1));
    }
}

#[tokio::test]
async fn configurations_that_contradict_themselves_name_both_values() {
    use pool::{Builds, PoolConfig};
    use scheduler::{Scheduler, SessionsConfig, WorkersConfig};
    use test_support::fake::FakeSource;

    let few_in_memory = SessionsConfig { in_memory: 1, ..SessionsConfig::default() };
    let never = TenantConfig { weight: 0, ..TenantConfig::default() };
    let upside_down = WorkersConfig { min: 3, max: 2, ..WorkersConfig::default() };
    for (config, words) in [
        (SchedulerConfig { sessions: few_in_memory, ..config(2) }, ["sessions.in_memory", "2"]),
        (SchedulerConfig { concurrent: 3, ..config(2) }, ["concurrent", "workers.max"]),
        (SchedulerConfig { workers: upside_down, ..config(2) }, ["workers.min", "workers.max"]),
        (SchedulerConfig { tenants: tenants([("a", never)]), ..config(2) }, ["weight", "`a`"]),
    ] {
        let source = Builds::new(Arc::new(FakeSource::default()));
        let refused = Scheduler::start(config, PoolConfig::default(), source).await.unwrap_err();
        let text = refused.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }
}
