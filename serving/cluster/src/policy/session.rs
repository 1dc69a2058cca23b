//! The record of a session: what it says, and how its owner may change it.
//!
//! The server keeps one for each session, and replaces it only for a writer that knows its last revision.
//! `sessions.rs` has the steps in which an owner uses it.

use serde::{Deserialize, Serialize};

use super::{Decision, JobHistory, Start};

/// The version of the record that this program writes. It doesn't touch records of later ones.
pub const RECORD_VERSION: u32 = 1;

/// What the server keeps of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// The version of the record.
    pub version: u32,
    /// The name of the session.
    pub name: String,
    /// How many turns are in the state.
    pub turn: u64,
    /// The last of them, or one after it that was refused; `None` before the first one.
    pub last: Option<LastTurn>,
    /// The state after them; `None` is that of a fresh session.
    pub state: Option<StoredState>,
    /// The state that this one has replaced, which somebody is to delete.
    pub old: Option<StoredState>,
    /// Who may change the record; `None` if nobody has the session.
    pub owner: Option<RecordOwner>,
    /// Starts of the turn that comes next, by owners that haven't committed it.
    pub starts: Vec<Start>,
}

/// The last turn that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastTurn {
    /// The key of its job.
    pub key: String,
    /// Its result, until somebody knows that it is stored.
    pub result: Option<PendingResult>,
}

/// A result that may not be stored yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PendingResult {
    /// The result.
    Text(String),
    /// The object that has it.
    Object(String),
}

/// A state in the object store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredState {
    /// The name of the object, which nobody else uses.
    pub object: String,
    /// What the server calls its parts.
    pub parts: String,
    /// The BLAKE3 digest of its bytes.
    pub digest: String,
    /// Its size.
    pub bytes: u64,
    /// When it was stored, in milliseconds since 1970 by the server's clock.
    pub stored_ms: u64,
}

/// A worker that has a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordOwner {
    /// The worker's name.
    pub worker: String,
    /// The worker's process.
    pub instance: String,
}

impl SessionRecord {
    /// Returns the record of a session without turns.
    pub fn fresh(name: &str) -> Self {
        Self { version: RECORD_VERSION, name: name.to_owned(), ..Self::default() }
    }

    /// Returns whether the turn with this key has ended already. Turns that are older than the
    /// last one are gone from the stream: the next one isn't started before.
    pub fn has(&self, key: &str) -> bool {
        self.last.as_ref().is_some_and(|last| last.key == key)
    }

    /// Returns whether a process has the session.
    pub fn is_of(&self, instance: &str) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.instance == instance)
    }

    /// Returns what a new owner is to do with the turn that comes next, and the record with which it
    /// takes over. An owner that has gone without a word may have died of this turn.
    pub fn taken_over(&self, by: &RecordOwner, lives: impl Fn(&str) -> bool) -> (Decision, Self) {
        let is_dead = |instance: &str| instance != by.instance && !lives(instance);
        let died = |start: &&Start| start.instance.as_deref().is_some_and(is_dead);
        let mut dead: Vec<Start> = self.starts.iter().filter(died).cloned().collect();
        if let Some(owner) = &self.owner {
            let is_known =
                self.starts.iter().any(|start| start.instance.as_deref() == Some(&owner.instance));
            if !is_known && is_dead(&owner.instance) {
                dead.push(Start::new(&owner.worker, &owner.instance, false));
            }
        }
        let mut history = JobHistory::default();
        dead.iter().cloned().for_each(|start| history.add(start));
        let claims = dead.len() as u64 + 1;
        let decision = history.decide(claims, |_| false);
        let mut starts = dead;
        if matches!(decision, Decision::Run | Decision::RunAlone) {
            let is_alone = decision == Decision::RunAlone;
            starts.push(Start::new(&by.worker, &by.instance, is_alone));
        }
        (decision, Self { owner: Some(by.clone()), starts, ..self.clone() })
    }

    /// Returns the record after a turn with this result, which has left this state; `None` if it has
    /// left the state as it was.
    pub fn committed(&self, key: &str, result: PendingResult, state: Option<StoredState>) -> Self {
        let (state, old) = match state {
            Some(state) => (Some(state), self.state.clone()),
            None => (self.state.clone(), None),
        };
        Self {
            turn: self.turn + 1,
            last: Some(LastTurn { key: key.to_owned(), result: Some(result) }),
            state,
            old,
            starts: Vec::new(),
            ..self.clone()
        }
    }

    /// Returns the record after a turn that wasn't run, and never will be, with this result.
    pub fn refused(&self, key: &str, result: PendingResult) -> Self {
        Self {
            last: Some(LastTurn { key: key.to_owned(), result: Some(result) }),
            starts: Vec::new(),
            ..self.clone()
        }
    }

    /// Returns the record when its owner has stored everything and lets the session go. Its start of
    /// a turn that it gives back doesn't count.
    pub fn released(&self, instance: &str) -> Self {
        let mut record = self.clone();
        record.owner = None;
        record.old = None;
        record.starts.retain(|start| start.instance.as_deref() != Some(instance));
        if let Some(last) = &mut record.last {
            last.result = None;
        }
        record
    }
}

#[cfg(test)]
mod tests;
