//! What one run says, in one order across both streams, readable while it runs.
//!
//! The run appends; any number of readers follow, each with a cursor. Nobody waits for anybody: a
//! slow or absent reader neither holds the run up nor makes memory grow, since the transcript
//! never holds more than the cap of the run plus sixteen bytes for each change of stream.

use parking_lot::{Condvar, Mutex};

/// One of a program's two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// What one run says.
#[derive(Default)]
pub struct Transcript {
    state: Mutex<TranscriptState>,
    changed: Condvar,
}

#[derive(Default)]
struct TranscriptState {
    bytes: Vec<u8>,
    /// Each run of bytes of one stream, with the offset where it ends.
    /// Invariant E-4: ends are increasing, neighbours differ in stream, the last is `bytes.len()`.
    runs: Vec<(Stream, usize)>,
    cap: usize,
    written: u64,
    closed: bool,
    watcher: Option<Box<dyn Fn() + Send + Sync>>,
}

impl std::fmt::Debug for Transcript {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.lock();
        formatter
            .debug_struct("Transcript")
            .field("bytes", &state.bytes.len())
            .field("closed", &state.closed)
            .finish_non_exhaustive()
    }
}

/// A piece of output of one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Its place in the order of the run's output: 0, 1, 2 and so on for one reader.
    pub sequence: u64,
    /// The stream.
    pub stream: Stream,
    /// The bytes. A character of UTF-8 is in one chunk, unless the program wrote to the other stream
    /// in its middle.
    pub bytes: Vec<u8>,
}

/// How far a reader has read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cursor {
    offset: usize,
    sequence: u64,
}

/// What a reader found at its cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// More output.
    Chunk(Chunk),
    /// Nothing yet.
    Pending,
    /// The run has ended and everything was read.
    End,
}

impl Transcript {
    /// Sets how many bytes are kept. Called once, before the run.
    pub(crate) fn begin(&self, cap: usize) {
        self.state.lock().cap = cap;
    }

    /// Appends what the program wrote; bytes beyond the cap are counted and dropped.
    pub(crate) fn append(&self, stream: Stream, bytes: &[u8]) {
        let mut state = self.state.lock();
        state.written += bytes.len() as u64;
        let room = state.cap.saturating_sub(state.bytes.len());
        // A character isn't cut, and nothing comes after what was.
        let kept = if bytes.len() <= room { bytes.len() } else { whole_characters(&bytes[..room]) };
        if kept < bytes.len() {
            state.cap = state.bytes.len() + kept;
        }
        if kept == 0 || state.closed {
            return;
        }
        state.bytes.extend_from_slice(&bytes[..kept]);
        let end = state.bytes.len();
        match state.runs.last_mut() {
            Some((last, last_end)) if *last == stream => *last_end = end,
            _ => state.runs.push((stream, end)),
        }
        self.wake(state);
    }

    /// Says that nothing more will come. Later appends are dropped.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        self.wake(state);
    }

    fn wake(&self, state: parking_lot::MutexGuard<'_, TranscriptState>) {
        if let Some(watcher) = &state.watcher {
            watcher();
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Has `watcher` called after every change, on the thread that made it. One watcher at a
    /// time; it must be quick and must not read the transcript itself.
    pub fn watch(&self, watcher: impl Fn() + Send + Sync + 'static) {
        self.state.lock().watcher = Some(Box::new(watcher));
    }

    /// Reads what stands at `cursor` and moves it on.
    pub fn read(&self, cursor: &mut Cursor) -> Next {
        let state = self.state.lock();
        let following = state.runs.partition_point(|(_, end)| *end <= cursor.offset);
        let Some(&(stream, end)) = state.runs.get(following) else {
            return if state.closed { Next::End } else { Next::Pending };
        };
        let may_grow = !state.closed && following + 1 == state.runs.len();
        let mut bytes = &state.bytes[cursor.offset..end];
        if may_grow {
            bytes = &bytes[..whole_characters(bytes)];
            if bytes.is_empty() {
                return Next::Pending;
            }
        }
        let end = cursor.offset + bytes.len();
        let bytes = bytes.to_vec();
        let chunk = Chunk { sequence: cursor.sequence, stream, bytes };
        cursor.offset = end;
        cursor.sequence += 1;
        Next::Chunk(chunk)
    }

    /// Like `read`, but waits on this thread until there is something or the run has ended.
    pub fn read_blocking(&self, cursor: &mut Cursor) -> Option<Chunk> {
        loop {
            match self.read(cursor) {
                Next::Chunk(chunk) => return Some(chunk),
                Next::End => return None,
                Next::Pending => {
                    let mut state = self.state.lock();
                    let rest = &state.bytes[cursor.offset..];
                    if whole_characters(rest) == 0 && !state.closed {
                        self.changed.wait(&mut state);
                    }
                }
            }
        }
    }

    /// Everything kept of `stream`.
    pub fn text_of(&self, stream: Stream) -> Vec<u8> {
        let state = self.state.lock();
        let mut start = 0;
        let mut bytes = Vec::new();
        for &(of, end) in &state.runs {
            if of == stream {
                bytes.extend_from_slice(&state.bytes[start..end]);
            }
            start = end;
        }
        bytes
    }

    /// Bytes that the program wrote, dropped ones included.
    pub fn written_bytes(&self) -> u64 {
        self.state.lock().written
    }

    /// Whether bytes were dropped.
    pub fn is_truncated(&self) -> bool {
        let state = self.state.lock();
        state.written > state.bytes.len() as u64
    }
}

/// How much of `bytes` doesn't end in the middle of a character of UTF-8 that may go on. Bytes that
/// begin no character count as they are.
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
mod tests {
    use super::*;
    use std::sync::Arc;

    fn transcript(cap: usize) -> Transcript {
        let transcript = Transcript::default();
        transcript.begin(cap);
        transcript
    }

    #[test]
    fn one_order_across_both_streams() {
        let transcript = transcript(100);
        transcript.append(Stream::Stdout, b"a");
        transcript.append(Stream::Stdout, b"b");
        transcript.append(Stream::Stderr, b"c");
        transcript.append(Stream::Stdout, b"d");
        transcript.close();
        let mut cursor = Cursor::default();
        let mut read = Vec::new();
        while let Next::Chunk(chunk) = transcript.read(&mut cursor) {
            read.push((chunk.sequence, chunk.stream, chunk.bytes));
        }
        let expected = vec![
            (0, Stream::Stdout, b"ab".to_vec()),
            (1, Stream::Stderr, b"c".to_vec()),
            (2, Stream::Stdout, b"d".to_vec()),
        ];
        assert_eq!(read, expected);
        assert_eq!(transcript.read(&mut cursor), Next::End);
        assert_eq!(transcript.text_of(Stream::Stdout), b"abd");
    }

    #[test]
    fn a_reader_in_the_middle_of_a_run_goes_on_where_it_was() {
        let transcript = transcript(100);
        let mut cursor = Cursor::default();
        assert_eq!(transcript.read(&mut cursor), Next::Pending);
        transcript.append(Stream::Stdout, b"a");
        assert!(matches!(transcript.read(&mut cursor), Next::Chunk(_)));
        transcript.append(Stream::Stdout, b"b");
        let Next::Chunk(chunk) = transcript.read(&mut cursor) else { panic!("there is more") };
        assert_eq!(chunk.bytes, b"b");
    }

    #[test]
    fn characters_are_read_whole_and_cut_whole() {
        let transcript = transcript(6);
        let mut cursor = Cursor::default();
        transcript.append(Stream::Stdout, b"a\xe2\x82");
        let Next::Chunk(chunk) = transcript.read(&mut cursor) else { panic!("there is an `a`") };
        assert_eq!(chunk.bytes, b"a");
        assert_eq!(transcript.read(&mut cursor), Next::Pending);
        transcript.append(Stream::Stdout, b"\xac\xc3");
        let Next::Chunk(chunk) = transcript.read(&mut cursor) else { panic!("there is a euro") };
        assert_eq!(chunk.bytes, "€".as_bytes());
        transcript.append(Stream::Stdout, b"\xa4\xc3\xb6");
        assert_eq!(transcript.text_of(Stream::Stdout), "a€ä".as_bytes());
        transcript.append(Stream::Stdout, b"b");
        assert_eq!(transcript.text_of(Stream::Stdout), "a€ä".as_bytes(), "nothing after the cut");
        for (bytes, whole) in
            [(&b"\xff\xe2\x82"[..], 1), (b"\x82\x82\x82", 3), (b"\xf0\x9f\x98", 0), (b"", 0)]
        {
            assert_eq!(whole_characters(bytes), whole, "{bytes:x?}");
        }
    }

    #[test]
    fn the_cap_holds_and_everything_is_counted() {
        let transcript = transcript(3);
        transcript.append(Stream::Stdout, b"ab");
        assert!(!transcript.is_truncated());
        transcript.append(Stream::Stderr, b"cd");
        transcript.append(Stream::Stdout, b"ef");
        assert_eq!(transcript.text_of(Stream::Stdout), b"ab");
        assert_eq!(transcript.text_of(Stream::Stderr), b"c");
        assert_eq!(transcript.written_bytes(), 6);
        assert!(transcript.is_truncated());
    }

    #[test]
    fn a_blocked_reader_wakes_for_output_and_for_the_end() {
        let transcript = Arc::new(transcript(100));
        let reader = std::thread::spawn({
            let transcript = Arc::clone(&transcript);
            move || {
                let mut cursor = Cursor::default();
                let mut bytes = Vec::new();
                while let Some(chunk) = transcript.read_blocking(&mut cursor) {
                    bytes.extend(chunk.bytes);
                }
                bytes
            }
        });
        transcript.append(Stream::Stdout, b"a");
        transcript.append(Stream::Stderr, b"b");
        transcript.close();
        assert_eq!(reader.join().unwrap(), b"ab");
    }
}
