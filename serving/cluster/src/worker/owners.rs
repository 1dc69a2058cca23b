//! The sessions that this worker owns: which partitions it asks for, and a task for each session
//! that has turns.
//!
//! `turn.rs` is the way of one turn. `sessions.rs` of this crate has the steps
//! and what they promise.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use hatchery::{DEFAULT_PYTHON, Error, Hatchery, Session};
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::shared::WorkerShared;
use crate::clock::{now, sleep};
use crate::connect::Link;
use crate::error::Cause;
use crate::policy;
use crate::policy::session::RecordOwner;
use crate::sessions::{GROUP, PARTITIONS, Revised, SessionKey, Sessions};

mod turn;

/// How often a worker looks who lives, and so which partitions are its own.
const REFRESH: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(500)..=Duration::from_secs(3);
/// From so many workers on, they look less often.
const MANY: usize = 64;
/// How often a worker looks whether the pool has sessions.
const LOOK: Duration = Duration::from_secs(2);
/// Words of turns that wait to be heard.
const MOST_WAITING: usize = 1024;
/// Sessions that are here at once. Turns of others wait, and are announced again.
const MOST_OWNERS: usize = 4096;

/// What a worker has of its pool's sessions.
#[derive(Debug)]
struct PartitionOwner {
    shared: Arc<WorkerShared>,
    sessions: Arc<Sessions>,
    /// Where states are on their way to and from the pool.
    folder: Arc<TempDir>,
    partitions: HashMap<u8, Partition>,
    owners: HashMap<SessionKey, watch::Sender<OwnerMessage>>,
    tasks: JoinSet<()>,
    told: mpsc::Sender<SessionKey>,
    /// The instances that lived when somebody last looked.
    living: Vec<String>,
}

/// A partition that this worker asks for until this is dropped.
#[derive(Debug)]
struct Partition {
    task: JoinHandle<()>,
    /// Another worker is its owner now, and gets it when no session of it has a turn here.
    is_leaving: bool,
}

impl Drop for Partition {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Runs turns until this worker drains and its sessions are at rest.
pub(super) async fn serve(shared: Arc<WorkerShared>) {
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
    let (told, messages) = mpsc::channel(MOST_WAITING);
    let owners = PartitionOwner {
        shared: Arc::clone(&shared),
        sessions: found,
        folder,
        partitions: HashMap::new(),
        owners: HashMap::new(),
        tasks: JoinSet::new(),
        told,
        living: Vec::new(),
    };
    owners.run(messages, draining).await;
}

/// Waits until this worker drains.
async fn drained(draining: &mut watch::Receiver<bool>) {
    // The sender lives as long as the worker.
    let _ = draining.wait_for(|is_draining| *is_draining).await;
}

/// Waits until the pool has sessions.
async fn find(shared: &WorkerShared) -> Arc<Sessions> {
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

impl PartitionOwner {
    async fn run(
        mut self,
        mut messages: mpsc::Receiver<SessionKey>,
        mut draining: watch::Receiver<bool>,
    ) {
        let every = (self.shared.streams.life() / 3).clamp(*REFRESH.start(), *REFRESH.end());
        let refresh = sleep(Duration::ZERO);
        tokio::pin!(refresh);
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
                Some(session) = messages.recv() => self.hear(session),
                Some(_) = self.tasks.join_next() => self.forget(),
            }
        }
        self.partitions.clear();
        self.owners.values().for_each(let_go);
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
            let is_own = policy::owns_partition(partition, &self.shared.instance, living);
            match self.partitions.get_mut(&partition) {
                None if is_own => {
                    let (sessions, told) = (Arc::clone(&self.sessions), self.told.clone());
                    let link = Arc::clone(&self.shared.streams.link);
                    let task = tokio::spawn(ask(sessions, link, partition, told));
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
        let mut here = self.owners.iter().filter(|(session, _)| of_it(session)).peekable();
        if here.peek().is_none() {
            self.partitions.remove(&partition);
        }
        here.for_each(|(_, owner)| let_go(owner));
    }

    /// Hears that a session has a turn.
    fn hear(&mut self, session: SessionKey) {
        let asked = self.partitions.get(&session.partition());
        if asked.is_none_or(|partition| partition.is_leaving) {
            return;
        }
        match self.owners.get(&session).filter(|owner| !owner.is_closed()) {
            Some(owner) => owner.send_modify(|message| message.wakes += 1),
            None if self.owners.len() >= MOST_OWNERS => self.forget(),
            None => {
                let (sender, messages) = watch::channel(OwnerMessage::default());
                let owner = SessionOwner {
                    shared: Arc::clone(&self.shared),
                    sessions: Arc::clone(&self.sessions),
                    key: session.clone(),
                    folder: Arc::clone(&self.folder),
                    messages,
                    held: None,
                };
                self.tasks.spawn(owner.live());
                self.owners.insert(session, sender);
            }
        }
    }

    /// Forgets sessions that are no longer here.
    fn forget(&mut self) {
        self.owners.retain(|_, owner| !owner.is_closed());
    }
}

/// Tells the files and sessions of this process apart.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Why a state isn't a session of the pool.
#[derive(Debug, thiserror::Error)]
enum NotOpen {
    /// The pool refuses, or the state is of another image.
    #[error(transparent)]
    Pool(#[from] Error),
    /// The file can't be written.
    #[error("can't use the folder for temporary files")]
    File(#[from] std::io::Error),
}

/// Opens a session of the pool. It continues from the bytes of a state, or is a fresh one on the build
/// of this name. `folder` is for a temporary file.
async fn open(
    pool: &Hatchery,
    folder: &Path,
    state: Option<Vec<u8>>,
    python: Option<&str>,
) -> Result<Session, NotOpen> {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    // Sessions of the pool have no such names otherwise: this worker opens them all.
    let name = format!("turns {number}");
    let Some(bytes) = state else {
        return Ok(pool.session_on(&name, python.unwrap_or(DEFAULT_PYTHON)).await?);
    };
    let path = folder.join(format!("{number}.session"));
    tokio::fs::write(&path, bytes).await?;
    let revived = pool.revive(&name, &path).await;
    let _ = tokio::fs::remove_file(&path).await;
    Ok(revived?)
}

/// Returns the bytes of a session's state, which [`open`] takes.
async fn saved(session: &Session, folder: &Path) -> Result<Vec<u8>, NotOpen> {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!("{number}.session"));
    session.save(&path).await?;
    let bytes = tokio::fs::read(&path).await;
    let _ = tokio::fs::remove_file(&path).await;
    Ok(bytes?)
}

/// How long a session without turns stays in this worker's pool.
const REST: Duration = Duration::from_secs(60);

/// What the owner of a session learns.
#[derive(Debug, Clone, Copy, Default)]
struct OwnerMessage {
    /// Goes up when there are turns.
    wakes: u64,
    /// Whether the session is to be let go.
    leaves: bool,
}

fn let_go(owner: &watch::Sender<OwnerMessage>) {
    owner.send_modify(|message| message.leaves = true);
}

/// Why a turn hasn't ended.
#[derive(Debug)]
enum Stop {
    /// It is tried again after this time.
    Later(Duration),
    /// Somebody else has the session now.
    Fenced,
    /// This worker lets the session go.
    Leaving,
}

/// A session that this worker owns, as far as it knows.
#[derive(Debug)]
struct Held {
    revised: Revised,
    /// The session in the pool, in the state of the record; `None` until it is needed.
    copy: Option<Session>,
    /// Whether the next turn runs alone.
    is_alone: bool,
    /// When the record was last known to be this worker's.
    seen: Instant,
}

/// A session, as long as it is here.
#[derive(Debug)]
struct SessionOwner {
    shared: Arc<WorkerShared>,
    sessions: Arc<Sessions>,
    key: SessionKey,
    folder: Arc<TempDir>,
    messages: watch::Receiver<OwnerMessage>,
    held: Option<Held>,
}

impl SessionOwner {
    /// Returns who this worker is.
    fn owner(&self) -> RecordOwner {
        RecordOwner {
            worker: self.shared.config.name.clone(),
            instance: self.shared.instance.clone(),
        }
    }

    /// Runs the session's turns until it has none for a while, or another worker owns it.
    async fn live(mut self) {
        loop {
            let (pause, is_resting) = match self.work().await {
                Ok(()) => (REST, true),
                Err(Stop::Later(pause)) => (pause, false),
                Err(Stop::Fenced) => return self.drop_copy(),
                Err(Stop::Leaving) => break,
            };
            let has_word = tokio::select! {
                changed = self.messages.changed() => changed.is_ok(),
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
            if self.messages.borrow_and_update().leaves || *self.shared.is_draining.borrow() {
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
    async fn left(messages: &mut watch::Receiver<OwnerMessage>) {
        // Without a sender as well.
        let _ = messages.wait_for(|message| message.leaves).await;
    }

    /// Lets the session go: the next owner needn't wonder what became of this one.
    async fn release(&mut self) {
        self.drop_copy();
        let Some(held) = self.held.take() else { return };
        let record = held.revised.record.released(&self.shared.instance);
        if self.sessions.replace(&self.key, &held.revised, record).await.is_none() {
            tracing::debug!("session {} already has another owner", self.key);
        }
    }

    /// Closes the session in this worker's pool. Its state is stored.
    fn drop_copy(&mut self) {
        if let Some(copy) = self.held.as_mut().and_then(|held| held.copy.take()) {
            copy.close();
        }
    }

    /// Notes that the record is this worker's now.
    fn hold(&mut self, revised: Revised) {
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
fn later(cause: impl std::fmt::Display) -> Stop {
    tracing::info!("a turn of a session has to wait: {cause}");
    Stop::Later(Duration::from_secs(1))
}

/// Turns that one answer may tell of.
const MOST_TOLD: usize = 64;
/// Before a consumer that failed is asked again.
const PAUSE: Duration = Duration::from_millis(500);

/// Asks until it is dropped, and passes sessions on that have turns.
async fn ask(
    sessions: Arc<Sessions>,
    link: Arc<Link>,
    partition: u8,
    told: mpsc::Sender<SessionKey>,
) {
    loop {
        // What was asked over an earlier connection gets no answer.
        let listening = listen(&sessions, partition, &told);
        if let Some(Err(error)) = link.unless_renewed(listening).await {
            tracing::info!("can't ask for the turns of partition {partition}: {error}");
        }
        sleep(PAUSE).await;
    }
}

/// Listens until the consumer fails. It acknowledges nothing: the server announces a turn repeatedly
/// until it has ended and is taken out of the stream.
async fn listen(
    sessions: &Sessions,
    partition: u8,
    told: &mpsc::Sender<SessionKey>,
) -> Result<(), Cause> {
    let consumer = sessions.consumer(partition).await?;
    // A worker that doesn't ask for as long as the hand-over takes is unpinned.
    let stream = consumer.stream().group(GROUP).max_messages_per_batch(MOST_TOLD);
    let mut messages = stream.expires(sessions.hand_over / 3).messages().await?;
    let mut looked: Option<Instant> = None;
    while let Some(message) = messages.next().await {
        let message = message?;
        if let Some(turn) = sessions.subjects.parse_turn(&message.subject) {
            told.send(turn.session).await?;
        }
        // The server may have told an earlier owner of other turns, and tells only of so many.
        if looked.is_none_or(|at| now() - at >= sessions.hand_over) {
            for session in sessions.waiting(partition).await? {
                told.send(session).await?;
            }
            looked = Some(now());
        }
    }
    Ok(())
}
