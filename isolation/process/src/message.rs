//! The messages between a worker process and the embedding one.
//!
//! The embedding process gives one command at a time, and each ends with [`WorkerMessage::Reply`].
//! During a run the worker reports what the program does, and the embedding process may ask it to
//! end. Commands and [`ControlMessage`]s use separate rings. So the thread that runs programs takes
//! its commands itself, without waking a second one.

use std::io;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use channel::{ChannelConfig, Direction};
use engine::{
    Addition, FolderAnswer, FolderAsk, Limits, OutcomeMessage, ProgramMessage, Served, StopReason,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The environment variable that makes a program a helper.
pub(crate) const MARK: &str = "HATCHERY_HELPER_PROCESS";

/// The memory that a guest can address.
const MOST_MEMORY: u64 = 4 << 30;

/// The channel of a worker's commands and of its messages. A frame may be as long as the largest
/// value or file that a job can be allowed.
pub(crate) fn commands_config() -> ChannelConfig {
    let direction = Direction { longest_frame: 1 << 30, ..Direction::default() };
    ChannelConfig { down: direction, up: direction, ..ChannelConfig::default() }
}

/// The channel of what concerns a run that goes on, down alone. Its messages are rare, so that spinning
/// for them would waste time.
pub(crate) fn control_config() -> ChannelConfig {
    let down = Direction { longest_frame: 1 << 30, ring_bytes: 64 << 10 };
    let up = Direction { longest_frame: 0, ring_bytes: 4 << 10 };
    ChannelConfig { down, up, spin: Duration::ZERO }
}

/// How hard a run is stopped. A kill outweighs an interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum StopKind {
    Interrupt,
    Kill,
}

/// How a run is to end.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct StopRequest {
    pub(crate) run: u64,
    pub(crate) reason: StopReason,
    pub(crate) kind: StopKind,
}

impl StopRequest {
    /// Adds itself to others. For each run the hardest counts.
    pub(crate) fn add_to(self, others: &mut Vec<Self>) {
        match others.iter_mut().find(|other| other.run == self.run) {
            Some(other) => other.kind = other.kind.max(self.kind),
            None => others.push(self),
        }
    }
}

/// From the embedding process, to a run that goes on.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ControlMessage {
    /// Ends a run, if it still goes on. It may come before the run's command was taken.
    End(StopRequest),
    /// Answers an operation of the network at once, or says that the answer comes later.
    Operated { run: u64, number: u64, answer: Option<Vec<u8>> },
    /// Host functions or the network have answered.
    Answers { run: u64, served: Served },
    /// Answers the only question that is open. A file's descriptor comes beside it.
    Folder { answer: FolderAnswer, has_file: bool },
    /// Asks for a sign of life.
    Ping,
}

/// A command, and what the worker hears with it without being woken for that alone.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CommandFrame {
    pub(crate) command: Command,
    /// The numbers of copies that nobody has any more. The worker drops them after the command.
    pub(crate) dropped: Vec<u64>,
}

/// What the worker does next. States come and go as memory files beside the ring.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Command {
    /// Runs a program. While its outcome is in transit, the worker continues. If no other program
    /// runs on this state, it resets itself; if that fails, so does the next command. Else it keeps
    /// a copy under the number `keep`, if there is one, and reports it as after [`Self::Keep`].
    /// After a run that has lost the interpreter it does neither.
    Run {
        run: u64,
        program: Box<ProgramMessage>,
        /// `None`: those of the run before.
        limits: Option<Box<Limits>>,
        is_last: bool,
        keep: Option<u64>,
    },
    Reset,
    /// Sends its state.
    Suspend,
    /// Keeps a copy of its state under this number.
    Keep(u64),
    /// Takes the state that comes beside this.
    Resume,
    /// Takes the state that it keeps under this number.
    ResumeKept(u64),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum WorkerMessage {
    /// What the system granted to confine it. Comes once, first. The file with the numbers of its
    /// memory comes beside it.
    Confined(confine::Report),
    Added(Addition),
    Called {
        number: u64,
        name: String,
        arguments: String,
    },
    /// An operation on a stream of the network.
    Operates {
        number: u64,
        frame: Vec<u8>,
    },
    Cancelled {
        number: u64,
    },
    Folder {
        number: u64,
        ask: FolderAsk,
    },
    Alive,
    Reply(Reply, WorkerStats),
}

/// How a command ended.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The run of this number has ended.
    Ran { run: u64, outcome: Box<OutcomeMessage>, is_lost: bool },
    /// The command was executed. A state comes beside this if it was asked for.
    Ok,
    /// A copy of this many bytes is kept.
    Snapshot { bytes: u64 },
    /// The command failed, with this error and its causes.
    Failed(String),
}

/// What the embedding process wants to know of an interpreter after each command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkerStats {
    pub(crate) memory_bytes: u64,
    /// The same when it was last reset: for a worker that resets itself now.
    pub(crate) reset_bytes: u64,
    /// Whether its next reset compiles a program.
    pub(crate) has_to_compile: bool,
    pub(crate) has_threads: bool,
    pub(crate) had_code: bool,
}

impl WorkerStats {
    /// Returns what can be true of them: no guest addresses more memory than this. A larger figure
    /// would leave none for other workers.
    pub(crate) fn believed(self) -> Self {
        let most = |bytes: u64| bytes.min(MOST_MEMORY);
        let (memory_bytes, reset_bytes) = (most(self.memory_bytes), most(self.reset_bytes));
        Self { memory_bytes, reset_bytes, ..self }
    }
}

/// A request for a kept state. It goes over a separate socket, so it doesn't wait for a run to end.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum StateAsk {
    /// Sends a copy as a memory file; nothing comes if there is none of this number.
    Send(u64),
    /// Drops the copies of these numbers now, since together they take much memory.
    Forget(Vec<u64>),
}

/// From the embedding process to the helper.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum HelperCommand {
    /// To be loaded, once. No worker may have more private memory than this.
    Load { what: Vec<u8>, private_bytes: u64 },
    /// Fork a worker with this number; its descriptors come beside this. The last one is the entrance
    /// of its control group, if it has one.
    Fork(u64),
    /// Kill this worker, if it is alive.
    Kill(u64),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum HelperEvent {
    /// The image with this key is loaded.
    Loaded {
        key: String,
    },
    NotLoaded {
        what: String,
    },
    /// The worker exists.
    Forked {
        worker: u64,
    },
    NotForked {
        worker: u64,
        what: String,
    },
    /// The worker has ended, in these words.
    Ended {
        worker: u64,
        how: String,
    },
    /// It ends, with all its workers.
    Ends {
        why: String,
    },
}

/// The longest message, in bytes.
const LONGEST: u32 = 64 << 20;

/// Writes a message with its length before it.
pub(crate) fn write<T: Serialize>(stream: &mut UnixStream, message: &T) -> io::Result<()> {
    let bytes = postcard::to_stdvec(message).map_err(io::Error::other)?;
    let length = u32::try_from(bytes.len()).ok().filter(|length| *length <= LONGEST);
    let length = length.ok_or_else(|| io::Error::other("a message is too long"))?;
    stream.write_all(&[&length.to_le_bytes()[..], &bytes].concat())
}

/// Reads a message; `None` at the end of the stream.
pub(crate) fn read<T: DeserializeOwned>(stream: &mut UnixStream) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        result => result?,
    }
    let length = u32::from_le_bytes(length);
    if length > LONGEST {
        return Err(io::Error::other("a message is too long"));
    }
    let mut bytes = Vec::new();
    stream.take(u64::from(length)).read_to_end(&mut bytes)?;
    postcard::from_bytes(&bytes).map(Some).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_memory_than_there_can_be_is_not_believed() {
        let honest = WorkerStats {
            memory_bytes: 7,
            reset_bytes: 5,
            had_code: true,
            ..WorkerStats::default()
        };
        assert_eq!(honest.believed(), honest);
        let lie =
            WorkerStats { memory_bytes: u64::MAX, reset_bytes: u64::MAX, ..WorkerStats::default() };
        let believed = lie.believed();
        assert_eq!((believed.memory_bytes, believed.reset_bytes), (4 << 30, 4 << 30));
    }
}
