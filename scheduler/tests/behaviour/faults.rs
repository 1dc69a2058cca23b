//! Every step of a worker's life, combined with each way it can go and with what callers do
//! meanwhile.
//!
//! In every combination, each admitted job ends in exactly one outcome, other jobs go on, and
//! afterwards the pool is as it was. Where only back-offs take time, the clock is paused.

use std::time::Duration;

use engine::{Outcome, Verdict};
use pool::{BuildId, PoolConfig, SessionId};
use scheduler::{JobRequest, Phase, Refusal, SchedulerConfig, SessionsConfig, Ticket};
use test_support::fake::{FakeSource, Gate, Step};

use crate::{
    Rig, config, ended, open_gates, script, script_in, standing_still, start, start_with, until,
    while_time_flies, within,
};

const GATES: [Gate; 4] = [Gate::Ok, Gate::Err, Gate::Slow, Gate::Never];

/// What the caller of the job at the gate does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Caller {
    /// Waits for the outcome.
    Waits,
    /// Cancels the job while it is queued.
    CancelsInTheQueue,
    /// Cancels the job while it is under way.
    CancelsMeanwhile,
    /// Drops its ticket.
    DropsItsTicket,
    /// Aborts the scheduler.
    Aborts,
}

const CALLERS: [Caller; 5] = [
    Caller::Waits,
    Caller::CancelsInTheQueue,
    Caller::CancelsMeanwhile,
    Caller::DropsItsTicket,
    Caller::Aborts,
];

#[derive(Debug, Clone, Copy)]
struct Case {
    step: Step,
    gate: Gate,
    caller: Caller,
    workers: usize,
}

impl Case {
    /// Whether the step concerns a session, so that the job has to belong to it.
    fn is_of_session(self) -> bool {
        match self.step {
            Step::Start | Step::Run | Step::Reset => false,
            Step::Suspend | Step::Resume | Step::Pack | Step::Unpack => true,
        }
    }

    /// Sessions that come to the step by themselves as soon as they are idle.
    fn sessions(self) -> SessionsConfig {
        let soon = Duration::from_millis(1);
        let base = SessionsConfig::default();
        match self.step {
            Step::Start | Step::Run | Step::Reset => base,
            Step::Suspend | Step::Resume => SessionsConfig { suspend_after: soon, ..base },
            Step::Pack | Step::Unpack => {
                SessionsConfig { suspend_after: soon, offload_after: soon * 2, ..base }
            }
        }
    }

    /// Whether the job may fail because its step fails and isn't retried: no other worker could get
    /// a lost state either, and a job that its caller wants to end isn't retried.
    fn may_fail(self) -> bool {
        let is_tried_again = match self.step {
            Step::Suspend | Step::Resume | Step::Unpack => false,
            Step::Run => self.caller == Caller::Waits,
            Step::Start | Step::Reset | Step::Pack => true,
        };
        self.gate == Gate::Err && !is_tried_again
    }

    fn check(self, outcome: &Outcome) {
        let is_fine = match &outcome.verdict {
            Verdict::SandboxFailed(_) => self.may_fail(),
            Verdict::Cancelled => self.caller != Caller::Waits,
            _ => outcome.is_success(),
        };
        assert!(is_fine, "{self:?}: {outcome:?}");
    }
}

/// A rig on its way to the step, and the session of the job at the gate.
struct Scene {
    case: Case,
    rig: Rig,
    session: SessionId,
    submitted: u64,
}

impl Scene {
    async fn prepare(case: Case) -> Self {
        let source = FakeSource::default();
        if case.step == Step::Start {
            source.gate(case.step, [case.gate]);
        }
        let config = SchedulerConfig { sessions: case.sessions(), ..config(case.workers) };
        let rig = start(config, source).await;
        let session = rig.scheduler.open_session("subject", BuildId::default()).await.unwrap().0;
        let mut scene = Self { case, rig, session, submitted: 0 };
        match case.step {
            Step::Start => {}
            Step::Run => scene.close_gate(),
            // These steps come after a job, when its caller has the outcome.
            Step::Reset | Step::Suspend | Step::Pack => {
                scene.close_gate();
                scene.succeeds_as_subject().await;
            }
            Step::Resume => {
                scene.succeeds_as_subject().await;
                until(&scene.rig.scheduler, |status| status.places.suspended == 1).await;
                scene.close_gate();
            }
            Step::Unpack => {
                scene.succeeds_as_subject().await;
                until(&scene.rig.scheduler, |status| status.places.on_disk == 1).await;
                scene.close_gate();
            }
        }
        scene
    }

    fn close_gate(&self) {
        self.rig.source.gate(self.case.step, [self.case.gate]);
    }

    fn subject(&self) -> JobRequest {
        if self.case.is_of_session() { script_in("count", self.session) } else { script("ok") }
    }

    async fn submit(&mut self, request: JobRequest) -> Result<Ticket, Refusal> {
        self.submitted += 1;
        self.rig.scheduler.submit(request).await
    }

    async fn succeeds(&mut self, request: JobRequest) {
        let ticket = self.submit(request).await.unwrap();
        let outcome = within(ticket.into_future()).await;
        assert!(outcome.is_success(), "{:?}: {outcome:?}", self.case);
    }

    /// Makes the session or a worker run once, as the job at the gate will.
    async fn succeeds_as_subject(&mut self) {
        let request = self.subject();
        self.succeeds(request).await;
    }

    /// Submits the job at the gate, unless its session was lost with its state.
    async fn submit_subject(&mut self) -> Option<Ticket> {
        let request = self.subject();
        let submitted = self.submit(request).await;
        if let Err(refused) = &submitted {
            assert!(matches!(refused, Refusal::SessionGone(..)), "{refused}");
            assert!(self.case.may_fail(), "{:?}: {refused}", self.case);
        }
        submitted.ok()
    }

    /// Submits jobs that have to succeed, whatever happens to the one at the gate.
    async fn others_go_on(&mut self) -> Vec<Ticket> {
        let mut others = Vec::new();
        let before = self.rig.status().totals.succeeded;
        for _ in 0..3 {
            others.push(self.submit(script("ok")).await.unwrap());
        }
        // With the one at the gate they are four, and any one of them may be held up there.
        until(&self.rig.scheduler, |status| status.totals.succeeded >= before + 3).await;
        others
    }

    /// Waits until the job is as far under way as it can be.
    async fn is_under_way(&self) {
        let is_blocked = !matches!(self.case.step, Step::Run | Step::Resume | Step::Unpack);
        let submitted = self.submitted;
        until(&self.rig.scheduler, |status| {
            status.running > 0 || ended(status) == submitted || is_blocked
        })
        .await;
    }

    async fn play(&mut self) {
        match self.case.caller {
            Caller::Waits => self.wait().await,
            Caller::CancelsInTheQueue => self.cancel_in_the_queue().await,
            Caller::CancelsMeanwhile | Caller::DropsItsTicket => self.give_up_meanwhile().await,
            Caller::Aborts => self.abort().await,
        }
    }

    async fn wait(&mut self) {
        let mut tickets: Vec<Ticket> = self.submit_subject().await.into_iter().collect();
        // If its session was already being suspended, another worker waits with the subject for that.
        let is_one_free = (self.case.step, self.case.gate) != (Step::Suspend, Gate::Never);
        if self.case.workers > 1 && is_one_free {
            tickets.extend(self.others_go_on().await);
        }
        open_gates(&self.rig.source);
        self.end(tickets).await;
    }

    async fn cancel_in_the_queue(&mut self) {
        let mut blockers = Vec::new();
        for _ in 0..self.case.workers {
            blockers.push(self.submit(script("wait")).await.unwrap());
        }
        if let Some(mut subject) = self.submit_subject().await {
            subject.cancel();
            // The gates are still closed: cancelling must not wait for a worker.
            let outcome = within(subject.outcome()).await;
            assert_eq!(outcome.verdict, Verdict::Cancelled, "{:?}", self.case);
        }
        open_gates(&self.rig.source);
        self.end(blockers).await;
    }

    async fn give_up_meanwhile(&mut self) {
        let subject = self.submit_subject().await;
        self.is_under_way().await;
        if self.case.caller == Caller::DropsItsTicket {
            drop(subject);
            return open_gates(&self.rig.source);
        }
        if let Some(subject) = &subject {
            subject.cancel();
        }
        open_gates(&self.rig.source);
        self.end(subject.into_iter().collect()).await;
    }

    async fn abort(&mut self) {
        let mut tickets: Vec<Ticket> = self.submit_subject().await.into_iter().collect();
        tickets.push(self.submit(script("ok")).await.unwrap());
        self.is_under_way().await;
        let aborting = tokio::spawn({
            let scheduler = self.rig.scheduler.clone();
            async move { scheduler.abort().await }
        });
        until(&self.rig.scheduler, |status| status.phase != Phase::Open).await;
        open_gates(&self.rig.source);
        self.end(tickets).await;
        within(aborting).await.unwrap();
    }

    async fn end(&self, tickets: Vec<Ticket>) {
        for ticket in tickets {
            self.case.check(&within(ticket.into_future()).await);
        }
    }

    /// Checks that everything is as it was before, and then ends everything.
    async fn leave(mut self) {
        if self.case.caller != Caller::Aborts {
            for _ in 0..=self.case.workers {
                self.succeeds(script("ok")).await;
            }
            self.rig.scheduler.close_session(self.session);
            until(&self.rig.scheduler, |status| status.sessions.is_empty()).await;
            self.rig.wait_until_idle().await;
            let workers = self.rig.status().workers.len();
            assert_eq!(workers, self.case.workers, "{:?}", self.case);
            within(self.rig.scheduler.drain()).await;
        }
        let status = self.rig.status();
        assert_eq!(ended(&status), self.submitted, "{:?}: {:?}", self.case, status.totals);
        assert!(status.workers.is_empty() && status.sessions.is_empty(), "{status:?}");
        assert_eq!((status.queue_depth, status.running), (0, 0), "{:?}", self.case);
    }
}

async fn hold(step: Step) {
    for gate in GATES {
        for caller in CALLERS {
            for workers in [1, 2] {
                let case = Case { step, gate, caller, workers };
                println!("{case:?}");
                let mut scene = Scene::prepare(case).await;
                scene.play().await;
                scene.leave().await;
            }
        }
    }
}

#[tokio::test]
async fn a_start_may_go_in_any_way() {
    hold(Step::Start).await;
}

#[tokio::test]
async fn a_run_may_go_in_any_way() {
    hold(Step::Run).await;
}

#[tokio::test]
async fn a_reset_may_go_in_any_way() {
    hold(Step::Reset).await;
}

#[tokio::test]
async fn suspending_may_go_in_any_way() {
    hold(Step::Suspend).await;
}

#[tokio::test]
async fn resuming_may_go_in_any_way() {
    hold(Step::Resume).await;
}

#[tokio::test]
async fn packing_may_go_in_any_way() {
    hold(Step::Pack).await;
}

#[tokio::test]
async fn unpacking_may_go_in_any_way() {
    hold(Step::Unpack).await;
}

/// With the back-offs of the configuration, which the paused clock skips.
#[tokio::test(start_paused = true)]
async fn jobs_outlive_every_back_off() {
    standing_still(async {
        let source = FakeSource::default();
        source.gate(Step::Start, [Gate::Err; 8]);
        let pool = PoolConfig { most_failures: 100, ..PoolConfig::default() };
        let rig = start_with(config(1), pool, source).await;
        let mut tickets = Vec::new();
        for _ in 0..3 {
            tickets.push(rig.submit(script("ok")).await);
        }
        let cancelled = tickets.remove(1);
        cancelled.cancel();
        assert_eq!(cancelled.await.verdict, Verdict::Cancelled);
        for ticket in tickets {
            assert!(while_time_flies(ticket.into_future()).await.is_success());
        }
        assert_eq!(rig.source.starts(), 9);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn everything_can_end_in_the_middle_of_a_back_off() {
    standing_still(async {
        for _ in 0..20 {
            let source = FakeSource::default();
            source.fail_starts(u32::MAX);
            let pool = PoolConfig { most_failures: u32::MAX, ..PoolConfig::default() };
            let rig = start_with(config(2), pool, source).await;
            let ticket = rig.submit(script("ok")).await;
            until(&rig.scheduler, |_| rig.source.starts() >= 4).await;
            rig.scheduler.abort().await;
            assert_eq!(ticket.await.verdict, Verdict::Cancelled);
            assert!(rig.status().workers.is_empty());
        }
    })
    .await;
}
