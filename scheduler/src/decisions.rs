//! The stream of decisions for followers, and the last decisions for the status.

use std::collections::VecDeque;
use std::time::Duration;

use engine::OwnerProcess;
use parking_lot::Mutex;
use tokio::sync::broadcast;

use crate::decision::{Decision, DecisionKind};

/// How many decisions a slow follower may be behind before it misses some.
const FOLLOWED: usize = 1024;

/// How many decisions are kept for the status.
const KEPT: usize = 50;

/// Sends decisions to followers, and keeps the last ones.
#[derive(Debug, Default)]
pub(crate) struct DecisionLog {
    state: Mutex<LogState>,
}

#[derive(Debug)]
struct LogState {
    /// `None` once no more decisions will follow.
    sender: Option<broadcast::Sender<Decision>>,
    last: u64,
    kept: VecDeque<Decision>,
}

impl Default for LogState {
    fn default() -> Self {
        let sender = Some(broadcast::channel(FOLLOWED).0);
        Self { sender, last: 0, kept: VecDeque::new() }
    }
}

impl DecisionLog {
    /// Sends a decision, and keeps it for the status.
    pub(crate) fn record(&self, at: Duration, kind: DecisionKind) {
        let mut state = self.state.lock();
        if state.kept.len() == KEPT {
            state.kept.pop_front();
        }
        let decision = state.send(at, kind);
        state.kept.push_back(decision);
    }

    /// Sends a decision. If there are no followers, it is only counted.
    pub(crate) fn broadcast(&self, at: Duration, kind: impl FnOnce() -> DecisionKind) {
        let mut state = self.state.lock();
        if state.sender.as_ref().is_some_and(|sender| sender.receiver_count() > 0) {
            state.send(at, kind());
        } else {
            state.last += 1;
        }
    }

    /// Ends the stream of decisions.
    pub(crate) fn close(&self) {
        self.state.lock().sender = None;
    }

    pub(crate) fn follow(&self) -> Decisions {
        let receiver = match &self.state.lock().sender {
            Some(sender) => sender.subscribe(),
            None => return Decisions::none(),
        };
        Decisions { receiver, owner: OwnerProcess::current() }
    }

    /// Returns the last decisions that were kept, the latest first.
    pub(crate) fn last(&self) -> Vec<Decision> {
        self.state.lock().kept.iter().rev().cloned().collect()
    }
}

impl LogState {
    /// Called with the lock held, so that followers receive decisions in the order of their
    /// numbers.
    fn send(&mut self, at: Duration, kind: DecisionKind) -> Decision {
        self.last += 1;
        let decision = Decision { sequence: self.last, at, kind };
        if let Some(sender) = &self.sender {
            // Fails if there are no followers.
            let _ = sender.send(decision.clone());
        }
        decision
    }
}

/// Receives the scheduler's decisions from when it was created. It blocks nobody: a follower that
/// is more than 1,024 decisions behind misses some, and learns how many.
#[derive(Debug)]
#[must_use = "a follower that isn't read receives nothing"]
pub struct Decisions {
    receiver: broadcast::Receiver<Decision>,
    owner: OwnerProcess,
}

/// What a follower receives next: a decision or a gap, and nothing else ever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextDecision {
    /// A decision.
    Decision(Decision),
    /// The follower was too slow and missed this many decisions.
    Missed(u64),
}

impl Decisions {
    /// Receives nothing.
    pub(crate) fn none() -> Self {
        Self { receiver: broadcast::channel(1).1, owner: OwnerProcess::current() }
    }

    /// Returns the next decision; `None` once the scheduler has ended and all were received, and in
    /// a forked child process. Cancel-safe.
    pub async fn next(&mut self) -> Option<NextDecision> {
        if !self.owner.is_current() {
            return None;
        }
        match self.receiver.recv().await {
            Ok(decision) => Some(NextDecision::Decision(decision)),
            Err(broadcast::error::RecvError::Lagged(missed)) => Some(NextDecision::Missed(missed)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use pool::JobId;

    use super::*;

    fn ended(job: u64) -> DecisionKind {
        DecisionKind::Ended { job: JobId(job), how: "succeeded" }
    }

    #[tokio::test]
    async fn followers_receive_everything_since_they_came_or_how_much_they_missed() {
        let log = DecisionLog::default();
        log.broadcast(Duration::ZERO, || ended(1));
        let (mut quick, mut slow) = (log.follow(), log.follow());
        for job in 2..2000 {
            log.broadcast(Duration::ZERO, || ended(job));
            let Some(NextDecision::Decision(decision)) = quick.next().await else { panic!() };
            assert_eq!((decision.sequence, decision.kind), (job, ended(job)));
        }
        assert_eq!(slow.next().await, Some(NextDecision::Missed(1998 - FOLLOWED as u64)));
        log.close();
        assert_eq!(quick.next().await, None);
        assert_eq!(log.follow().next().await, None);
    }

    #[test]
    fn the_last_ones_are_kept_but_not_those_about_single_jobs() {
        let log = DecisionLog::default();
        for _ in 0..KEPT + 3 {
            log.record(Duration::ZERO, DecisionKind::WorkerAdded);
            log.broadcast(Duration::ZERO, || ended(1));
        }
        let last = log.last();
        assert_eq!(last.len(), KEPT);
        assert_eq!(last[0].sequence, 2 * (KEPT as u64 + 3) - 1);
    }
}
