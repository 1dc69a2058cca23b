//! The workers: what each does, and how many there should be.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::time::Duration;

use engine::Cause;
use pool::{BuildId, JobId, SessionId, WorkerId};
use rustc_hash::FxHashMap;

use crate::config::WorkersConfig;
use crate::decision::RetireReason;
use crate::timer::Time;

#[cfg(test)]
mod tests;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Activity {
    /// It offers a permit.
    Idle,
    /// It runs this job.
    Busy(JobId),
    /// It resets, renews or vacates its interpreter.
    #[default]
    Preparing,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Worker {
    pub(crate) activity: Activity,
    /// The build of its interpreter, or of the one that it gets for its job.
    build: BuildId,
    /// The session whose state it holds, or will hold once it begins its job.
    pub(crate) resident: Option<SessionId>,
    /// The session that it suspends before it reports anything else.
    pub(crate) leaving: Option<SessionId>,
    /// When its last job ended, or when it first became ready.
    used_at: Time,
    /// Its interpreter's own memory as last reported, and the copy of its session's state.
    pub(crate) slot_bytes: u64,
    kept_bytes: u64,
    /// Why it is to be retired.
    retire: Option<RetireReason>,
}

/// Every worker.
#[derive(Debug, Clone, Default)]
pub(crate) struct Workers {
    workers: FxHashMap<WorkerId, Worker>,
    /// Workers that were asked for or are being replaced, and have not reported yet.
    starting: usize,
    /// When each worker place was given up because its workers could not start, oldest first.
    given_up: VecDeque<Time>,
    /// Workers that were told to end and have not confirmed it, so their end is no surprise.
    dismissed: HashSet<WorkerId>,
    /// Idle workers without a session, by the build of their interpreters and when they were last
    /// used. No set is empty.
    vacant: BTreeMap<BuildId, BTreeSet<(Time, WorkerId)>>,
    /// Idle workers with a session at rest, by when they were last used.
    holding: BTreeSet<(Time, WorkerId)>,
    slot_bytes: u64,
    kept_bytes: u64,
    /// Why the last worker was given up, once none is left.
    lost: Option<Cause>,
}

impl Workers {
    pub(crate) fn get(&self, worker: WorkerId) -> Option<&Worker> {
        self.workers.get(&worker)
    }

    /// Workers that are alive or being started.
    pub(crate) fn count(&self) -> usize {
        self.workers.len() + self.starting
    }

    /// Workers that are alive.
    pub(crate) fn living(&self) -> usize {
        self.workers.len()
    }

    pub(crate) fn idle(&self) -> usize {
        self.vacant.values().map(BTreeSet::len).sum::<usize>() + self.holding.len()
    }

    /// Bytes that all interpreters have of their own, plus the copies of their sessions' states.
    pub(crate) fn slot_bytes(&self) -> u64 {
        self.slot_bytes.saturating_add(self.kept_bytes)
    }

    /// Whether a worker is preparing an interpreter that has memory of its own.
    pub(crate) fn gives_memory_back(&self) -> bool {
        let gives =
            |worker: &Worker| worker.activity == Activity::Preparing && worker.slot_bytes > 0;
        self.workers.values().any(gives)
    }

    /// Why no worker is left, if none is.
    pub(crate) fn lost(&self) -> Option<&Cause> {
        self.lost.as_ref()
    }

    /// The most recently used vacant worker with an interpreter of this build, so that others idle
    /// long enough to end. Else the least recently used of any build, so that builds in use keep
    /// theirs.
    pub(crate) fn idle_without_session(&self, build: BuildId) -> Option<WorkerId> {
        let freshest = self.vacant.get(&build).and_then(BTreeSet::last);
        freshest.copied().or_else(|| self.oldest_without_session()).map(|(_, worker)| worker)
    }

    /// The least recently used vacant worker, and when it was last used.
    pub(crate) fn oldest_without_session(&self) -> Option<(Time, WorkerId)> {
        self.vacant.values().filter_map(BTreeSet::first).min().copied()
    }

    /// Idle workers with a session, those of the sessions that have been idle longest first.
    pub(crate) fn idle_holding(&self) -> impl Iterator<Item = WorkerId> {
        self.holding.iter().map(|(_, worker)| *worker)
    }

    /// How many workers there may be.
    pub(crate) fn most(&self, config: &WorkersConfig) -> usize {
        config.max.saturating_sub(self.given_up.len())
    }

    /// How many workers there should be for this many jobs that run or could run.
    pub(crate) fn wanted(&self, config: &WorkersConfig, jobs: usize) -> usize {
        jobs.saturating_add(config.spares).max(config.min).min(self.most(config))
    }

    /// How many workers the jobs that run or could run need, without spares.
    pub(crate) fn needed(&self, config: &WorkersConfig, jobs: usize) -> usize {
        jobs.min(self.most(config))
    }

    /// Makes places available again that were given up at least `after` ago.
    pub(crate) fn take_back(&mut self, after: Duration, now: Time) {
        while self.next_taken_back(after).is_some_and(|at| at <= now) {
            self.given_up.pop_front();
            self.lost = None;
        }
    }

    /// When the next place that was given up becomes available again.
    pub(crate) fn next_taken_back(&self, after: Duration) -> Option<Time> {
        self.given_up.front().map(|since| since.saturating_add(after))
    }

    /// Counts a worker that is being started.
    pub(crate) fn add(&mut self) {
        self.starting += 1;
    }

    /// Marks a worker as idle. Returns why it is to be retired, if it is.
    pub(crate) fn ready(
        &mut self,
        id: WorkerId,
        build: BuildId,
        slot_bytes: u64,
        kept_bytes: u64,
        now: Time,
    ) -> Option<RetireReason> {
        let starting = &mut self.starting;
        let worker = self.workers.entry(id).or_insert_with(|| {
            *starting = starting.saturating_sub(1);
            Worker { build, used_at: now, ..Worker::default() }
        });
        self.slot_bytes = self.slot_bytes - worker.slot_bytes + slot_bytes;
        worker.slot_bytes = slot_bytes;
        let retire = worker.retire.clone();
        self.keep(id, kept_bytes);
        self.change(id, |worker| {
            worker.activity = Activity::Idle;
            worker.build = build;
        });
        retire
    }

    /// Records what the copy of a worker's session takes now.
    pub(crate) fn keep(&mut self, id: WorkerId, kept_bytes: u64) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        self.kept_bytes = self.kept_bytes - worker.kept_bytes + kept_bytes;
        worker.kept_bytes = kept_bytes;
    }

    /// Uses the permit of an idle worker.
    pub(crate) fn occupy(&mut self, id: WorkerId, activity: Activity) {
        self.change(id, |worker| worker.activity = activity);
    }

    /// Records that a worker's interpreter will be one of this build.
    pub(crate) fn change_to(&mut self, id: WorkerId, build: BuildId) {
        self.change(id, |worker| worker.build = build);
    }

    /// Marks that a worker is to be retired on request. Returns what it does; `None` if there is no
    /// such worker.
    pub(crate) fn retire(&mut self, id: WorkerId) -> Option<Activity> {
        let worker = self.workers.get_mut(&id)?;
        worker.retire = Some(RetireReason::Requested);
        Some(worker.activity)
    }

    /// Marks that a worker gets a new interpreter.
    pub(crate) fn renew(&mut self, id: WorkerId) {
        self.change(id, |worker| {
            worker.retire = None;
            worker.activity = Activity::Preparing;
        });
    }

    /// Records that a worker's job has ended, and how much memory its interpreter has of its own.
    pub(crate) fn finished(
        &mut self,
        id: WorkerId,
        now: Time,
        retire: Option<RetireReason>,
        slot_bytes: u64,
    ) {
        if let Some(worker) = self.workers.get_mut(&id) {
            self.slot_bytes = (self.slot_bytes - worker.slot_bytes).saturating_add(slot_bytes);
            worker.slot_bytes = slot_bytes;
        }
        self.change(id, |worker| {
            worker.activity = Activity::Preparing;
            worker.used_at = now;
            worker.retire = match worker.retire.take() {
                Some(RetireReason::Requested) => Some(RetireReason::Requested),
                earlier => retire.or(earlier),
            };
        });
    }

    /// Records which session's state a worker holds.
    pub(crate) fn house(&mut self, id: WorkerId, resident: Option<SessionId>) {
        self.change(id, |worker| worker.resident = resident);
    }

    /// Records that a worker is to suspend its session.
    pub(crate) fn vacate(&mut self, id: WorkerId) {
        self.change(id, |worker| worker.leaving = worker.resident.take());
    }

    /// Returns the bytes of the copy of its session's state.
    pub(crate) fn kept_bytes(&self, id: WorkerId) -> u64 {
        self.workers.get(&id).map_or(0, |worker| worker.kept_bytes)
    }

    /// Records that a worker has suspended the session that it was to, and returns that session.
    pub(crate) fn take_leaving(&mut self, id: WorkerId) -> Option<SessionId> {
        self.workers.get_mut(&id)?.leaving.take()
    }

    /// Removes an idle worker that is dismissed.
    pub(crate) fn dismiss(&mut self, id: WorkerId) {
        self.remove(id);
        self.dismissed.insert(id);
    }

    /// Whether a worker was asked to end and has not confirmed it.
    pub(crate) fn is_dismissed(&self, id: WorkerId) -> bool {
        self.dismissed.contains(&id)
    }

    /// How many places for workers are given up.
    pub(crate) fn given_up(&self) -> usize {
        self.given_up.len()
    }

    /// Removes a worker that has ended. Returns it, unless it never reported or was asked to end.
    pub(crate) fn gone(
        &mut self,
        id: WorkerId,
        is_replaced: bool,
        reason: &Cause,
        now: Time,
    ) -> Option<Worker> {
        if self.dismissed.remove(&id) {
            return None;
        }
        let worker = self.remove(id);
        if worker.is_none() {
            self.starting = self.starting.saturating_sub(1);
        }
        if is_replaced {
            self.starting += 1;
        } else {
            self.given_up.push_back(now);
            self.lost = (self.count() == 0).then(|| reason.clone());
        }
        worker
    }

    fn remove(&mut self, id: WorkerId) -> Option<Worker> {
        let worker = self.workers.remove(&id)?;
        self.unlist(id, worker.build, worker.used_at);
        self.slot_bytes -= worker.slot_bytes;
        self.kept_bytes -= worker.kept_bytes;
        Some(worker)
    }

    fn change(&mut self, id: WorkerId, change: impl FnOnce(&mut Worker)) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        let (build, used_at) = (worker.build, worker.used_at);
        change(worker);
        let now = (worker.activity, worker.resident, worker.build, worker.used_at);
        self.unlist(id, build, used_at);
        match now {
            (Activity::Idle, None, build, used_at) => {
                self.vacant.entry(build).or_default().insert((used_at, id));
            }
            (Activity::Idle, Some(_), _, used_at) => {
                self.holding.insert((used_at, id));
            }
            (Activity::Busy(_) | Activity::Preparing, ..) => {}
        }
    }

    /// Takes a worker out of the lists of idle ones.
    fn unlist(&mut self, id: WorkerId, build: BuildId, used_at: Time) {
        self.holding.remove(&(used_at, id));
        if let Entry::Occupied(mut vacant) = self.vacant.entry(build) {
            vacant.get_mut().remove(&(used_at, id));
            if vacant.get().is_empty() {
                vacant.remove();
            }
        }
    }
}
