//! Reads recordings, and runs them again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine::{Cause, Outcome, SessionError, SessionParts, SessionState};
use pool::Suspended;
use serde_json::{Map, Value as Json};

use super::error::RecordError;
use super::format::{Blob, NextRecord, Record, RecordReader};
use super::turn::{outcome_of, parts, program_of};
use super::writer::{CHUNK_BYTES, FORMAT};
use crate::failure::Error;
use crate::job::Job;
use crate::runtime::Hatchery;
use crate::session::Session;

/// By how much a turn may take longer than its limits on time allowed, since it ended within them.
const TIME_FACTOR: u32 = 10;
/// And by how much at least.
const MORE_TIME: Duration = Duration::from_secs(60);

/// The most parts of 4 KiB of a state or its head: an interpreter has at most 4 GiB.
const MOST_PARTS: usize = 1 << 20;
/// The longest a turn may take, and the most bytes that it may print, return or write.
const LONGEST_TURN: Duration = Duration::from_secs(24 * 60 * 60);
const MOST_BYTES: usize = 1 << 30;

/// Numbers the sessions of replays.
static SESSIONS: AtomicU64 = AtomicU64::new(1);

/// A recording that was read and whose seals are right.
#[derive(Debug)]
pub struct RecordingFile {
    path: PathBuf,
    header: Map<String, Json>,
    turns: Vec<RecordedTurn>,
    states: Vec<RecordedState>,
    /// The parts of states, by their numbers.
    chunks: Vec<Blob>,
    samples: Vec<Map<String, Json>>,
    cut: Option<String>,
}

/// A turn of a session, or a job that ran on its own.
#[derive(Debug)]
pub struct RecordedTurn {
    number: usize,
    record: Record,
}

/// A state of the session.
#[derive(Debug)]
struct RecordedState {
    after: usize,
    /// Whether only the turns before it lead there.
    is_led_to: bool,
    head: Vec<usize>,
    pages: Vec<usize>,
}

/// What came of running a turn again.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verified {
    /// Its outcome is the same, byte for byte.
    Equal,
    /// It wasn't run again, for this reason; the recording stands for it. `interrupt`, `time` and
    /// `cpu_time` ended it by the clock. `folders` are those of the host. `pool_memory` was short,
    /// and `sandbox` is a failure. `state` is missing, of a turn before.
    Taken(String),
    /// These parts of its outcome differ.
    Differs(Vec<DifferentPart>),
}

/// A part of an outcome that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DifferentPart {
    /// Which part: `stdout`, `value`, a file, or another field of a result.
    pub name: String,
    /// What the recording has, or the first of two; `None` if it has no such part.
    pub recorded: Option<Vec<u8>>,
    /// What is there now, or in the second of two.
    pub found: Option<Vec<u8>>,
}

impl DifferentPart {
    /// Creates one from both forms of a part.
    pub fn new(name: impl Into<String>, recorded: Option<Vec<u8>>, found: Option<Vec<u8>>) -> Self {
        Self { name: name.into(), recorded, found }
    }
}

impl RecordingFile {
    /// Reads a recording, and checks all its seals.
    ///
    /// # Errors
    /// The file can't be read, is no recording of this version, or was changed.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref().to_owned();
        let reading = tokio::task::spawn_blocking(move || Self::read(&path));
        Ok(reading.await.map_err(|error| Error::Load(Cause::new(error)))??)
    }

    fn read(path: &Path) -> Result<Self, RecordError> {
        let unreadable = |cause| RecordError::File { action: "read", path: path.to_owned(), cause };
        let foreign = |detail: &str| RecordError::NotARecording {
            path: path.to_owned(),
            detail: detail.to_owned(),
        };
        let mut reader = RecordReader::open(path).map_err(unreadable)?;
        let mut read = Self {
            path: path.to_owned(),
            header: Map::new(),
            turns: Vec::new(),
            states: Vec::new(),
            chunks: Vec::new(),
            samples: Vec::new(),
            cut: None,
        };
        let mut has_ended = false;
        loop {
            let next = reader.next().map_err(unreadable)?;
            let is_first = read.header.is_empty();
            let record = match next {
                NextRecord::End if is_first => return Err(foreign("it is empty")),
                NextRecord::Damaged { .. } | NextRecord::Cut(_) if is_first => {
                    return Err(foreign("it doesn't begin as a recording does"));
                }
                NextRecord::End => break,
                NextRecord::Cut(at) => {
                    let found = format!("what is there from byte {at} on is no whole turn");
                    read.cut = Some(found);
                    break;
                }
                NextRecord::Damaged { at, bytes, detail } => {
                    let path = path.to_owned();
                    return Err(RecordError::Damaged { path, at, bytes, detail });
                }
                NextRecord::Whole(record) => record,
            };
            let kind = record.head.get("type").and_then(Json::as_str).unwrap_or_default();
            match kind {
                _ if has_ended => return Err(foreign("something follows its end")),
                "recording" if is_first => match record.head.get("format").and_then(Json::as_u64) {
                    Some(FORMAT) => read.header = record.head,
                    Some(version) => {
                        let detail = format!(
                            "its format is version {version}, and this Hatchery reads {FORMAT}"
                        );
                        return Err(foreign(&detail));
                    }
                    None => return Err(foreign("it doesn't begin as a recording does")),
                },
                _ if is_first => return Err(foreign("it doesn't begin as a recording does")),
                "turn" => {
                    let number = read.turns.len() + 1;
                    read.turns.push(RecordedTurn { number, record });
                }
                "state" => {
                    let state = RecordedState::of(&record.head)
                        .ok_or_else(|| foreign("a state lacks a field"))?;
                    read.chunks.extend(record.blobs);
                    read.states.push(state);
                }
                "sample" => read.samples.push(record.head),
                "end" => has_ended = true,
                _ => return Err(foreign(&format!("it has a record of the unknown type `{kind}`"))),
            }
        }
        if !has_ended && read.cut.is_none() {
            read.cut = Some("it has no end".to_owned());
        }
        Ok(read)
    }

    /// Returns the first record: which image, version and machine it was, the seed, and the time at
    /// which the clock began.
    pub fn header(&self) -> &Map<String, Json> {
        &self.header
    }

    /// Returns the turns in order. Those of jobs that ran on their own are in the order in which
    /// they ended.
    pub fn turns(&self) -> &[RecordedTurn] {
        &self.turns
    }

    /// Returns what [`RecordFolder::write_sample`](super::RecordFolder::write_sample) wrote, if anything.
    pub fn sample(&self) -> Option<&Map<String, Json>> {
        self.samples.first()
    }

    /// Returns whether it is of a session, whose turns share a state.
    pub fn is_session(&self) -> bool {
        self.header.get("kind").and_then(Json::as_str) == Some("session")
    }

    /// Says why the recording isn't whole: what wrote it still does, or was killed. All
    /// [turns](Self::turns) are whole.
    pub fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }

    /// Returns the modules that its image imported.
    pub fn preload(&self) -> Vec<String> {
        texts(&self.image()["preload"])
    }

    /// Opens a session under this name, in the state that the recorded one had after a turn; 0 is
    /// its beginning. Runs the turns again since the last recorded state.
    ///
    /// # Errors
    /// There is no such turn, or a turn can't be repeated and the state after it isn't recorded. The
    /// pool has another image, a session of this name is open, or too many are.
    pub async fn session_at(
        &self,
        pool: &Hatchery,
        name: &str,
        turn: usize,
    ) -> Result<Session, Error> {
        if !self.is_session() {
            return Err(RecordError::NoSession.into());
        }
        if turn > self.turns.len() {
            return Err(RecordError::NoTurn { turn, turns: self.turns.len() }.into());
        }
        let state = self.states.iter().rev().find(|state| state.after <= turn);
        let state = state.ok_or(RecordError::NoSession)?;
        let between = &self.turns[state.after..turn];
        if let Some(ended) = between.iter().find(|turn| turn.taken().is_some()) {
            let reason = ended.taken().unwrap_or_default().to_owned();
            return Err(RecordError::NoState { turn, ended: ended.number, reason }.into());
        }
        let session = self.open_state(pool, name, state).await?;
        for turn in between {
            session.run(self.job(turn)?).await?;
        }
        Ok(session)
    }

    /// Runs all turns again, and compares their outcomes. `tell` gets each turn with what came of
    /// it. Returns whether no outcome differs.
    ///
    /// # Errors
    /// The pool has another image, or refuses a job; or the file can't be read.
    pub async fn verify(
        &self,
        pool: &Hatchery,
        mut tell: impl FnMut(&RecordedTurn, &Verified),
    ) -> Result<bool, Error> {
        self.check_image(pool)?;
        let mut is_equal = true;
        let mut session: Option<Session> = None;
        for turn in &self.turns {
            let state = self.states.iter().rfind(|state| state.after == turn.number - 1);
            if let Some(state) = state.filter(|state| !state.is_led_to || session.is_none()) {
                close(&mut session);
                let name = format!("replay {}", SESSIONS.fetch_add(1, Ordering::Relaxed));
                session = Some(self.open_state(pool, &name, state).await?);
            }
            let verified = match (turn.taken(), &session) {
                (Some(reason), _) => Verified::Taken(reason.to_owned()),
                (None, Some(session)) => {
                    self.compared(turn, session.run(self.job(turn)?).await?)?
                }
                (None, None) if self.is_session() => Verified::Taken("state".to_owned()),
                (None, None) => self.compared(turn, pool.run(self.job(turn)?).await?)?,
            };
            if matches!(verified, Verified::Taken(_)) {
                close(&mut session);
            }
            is_equal &= !matches!(verified, Verified::Differs(_));
            tell(turn, &verified);
        }
        close(&mut session);
        Ok(is_equal)
    }

    /// Returns the first turn in which this recording and another one part, and the parts of its
    /// program and outcome that differ. One that only one of them has differs in everything.
    ///
    /// # Errors
    /// A file can't be read.
    pub fn parting(&self, other: &Self) -> Result<Option<(usize, Vec<DifferentPart>)>, Error> {
        let turns = self.turns.len().max(other.turns.len());
        for place in 0..turns {
            let all = |recording: &Self| match recording.turns.get(place) {
                Some(turn) => recording.all_parts(turn),
                None => Ok(BTreeMap::new()),
            };
            let differing = differing(all(self)?, all(other)?);
            if !differing.is_empty() {
                return Ok(Some((place + 1, differing)));
            }
        }
        Ok(None)
    }

    fn image(&self) -> &Json {
        self.header.get("image").unwrap_or(&Json::Null)
    }

    fn check_image(&self, pool: &Hatchery) -> Result<(), RecordError> {
        let image = self.image();
        let there = image["key"].as_str().unwrap_or_default();
        let is_there = match self.is_session() {
            true => pool.pythons.images().1.iter().any(|here| here.info().key == there),
            // Jobs that name no build run on the default one.
            false => pool.image().is_some_and(|here| here.key == there),
        };
        if is_there {
            return Ok(());
        }
        let listed = |names: Vec<String>| match names.is_empty() {
            true => "none".to_owned(),
            false => names.join(", "),
        };
        let packages = image["packages"].as_array().into_iter().flatten();
        let names = packages.map(|package| package["name"].as_str().unwrap_or("?").to_owned());
        Err(RecordError::OtherImage {
            there: there.to_owned(),
            here: pool.image().map_or("none".to_owned(), |image| image.key.clone()),
            preload: listed(self.preload()),
            packages: listed(names.collect()),
        })
    }

    async fn open_state(
        &self,
        pool: &Hatchery,
        name: &str,
        state: &RecordedState,
    ) -> Result<Session, Error> {
        self.check_image(pool)?;
        // A file may name a part often.
        let is_part = |chunk: &Blob| chunk.length() <= CHUNK_BYTES;
        if state.head.len().max(state.pages.len()) > MOST_PARTS || !self.chunks.iter().all(is_part)
        {
            return Err(self.foreign("a state is too large".to_owned()).into());
        }
        let chunks = |numbers: &[usize]| -> Result<Vec<Vec<u8>>, Error> {
            let chunk = |number: &usize| match self.chunks.get(*number) {
                Some(chunk) => Ok(chunk.read().map_err(|cause| self.unreadable(cause))?),
                None => Err(self.foreign("a state lacks a part".to_owned()).into()),
            };
            numbers.iter().map(chunk).collect()
        };
        let parts =
            SessionParts { head: chunks(&state.head)?.concat(), pages: chunks(&state.pages)? };
        let (builds, images) = pool.pythons.images();
        let path = self.path.clone();
        let reading =
            tokio::task::spawn_blocking(move || SessionState::from_parts(&images, &parts, &path));
        let read: Result<(usize, SessionState), SessionError> =
            reading.await.map_err(|error| Error::Load(Cause::new(error)))?;
        let (place, state) = read?;
        let build = builds[place];
        let session = pool.scheduler.adopt(name, build, Some(Suspended::new(state))).await?;
        Ok(Session::new(pool.clone(), name, session, build))
    }

    /// Returns the job of a turn, whose host calls the recording answers.
    fn job(&self, turn: &RecordedTurn) -> Result<Job, RecordError> {
        let read = program_of(&turn.record.head, self.blobs(turn)?);
        let read = read.map_err(|detail| {
            self.foreign(format!("the program of turn {} can't be read: {detail}", turn.number))
        })?;
        let mut limits = read.limits;
        limits.wall_time = longer(limits.wall_time);
        limits.cpu_time = limits.cpu_time.map(longer);
        // They are the file's.
        limits.grace = limits.grace.min(MORE_TIME);
        limits.file_bytes = limits.file_bytes.min(MOST_BYTES as u64);
        for bytes in [
            &mut limits.output_bytes,
            &mut limits.source_bytes,
            &mut limits.result_bytes,
            &mut limits.result_data_bytes,
            &mut limits.display_bytes,
            &mut limits.function_argument_bytes,
            &mut limits.function_result_bytes,
        ] {
            *bytes = (*bytes).min(MOST_BYTES);
        }
        let mut job = Job::of(read.program).limits(limits).allow_connect([]);
        job.has_functions = true;
        Ok(read.python.into_iter().fold(job, Job::python))
    }

    fn compared(&self, turn: &RecordedTurn, outcome: Outcome) -> Result<Verified, RecordError> {
        let recorded = parts(turn.outcome(), &mut self.blobs(turn)?);
        let mut blobs = Vec::new();
        let (found, _) = outcome_of(&outcome, &mut blobs);
        let mut blobs: Vec<Vec<u8>> = blobs.into_iter().map(<[u8]>::to_vec).collect();
        let differing = differing(recorded, parts(&found, &mut blobs));
        Ok(if differing.is_empty() { Verified::Equal } else { Verified::Differs(differing) })
    }

    /// Returns the parts of the program and the outcome of a turn.
    fn all_parts(&self, turn: &RecordedTurn) -> Result<BTreeMap<String, Vec<u8>>, RecordError> {
        let mut blobs = self.blobs(turn)?;
        let mut all = parts(turn.outcome(), &mut blobs);
        let own = turn.outcome_blobs().min(blobs.len());
        for (name, part) in turn.program() {
            let text = match name.as_str() {
                // What comes of another seed shows in the outcomes.
                "deterministic" => continue,
                // Numbers of blobs, which stand behind those of the outcome.
                "stdin" => String::new(),
                "files" => {
                    format!("{:?}", part.as_object().map(|files| files.keys().collect::<Vec<_>>()))
                }
                "code" => part.as_str().unwrap_or_default().to_owned(),
                _ => part.to_string(),
            };
            all.insert(format!("program: {name}"), text.into_bytes());
        }
        all.insert("program: inputs in bytes".to_owned(), blobs.split_off(own).concat());
        if let Some(calls) = turn.record.head.get("host_calls") {
            all.insert("host calls".to_owned(), calls.to_string().into_bytes());
        }
        Ok(all)
    }

    fn blobs(&self, turn: &RecordedTurn) -> Result<Vec<Vec<u8>>, RecordError> {
        let blobs = turn.record.blobs.iter().map(Blob::read);
        blobs.collect::<Result<_, _>>().map_err(|cause| self.unreadable(cause))
    }

    fn unreadable(&self, cause: std::io::Error) -> RecordError {
        RecordError::File { action: "read", path: self.path.clone(), cause }
    }

    fn foreign(&self, detail: String) -> RecordError {
        RecordError::NotARecording { path: self.path.clone(), detail }
    }
}

impl RecordedTurn {
    /// Returns its number, from 1.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Returns the source of its program. That of a cell, which a call of Hatchery's own code runs, is
    /// the first argument; other calls have none.
    pub fn code(&self) -> &str {
        let program = self.program();
        let call = program.get("call");
        let module = call.and_then(|call| call.get("module")?.as_str()).unwrap_or_default();
        let code = match call {
            Some(call) if module.starts_with("hatchery_") => call.pointer("/args/0/json"),
            _ => program.get("code"),
        };
        code.and_then(Json::as_str).unwrap_or_default()
    }

    /// Returns the name of its program in tracebacks, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.program().get("name").and_then(Json::as_str)
    }

    /// Returns why it can't be repeated, if so.
    pub fn taken(&self) -> Option<&str> {
        self.record.head.get("taken").and_then(Json::as_str)
    }

    /// Returns its outcome as JSON: that of [`Outcome::to_tool_json`](crate::Outcome::to_tool_json)
    /// without times, and with numbers of blobs for output and files.
    pub fn outcome(&self) -> &Map<String, Json> {
        self.object("outcome")
    }

    /// Returns standard output, if `is_error` is false, or else standard error.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn output(&self, is_error: bool) -> std::io::Result<Vec<u8>> {
        self.record.blobs.get(usize::from(is_error)).map_or(Ok(Vec::new()), Blob::read)
    }

    fn program(&self) -> &Map<String, Json> {
        self.object("program")
    }

    fn object(&self, name: &str) -> &Map<String, Json> {
        static NONE: LazyLock<Map<String, Json>> = LazyLock::new(Map::new);
        self.record.head.get(name).and_then(Json::as_object).unwrap_or(&NONE)
    }

    /// Returns how many blobs its outcome has.
    fn outcome_blobs(&self) -> usize {
        let count =
            |name: &str| self.outcome().get(name).and_then(Json::as_array).map_or(0, Vec::len);
        2 + count("files") + count("data_blobs")
    }
}

impl RecordedState {
    fn of(head: &Map<String, Json>) -> Option<Self> {
        let number = |json: &Json| usize::try_from(json.as_u64()?).ok();
        let numbers =
            |name: &str| head.get(name)?.as_array()?.iter().map(number).collect::<Option<_>>();
        Some(Self {
            after: number(head.get("after")?)?,
            is_led_to: head.get("reason")?.as_str()? == "every",
            head: numbers("head")?,
            pages: numbers("pages")?,
        })
    }
}

fn close(session: &mut Option<Session>) {
    if let Some(session) = session.take() {
        session.close();
    }
}

/// Returns a limit that a turn doesn't reach which ended within this one.
fn longer(time: Duration) -> Duration {
    time.saturating_mul(TIME_FACTOR).saturating_add(MORE_TIME).min(LONGEST_TURN)
}

fn texts(json: &Json) -> Vec<String> {
    let texts = json.as_array().into_iter().flatten().filter_map(Json::as_str);
    texts.map(str::to_owned).collect()
}

/// Returns what differs between the parts of two turns.
fn differing(
    mut first: BTreeMap<String, Vec<u8>>,
    second: BTreeMap<String, Vec<u8>>,
) -> Vec<DifferentPart> {
    let mut differing = Vec::new();
    for (name, found) in second {
        let recorded = first.remove(&name);
        if recorded.as_ref() != Some(&found) {
            differing.push(DifferentPart { name, recorded, found: Some(found) });
        }
    }
    let only_first = first.into_iter();
    differing.extend(only_first.map(|(name, recorded)| DifferentPart {
        name,
        recorded: Some(recorded),
        found: None,
    }));
    differing
}
