//! The sessions of a pool, for whoever watches it.

use std::pin::pin;

use futures_util::TryStreamExt;
use serde::Serialize;

use crate::error::Cause;
use crate::policy::session::Record;

use super::store::Sessions;

/// The most sessions in a list.
const MOST_LISTED: usize = 10_000;

/// The sessions of a pool, and what the server keeps for them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SessionList {
    /// The sessions, at most 10,000, in the order of their names.
    pub sessions: Vec<SessionEntry>,
    /// Turns that wait or run.
    pub turns: u64,
    /// States that are kept. Those of no session are deleted within some hours.
    pub states: u64,
    /// The bytes of all states.
    pub state_bytes: u64,
}

/// A session of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SessionEntry {
    /// Its name. Sessions of several tenants may have the same.
    pub name: String,
    /// How many turns are in its state.
    pub turn: u64,
    /// The size of its state in bytes; 0 for that of a fresh session.
    pub state_bytes: u64,
    /// The name of the worker that has it; `None` if it rests.
    pub worker: Option<String>,
}

impl Sessions {
    /// Lists the sessions.
    pub(crate) async fn list(&self) -> Result<SessionList, Cause> {
        let mut list = SessionList {
            turns: self.turns.get_info().await?.state.messages,
            ..SessionList::default()
        };
        let mut keys = self.records.keys().await?;
        while let Some(key) = keys.try_next().await? {
            let text = self.entry(&key).await?.text;
            let record = text.and_then(|text| serde_json::from_slice::<Record>(&text).ok());
            list.sessions.extend(record.map(|record| SessionEntry {
                name: record.name,
                turn: record.turn,
                state_bytes: record.state.map_or(0, |state| state.bytes),
                worker: record.owner.map(|owner| owner.worker),
            }));
            if list.sessions.len() >= MOST_LISTED {
                break;
            }
        }
        list.sessions.sort_by(|one, other| one.name.cmp(&other.name));
        let mut states = pin!(self.each_state().await?);
        while let Some((state, _)) = states.try_next().await? {
            list.states += 1;
            list.state_bytes += state.size as u64;
        }
        Ok(list)
    }
}
