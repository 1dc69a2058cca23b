//! The life of one session at its home: its turns one after the other, then a rest, then it is let
//! go.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::clock::{now, sleep};
use crate::policy::session::Owner;
use crate::sessions::{Replaced, Revised, SessionKey, Sessions};

use super::super::shared::Shared;
use super::copy::LocalCopy;

/// How long a session without turns stays in this worker's pool.
const REST: Duration = Duration::from_secs(60);

/// What the home of a session is told.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Word {
    /// Goes up when there are turns.
    wakes: u64,
    /// Whether the session is to be let go.
    leaves: bool,
}

impl Word {
    pub(super) fn wake(home: &watch::Sender<Self>) {
        home.send_modify(|word| word.wakes += 1);
    }

    pub(super) fn leave(home: &watch::Sender<Self>) {
        home.send_modify(|word| word.leaves = true);
    }
}

/// Why a turn hasn't ended.
#[derive(Debug)]
pub(super) enum Stop {
    /// It is tried again after this time.
    Later(Duration),
    /// Somebody else has the session now.
    Fenced,
    /// This worker lets the session go.
    Leaving,
}

/// A session that this worker owns, as far as it knows.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) revised: Revised,
    /// The session in the pool, in the state of the record; `None` until it is needed.
    pub(super) copy: Option<LocalCopy>,
    /// Whether the next turn runs alone.
    pub(super) is_alone: bool,
    /// When the record was last known to be this worker's.
    pub(super) seen: Instant,
}

/// A session, as long as it is here.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) shared: Arc<Shared>,
    pub(super) sessions: Arc<Sessions>,
    pub(super) key: SessionKey,
    pub(super) folder: Arc<TempDir>,
    pub(super) words: watch::Receiver<Word>,
    pub(super) held: Option<Held>,
}

impl Home {
    pub(super) fn new(
        shared: Arc<Shared>,
        sessions: Arc<Sessions>,
        key: SessionKey,
        folder: Arc<TempDir>,
        words: watch::Receiver<Word>,
    ) -> Self {
        Self { shared, sessions, key, folder, words, held: None }
    }

    /// Returns who this worker is.
    pub(super) fn owner(&self) -> Owner {
        Owner { worker: self.shared.config.name.clone(), instance: self.shared.instance.clone() }
    }

    /// Runs the session's turns until it has none for a while, or isn't at home here any more.
    pub(super) async fn live(mut self) {
        loop {
            let (pause, is_resting) = match self.work().await {
                Ok(()) => (REST, true),
                Err(Stop::Later(pause)) => (pause, false),
                Err(Stop::Fenced) => return self.drop_copy(),
                Err(Stop::Leaving) => break,
            };
            let has_word = tokio::select! {
                changed = self.words.changed() => changed.is_ok(),
                () = sleep(pause) => !is_resting,
            };
            if !has_word {
                break;
            }
        }
        self.release().await;
    }

    /// Runs turns as long as there are some.
    async fn work(&mut self) -> Result<(), Stop> {
        loop {
            // Before looking for turns, so that none that comes after is missed.
            if self.words.borrow_and_update().leaves || *self.shared.is_draining.borrow() {
                return Err(Stop::Leaving);
            }
            let first = self.sessions.first(&self.key).await.map_err(later)?;
            match first {
                Some(message) => self.turn(message).await?,
                None => return Ok(()),
            }
        }
    }

    /// Waits until this session is to be let go.
    pub(super) async fn left(words: &mut watch::Receiver<Word>) {
        // Without a sender as well.
        let _ = words.wait_for(|word| word.leaves).await;
    }

    /// Lets the session go: the next owner needn't wonder what became of this one.
    async fn release(&mut self) {
        self.drop_copy();
        let Some(held) = self.held.take() else { return };
        let record = held.revised.record.released(&self.shared.instance);
        if let Replaced::Fenced = self.sessions.replace(&self.key, &held.revised, record).await {
            tracing::debug!("session {} is somebody else's already", self.key);
        }
    }

    /// Closes the session in this worker's pool. Its state is stored.
    pub(super) fn drop_copy(&mut self) {
        if let Some(copy) = self.held.as_mut().and_then(|held| held.copy.take()) {
            copy.close();
        }
    }

    /// Notes that the record is this worker's now.
    pub(super) fn hold(&mut self, revised: Revised) {
        match &mut self.held {
            Some(held) => {
                held.revised = revised;
                held.seen = now();
            }
            None => {
                self.held = Some(Held { revised, copy: None, is_alone: false, seen: now() });
            }
        }
    }
}

/// Tries again after the server hasn't answered.
pub(super) fn later(cause: impl std::fmt::Display) -> Stop {
    tracing::info!("a turn of a session has to wait: {cause}");
    Stop::Later(Duration::from_secs(1))
}
