//! The sessions whose home is this worker: which partitions it asks for, and a task for each session
//! that has turns.
//!
//! `partition.rs` hears of turns, `home.rs` is the life of a session here, `turn.rs` the way of one
//! turn, and `copy.rs` the session in this worker's pool. `sessions.rs` of this crate has the steps
//! and what they promise.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::clock::{now, sleep};
use crate::policy;
use crate::sessions::{PARTITIONS, SessionKey, Sessions};

use self::home::{Home, Word};
use super::shared::Shared;

mod copy;
mod home;
mod partition;
mod turn;

/// How often a worker looks who lives, and so which partitions are its own.
const REFRESH: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(500)..=Duration::from_secs(3);
/// From so many workers on, they look less often.
const MANY: usize = 64;
/// How often a worker looks whether the pool has sessions.
const LOOK: Duration = Duration::from_secs(2);
/// How often the home of the first partition deletes states that nobody needs.
const SWEEP: Duration = Duration::from_secs(3600);
/// Words of turns that wait to be heard.
const MOST_WORDS: usize = 1024;
/// Sessions that are here at once. Turns of others wait, and are told of again.
const MOST_HOMES: usize = 4096;

/// What a worker has of its pool's sessions.
#[derive(Debug)]
struct Homes {
    shared: Arc<Shared>,
    sessions: Arc<Sessions>,
    /// Where states are on their way to and from the pool.
    folder: Arc<TempDir>,
    partitions: HashMap<u8, Partition>,
    homes: HashMap<SessionKey, watch::Sender<Word>>,
    tasks: JoinSet<()>,
    told: mpsc::Sender<SessionKey>,
    /// The instances that lived when somebody last looked.
    living: Vec<String>,
}

/// A partition that this worker asks for until this is dropped.
#[derive(Debug)]
struct Partition {
    task: JoinHandle<()>,
    /// Another worker is its home now, and gets it when no session of it has a turn here.
    is_leaving: bool,
}

impl Drop for Partition {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Runs turns until this worker drains and its sessions are at rest.
pub(super) async fn serve(shared: Arc<Shared>) {
    let mut draining = shared.is_draining.subscribe();
    let found = tokio::select! {
        found = find(&shared) => found,
        () = drained(&mut draining) => return,
    };
    let folder = match tempfile::tempdir() {
        Ok(folder) => Arc::new(folder),
        Err(error) => {
            tracing::error!(
                "this worker takes no turns of sessions: no folder for states: {error}"
            );
            return;
        }
    };
    let (told, words) = mpsc::channel(MOST_WORDS);
    let homes = Homes {
        shared: Arc::clone(&shared),
        sessions: found,
        folder,
        partitions: HashMap::new(),
        homes: HashMap::new(),
        tasks: JoinSet::new(),
        told,
        living: Vec::new(),
    };
    homes.run(words, draining).await;
}

/// Waits until this worker drains.
async fn drained(draining: &mut watch::Receiver<bool>) {
    // The sender lives as long as the worker.
    let _ = draining.wait_for(|is_draining| *is_draining).await;
}

/// Waits until the pool has sessions.
async fn find(shared: &Shared) -> Arc<Sessions> {
    loop {
        if shared.streams.has_sessions().await {
            match shared.streams.sessions().await {
                Ok(sessions) => return Arc::clone(sessions),
                Err(error) => tracing::info!("{error}"),
            }
        }
        sleep(LOOK).await;
    }
}

impl Homes {
    async fn run(
        mut self,
        mut words: mpsc::Receiver<SessionKey>,
        mut draining: watch::Receiver<bool>,
    ) {
        let every = (self.shared.streams.life() / 3).clamp(*REFRESH.start(), *REFRESH.end());
        let refresh = sleep(Duration::ZERO);
        let sweep = sleep(SWEEP);
        tokio::pin!(refresh, sweep);
        let mut sweeping = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = drained(&mut draining) => break,
                () = &mut refresh => {
                    self.refresh().await;
                    // All look at all, so large clusters look less often.
                    let factor = 1 + self.living.len() / MANY;
                    refresh.set(sleep(every * u32::try_from(factor).unwrap_or(u32::MAX)));
                }
                Some(session) = words.recv() => self.hear(session),
                Some(_) = self.tasks.join_next() => self.forget(),
                () = &mut sweep => {
                    if self.partitions.contains_key(&0) {
                        let sessions = Arc::clone(&self.sessions);
                        let shared = Arc::clone(&self.shared);
                        sweeping.spawn(async move {
                            sessions.sweep(|time| shared.server_clock.since(time, now())).await
                        });
                    }
                    sweep.set(sleep(SWEEP));
                }
                Some(swept) = sweeping.join_next() => {
                    if let Ok(Err(error)) = swept {
                        tracing::info!("can't look for states that nobody needs: {error}");
                    }
                }
            }
        }
        self.partitions.clear();
        self.homes.values().for_each(Word::leave);
        while self.tasks.join_next().await.is_some() {}
    }

    /// Asks for the partitions that are this worker's, and lets others go.
    async fn refresh(&mut self) {
        let keys = self.shared.streams.workers.keys().await;
        let listed = match keys {
            Ok(keys) => keys.try_collect::<Vec<String>>().await.ok(),
            Err(_) => None,
        };
        // While the server is away, who has lived lives on.
        self.living = listed.unwrap_or_else(|| std::mem::take(&mut self.living));
        self.forget();
        for partition in 0..PARTITIONS {
            let living = self.living.iter().map(String::as_str);
            let is_own = policy::is_home(partition, &self.shared.instance, living);
            match self.partitions.get_mut(&partition) {
                None if is_own => {
                    let (sessions, told) = (Arc::clone(&self.sessions), self.told.clone());
                    let link = self.shared.streams.link.clone();
                    let task = tokio::spawn(partition::ask(sessions, link, partition, told));
                    self.partitions.insert(partition, Partition { task, is_leaving: false });
                }
                None => {}
                Some(asked) => {
                    asked.is_leaving = !is_own;
                    if !is_own {
                        self.leave(partition);
                    }
                }
            }
        }
    }

    /// Lets the sessions of a partition go, and then the partition.
    fn leave(&mut self, partition: u8) {
        let of_it = |session: &SessionKey| session.partition() == partition;
        let here = self.homes.iter().filter(|(session, _)| of_it(session));
        let mut is_empty = true;
        for (_, home) in here {
            is_empty = false;
            Word::leave(home);
        }
        if is_empty {
            self.partitions.remove(&partition);
        }
    }

    /// Hears that a session has a turn.
    fn hear(&mut self, session: SessionKey) {
        let asked = self.partitions.get(&session.partition());
        if asked.is_none_or(|partition| partition.is_leaving) {
            return;
        }
        match self.homes.get(&session).filter(|home| !home.is_closed()) {
            Some(home) => Word::wake(home),
            None if self.homes.len() >= MOST_HOMES => self.forget(),
            None => {
                let (word, words) = watch::channel(Word::default());
                let home = Home::new(
                    Arc::clone(&self.shared),
                    Arc::clone(&self.sessions),
                    session.clone(),
                    Arc::clone(&self.folder),
                    words,
                );
                self.tasks.spawn(home.live());
                self.homes.insert(session, word);
            }
        }
    }

    /// Forgets sessions that are no longer here.
    fn forget(&mut self) {
        self.homes.retain(|_, home| !home.is_closed());
    }
}
