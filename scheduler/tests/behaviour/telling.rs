//! What the scheduler reports: decisions, explanations, the status, and its end.

use std::time::Duration;

use engine::Verdict;
use pool::{BuildId, JobId};
use scheduler::{
    DecisionKind, JobRequest, JobState, NextDecision, Phase, Priority, Refusal, SchedulerConfig,
    Totals, WaitReason,
};
use test_support::fake::FakeSource;

use crate::{
    config, ended, next, rig, rig_with, script, script_in, script_of, start, until, within,
};

/// Why a job waits, and what is ahead of it.
async fn waiting(rig: &crate::Rig, job: JobId) -> (WaitReason, usize, usize) {
    let explanation = within(rig.scheduler.explain(job)).await.expect("it has not ended");
    match explanation.state {
        JobState::Waiting { reason, ahead_in_tenant, ahead_of_others, .. } => {
            (reason, ahead_in_tenant, ahead_of_others)
        }
        _ => panic!("{explanation}"),
    }
}

#[tokio::test]
async fn a_job_without_a_ready_worker_waits_for_one_to_start() {
    let source = FakeSource::default();
    source.hold_starts(true);
    let rig = start(config(2), source).await;
    let ticket = rig.submit(script("ok")).await;
    let (reason, ..) = waiting(&rig, ticket.job_id()).await;
    assert_eq!(reason, WaitReason::WorkersStarting { starting: 2 });
    rig.source.hold_starts(false);
    assert!(within(ticket.into_future()).await.is_success());
}

#[tokio::test]
async fn an_explanation_names_what_is_ahead() {
    let rig = rig(1).await;
    let session = rig.scheduler.open_session("a", BuildId::default()).await.unwrap().0;
    let running = rig.submit(script_in("wait", session)).await;
    until(&rig.scheduler, |status| status.running == 1).await;
    let explained = rig.scheduler.explain(running.job_id()).await.unwrap();
    assert!(matches!(explained.state, JobState::Running { .. }), "{explained}");
    assert_eq!((explained.tenant.as_str(), explained.session), ("default", Some(session)));
    assert_eq!((explained.priority, explained.failed_attempts), (Priority::Normal, 0));

    let first = rig.submit(script("ok")).await;
    let second = rig.submit(script("ok")).await;
    let of_other = rig.submit(script_of("ok", "other")).await;
    let turn = rig.submit(script_in("ok", session)).await;
    let busy = WaitReason::WorkersBusy { running: 1, concurrent: 1 };
    let (reason, ahead_in_tenant, _) = waiting(&rig, first.job_id()).await;
    assert_eq!((reason, ahead_in_tenant), (busy.clone(), 0));
    let (reason, ahead_in_tenant, _) = waiting(&rig, second.job_id()).await;
    assert_eq!((reason, ahead_in_tenant), (busy.clone(), 1));
    let (reason, ahead_in_tenant, ahead_of_others) = waiting(&rig, of_other.job_id()).await;
    assert_eq!((reason, ahead_in_tenant), (busy, 0));
    assert!(ahead_of_others <= 3, "{ahead_of_others}");
    let (reason, ..) = waiting(&rig, turn.job_id()).await;
    assert_eq!(reason, WaitReason::SessionBusy { session, turns_ahead: 1 });

    rig.source.open();
    let job = turn.job_id();
    for ticket in [running, first, second, of_other, turn] {
        assert!(within(ticket.into_future()).await.is_success());
    }
    assert!(rig.scheduler.explain(job).await.is_none(), "it has ended");
    assert!(rig.scheduler.explain(JobId(u64::MAX)).await.is_none(), "there is none");
}

#[tokio::test]
async fn an_explanation_estimates_by_what_was_measured() {
    let rig = rig(1).await;
    for _ in 0..5 {
        assert!(rig.run(script("spin 5000")).await.is_success());
    }
    let mut tickets = vec![rig.submit(script("wait")).await];
    until(&rig.scheduler, |status| status.running == 1).await;
    for _ in 0..10 {
        tickets.push(rig.submit(script("spin 5000")).await);
    }
    let last = tickets.last().unwrap().job_id();
    let explained = rig.scheduler.explain(last).await.unwrap();
    let JobState::Waiting { estimate: Some(estimate), .. } = explained.state else {
        panic!("{explained}")
    };
    // Nine jobs of 5 ms go before it.
    assert!(estimate > Duration::from_millis(10), "{estimate:?}");
    assert!(estimate < Duration::from_secs(10), "{estimate:?}");
    rig.source.open();
    for ticket in tickets {
        assert!(within(ticket.into_future()).await.is_success());
    }
}

#[tokio::test]
async fn decisions_arrive_in_order_until_the_end() {
    let rig = rig_with(SchedulerConfig { queued_count: 1, ..config(1) }).await;
    let mut decisions = rig.scheduler.decisions();
    let session = rig.scheduler.open_session("a", BuildId::default()).await.unwrap().0;
    let running = rig.submit(script_in("wait", session)).await;
    until(&rig.scheduler, |status| status.running == 1).await;
    let cancelled = rig.submit(script_of("ok", "other")).await;
    assert!(matches!(rig.scheduler.submit(script("ok")).await, Err(Refusal::QueueFull { .. })));
    let (first, second) = (running.job_id(), cancelled.job_id());
    cancelled.cancel();
    assert_eq!(within(cancelled.into_future()).await.verdict, Verdict::Cancelled);
    rig.source.open();
    assert!(within(running.into_future()).await.is_success());
    rig.scheduler.close_session(session);
    until(&rig.scheduler, |status| status.sessions.is_empty()).await;
    within(rig.scheduler.drain()).await;

    let (mut told, mut sequences) = (Vec::new(), Vec::new());
    while let Some(NextDecision::Decision(decision)) = within(decisions.next()).await {
        sequences.push(decision.sequence);
        told.push(decision.kind);
    }
    let follows = |pair: &[u64]| pair[1] == pair[0] + 1;
    assert!(sequences.windows(2).all(follows), "none is left out: {sequences:?}");
    assert!(within(decisions.next()).await.is_none(), "the stream stays ended");
    let place = |is: &dyn Fn(&DecisionKind) -> bool| {
        told.iter().position(is).unwrap_or_else(|| panic!("{told:?}"))
    };
    let order = [
        place(&|kind| matches!(kind, DecisionKind::SessionOpened { .. })),
        place(&|kind| matches!(kind, DecisionKind::Admitted { job, .. } if *job == first)),
        place(&|kind| matches!(kind, DecisionKind::Dispatched { job, .. } if *job == first)),
        place(
            &|kind| matches!(kind, DecisionKind::Admitted { job, tenant } if *job == second && tenant == "other"),
        ),
        place(
            &|kind| matches!(kind, DecisionKind::Refused { reason, .. } if *reason == "queue_full"),
        ),
        place(
            &|kind| matches!(kind, DecisionKind::Ended { job, how } if *job == second && *how == "cancelled"),
        ),
        place(
            &|kind| matches!(kind, DecisionKind::Ended { job, how } if *job == first && *how == "succeeded"),
        ),
        place(&|kind| matches!(kind, DecisionKind::SessionEnded { .. })),
        place(&|kind| matches!(kind, DecisionKind::Draining { within: None, .. })),
        place(&|kind| matches!(kind, DecisionKind::Drained)),
        place(&|kind| matches!(kind, DecisionKind::PoolEnded { .. })),
    ];
    assert!(order.is_sorted(), "{order:?}: {told:?}");
}

#[tokio::test]
async fn a_slow_reader_of_decisions_hears_how_many_it_missed() {
    const JOBS: u64 = 5_000;
    let rig = rig(2).await;
    let mut slow = rig.scheduler.decisions();
    let mut tickets = Vec::new();
    for number in 0..JOBS {
        tickets.push(rig.submit(script("ok")).await);
        if number % 1_000 == 999 {
            for ticket in tickets.drain(..) {
                assert!(within(ticket.into_future()).await.is_success());
            }
        }
    }
    within(rig.scheduler.drain()).await;
    let (mut read, mut missed, mut last) = (0, 0, 0);
    while let Some(next) = within(slow.next()).await {
        match next {
            NextDecision::Missed(count) => {
                assert!(count > 0);
                missed += count;
            }
            NextDecision::Decision(decision) => {
                read += 1;
                assert!(decision.sequence > last, "{} after {last}", decision.sequence);
                last = decision.sequence;
            }
        }
    }
    assert!(missed > 0, "{read} were read");
    // Minus the decisions from before the reader: the starts of two workers.
    assert!((last - 10..=last).contains(&(read + missed)), "{read} and {missed} of {last}");
    assert!(last >= 3 * JOBS, "each job is admitted, given a worker, and ends");
}

#[tokio::test]
async fn a_reader_that_begins_late_hears_what_follows() {
    let rig = rig(1).await;
    for _ in 0..100 {
        assert!(rig.run(script("ok")).await.is_success());
    }
    let mut late = rig.scheduler.decisions();
    let ticket = rig.submit(script("ok")).await;
    let id = ticket.job_id();
    assert!(within(ticket.into_future()).await.is_success());
    loop {
        if let DecisionKind::Ended { job, .. } = next(&mut late).await.kind
            && job == id
        {
            break;
        }
    }
}

#[tokio::test]
async fn the_status_measures_every_step() {
    const JOBS: u64 = 50;
    let rig = rig(1).await;
    let session = rig.scheduler.open_session("a", BuildId::default()).await.unwrap().0;
    for _ in 0..JOBS {
        assert!(rig.run(script("spin 200")).await.is_success());
    }
    assert!(rig.run(script_in("count", session)).await.is_success());
    rig.wait_until_idle().await;
    let latency = rig.status().latency;
    assert_eq!(latency.queue.count, JOBS + 1);
    assert_eq!(latency.run.count, JOBS + 1);
    assert!(latency.reset.count >= JOBS, "{:?}", latency.reset);
    assert!(latency.run.p50 >= Duration::from_micros(190), "{:?}", latency.run);
    for step in [latency.queue, latency.resume, latency.run, latency.reset] {
        assert!(step.p50 <= step.p95 && step.p95 <= step.p99 && step.p99 <= step.max, "{step:?}");
        assert!(step.max < Duration::from_secs(20), "{step:?}");
    }
    let status = rig.status();
    assert!(status.jobs_per_second > 0.0);
    assert!(status.uptime > Duration::from_micros(200 * JOBS));
    assert!(status.memory.limit_bytes > 0);
    assert!(status.last_errors.is_empty());
}

#[tokio::test]
async fn errors_of_programs_are_told_apart_from_those_of_the_sandbox() {
    let rig = rig(1).await;
    assert!(!rig.run(script_of("raise", "a")).await.is_success());
    assert!(rig.run(script("ok")).await.is_success());
    let status = rig.status();
    assert_eq!(status.version, env!("CARGO_PKG_VERSION"));
    assert!(status.last_errors.is_empty(), "{:?}", status.last_errors);
    let [error] = &status.last_program_errors[..] else { panic!("{status:?}") };
    assert_eq!((&*error.tenant, &*error.exception, &*error.message), ("a", "ValueError", ""));
    assert!(error.worker.is_some() && error.age <= status.uptime, "{error:?}");
}

#[tokio::test]
async fn a_pools_test_of_itself_is_counted_nowhere() {
    let rig = rig(1).await;
    let before = rig.status();
    let mut decisions = rig.scheduler.decisions();
    for kind in ["ok", "raise"] {
        rig.run(JobRequest { is_self_test: true, ..script(kind) }).await;
    }
    rig.wait_until_idle().await;
    let status = rig.status();
    assert_eq!((status.totals, status.latency), (before.totals, before.latency));
    assert_eq!((status.last_ended, &*status.last_program_errors), (None, &[][..]));
    assert_eq!(status.workers[0].jobs_served, 0);
    // The next job is counted, and the first that anybody hears of.
    let ticket = rig.submit(script("ok")).await;
    let id = ticket.job_id();
    assert!(within(ticket.into_future()).await.is_success());
    rig.wait_until_idle().await;
    assert_eq!((rig.status().totals.succeeded, rig.status().latency.run.count), (1, 1));
    let mut first = next(&mut decisions).await;
    if matches!(first.kind, DecisionKind::PoolReady { .. }) {
        first = next(&mut decisions).await;
    }
    assert!(matches!(first.kind, DecisionKind::Admitted { job, .. } if job == id), "{first:?}");
}

#[tokio::test]
async fn statistics_begin_again_on_request() {
    let rig = rig(1).await;
    assert!(!rig.run(script("raise")).await.is_success());
    rig.wait_until_idle().await;
    let ended = rig.status().last_ended.unwrap();
    assert_eq!(ended.outcome, "failed");
    rig.scheduler.reset_statistics().await;
    let status = rig.status();
    assert_eq!((status.totals, status.latency.run.count), (Totals::default(), 0));
    assert_eq!((status.last_ended, &*status.last_program_errors), (None, &[][..]));
    assert!(rig.run(script("ok")).await.is_success());
    assert_eq!(rig.status().last_ended.unwrap().outcome, "succeeded");
}

#[tokio::test]
async fn jobs_that_never_started_are_not_in_the_queue_times() {
    let rig = rig(1).await;
    let running = rig.submit(script("wait")).await;
    until(&rig.scheduler, |status| status.running == 1).await;
    drop(rig.submit(script("ok")).await);
    until(&rig.scheduler, |status| status.totals.cancelled == 1).await;
    rig.source.open();
    assert!(within(running.into_future()).await.is_success());
    until(&rig.scheduler, |status| status.totals.succeeded == 1).await;
    assert_eq!(rig.status().latency.queue.count, 1);
}

#[tokio::test]
async fn the_status_counts_what_waits_by_tenant_and_priority() {
    let rig = rig(1).await;
    let running = rig.submit(script_of("wait", "b")).await;
    until(&rig.scheduler, |status| status.running == 1).await;
    let mut tickets = vec![running];
    for (tenant, priority, count) in
        [("a", Priority::High, 1), ("a", Priority::Low, 2), ("b", Priority::Normal, 3)]
    {
        for _ in 0..count {
            let request = scheduler::JobRequest { priority, ..script_of("ok", tenant) };
            tickets.push(rig.submit(request).await);
        }
    }
    let status = rig.status();
    let shown: Vec<_> = status
        .tenants
        .iter()
        .map(|tenant| {
            (tenant.tenant.as_str(), tenant.running, tenant.queued.map(|queued| queued.depth))
        })
        .collect();
    assert_eq!(shown, [("a", 0, [1, 0, 2]), ("b", 1, [0, 3, 0])]);
    assert_eq!(status.queue_depth, 6);
    assert_eq!(status.tenants[0].queued_bytes, 6, "three sources of two bytes");
    rig.source.open();
    for ticket in tickets {
        assert!(within(ticket.into_future()).await.is_success());
    }
    assert!(rig.status().tenants.is_empty(), "none has a job");
}

#[tokio::test]
async fn draining_for_a_time_stops_what_is_left_then() {
    let rig = rig(1).await;
    let quick = rig.submit(script("ok")).await;
    let endless = rig.submit(script("wait")).await;
    let waiting = rig.submit(script("wait")).await;
    within(rig.scheduler.drain_for(Duration::from_millis(50))).await;
    assert!(within(quick.into_future()).await.is_success(), "there was time for it");
    for ticket in [endless, waiting] {
        assert_eq!(within(ticket.into_future()).await.verdict, Verdict::Cancelled);
    }
    let status = rig.status();
    assert!(status.workers.is_empty() && status.phase == Phase::Drained, "{status:?}");
    assert_eq!(ended(&status), 3);
}

#[tokio::test]
async fn draining_for_a_time_ends_early_when_everything_is_finished() {
    let rig = rig(2).await;
    let mut tickets = Vec::new();
    for _ in 0..100 {
        tickets.push(rig.submit(script("ok")).await);
    }
    // Longer than `within` waits.
    within(rig.scheduler.drain_for(Duration::from_secs(3_600))).await;
    for ticket in tickets {
        assert!(within(ticket.into_future()).await.is_success());
    }
    assert_eq!(rig.scheduler.submit(script("ok")).await.unwrap_err(), Refusal::ShuttingDown);
}

#[tokio::test]
async fn nothing_waits_for_a_drain_that_was_given_up() {
    let rig = rig(1).await;
    let endless = rig.submit(script("wait")).await;
    until(&rig.scheduler, |status| status.running == 1).await;
    {
        let draining = rig.scheduler.drain();
        tokio::pin!(draining);
        let soon = tokio::time::timeout(Duration::from_millis(20), &mut draining).await;
        assert!(soon.is_err(), "a job runs");
    }
    within(rig.scheduler.abort()).await;
    assert_eq!(within(endless.into_future()).await.verdict, Verdict::Cancelled);
    assert!(rig.status().workers.is_empty());
}
