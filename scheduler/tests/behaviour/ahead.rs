//! Jobs that a worker gets ahead.

use engine::Verdict;
use pool::interpreter::fake::{FakeSource, Gate, Step};
use scheduler::{DecisionKind, JobRequest, Ticket};

use crate::{Rig, config, next, script, start, within};

/// One worker, which takes four jobs at once, and knows that they are short.
async fn rig() -> Rig {
    let source = FakeSource::default();
    source.take_at_once(4);
    let rig = start(config(1), source).await;
    for _ in 0..5 {
        assert!(rig.run(script("ok")).await.is_success());
    }
    rig
}

/// Has these jobs wait for the worker, which then takes the first of them with three others, and stands
/// still in the first one.
async fn wait_behind(rig: &Rig, jobs: impl IntoIterator<Item = JobRequest>) -> Vec<Ticket> {
    rig.source.gate(Step::Run, [Gate::Never, Gate::Never]);
    let first = rig.submit(script("ok")).await;
    let mut tickets = Vec::new();
    for job in jobs {
        tickets.push(rig.submit(job).await);
    }
    first.stop();
    assert_eq!(within(first.into_future()).await.verdict, Verdict::Cancelled);
    while rig.source.running() != [tickets[0].job_id()] {
        tokio::task::yield_now().await;
    }
    tickets
}

#[tokio::test]
async fn jobs_that_go_ahead_end_as_they_would_alone() {
    let rig = rig().await;
    let mut decisions = rig.scheduler.decisions();
    let scripts = ["ok", "ok", "raise", "back", "lose", "ok", "trap", "panic", "count", "ok"];
    let scripts: Vec<&str> = scripts.into_iter().cycle().take(40).collect();
    let tickets = wait_behind(&rig, scripts.iter().map(|source| script(source))).await;
    assert_eq!((rig.status().running, rig.status().queue_depth), (1, 39));
    let story_of = tickets[1].job_id();
    rig.source.release();
    for (source, ticket) in scripts.into_iter().zip(tickets) {
        let outcome = within(ticket.into_future()).await;
        let is_right = match (source, &outcome.verdict) {
            ("raise", Verdict::Raised(_)) | ("trap" | "panic", Verdict::SandboxFailed(_)) => true,
            ("count", Verdict::Completed { value: Some(value), .. }) => value.as_u64() == Some(1),
            (_, Verdict::Completed { .. }) => true,
            _ => false,
        };
        assert!(is_right, "{source}: {outcome:?}");
    }
    rig.wait_until_idle().await;
    let totals = rig.status().totals;
    assert_eq!((totals.failed, totals.sandbox_failed, totals.cancelled), (4, 8, 1));
    // Tries that only those have had that failed.
    assert_eq!((totals.succeeded, totals.retried), (5 + 28, 16));
    let mut story = Vec::new();
    while story.last() != Some(&"succeeded") {
        match next(&mut decisions).await.kind {
            DecisionKind::Admitted { job, .. } if job == story_of => story.push("admitted"),
            DecisionKind::Dispatched { job, .. } if job == story_of => story.push("dispatched"),
            DecisionKind::Ended { job, how } if job == story_of => story.push(how),
            _ => {}
        }
    }
    assert_eq!(story, ["admitted", "dispatched", "succeeded"]);
}

#[tokio::test]
async fn a_job_ahead_is_cancelled_at_once() {
    let rig = rig().await;
    let mut tickets = wait_behind(&rig, (0..10).map(|_| script("ok"))).await;
    // The worker has the first four.
    for place in [2, 1] {
        let ticket = tickets.remove(place);
        ticket.cancel();
        assert_eq!(within(ticket.into_future()).await.verdict, Verdict::Cancelled);
    }
    assert_eq!((rig.status().running, rig.status().queue_depth), (1, 7));
    rig.source.release();
    for ticket in tickets {
        assert!(within(ticket.into_future()).await.is_success());
    }
    assert_eq!(rig.status().totals.cancelled, 3);
}

#[tokio::test]
async fn an_abort_ends_jobs_ahead_and_leaves_no_run() {
    let rig = rig().await;
    let tickets = wait_behind(&rig, (0..10).map(|_| script("ok"))).await;
    within(rig.scheduler.abort()).await;
    for ticket in tickets {
        assert_eq!(within(ticket.into_future()).await.verdict, Verdict::Cancelled);
    }
    assert!(rig.source.running().is_empty());
}
