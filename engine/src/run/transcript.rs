//! The output and events of one run, in one order, readable while it runs.
//!
//! The run appends; any number of readers follow, each with a cursor. A slow or absent reader
//! neither blocks the run nor makes memory grow. The transcript never exceeds the caps of the run,
//! plus 24 bytes for each change of stream. So a late reader loses nothing below the caps.

use parking_lot::Mutex;

use crate::files::changes::{ChangeKind, ChangedFile};
use crate::limits::{LimitKind, Limits};
use crate::run::outcome::mime::MimeBundle;
use crate::run::outcome::request::RequestLog;
pub use addition::Addition;
use addition::AdditionKind;

mod addition;

/// The longest piece that a reader gets at once.
const LONGEST_PIECE_BYTES: usize = 64 << 10;

/// The most host calls, and the most requests, with an event of their own.
const MOST_CALLS_TOLD: usize = 10_000;

/// One of a program's two output streams. There is no third one, so a match can name both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    /// Returns `stdout` or `stderr`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// The output and events of one run.
#[derive(Default, derive_more::Debug)]
#[debug("Transcript({} bytes)", state.lock().bytes.len())]
pub struct Transcript {
    state: Mutex<TranscriptState>,
}

#[derive(Default)]
struct TranscriptState {
    bytes: Vec<u8>,
    /// Invariant E-4: ends never decrease, the last is `bytes.len()`, and no two neighbours are
    /// output of one stream.
    entries: Vec<TranscriptEntry>,
    /// The entries and bytes before these belong to attempts at which the sandbox failed.
    try_begins: (usize, usize),
    /// How much each stream may still add, by its number: neither takes the other's share.
    room: [usize; 2],
    written: u64,
    is_truncated: bool,
    displays: DisplayRoom,
    calls: usize,
    requests: usize,
    closed: bool,
    watcher: Option<Box<dyn Fn() + Send + Sync>>,
    copier: Option<Box<dyn Fn(Addition) + Send + Sync>>,
}

/// An event, and the length of the output after it.
struct TranscriptEntry {
    what: What,
    end: usize,
}

enum What {
    Output(Stream),
    /// One of those that need no memory: every run has some.
    Plain(&'static EventKind),
    Event(Box<EventKind>),
}

impl What {
    fn event(event: EventKind) -> Self {
        Self::Event(Box::new(event))
    }

    /// Returns the stream of which this is output, or else the event.
    fn stream_or_event(&self) -> Result<Stream, &EventKind> {
        match self {
            Self::Output(stream) => Ok(*stream),
            Self::Plain(event) => Err(event),
            Self::Event(event) => Err(event),
        }
    }
}

/// The allowed and actual numbers of displays and their bytes.
#[derive(Default)]
struct DisplayRoom {
    most_bytes: usize,
    most: usize,
    kept_bytes: usize,
    asked_bytes: u64,
    asked: u64,
    /// Whether a display was dropped for its bytes, and whether one was dropped for the count.
    is_cut: [bool; 2],
}

/// An event of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// Its number in the run: 0, 1, 2 and so on for one reader.
    pub sequence: u64,
    /// What happened.
    pub kind: EventKind,
}

/// The kind of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// An interpreter has taken the job. A job that never runs has no such event.
    Started,
    /// The program wrote to a stream.
    Output {
        /// The stream.
        stream: Stream,
        /// The bytes, at most 64 KiB. A UTF-8 character stays in one event, unless another event
        /// interrupts it.
        bytes: Vec<u8>,
    },
    /// The program displayed an object.
    Display(MimeBundle),
    /// The program called a host function. Only the first 10,000 calls are events.
    HostCall {
        /// The function.
        name: String,
    },
    /// A request of the program over HTTP has ended. Only the first 10,000 are events.
    Request(Box<RequestLog>),
    /// The sandbox failed, and the job runs again: nothing before this is part of its outcome.
    Retried,
    /// A file of the workspace was created, modified or deleted. These events come at the end,
    /// sorted by path, and only if the files are kept. The outcome has their contents.
    FileChanged {
        /// Path relative to the workspace.
        path: String,
        /// What happened to it.
        kind: ChangeKind,
    },
    /// The job has ended; nothing follows.
    Finished,
}

/// The position of a reader.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cursor {
    entry: usize,
    offset: usize,
    sequence: u64,
}

/// What a reader finds at its cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// The next event.
    Found(Event),
    /// Nothing yet.
    Pending,
    /// The run has ended and everything has been read.
    End,
}

impl Transcript {
    /// Sets the caps on output and displays. Called before each run.
    pub fn begin(&self, limits: &Limits) {
        let mut state = self.state.lock();
        state.room = [limits.output_bytes; 2];
        state.displays.most_bytes = limits.display_bytes;
        state.displays.most = limits.display_count;
        state.note(What::Plain(&EventKind::Started));
    }

    /// Appends output; bytes beyond the stream's cap are counted and dropped.
    pub(crate) fn append(&self, stream: Stream, bytes: &[u8]) {
        let mut state = self.state.lock();
        state.copy(|| {
            let is_error = stream == Stream::Stderr;
            AdditionKind::Output { is_error, bytes: bytes.to_vec() }
        });
        state.written += bytes.len() as u64;
        let room = state.room[stream as usize];
        // Never splits a character, and never appends after a cut.
        let kept = if bytes.len() <= room { bytes.len() } else { whole_characters(&bytes[..room]) };
        let is_cut = kept < bytes.len();
        state.is_truncated |= is_cut;
        state.room[stream as usize] = if is_cut { 0 } else { room - kept };
        if kept == 0 || state.closed {
            return;
        }
        state.bytes.extend_from_slice(&bytes[..kept]);
        let end = state.bytes.len();
        match state.entries.last_mut() {
            Some(TranscriptEntry { what: What::Output(last), end: last_end })
                if *last == stream =>
            {
                *last_end = end;
            }
            _ => state.entries.push(TranscriptEntry { what: What::Output(stream), end }),
        }
        state.wake();
    }

    /// Appends a display; one beyond the caps is counted and dropped.
    pub(crate) fn show(&self, display: MimeBundle) {
        let mut state = self.state.lock();
        state.copy(|| AdditionKind::Display(display.clone()));
        if state.displays.admit(display.byte_count()) {
            state.note(What::event(EventKind::Display(display)));
        }
    }

    /// Counts a display of this many bytes as dropped that was too large to be read.
    pub(crate) fn drop_display(&self, bytes: usize) {
        let mut state = self.state.lock();
        state.copy(|| AdditionKind::DisplayDropped(bytes as u64));
        let DisplayRoom { asked_bytes, asked, is_cut, .. } = &mut state.displays;
        *asked += 1;
        *asked_bytes += bytes as u64;
        is_cut[0] = true;
    }

    pub(crate) fn host_called(&self, name: &str) {
        let mut state = self.state.lock();
        state.copy(|| AdditionKind::HostCall(name.to_owned()));
        state.calls += 1;
        if state.calls <= MOST_CALLS_TOLD {
            state.note(What::event(EventKind::HostCall { name: name.to_owned() }));
        }
    }

    /// Adds a request that has ended. The process that serves the run's streams has the transcript
    /// that callers read.
    pub fn requested(&self, request: &RequestLog) {
        let mut state = self.state.lock();
        state.requests += 1;
        if state.requests <= MOST_CALLS_TOLD {
            state.note(What::event(EventKind::Request(Box::new(request.clone()))));
        }
    }

    pub(crate) fn file_changed(&self, file: &ChangedFile) {
        let event = EventKind::FileChanged { path: file.path.clone(), kind: file.kind };
        self.state.lock().note(What::event(event));
    }

    /// Begins another attempt. Readers still find what came before, and an event that voids it.
    pub fn restart(&self) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        state.push(What::Plain(&EventKind::Retried));
        state.try_begins = (state.entries.len(), state.bytes.len());
        state.written = 0;
        state.is_truncated = false;
        state.displays = DisplayRoom::default();
        state.calls = 0;
        state.requests = 0;
        state.wake();
    }

    /// Ends the transcript. Later appends are dropped.
    pub fn close(&self) {
        let mut state = self.state.lock();
        if !state.closed {
            state.push(What::Plain(&EventKind::Finished));
            state.closed = true;
        }
        state.wake();
    }

    /// Passes what the run adds to `copier` too, in the same order, even beyond the caps of the run.
    /// It is called on the guest's thread, under a lock.
    pub fn copy_to(&self, copier: impl Fn(Addition) + Send + Sync + 'static) {
        self.state.lock().copier = Some(Box::new(copier));
    }

    /// Calls `watcher` after every change, on the thread that made it. There is one watcher at a
    /// time; it must be quick and must not read the transcript itself.
    pub fn watch(&self, watcher: impl Fn() + Send + Sync + 'static) {
        self.state.lock().watcher = Some(Box::new(watcher));
    }

    /// Reads the event at `cursor` and advances the cursor.
    pub fn read(&self, cursor: &mut Cursor) -> Next {
        self.state.lock().read(cursor)
    }

    /// Returns everything kept of `stream` from the last attempt.
    pub fn text_of(&self, stream: Stream) -> Vec<u8> {
        let state = self.state.lock();
        let (first, mut start) = state.try_begins;
        let mut bytes = Vec::new();
        for TranscriptEntry { what, end } in &state.entries[first..] {
            if matches!(what, What::Output(of) if *of == stream) {
                bytes.extend_from_slice(&state.bytes[start..*end]);
            }
            start = *end;
        }
        bytes
    }

    /// Returns every display kept from the last attempt, in order.
    pub fn displays(&self) -> Vec<MimeBundle> {
        let display = |entry: &TranscriptEntry| match entry.what.stream_or_event() {
            Err(EventKind::Display(display)) => Some(display.clone()),
            _ => None,
        };
        let state = self.state.lock();
        state.entries[state.try_begins.0..].iter().filter_map(display).collect()
    }

    /// Returns the limits for which displays were dropped, with the requested amounts.
    pub(crate) fn display_limits_met(&self) -> impl Iterator<Item = (LimitKind, u64)> {
        let DisplayRoom { asked_bytes, asked, is_cut, .. } = self.state.lock().displays;
        let limits = [(LimitKind::DisplayBytes, asked_bytes), (LimitKind::DisplayCount, asked)];
        limits.into_iter().zip(is_cut).filter_map(|(limit, is_cut)| is_cut.then_some(limit))
    }

    /// Returns the bytes that the program wrote in the last attempt, dropped ones included.
    pub fn written_bytes(&self) -> u64 {
        self.state.lock().written
    }

    /// Returns whether output was dropped.
    pub fn is_truncated(&self) -> bool {
        self.state.lock().is_truncated
    }
}

impl DisplayRoom {
    fn admit(&mut self, bytes: usize) -> bool {
        self.asked += 1;
        self.asked_bytes += bytes as u64;
        let is_one_too_many = self.asked > self.most as u64;
        let is_too_large = bytes > self.most_bytes - self.kept_bytes;
        self.is_cut[0] |= is_too_large;
        self.is_cut[1] |= is_one_too_many;
        let is_kept = !is_one_too_many && !is_too_large;
        if is_kept {
            self.kept_bytes += bytes;
        }
        is_kept
    }
}

impl TranscriptState {
    fn push(&mut self, what: What) {
        let end = self.bytes.len();
        self.entries.push(TranscriptEntry { what, end });
    }

    fn copy(&self, added: impl FnOnce() -> AdditionKind) {
        if let Some(copier) = &self.copier {
            copier(Addition(added()));
        }
    }

    fn note(&mut self, event: What) {
        if !self.closed {
            self.push(event);
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(watcher) = &self.watcher {
            watcher();
        }
    }

    fn read(&self, cursor: &mut Cursor) -> Next {
        let kind = loop {
            let Some(TranscriptEntry { what, end }) = self.entries.get(cursor.entry) else {
                return if self.closed { Next::End } else { Next::Pending };
            };
            let stream = match what.stream_or_event() {
                Ok(stream) => stream,
                Err(event) => {
                    cursor.entry += 1;
                    break event.clone();
                }
            };
            let rest = &self.bytes[cursor.offset..*end];
            let may_grow = cursor.entry + 1 == self.entries.len();
            if rest.is_empty() && !may_grow {
                cursor.entry += 1;
                continue;
            }
            let mut bytes = &rest[..rest.len().min(LONGEST_PIECE_BYTES)];
            if may_grow || bytes.len() < rest.len() {
                bytes = &bytes[..whole_characters(bytes)];
            }
            if bytes.is_empty() {
                return Next::Pending;
            }
            cursor.offset += bytes.len();
            break EventKind::Output { stream, bytes: bytes.to_vec() };
        };
        let sequence = cursor.sequence;
        cursor.sequence += 1;
        Next::Found(Event { sequence, kind })
    }
}

/// Returns the length of `bytes` without an incomplete UTF-8 character at the end. Bytes that begin
/// no character count as they are.
fn whole_characters(bytes: &[u8]) -> usize {
    let tail = bytes.len().saturating_sub(3);
    let begins = bytes[tail..].iter().rposition(|byte| byte & 0xc0 != 0x80);
    let Some(start) = begins.map(|at| tail + at) else { return bytes.len() };
    let wanted = match bytes[start] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 1,
    };
    if bytes.len() - start < wanted { start } else { bytes.len() }
}

#[cfg(test)]
mod tests;
