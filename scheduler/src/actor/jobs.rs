//! The shell's part about jobs: from submission to their one outcome.

use std::sync::Arc;
use std::time::Duration;

use engine::{
    Cause, LimitHit, Outcome, SandboxFailure, StopHandle, Stream, Transcript, Verdict, chain,
};
use pool::{Command, GoneReason, JobId, SessionId, SessionPlace, Task, WorkerId};
use tokio::sync::oneshot;

use super::{Finished, PendingAnswers, SchedulerState};
use crate::decision::DecisionKind;
use crate::effect::{Finish, Settlement};
use crate::error::Refusal;
use crate::job::{Growth, JobRequest, LiveJob};
use crate::message::AdmissionReply;
use crate::model::{Event, Fault, Report, StopKind};
use crate::status::ProgramErrorStatus;

impl SchedulerState {
    pub(super) fn submit(
        &mut self,
        mut request: Box<JobRequest>,
        transcript: Arc<Transcript>,
        admitted: AdmissionReply,
        reply: oneshot::Sender<Box<Outcome>>,
    ) {
        let job = self.new_job();
        let cell = request.session.and_then(|id| self.cell(id));
        request.build = cell.as_ref().map_or(request.build, |cell| cell.build());
        let queued = request.queued();
        let JobRequest {
            program, limits, build, session, deadline, is_self_test, observer, ..
        } = *request;
        let tenant = Arc::clone(&queued.tenant);
        let task = Task {
            job,
            program: Arc::new(program),
            limits,
            transcript,
            stop: StopHandle::default(),
            due_in: None,
            build,
            session: cell,
            is_self_test,
            span: tracing::info_span!(parent: None, "job", job = job.0, tenant = &*tenant),
        };
        let live = Box::new(LiveJob {
            cut: None,
            task,
            tenant,
            session,
            deadline,
            reply: Some(reply),
            observer,
            submitted: self.now,
            dispatched: None,
        });
        let (decision, effects) = self.model.submit(job, queued, self.now);
        match decision {
            Ok(()) => self.admit(job, live, admitted),
            Err(refusal) => self.refuse(live, admitted, refusal),
        }
        self.perform(effects);
    }

    pub(super) fn new_job(&mut self) -> JobId {
        let job = JobId(self.next_job);
        self.next_job += 1;
        job
    }

    pub(super) fn session_of(&self, job: JobId) -> Option<SessionId> {
        match self.jobs.get(&job) {
            Some(live) => live.session,
            None => self.captures.get(&job).map(|capture| capture.session),
        }
    }

    /// Keeps an admitted job, and tells its caller.
    fn admit(&mut self, job: JobId, live: Box<LiveJob>, admitted: AdmissionReply) {
        if !live.task.is_self_test {
            self.broadcast(|| DecisionKind::Admitted { job, tenant: live.tenant.to_string() });
        }
        self.jobs.insert(job, live);
        self.touch(job);
        if admitted.send(Ok(job)).is_err() {
            // The caller left before it was answered, so nobody wants the outcome.
            self.decide(Event::StopRequested(job, StopKind::Cancel));
        }
    }

    /// Tells the caller of a refused job why.
    fn refuse(&mut self, live: Box<LiveJob>, admitted: AdmissionReply, refusal: Refusal) {
        let refusal = match live.session {
            Some(session) => self.with_remembered_reason(session, refusal),
            None => refusal,
        };
        self.totals.refused += 1;
        self.published.metrics.refused(&refusal);
        self.broadcast(|| DecisionKind::Refused {
            tenant: Some(live.tenant.to_string()),
            reason: refusal.name(),
            message: chain(&refusal).to_string(),
        });
        let _ = admitted.send(Err(refusal));
        self.discard(live);
    }

    pub(super) fn dispatch(
        &mut self,
        job: JobId,
        worker: WorkerId,
        due_in: Option<Duration>,
        cut: Option<Growth>,
    ) {
        self.touch(job);
        let permit = self.permit(worker);
        if let Some(capture) = self.captures.get(&job) {
            permit.send(Command::Suspend { job, session: Arc::clone(&capture.cell) });
            return;
        }
        let live = self.jobs.get_mut(&job).expect("S-7: the model dispatches only live jobs");
        live.dispatched = Some((self.now, worker));
        let metrics = &self.published.metrics;
        match live.task.session.as_ref().map(|cell| cell.place()) {
            None | Some(SessionPlace::Fresh) => {}
            Some(place) => metrics.turn(place == SessionPlace::OnWorker { worker }),
        }
        let is_self_test = live.task.is_self_test;
        let task = live.next_try(due_in, cut);
        permit.send(Command::Run(task));
        if !is_self_test {
            self.broadcast(|| DecisionKind::Dispatched { job, worker });
        }
    }

    pub(super) fn finished(&mut self, worker: WorkerId, job: JobId, finished: Finished) {
        let Outcome { usage, verdict, .. } = &*finished.outcome;
        let report = Report {
            wall: usage.wall,
            cpu: usage.cpu,
            overhead: finished.resume,
            peak_memory_bytes: usage.peak_memory_bytes,
            own_memory_bytes: finished.memory_bytes.saturating_add(usage.file_growth_bytes),
            fault: match verdict {
                Verdict::SandboxFailed(failure) if failure.is_of_interpreter() => {
                    Some(Fault::Sandbox)
                }
                Verdict::Tampered(_) => Some(Fault::Tampering),
                _ => None,
            },
            session_left: finished.outcome.session_restored,
            never_ran: never_ran(&finished.outcome),
        };
        let session = self.session_of(job);
        self.note_loss(session);
        let (decision, effects) = self.model.finish(worker, job, &report, self.now);
        match decision {
            Finish::Conclude => self.conclude(job, finished),
            Finish::Retry { attempt } => {
                let (fault, reason) = match finished.outcome.verdict {
                    Verdict::SandboxFailed(failure) => {
                        (Fault::Sandbox, chain(&failure).to_string())
                    }
                    Verdict::Tampered(tampering) => (Fault::Tampering, tampering.to_string()),
                    other => (Fault::Sandbox, other.name().to_owned()),
                };
                self.retry(job, attempt, fault, reason);
            }
            Finish::Ignore => {}
        }
        self.perform(effects);
    }

    /// Tells the model if a session's state has been lost.
    pub(super) fn note_loss(&mut self, session: Option<SessionId>) {
        if let Some(session) = session
            && let Some(reason) = self.loss_of(session)
        {
            self.decide(Event::SessionLost { session, reason });
        }
    }

    pub(super) fn worker_gone(&mut self, worker: WorkerId, reason: &GoneReason, is_replaced: bool) {
        if matches!(reason, GoneReason::Dismissed | GoneReason::Stopped) {
            return;
        }
        let reason = chain(reason).to_string();
        let mut measures = self.published.measures.lock();
        measures.failed(self.now, None, Some(worker), None, reason.clone());
        drop(measures);
        self.record(DecisionKind::WorkerGone { worker, reason, is_replaced });
    }

    /// Ends a job with the outcome that its worker reported.
    fn conclude(&mut self, job: JobId, Finished { outcome, resume, .. }: Finished) {
        self.touch(job);
        if self.jobs.get(&job).is_some_and(|live| !live.task.is_self_test) {
            let mut measures = self.published.measures.lock();
            measures.resume.record(resume);
            let has_run = !never_ran(&outcome);
            if has_run {
                measures.run.record(outcome.usage.wall);
            }
            drop(measures);
            let session = self.session_of(job).filter(|_| has_run);
            if let Some(open) = session.and_then(|session| self.sessions.get_mut(&session)) {
                open.turns += 1;
            }
            self.published.metrics.resume_time.record(resume);
        }
        self.end(job, outcome);
    }

    /// Prepares another try of a job, and discards what the failed one left.
    pub(super) fn retry(&mut self, job: JobId, attempt: u32, fault: Fault, reason: String) {
        self.touch(job);
        let Some(live) = self.jobs.get_mut(&job) else { return };
        let is_fault_of_sandbox = fault != Fault::Tampering;
        live.task.transcript.restart();
        // If the worker ended, that has stopped the old handle.
        live.task.stop = StopHandle::default();
        let ran_on = live.dispatched.take().map(|(_, worker)| worker);
        let session = live.session;
        self.totals.retried += 1;
        self.published.metrics.retried(is_fault_of_sandbox);
        if is_fault_of_sandbox {
            let message = format!("try {attempt}: {reason}");
            let mut measures = self.published.measures.lock();
            measures.failed(self.now, Some(job), ran_on, session, message);
        }
        tracing::warn!(parent: None, job = job.0, attempt, reason, "retrying a job");
        self.record(DecisionKind::Retried { job, attempt, reason });
    }

    pub(super) fn settle(&mut self, job: JobId, settlement: Settlement) {
        self.touch(job);
        if let Some(capture) = self.captures.remove(&job) {
            let refusal = capture.refusal(settlement, self.model.next_try());
            self.answer(capture, &Err(refusal));
            return;
        }
        let Some(live) = self.jobs.get(&job) else { return };
        let session_restored = matches!(settlement, Settlement::WorkerDied(_))
            && live.session.is_some_and(|session| self.has_state(session));
        let failed = Verdict::SandboxFailed;
        let verdict = match settlement {
            Settlement::Cancelled => Verdict::Cancelled,
            Settlement::DeadlinePassed { allowed, waited } => {
                Verdict::Limit(LimitHit::deadline(allowed, waited))
            }
            Settlement::WorkerDied(reason) | Settlement::PoolDied(reason) => {
                failed(SandboxFailure::WorkerDied(reason))
            }
            Settlement::NoWorker(reason) => failed(SandboxFailure::Start(reason)),
            Settlement::SessionLost(reason) => failed(SandboxFailure::SessionLost(reason)),
        };
        let transcript = &live.task.transcript;
        transcript.close();
        let mut outcome = Box::new(Outcome::not_run(verdict));
        outcome.stdout = transcript.text_of(Stream::Stdout);
        outcome.stderr = transcript.text_of(Stream::Stderr);
        outcome.output_truncated = transcript.is_truncated();
        outcome.displays = transcript.displays();
        outcome.session_restored = session_restored;
        self.end(job, outcome);
    }

    pub(super) fn settle_everything(&mut self, reason: &Cause) {
        let jobs: Vec<_> = self.jobs.keys().chain(self.captures.keys()).copied().collect();
        for job in jobs {
            self.settle(job, Settlement::PoolDied(reason.clone()));
        }
    }

    /// Ends a job. No job ends anywhere else.
    fn end(&mut self, job: JobId, mut outcome: Box<Outcome>) {
        let Some(mut live) = self.jobs.remove(&job) else { return };
        live.adjust(&mut outcome, self.now);
        let (since, ran_on) = live.dispatched.unzip();
        let until = since.unwrap_or(self.now);
        let queue_wait = until.saturating_sub(live.submitted);
        outcome.usage.queue_wait = queue_wait;
        if !live.task.is_self_test {
            self.count(&live, &outcome, ran_on);
        }
        if let Some(reply) = live.reply.take() {
            let unsent = Arc::clone(&self.unsent);
            let (observer, stop) = (live.observer.take(), live.task.stop.clone());
            let is_short = ran_on.is_some() && outcome.usage.wall <= PendingAnswers::SHORT;
            let may_wait = is_short && live.session.is_none();
            let answer = move || {
                if let Some(observer) = observer {
                    observer.ended(&outcome, stop.requested().is_some());
                }
                // Fails if the caller has dropped its ticket.
                let _ = reply.send(outcome);
                drop(unsent);
            };
            self.answers.push(Box::new(answer), may_wait, self.now);
        }
        self.discard(live);
    }

    /// Counts a job that has ended.
    fn count(&mut self, live: &LiveJob, outcome: &Outcome, ran_on: Option<WorkerId>) {
        let (job, session, queue_wait) = (live.task.job, live.session, outcome.usage.queue_wait);
        let how = self.totals.count(outcome);
        let mut measures = self.published.measures.lock();
        // A job that never started says nothing about queue times, only about its caller's
        // patience.
        if ran_on.is_some() {
            measures.queue.record(queue_wait);
            self.published.metrics.queue_time.record(queue_wait);
        }
        measures.ended(self.now, how);
        if let Verdict::SandboxFailed(failure) = &outcome.verdict {
            let message = chain(failure).to_string();
            measures.failed(self.now, Some(job), ran_on, session, message);
        }
        let (verdict, tenant) = (&outcome.verdict, &live.tenant);
        let error = ProgramErrorStatus::of(verdict, self.now, job, ran_on, session, tenant);
        error.into_iter().for_each(|error| measures.program_failed(error));
        drop(measures);
        self.published.metrics.job_ended(outcome, how);
        self.broadcast(|| DecisionKind::Ended { job, how });
    }

    /// Drops a job. If it has host functions, after the decision: what they own may read the status,
    /// which waits for the decision.
    fn discard(&mut self, live: Box<LiveJob>) {
        if live.task.program.functions.is_empty() {
            return;
        }
        let unsent = Arc::clone(&self.unsent);
        let answer = move || {
            drop(live);
            drop(unsent);
        };
        self.answers.push(Box::new(answer), false, self.now);
    }
}

/// Whether a program never began: it was cancelled, or its time was over, before that.
fn never_ran(outcome: &Outcome) -> bool {
    let ended_before = matches!(outcome.verdict, Verdict::Limit(_) | Verdict::Cancelled);
    ended_before && outcome.usage.wall.is_zero()
}
