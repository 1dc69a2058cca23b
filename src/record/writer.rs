//! Writes a recording, beside the jobs that it records.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{hash, io, mem};

use engine::{Cause, Deterministic, ImageInfo, Outcome, Program, SessionState};
use scheduler::{JobObserver, JobRequest};
use serde_json::{Map, Value as Json, json};
use sha2::{Digest, Sha256};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::error::RecordError;
use super::format::RecordFile;
use super::turn::{EndedTurn, reads_folders, taken};

/// The version of the format, which changes with any field or meaning.
pub(crate) const FORMAT: u64 = 1;

/// Turns and states that are recorded at once, or wait to be written.
const MOST_PENDING: usize = 64;

/// The size of the parts in which states are stored, in bytes.
pub(crate) const CHUNK_BYTES: usize = 4 << 10;

/// What a recording is of.
#[derive(Debug, Clone)]
pub(crate) struct RecordingKind {
    /// What its turns are: `session`, or `jobs` that ran on their own.
    pub(crate) kind: &'static str,
    /// The name of the session, if it is of one.
    pub(crate) session: Option<String>,
    /// The image of the interpreters.
    pub(crate) image: ImageInfo,
}

/// A recording that is being written. A task of the runtime writes it.
#[derive(Debug)]
pub(crate) struct RecordingWriter {
    sender: mpsc::Sender<Message>,
    runtime: Handle,
    room: Arc<Semaphore>,
    failure: Arc<Mutex<Option<Cause>>>,
    deterministic: Deterministic,
    turns: AtomicU64,
    /// Whether the session has been given folders of the host, which its later jobs see, too.
    has_folders: Arc<AtomicBool>,
}

/// Room for one thing to be written.
type Room = Arc<OwnedSemaphorePermit>;

#[derive(Debug)]
enum Message {
    Turn(Box<EndedTurn>, Room),
    State(SessionState, &'static str, Room),
    Finish(oneshot::Sender<()>),
}

impl RecordingWriter {
    /// Creates the file. Jobs begin with the machine's time, and with a new seed unless there is a
    /// state that has its own.
    pub(crate) async fn create(
        path: &Path,
        kind: RecordingKind,
        state: Option<&SessionState>,
    ) -> Result<Self, RecordError> {
        let deterministic = state.and_then(SessionState::deterministic).unwrap_or_else(fresh);
        let header = header(&kind, deterministic);
        let path = path.to_owned();
        let state = state.cloned();
        let beginning = tokio::task::spawn_blocking(move || {
            let mut file = StateFile::create(&path)?;
            file.put(header)?;
            state.map_or(Ok(()), |state| file.put_state(&state, "begin"))?;
            Ok(file)
        });
        let begun = beginning.await.map_err(|error| RecordError::Stopped(Cause::new(error)))?;
        let (sender, messages) = mpsc::channel(MOST_PENDING + 1);
        let failure = Arc::default();
        tokio::spawn(write(begun?, messages, Arc::clone(&failure)));
        let room = Arc::new(Semaphore::new(MOST_PENDING));
        let (turns, has_folders) = (AtomicU64::new(0), Arc::default());
        let runtime = Handle::current();
        Ok(Self { sender, runtime, room, failure, deterministic, turns, has_folders })
    }

    /// Returns the seed and the clock of what it records.
    pub(crate) fn deterministic(&self) -> Deterministic {
        self.deterministic
    }

    /// Returns the runtime whose task writes it.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Says why nothing more is recorded, if so.
    fn check(&self) -> Result<(), RecordError> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.clone().map_or(Ok(()), |cause| Err(RecordError::Stopped(cause)))
    }

    async fn room(&self) -> Result<Room, RecordError> {
        self.check()?;
        let room = Arc::clone(&self.room).acquire_owned().await;
        let room = room.map_err(|_| RecordError::Stopped(Cause::from("it has ended")))?;
        // It may have failed while this waited.
        self.check()?;
        Ok(Arc::new(room))
    }

    /// Prepares the recording of a turn of a session, or of a job that runs on its own.
    pub(crate) async fn turn(
        &self,
        is_session: bool,
    ) -> Result<(TurnRecorder, oneshot::Receiver<TurnEnd>), RecordError> {
        let room = self.room().await?;
        let (ended, end) = oneshot::channel();
        let number = self.turns.fetch_add(1, Ordering::Relaxed);
        let (seed, has_folders) = match is_session {
            true => (self.deterministic.seed, Arc::clone(&self.has_folders)),
            // Jobs on their own differ in what they draw.
            false => (self.deterministic.seed.wrapping_add(number), Arc::default()),
        };
        let deterministic = Deterministic::new(seed).starting_at(self.deterministic.start);
        let (sender, ended) = (self.sender.clone(), Arc::new(Mutex::new(Some(ended))));
        Ok((TurnRecorder { sender, room, ended, deterministic, has_folders }, end))
    }

    /// Records the state after the turns so far.
    pub(crate) async fn state(
        &self,
        state: SessionState,
        reason: &'static str,
    ) -> Result<(), RecordError> {
        let room = self.room().await?;
        let message = Message::State(state, reason, room);
        let sent = self.sender.send(message).await;
        sent.map_err(|_| RecordError::Stopped(Cause::from("its task has ended")))
    }

    /// Ends the recording once what has begun is written.
    pub(crate) async fn finish(&self) -> Result<(), RecordError> {
        if let Ok(_all) = self.room.acquire_many(MOST_PENDING as u32).await {
            self.room.close();
            let (finished, finishing) = oneshot::channel();
            if self.sender.send(Message::Finish(finished)).await.is_ok() {
                // Its task may have ended by itself.
                let _ = finishing.await;
            }
        }
        self.check()
    }
}

/// Writes a whole recording of one sample.
pub(crate) fn write_sample(
    path: &Path,
    kind: &RecordingKind,
    deterministic: Deterministic,
    sample: Json,
) -> Result<(), RecordError> {
    let mut file = StateFile::create(path)?;
    file.put(header(kind, deterministic))?;
    file.put(sample)?;
    file.finish()
}

/// How a recorded turn of a session has ended.
#[derive(Debug)]
pub(crate) struct TurnEnd {
    /// Whether it can't be repeated, or has returned its session to an earlier state.
    pub(crate) needs_state: Option<&'static str>,
}

/// Records one job.
#[derive(Debug, Clone)]
pub(crate) struct TurnRecorder {
    sender: mpsc::Sender<Message>,
    room: Room,
    ended: Arc<Mutex<Option<oneshot::Sender<TurnEnd>>>>,
    deterministic: Deterministic,
    has_folders: Arc<AtomicBool>,
}

impl TurnRecorder {
    /// Makes a program repeatable.
    pub(crate) fn prepare(&self, program: &mut Program) {
        program.records_calls = true;
        program.deterministic.get_or_insert(self.deterministic);
    }

    /// Returns what records the outcome of a job.
    pub(crate) fn observe(self, request: &JobRequest, python: Option<Arc<str>>) -> JobObserver {
        let (program, limits) = (request.program.clone(), request.limits.clone());
        let turn = Mutex::new(Some((self, program, limits, python)));
        JobObserver::new(move |outcome, was_stopped| {
            let turn = turn.lock().unwrap_or_else(PoisonError::into_inner).take();
            let Some((recorder, program, limits, python)) = turn else { return };
            if reads_folders(&program) {
                recorder.has_folders.store(true, Ordering::Relaxed);
            }
            let has_folders = recorder.has_folders.load(Ordering::Relaxed);
            let taken = taken(outcome, was_stopped).or(has_folders.then_some("folders"));
            let outcome = Outcome::clone(outcome);
            recorder.end(EndedTurn { program, limits, python, outcome, taken });
        })
    }

    fn end(self, turn: EndedTurn) {
        let restored = turn.outcome.session_restored.then_some("restored");
        let needs_state = turn.taken.or(restored);
        // Its room is kept, so there is a place in the channel unless the task has ended.
        let _ = self.sender.try_send(Message::Turn(Box::new(turn), self.room));
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Nobody may be waiting for it.
        let _ = ended.map(|ended| ended.send(TurnEnd { needs_state }));
    }
}

/// Writes what comes, and ends the file.
async fn write(
    file: StateFile,
    mut messages: mpsc::Receiver<Message>,
    failure: Arc<Mutex<Option<Cause>>>,
) {
    let file = Arc::new(Mutex::new(file));
    let mut ready = Vec::new();
    let mut finished = None;
    while finished.is_none() {
        let is_over = messages.recv_many(&mut ready, MOST_PENDING).await == 0;
        let (batch, file) = (mem::take(&mut ready), Arc::clone(&file));
        let writing = tokio::task::spawn_blocking(move || {
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            for message in batch {
                match message {
                    Message::Turn(turn, _room) => file.put_turn(&turn)?,
                    Message::State(state, reason, _room) => file.put_state(&state, reason)?,
                    Message::Finish(finished) => {
                        return file.finish().map(|()| Some(Some(finished)));
                    }
                }
            }
            if is_over { file.finish().map(|()| Some(None)) } else { Ok(None) }
        });
        let written = writing.await.map_err(Cause::new);
        match written.and_then(|written| written.map_err(Cause::new)) {
            Ok(over) => finished = over,
            Err(cause) => {
                *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(cause);
                return;
            }
        }
    }
    let _ = finished.flatten().map(|finished| finished.send(()));
}

/// The file, with what later records refer to.
#[derive(Debug)]
struct StateFile {
    file: RecordFile,
    path: PathBuf,
    turns: usize,
    /// The numbers of the parts of states in the file, by their hashes.
    chunks: HashMap<[u8; 32], usize>,
}

impl StateFile {
    fn create(path: &Path) -> Result<Self, RecordError> {
        let path = path.to_owned();
        match RecordFile::create(&path) {
            Ok(file) => Ok(Self { file, path, turns: 0, chunks: HashMap::new() }),
            Err(cause) => Err(RecordError::File { action: "create", path, cause }),
        }
    }

    fn append(&mut self, head: Map<String, Json>, blobs: &[&[u8]]) -> Result<(), RecordError> {
        let appended = self.file.append(head, blobs);
        appended.map_err(|cause| self.failed(cause))
    }

    fn failed(&self, cause: io::Error) -> RecordError {
        RecordError::File { action: "write", path: self.path.clone(), cause }
    }

    fn put(&mut self, head: Json) -> Result<(), RecordError> {
        match head {
            Json::Object(head) => self.append(head, &[]),
            _ => Ok(()),
        }
    }

    fn put_turn(&mut self, turn: &EndedTurn) -> Result<(), RecordError> {
        self.turns += 1;
        let (mut head, blobs) = turn.record();
        head.insert("turn".to_owned(), self.turns.into());
        self.append(head, &blobs)
    }

    fn put_state(&mut self, state: &SessionState, reason: &str) -> Result<(), RecordError> {
        let parts = state.to_parts();
        let mut new = Vec::new();
        let mut number = |chunk: &[u8]| {
            let next = self.chunks.len();
            *self.chunks.entry(Sha256::digest(chunk).into()).or_insert_with(|| {
                new.push(chunk.to_vec());
                next
            })
        };
        let head: Vec<usize> = parts.head.chunks(CHUNK_BYTES).map(&mut number).collect();
        let pages: Vec<usize> = parts.pages.iter().map(|page| number(page)).collect();
        let record = json!({
            "type": "state", "after": self.turns, "reason": reason, "head": head, "pages": pages,
        });
        let Json::Object(record) = record else { return Ok(()) };
        let new: Vec<&[u8]> = new.iter().map(Vec::as_slice).collect();
        self.append(record, &new)
    }

    fn finish(&mut self) -> Result<(), RecordError> {
        self.put(json!({ "type": "end", "turns": self.turns }))?;
        self.file.finish().map_err(|cause| self.failed(cause))
    }
}

/// Returns a new seed, and the machine's time.
fn fresh() -> Deterministic {
    let random = hash::BuildHasher::hash_one(&hash::RandomState::new(), 0);
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let start = u64::try_from(time.as_nanos()).unwrap_or(Deterministic::DEFAULT_START);
    // Readers of JSON may have no larger integers.
    Deterministic::new(random >> 11).starting_at(start)
}

fn header(kind: &RecordingKind, deterministic: Deterministic) -> Json {
    let RecordingKind { kind, session, image } = kind;
    let mut image = json!(image);
    // It says when this machine made the image.
    image.as_object_mut().map(|image| image.remove("created"));
    json!({
        "type": "recording",
        "format": FORMAT,
        "kind": kind,
        "session": session,
        "hatchery": env!("CARGO_PKG_VERSION"),
        "image": image,
        "machine": crate::python::module_target(),
        "seed": deterministic.seed,
        "start": deterministic.start,
    })
}
