//! Decisions are made on the threads of callers and workers. When one panics, or the runtime ends,
//! these threads go on.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use engine::{Callee, HostCall, HostFunctions, SandboxFailure, Signature, Verdict};
use pool::{BuildId, Builds, PoolConfig, SessionId};
use scheduler::{JobRequest, Refusal, Scheduler};
use test_support::fake::FakeSource;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::{config, rig, script, until, within};

/// Panics when its task is woken.
pub(crate) struct PanickingWaker;

impl Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        panic!("this waker is scripted to panic");
    }
}

/// Says when its task is woken.
struct Tells(mpsc::Sender<()>);

impl Wake for Tells {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(());
    }
}

/// A host function that panics when it is dropped, after it has told whether the status can be read then.
struct Asks(Scheduler, Option<oneshot::Sender<bool>>);

impl Callee for Asks {
    fn call(&self, _call: HostCall) {}
}

impl Drop for Asks {
    fn drop(&mut self) {
        let (scheduler, (tell, told)) = (self.0.clone(), mpsc::channel());
        // Another thread, so that this one need not wait without end.
        thread::spawn(move || tell.send(scheduler.status().running));
        let is_told = told.recv_timeout(Duration::from_secs(10)).is_ok();
        let _ = self.1.take().map(|tell| tell.send(is_told));
        panic!("this function is scripted to panic");
    }
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn died_with_the_scheduler(verdict: &Verdict) -> bool {
    let Verdict::SandboxFailed(SandboxFailure::WorkerDied(reason)) = verdict else { return false };
    reason.to_string() == "the scheduler died"
}

#[tokio::test]
async fn a_panic_in_a_decision_ends_the_scheduler_and_not_the_thread() {
    let rig = rig(1).await;
    let running = rig.submit(script("wait")).await;
    until(&rig.scheduler, |status| status.running == 1).await;
    let waiting = rig.submit(script("ok")).await;
    let mut decisions = rig.scheduler.decisions();
    {
        let waker = Waker::from(Arc::new(PanickingWaker));
        let mut events = waiting.events();
        let mut event = pin!(events.next());
        let polled = event.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(matches!(polled, Poll::Pending));
        // The waiting job ends, and so do its events, which wakes their reader: on this thread,
        // while the scheduler decides.
        within(rig.scheduler.abort()).await;
    }
    assert!(died_with_the_scheduler(&within(waiting.into_future()).await.verdict));
    assert!(died_with_the_scheduler(&within(running.into_future()).await.verdict));
    within(async { while decisions.next().await.is_some() {} }).await;
    assert_eq!(rig.scheduler.submit(script("ok")).await.unwrap_err(), Refusal::ShuttingDown);
    assert_eq!(
        rig.scheduler.open_session("a", BuildId::default()).await.unwrap_err(),
        Refusal::ShuttingDown
    );
    within(rig.scheduler.drain()).await;
}

#[tokio::test]
async fn a_caller_whose_waker_panics_harms_nobody_else() {
    let rig = rig(1).await;
    let mut running = rig.submit(script("wait")).await;
    until(&rig.scheduler, |status| status.running == 1).await;
    let waiting = rig.submit(script("ok")).await;
    {
        let waker = Waker::from(Arc::new(PanickingWaker));
        let mut outcome = pin!(running.outcome());
        let polled = outcome.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(matches!(polled, Poll::Pending));
    }
    // The worker's thread wakes it.
    rig.source.open();
    assert!(within(waiting.into_future()).await.is_success());
    assert!(within(running.outcome()).await.is_success());
    within(rig.scheduler.drain()).await;
}

#[tokio::test]
async fn an_executor_on_a_thread_of_tokio_gets_an_outcome() {
    let rig = rig(1).await;
    let mut ticket = rig.submit(script("wait")).await;
    until(&rig.scheduler, |status| status.running == 1).await;
    let (tell, told) = mpsc::channel();
    let waker = Waker::from(Arc::new(Tells(tell)));
    let mut context = Context::from_waker(&waker);
    let ended = {
        let mut outcome = pin!(ticket.outcome());
        assert!(outcome.as_mut().poll(&mut context).is_pending());
        rig.source.open();
        loop {
            // No task of tokio goes on meanwhile, nor is any other one woken by it.
            told.recv_timeout(Duration::from_secs(60)).expect("its end wakes it");
            if let Poll::Ready(outcome) = outcome.as_mut().poll(&mut context) {
                break outcome;
            }
        }
    };
    assert!(ended.is_success());
    within(rig.scheduler.drain()).await;
}

/// Returns a job with a function that asks the scheduler when it is dropped, and what that has told.
fn asking(scheduler: &Scheduler) -> (JobRequest, oneshot::Receiver<bool>) {
    let (tell, told) = oneshot::channel();
    let function: Arc<dyn Callee> = Arc::new(Asks(scheduler.clone(), Some(tell)));
    let signature = Signature { name: "ask".to_owned(), ..Signature::default() };
    let mut request = script("ok");
    request.program.functions = HostFunctions::new([(signature, function)]).unwrap();
    (request, told)
}

#[tokio::test]
async fn what_a_job_owns_may_use_the_scheduler_and_panic_when_it_is_dropped() {
    let rig = rig(1).await;
    let running = rig.submit(script("wait")).await;
    until(&rig.scheduler, |status| status.running == 1).await;

    let (queued, told) = asking(&rig.scheduler);
    drop(rig.submit(queued).await);
    assert_eq!(within(told).await, Ok(true), "a cancelled job");

    let (refused, told) = asking(&rig.scheduler);
    let refused = JobRequest { session: Some(SessionId(u64::MAX)), ..refused };
    assert!(rig.scheduler.submit(refused).await.is_err());
    assert_eq!(within(told).await, Ok(true), "a refused job");

    rig.source.open();
    assert!(within(running.into_future()).await.is_success());
    // A worker may be the last to have the functions of a job that ran.
    let session = rig.scheduler.open_session("a", BuildId::default()).await.unwrap().0;
    for _ in 0..10 {
        let (turn, told) = asking(&rig.scheduler);
        let turn = JobRequest { session: Some(session), ..turn };
        assert!(rig.run(turn).await.is_success());
        assert_eq!(within(told).await, Ok(true), "a turn");
    }
    assert_eq!(rig.source.starts(), 1);
    within(rig.scheduler.drain()).await;
}

#[test]
fn the_end_of_the_runtime_ends_the_scheduler_and_no_other_thread() {
    for _ in 0..20 {
        let (source, ended) = (FakeSource::default(), runtime());
        let (scheduler, ticket) = ended.block_on(async {
            let shared = Builds::new(Arc::new(source.clone()));
            let scheduler = Scheduler::start(config(1), PoolConfig::default(), shared).await;
            let scheduler = scheduler.unwrap();
            let ticket = scheduler.submit(script("wait")).await.unwrap();
            until(&scheduler, |status| status.running == 1).await;
            (scheduler, ticket)
        });
        let opening = thread::spawn(move || source.open());
        ended.shutdown_background();
        runtime().block_on(async {
            // OutcomeWaiters of another runtime may be decided on until the actor's task has been dropped.
            let mut tickets = vec![ticket];
            let refusal = within(async {
                loop {
                    match scheduler.submit(script("ok")).await {
                        Ok(ticket) => tickets.push(ticket),
                        Err(refusal) => break refusal,
                    }
                    tokio::task::yield_now().await;
                }
            })
            .await;
            assert!(matches!(refusal, Refusal::ShuttingDown | Refusal::QueueFull { .. }));
            for ticket in tickets {
                let outcome = within(ticket.into_future()).await;
                let verdict = &outcome.verdict;
                let is_expected = outcome.is_success()
                    || *verdict == Verdict::Cancelled
                    || died_with_the_scheduler(verdict);
                assert!(is_expected, "{verdict:?}");
            }
        });
        opening.join().unwrap();
    }
}
