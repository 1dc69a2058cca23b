//! Where a session's state goes, and what happens when something fails on the way.

use engine::{Outcome, SandboxFailure, Verdict};
use pool::{BuildId, PoolConfig, SessionId, SessionPlace};
use scheduler::{ForkNames, Refusal, TreeStatus};
use test_support::fake::FakeSource;

use crate::{Rig, config, rig, script, script_in, until, within};

/// Runs one program, in a session or without one.
async fn run(rig: &Rig, source: &str, session: Option<SessionId>) -> Outcome {
    let request = session.map_or_else(|| script(source), |session| script_in(source, session));
    within(rig.scheduler.submit(request).await.unwrap().into_future()).await
}

/// How many programs have run on this state, including this one.
fn counted(outcome: &Outcome) -> u64 {
    match &outcome.verdict {
        Verdict::Completed { value: Some(value), .. } => value.as_u64().unwrap(),
        verdict => panic!("{verdict:?}"),
    }
}

async fn count(rig: &Rig, session: SessionId) -> u64 {
    counted(&run(rig, "count", Some(session)).await)
}

async fn open(rig: &Rig, name: &str) -> SessionId {
    rig.scheduler.open_session(name, BuildId::default()).await.unwrap().0
}

fn place(rig: &Rig, session: SessionId) -> SessionPlace {
    let sessions = rig.scheduler.status().sessions;
    sessions.iter().find(|status| status.session == session).unwrap().place
}

#[tokio::test]
async fn a_state_survives_what_others_do_on_its_worker() {
    let rig = rig(1).await;
    let (first, second) = (open(&rig, "a").await, open(&rig, "b").await);
    for round in 1..=5 {
        assert_eq!(count(&rig, first).await, round);
        assert_eq!(count(&rig, second).await, round);
        assert_eq!(counted(&run(&rig, "count", None).await), 1, "isolated jobs start fresh");
    }
    assert_eq!(rig.source.starts(), 1);
}

#[tokio::test]
async fn there_can_be_more_sessions_than_workers() {
    let rig = rig(2).await;
    let mut sessions = Vec::new();
    for number in 0..20 {
        sessions.push(open(&rig, &number.to_string()).await);
    }
    for round in 1..=5 {
        let mut tickets = Vec::new();
        for session in &sessions {
            tickets.push(rig.scheduler.submit(script_in("count", *session)).await.unwrap());
        }
        for ticket in tickets {
            assert_eq!(counted(&within(ticket.into_future()).await), round);
        }
    }
    assert_eq!(rig.scheduler.status().sessions.len(), 20);
}

#[tokio::test]
async fn the_status_says_where_a_state_is() {
    let rig = rig(1).await;
    let session = open(&rig, "a").await;
    assert_eq!(place(&rig, session), SessionPlace::Fresh);
    assert_eq!(count(&rig, session).await, 1);
    let worker = rig.scheduler.status().workers[0].clone();
    assert_eq!(worker.session, Some(session));
    assert_eq!(place(&rig, session), SessionPlace::OnWorker { worker: worker.worker });
    assert!(run(&rig, "ok", None).await.is_success());
    assert!(matches!(place(&rig, session), SessionPlace::Suspended { .. }));
    assert_eq!(rig.scheduler.status().workers[0].session, None);
}

#[tokio::test]
async fn a_fork_goes_its_own_way() {
    let rig = rig(1).await;
    let first = open(&rig, "a").await;
    assert_eq!(count(&rig, first).await, 1);
    let state = within(rig.scheduler.capture(first)).await.unwrap();
    let fork = rig.scheduler.adopt("b", BuildId::default(), state).await.unwrap();
    assert_eq!(count(&rig, fork).await, 2);
    assert_eq!(count(&rig, fork).await, 3);
    assert_eq!(count(&rig, first).await, 2);
    let taken = rig.scheduler.adopt("a", BuildId::default(), None).await.unwrap_err();
    assert_eq!(taken, Refusal::SessionExists("a".to_owned()));
}

#[tokio::test]
async fn forks_are_all_opened_or_none_and_know_their_turn() {
    let rig = rig(1).await;
    let first = open(&rig, "a").await;
    assert_eq!(count(&rig, first).await, 1);
    let branch = within(rig.scheduler.branch(first)).await.unwrap();
    // What the session does meanwhile is no part of it.
    assert_eq!(count(&rig, first).await, 2);
    let forks = rig.scheduler.fork(&branch, ForkNames::Numbered(3)).await.unwrap();
    let names: Vec<&str> = forks.iter().map(|(_, name)| &**name).collect();
    assert_eq!(names, ["a~1", "a~2", "a~3"]);
    for (fork, _) in &forks {
        assert_eq!(count(&rig, *fork).await, 2);
        let origin = rig.scheduler.origin(*fork).unwrap();
        assert_eq!((origin.parent, origin.depth, origin.turn), (first, 1, 1));
    }
    let taken = ForkNames::Given(vec!["b".into(), "a~2".into()]);
    let refused = rig.scheduler.fork(&branch, taken).await.unwrap_err();
    assert_eq!(refused, Refusal::SessionExists("a~2".to_owned()));
    assert_eq!(rig.scheduler.status().sessions.len(), 4);
    assert_eq!(rig.scheduler.children(first).await, forks);
    rig.scheduler.close_session(first);
    let gone = rig.scheduler.fork(&branch, ForkNames::Numbered(1)).await.unwrap_err();
    assert!(matches!(gone, Refusal::SessionGone(_)), "{gone:?}");
}

#[tokio::test]
async fn the_status_counts_forks_by_tree_and_depth_however_many_there_are() {
    let rig = rig(1).await;
    let fork = async |session, count| {
        let branch = within(rig.scheduler.branch(session)).await.unwrap();
        rig.scheduler.fork(&branch, ForkNames::Numbered(count)).await.unwrap()
    };
    let (small, large) = (open(&rig, "small").await, open(&rig, "large").await);
    open(&rig, "alone").await;
    assert_eq!(rig.status().trees, []);
    fork(small, 2).await;
    let forks = fork(large, 5_000).await;
    let mut deeper = fork(forks[7].0, 3).await.remove(0).0;
    for _ in 0..12 {
        deeper = fork(deeper, 1).await.remove(0).0;
    }
    // What is closed doesn't count, but is still the parent of its forks.
    rig.scheduler.close_session(large);
    rig.scheduler.close_session(forks[0].0);
    // The scheduler has heard of that before it opens another one.
    open(&rig, "last").await;
    let trees = rig.status().trees;
    let shown = |tree: &TreeStatus| {
        (tree.root.clone(), tree.forks, tree.parents, tree.depth, tree.levels.clone())
    };
    let levels = vec![4_999, 3, 1, 1, 1, 1, 1, 1, 1, 1];
    assert_eq!(
        trees.iter().map(shown).collect::<Vec<_>>(),
        [("large".to_owned(), 5_014, 14, 14, levels), ("small".to_owned(), 2, 1, 1, vec![2])]
    );
}

#[tokio::test]
async fn a_fork_of_a_fresh_session_is_fresh() {
    let rig = rig(1).await;
    let first = open(&rig, "a").await;
    assert!(rig.scheduler.capture(first).await.unwrap().is_none());
    let fork = rig.scheduler.adopt("b", BuildId::default(), None).await.unwrap();
    assert_eq!(count(&rig, fork).await, 1);
}

#[tokio::test]
async fn a_busy_session_is_neither_copied_nor_replaced() {
    let rig = rig(1).await;
    let session = open(&rig, "a").await;
    let running = rig.scheduler.submit(script_in("wait", session)).await.unwrap();
    let refused = rig.scheduler.capture(session).await.unwrap_err();
    assert_eq!(refused, Refusal::SessionBusy);
    assert_eq!(rig.scheduler.replace(session, None).await, Err(Refusal::SessionBusy));
    rig.source.open();
    assert!(within(running.into_future()).await.is_success());
    assert!(within(rig.scheduler.capture(session)).await.unwrap().is_some());
}

#[tokio::test]
async fn everyone_who_asks_for_a_copy_between_jobs_gets_it() {
    let rig = rig(1).await;
    let session = open(&rig, "a").await;
    assert_eq!(count(&rig, session).await, 1);
    let capture = || within(rig.scheduler.capture(session));
    let (first, second, third) = tokio::join!(capture(), capture(), capture());
    assert!([first, second, third].iter().all(|state| matches!(state, Ok(Some(_)))));
    assert_eq!(rig.scheduler.status().totals.succeeded, 1, "a copy is no job");
}

#[tokio::test]
async fn a_session_goes_back_to_a_checkpoint_and_to_its_start() {
    let rig = rig(1).await;
    let session = open(&rig, "a").await;
    assert_eq!(count(&rig, session).await, 1);
    let checkpoint = within(rig.scheduler.capture(session)).await.unwrap();
    for _ in 0..2 {
        assert_eq!(count(&rig, session).await, 2);
        assert_eq!(count(&rig, session).await, 3);
        rig.scheduler.replace(session, checkpoint.clone()).await.unwrap();
    }
    assert!(run(&rig, "ok", None).await.is_success());
    assert_eq!(count(&rig, session).await, 2);
    rig.scheduler.replace(session, None).await.unwrap();
    assert_eq!(count(&rig, session).await, 1);
}

#[tokio::test]
async fn a_worker_that_dies_takes_only_the_session_that_was_on_it() {
    let rig = rig(1).await;
    let (first, second) = (open(&rig, "a").await, open(&rig, "b").await);
    assert_eq!(count(&rig, first).await, 1);
    assert_eq!(count(&rig, second).await, 1);
    let died = run(&rig, "panic", Some(second)).await;
    assert!(
        matches!(died.verdict, Verdict::SandboxFailed(SandboxFailure::WorkerDied(_))),
        "{died:?}"
    );
    let refused = rig.scheduler.submit(script_in("ok", second)).await.unwrap_err();
    assert!(matches!(refused, Refusal::SessionGone(..)), "{refused}");
    assert_eq!(count(&rig, first).await, 2);
}

#[tokio::test]
async fn a_run_that_is_ended_by_force_takes_its_session_back_to_before_it() {
    let rig = crate::start_with(config(1), PoolConfig::default(), FakeSource::default()).await;
    let session = open(&rig, "a").await;
    // Not even its first run loses the session.
    assert!(run(&rig, "lose", Some(session)).await.session_restored);
    assert_eq!(count(&rig, session).await, 1);
    for (at, script) in (1..).zip(["lose", "panic", "panic", "lose"]) {
        let outcome = run(&rig, script, Some(session)).await;
        assert!(outcome.session_restored, "{outcome:?}");
        assert_eq!(count(&rig, session).await, at + 1);
    }
    let outcome = run(&rig, "raise", Some(session)).await;
    assert!(!outcome.session_restored, "it ended normally: {outcome:?}");
}

#[tokio::test]
async fn what_is_too_large_to_be_copied_is_lost_with_its_run() {
    let pool = PoolConfig { rollback_bytes: 108, ..PoolConfig::default() };
    let rig = crate::start_with(config(1), pool, FakeSource::default()).await;
    for (name, bytes, is_kept) in [("small", 100, true), ("large", 101, false)] {
        let session = open(&rig, name).await;
        let fills = format!("memory {bytes}");
        assert!(run(&rig, &fills, Some(session)).await.is_success());
        assert_eq!(run(&rig, "lose", Some(session)).await.session_restored, is_kept);
        let after = rig.scheduler.submit(script_in("ok", session)).await;
        assert_eq!(after.is_ok(), is_kept);
    }
}

#[tokio::test]
async fn an_isolated_job_that_kills_its_worker_takes_no_session() {
    let rig = rig(1).await;
    let session = open(&rig, "a").await;
    assert_eq!(count(&rig, session).await, 1);
    assert!(!run(&rig, "panic", None).await.is_success());
    assert_eq!(count(&rig, session).await, 2);
}

#[tokio::test]
async fn a_state_that_can_not_be_suspended_is_lost_and_its_session_says_so() {
    let rig = rig(1).await;
    let (lost, other) = (open(&rig, "a").await, open(&rig, "b").await);
    assert_eq!(count(&rig, other).await, 1);
    assert_eq!(count(&rig, lost).await, 1);
    rig.source.fail_suspends(1);
    assert!(run(&rig, "ok", None).await.is_success());
    let outcome = run(&rig, "count", Some(lost)).await;
    let Verdict::SandboxFailed(failure @ SandboxFailure::SessionLost(_)) = &outcome.verdict else {
        panic!("{outcome:?}")
    };
    assert_eq!(
        engine::chain(failure).to_string(),
        "the session was lost while the job waited for it: its state could not be suspended: the \
         interpreter did not start: scripted to fail"
    );
    let refused = rig.scheduler.submit(script_in("ok", lost)).await.unwrap_err();
    assert!(matches!(refused, Refusal::SessionGone(..)), "{refused}");
    assert_eq!(count(&rig, other).await, 2);
}

#[tokio::test]
async fn a_copy_of_a_lost_state_says_why_and_the_name_is_free() {
    let rig = rig(1).await;
    let (first, second) = (open(&rig, "a").await, open(&rig, "b").await);
    assert_eq!(count(&rig, first).await, 1);
    rig.source.fail_suspends(1);
    assert_eq!(count(&rig, second).await, 1);
    let refused = within(rig.scheduler.capture(first)).await.unwrap_err();
    assert!(matches!(refused, Refusal::SessionGone(..)), "{refused}");
    rig.source.fail_suspends(1);
    assert!(run(&rig, "ok", None).await.is_success());
    assert_eq!(place(&rig, second), SessionPlace::Lost);
    assert_ne!(open(&rig, "b").await, second);
}

#[tokio::test]
async fn a_copy_that_fails_leaves_the_session_as_it_was() {
    let rig = rig(1).await;
    let session = open(&rig, "a").await;
    assert_eq!(count(&rig, session).await, 1);
    rig.source.fail_suspends(1);
    let refused = within(rig.scheduler.capture(session)).await.unwrap_err();
    assert!(matches!(refused, Refusal::NotCaptured(..)), "{refused}");
    assert_eq!(count(&rig, session).await, 2);
}

#[tokio::test]
async fn a_state_that_can_not_be_resumed_is_kept() {
    let rig = rig(1).await;
    let session = open(&rig, "a").await;
    assert_eq!(count(&rig, session).await, 1);
    assert!(run(&rig, "ok", None).await.is_success());
    rig.source.fail_resumes(1);
    let failed = run(&rig, "count", Some(session)).await;
    assert!(
        matches!(failed.verdict, Verdict::SandboxFailed(SandboxFailure::Start(_))),
        "{failed:?}"
    );
    assert_eq!(count(&rig, session).await, 2);
}

#[tokio::test]
async fn an_interpreter_that_can_not_be_reset_is_replaced() {
    let rig = rig(1).await;
    rig.source.fail_resets(1);
    assert_eq!(counted(&run(&rig, "count", None).await), 1);
    assert_eq!(counted(&run(&rig, "count", None).await), 1);
    assert_eq!(rig.source.starts(), 2);
}

#[tokio::test]
async fn a_closed_session_drops_its_state_and_is_not_suspended() {
    let rig = rig(1).await;
    let session = open(&rig, "a").await;
    assert_eq!(count(&rig, session).await, 1);
    rig.scheduler.close_session(session);
    until(&rig.scheduler, |status| status.sessions.is_empty()).await;
    // An attempt to suspend would use this up.
    rig.source.fail_suspends(1);
    let other = open(&rig, "a").await;
    assert_eq!(count(&rig, other).await, 1);
    let refused = within(rig.scheduler.capture(other)).await.unwrap_err();
    assert!(matches!(refused, Refusal::NotCaptured(..)), "{refused}");
}

#[tokio::test]
async fn draining_ends_sessions_wherever_their_states_are() {
    let rig = rig(1).await;
    let (first, second) = (open(&rig, "a").await, open(&rig, "b").await);
    assert_eq!(count(&rig, first).await, 1);
    assert_eq!(count(&rig, second).await, 1);
    within(rig.scheduler.drain()).await;
    let status = rig.scheduler.status();
    assert!(status.workers.is_empty() && status.sessions.is_empty(), "{status:?}");
    assert_eq!(within(rig.scheduler.capture(first)).await.unwrap_err(), Refusal::ShuttingDown);
}
