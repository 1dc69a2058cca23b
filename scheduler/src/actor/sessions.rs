//! The shell's part about sessions: their names, their cells, and copies of their states.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine::{Cause, chain};
use pool::{Away, Branched, BuildId, JobId, SessionCell, SessionId, Suspended, Tier, WorkerId};

use super::{Capture, OpenSession, SchedulerState, SessionTree};
use crate::decision::{DecisionKind, EvictionReason};
use crate::effect::Settlement;
use crate::error::Refusal;
use crate::job::{Queued, SHARED_DEFAULT_TENANT};
use crate::message::{CaptureReply, ForkNames, Forked, Forks};
use crate::model::{Event, Opening};
use crate::policy::residency::ForkedSessions;
use crate::status::{ForkOrigin, Phase};

/// For how many ended sessions the reason is remembered.
const REMEMBERED_COUNT: usize = 1_000;

/// Where the copy of a state comes from.
enum Copy {
    AtHand(Option<Suspended>),
    /// From the capture that already counts as this job.
    UnderWay(JobId),
    ToMake(Arc<SessionCell>),
}

impl Capture {
    /// Why the copy was never made.
    pub(super) fn refusal(&self, settlement: Settlement, retry_after: Option<Duration>) -> Refusal {
        match settlement {
            Settlement::Cancelled | Settlement::DeadlinePassed { .. } => Refusal::ShuttingDown,
            Settlement::NoWorker(cause) => Refusal::NoWorker { cause, retry_after },
            Settlement::PoolDied(cause) => Refusal::NoWorker { cause, retry_after: None },
            Settlement::SessionLost(cause) => Refusal::SessionGone(cause),
            Settlement::WorkerDied(cause) => match self.cell.at_hand() {
                Err(Away::Lost(cause)) => Refusal::SessionGone(cause),
                // The worker died before it took up the state.
                Ok(_) | Err(Away::OnWorker(_) | Away::Packed) => Refusal::NotCaptured(cause),
            },
        }
    }
}

impl SchedulerState {
    pub(super) fn cell(&self, session: SessionId) -> Option<Arc<SessionCell>> {
        self.sessions.get(&session).map(|open| Arc::clone(&open.cell))
    }

    /// Why a session's state is lost, if it is.
    pub(super) fn loss_of(&self, session: SessionId) -> Option<Cause> {
        match self.cell(session)?.at_hand() {
            Err(Away::Lost(reason)) => Some(reason),
            Ok(_) | Err(Away::OnWorker(_) | Away::Packed) => None,
        }
    }

    /// Whether the session's state still exists.
    pub(super) fn has_state(&self, session: SessionId) -> bool {
        let cell = self.cell(session);
        cell.is_some_and(|cell| !matches!(cell.at_hand(), Err(Away::Lost(_))))
    }

    /// Whether a dead worker's resident session lost its state with it. It didn't if the state was
    /// copied before, or had not reached the worker yet.
    pub(super) fn is_state_gone_with(&self, worker: WorkerId) -> bool {
        let resident = self.model.resident(worker).and_then(|id| self.cell(id));
        resident.is_some_and(|cell| match cell.at_hand() {
            Ok(_) | Err(Away::Packed) => false,
            Err(Away::OnWorker(on)) => on == worker,
            Err(Away::Lost(_)) => true,
        })
    }

    /// Opens a session on this build, unless one of this name is open on any build.
    pub(super) fn open_session(
        &mut self,
        name: Arc<str>,
        build: BuildId,
        tenant: Option<Arc<str>>,
    ) -> Result<(SessionId, BuildId), Refusal> {
        if let Some(session) = self.named(&name)
            && let Some(cell) = self.cell(session)
        {
            return Ok((session, cell.build()));
        }
        Ok((self.new_session(name, build, None, tenant)?, build))
    }

    pub(super) fn adopt(
        &mut self,
        name: Arc<str>,
        build: BuildId,
        state: Option<Suspended>,
        tenant: Option<Arc<str>>,
    ) -> Result<SessionId, Refusal> {
        if self.named(&name).is_some() {
            return Err(Refusal::SessionExists(name.to_string()));
        }
        self.new_session(name, build, state, tenant)
    }

    /// Opens sessions that begin with one state: all of them, or none.
    pub(super) fn fork(&mut self, forks: Forks) -> Result<Forked, Refusal> {
        let Forks { parent, captured, turns, branched, names } = forks;
        let cell = self.open_cell(parent)?;
        if names.count() == 0 {
            return Ok(Vec::new());
        }
        let OpenSession { origin, tree, .. } = &self.sessions[&parent];
        let (depth, tree) = (origin.map_or(0, |origin| origin.depth) + 1, Arc::clone(tree));
        let (state, shared) = match branched {
            Some(Branched { fork, shared }) => (Some(fork), shared),
            None => (None, None),
        };
        let (shared, own) = shared.unzip();
        let (count, bytes) = (names.count(), state.as_ref().map_or(0, Suspended::bytes));
        // The session may have moved on since.
        let base = captured.as_ref().zip(own.as_ref());
        let base = base.filter(|(before, own)| cell.exchange_copy(before, own));
        let (first, has_base) = (SessionId(self.next_session), base.is_some());
        let event = ForkedSessions { parent, first, count, bytes, shared, has_base };
        let names = match self.model.refuses_forks(&event, &tree.tenant, depth) {
            Some(refusal) => Err(refusal),
            None => self.fork_names(&tree, names),
        };
        if let Some((before, own)) = base {
            match &names {
                Ok(_) => own.begin_branch(),
                Err(_) => _ = cell.exchange_copy(own, before),
            }
        }
        let names = names?;
        self.next_session += count as u64;
        let origin = Some(ForkOrigin { parent, depth, turn: turns });
        let mut forked = Vec::with_capacity(count);
        for (number, name) in names.into_iter().enumerate() {
            let session = SessionId(first.0 + number as u64);
            let cell = Arc::new(SessionCell::new(session, state.clone()).on(cell.build()));
            let (tree, turns) = (Arc::clone(&tree), 0);
            self.names.insert(Arc::clone(&name), session);
            let open = OpenSession { name: Arc::clone(&name), cell, turns, origin, tree };
            self.sessions.insert(session, open);
            self.changes.session(session);
            forked.push((session, name));
        }
        self.record(DecisionKind::SessionForked { session: parent, count, first });
        self.decide(Event::SessionsForked(event));
        Ok(forked)
    }

    /// Returns the names of forks in this tree, none of which an open session has.
    fn fork_names(
        &mut self,
        tree: &SessionTree,
        names: ForkNames,
    ) -> Result<Vec<Arc<str>>, Refusal> {
        match names {
            ForkNames::Given(names) => {
                let mut seen = HashSet::new();
                for name in &names {
                    if !seen.insert(name) || self.named(name).is_some() {
                        return Err(Refusal::SessionExists(name.to_string()));
                    }
                }
                Ok(names)
            }
            ForkNames::Numbered(count) => {
                let mut numbered = Vec::with_capacity(count);
                while numbered.len() < count {
                    let number = tree.last.fetch_add(1, Ordering::Relaxed) + 1;
                    let name: Arc<str> = format!("{}~{number}", tree.name).into();
                    if self.named(&name).is_none() {
                        numbered.push(name);
                    }
                }
                Ok(numbered)
            }
        }
    }

    /// Returns the open sessions that were forked from this one, in order.
    pub(super) fn children(&self, session: SessionId) -> Forked {
        let is_child = |open: &OpenSession| open.origin.is_some_and(|it| it.parent == session);
        let children = self.sessions.iter().filter(|(_, open)| is_child(open));
        let mut children: Forked =
            children.map(|(id, open)| (*id, Arc::clone(&open.name))).collect();
        children.sort_unstable_by_key(|(id, _)| *id);
        children
    }

    pub(super) fn replace(
        &mut self,
        session: SessionId,
        state: Option<Suspended>,
    ) -> Result<(), Refusal> {
        let cell = self.open_cell(session)?;
        if self.model.load(session) > 0 {
            return Err(Refusal::SessionBusy);
        }
        let bytes = state.as_ref().map_or(0, Suspended::bytes);
        self.pool.discard(cell.replace(state));
        self.decide(Event::SessionMoved { session, bytes });
        self.changes.session(session);
        Ok(())
    }

    pub(super) fn capture(&mut self, session: SessionId, reply: CaptureReply) {
        match self.find_copy(session) {
            Ok(Copy::AtHand(state)) => {
                let _ = reply.send(Ok((state, self.turns(session))));
            }
            Ok(Copy::UnderWay(job)) => {
                let capture = self.captures.get_mut(&job).expect("it is under way");
                capture.replies.push(reply);
            }
            Ok(Copy::ToMake(cell)) => {
                let capture = Capture { session, cell, replies: vec![reply] };
                self.submit_capture(capture);
            }
            Err(refusal) => {
                let _ = reply.send(self.count_refusal(Err(refusal)));
            }
        }
    }

    /// Submits a copy to the model as a job of its session.
    fn submit_capture(&mut self, capture: Capture) {
        let job = self.new_job();
        let queued = Queued::capture(capture.session, capture.cell.build());
        let (decision, effects) = self.model.submit(job, queued, self.now);
        match decision {
            Ok(()) => {
                self.captures.insert(job, capture);
                self.touch(job);
            }
            Err(refusal) => self.answer(capture, &Err(refusal)),
        }
        self.perform(effects);
    }

    fn find_copy(&mut self, session: SessionId) -> Result<Copy, Refusal> {
        let cell = self.open_cell(session)?;
        let load = self.model.load(session);
        let underway = self.captures.iter().find(|(_, capture)| capture.session == session);
        if let Some((job, _)) = underway
            && load == 1
        {
            // The copy under way is of the same state.
            return Ok(Copy::UnderWay(*job));
        }
        if load > 0 {
            return Err(Refusal::SessionBusy);
        }
        match cell.at_hand() {
            Ok(state) => Ok(Copy::AtHand(state)),
            Err(Away::OnWorker(_) | Away::Packed) => Ok(Copy::ToMake(cell)),
            Err(Away::Lost(cause)) => {
                self.decide(Event::SessionLost { session, reason: cause.clone() });
                Err(Refusal::SessionGone(cause))
            }
        }
    }

    /// Answers a capture when its worker has finished.
    pub(super) fn answer_capture(&mut self, job: JobId, result: Result<(), Cause>) {
        let Some(capture) = self.captures.remove(&job) else { return };
        let answer = capture.cell.at_hand().map_err(|away| match (away, result) {
            (Away::Lost(cause), _) => Refusal::SessionGone(cause),
            (Away::OnWorker(_) | Away::Packed, Err(cause)) => Refusal::NotCaptured(cause),
            (Away::OnWorker(_) | Away::Packed, Ok(())) => {
                Refusal::NotCaptured("it has moved on".into())
            }
        });
        self.answer(capture, &answer);
    }

    /// Answers everyone who asked for a copy.
    pub(super) fn answer(&self, capture: Capture, answer: &Result<Option<Suspended>, Refusal>) {
        let turns = self.turns(capture.session);
        for reply in capture.replies {
            let answer = answer.clone().map(|state| (state, turns));
            // Fails if the caller has left.
            let _ = reply.send(self.count_refusal(answer));
        }
    }

    /// How many turns have ended in a session.
    fn turns(&self, session: SessionId) -> u64 {
        self.sessions.get(&session).map_or(0, |open| open.turns)
    }

    /// Counts and publishes a refusal, and passes the answer on.
    pub(super) fn count_refusal<T>(&self, answer: Result<T, Refusal>) -> Result<T, Refusal> {
        answer.inspect_err(|refusal| {
            self.published.metrics.refused(refusal);
            self.record(DecisionKind::Refused {
                tenant: None,
                reason: refusal.name(),
                message: chain(refusal).to_string(),
            });
        })
    }

    /// Removes a session that has ended.
    pub(super) fn end_session(&mut self, session: SessionId, reason: Cause) {
        let Some(open) = self.sessions.remove(&session) else { return };
        // A closing session's name may already belong to another session.
        if self.names.get(&open.name) == Some(&session) {
            self.names.remove(&open.name);
        }
        self.pool.discard(open.cell.lose(reason.clone()));
        let text = chain(&reason).to_string();
        self.ended.insert(session, reason);
        if self.ended.len() > REMEMBERED_COUNT {
            self.ended.pop_first();
        }
        self.record(DecisionKind::SessionEnded { session, reason: text });
        self.changes.session(session);
    }

    /// Asks the pool to offload a session's state.
    pub(super) fn offload(&mut self, session: SessionId, tier: Tier, reason: EvictionReason) {
        if let Some(cell) = self.cell(session) {
            self.pool.offload(cell, tier);
            self.evicted(session, tier.into(), reason);
        }
    }

    /// Adds why the session ended to a refusal, if that is remembered.
    pub(super) fn with_remembered_reason(&self, session: SessionId, refusal: Refusal) -> Refusal {
        match (refusal, self.ended.get(&session)) {
            (Refusal::SessionGone(..), Some(cause)) => Refusal::SessionGone(cause.clone()),
            (refusal, _) => refusal,
        }
    }

    /// The open session with this name.
    fn named(&mut self, name: &str) -> Option<SessionId> {
        let session = *self.names.get(name)?;
        if let Some(reason) = self.loss_of(session) {
            self.decide(Event::SessionLost { session, reason });
        }
        self.model.is_open(session).then_some(session)
    }

    fn new_session(
        &mut self,
        name: Arc<str>,
        build: BuildId,
        state: Option<Suspended>,
        tenant: Option<Arc<str>>,
    ) -> Result<SessionId, Refusal> {
        let bytes = state.as_ref().map_or(0, Suspended::bytes);
        let tenant = tenant.unwrap_or_else(|| SHARED_DEFAULT_TENANT.clone());
        let opening = Opening { tenant: &tenant, count: 1, bytes, held_bytes: bytes, depth: 0 };
        if let Some(refusal) = self.model.refuses_sessions(&opening) {
            return Err(refusal);
        }
        let session = SessionId(self.next_session);
        self.next_session += 1;
        let cell = Arc::new(SessionCell::new(session, state).on(build));
        self.names.insert(Arc::clone(&name), session);
        let (last, turns, origin) = (AtomicU64::new(0), 0, None);
        let (first, of) = (Arc::clone(&name), Arc::clone(&tenant));
        let tree = Arc::new(SessionTree { name: first, tenant: of, last });
        self.sessions.insert(session, OpenSession { name, cell, turns, origin, tree });
        self.changes.session(session);
        self.record(DecisionKind::SessionOpened { session });
        self.decide(Event::SessionOpened { session, tenant, bytes });
        Ok(session)
    }

    fn open_cell(&self, session: SessionId) -> Result<Arc<SessionCell>, Refusal> {
        if self.model.phase == Phase::Drained {
            return Err(Refusal::ShuttingDown);
        }
        let cell = self.cell(session).filter(|_| self.model.is_open(session));
        cell.ok_or_else(|| self.with_remembered_reason(session, Refusal::not_open()))
    }
}
