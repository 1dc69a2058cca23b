//! What a worker process and the embedding one say to each other.
//!
//! The embedding process gives orders, one at a time, and each ends with [`Up::Done`]. During a run
//! the worker reports what the program does, and the embedding process may ask it to end.

use channel::{ChannelConfig, Direction};
use engine::{Addition, Answer, FolderAnswer, FolderAsk, SentOutcome, SentProgram, StopReason};
use serde::{Deserialize, Serialize};

/// The environment variable that makes a program a helper.
pub(crate) const MARK: &str = "HATCHERY_HELPER_PROCESS";

/// The channel of each worker, both ways: a frame may be as long as the largest value or file that a
/// job can be allowed.
pub(crate) fn channel_config() -> ChannelConfig {
    let direction = Direction { longest_frame: 1 << 30, ..Direction::default() };
    ChannelConfig { down: direction, up: direction, ..ChannelConfig::default() }
}

/// From the embedding process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Down {
    Order(Order),
    /// Ends a run, if it still goes on.
    End {
        run: u64,
        reason: StopReason,
        is_gentle: bool,
    },
    /// Host functions have answered, and the host has stopped working on calls of these numbers,
    /// which had ended for the program before.
    Answers {
        run: u64,
        answers: Vec<Answer>,
        freed: Vec<u64>,
    },
    /// Answers the only question that is open. A file's descriptor comes beside it.
    Folder {
        answer: FolderAnswer,
        has_file: bool,
    },
    /// Asks for a sign of life.
    Ping,
}

/// What the worker does next. States come and go as memory files beside the ring.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    Run {
        run: u64,
        program: Box<SentProgram>,
        is_last: bool,
    },
    Reset,
    WorkAhead,
    /// Sends its state.
    Park,
    /// Keeps a copy of its state under this number.
    Keep(u64),
    /// Takes the state that comes beside this.
    Attach,
    /// Takes the state that it keeps under this number.
    AttachKept(u64),
}

/// From a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Up {
    /// What the system granted to confine it. Comes once, first. The file with the numbers of its
    /// memory comes beside it.
    Confined(confine::Report),
    Added(Addition),
    Called {
        number: u64,
        name: String,
        arguments: String,
    },
    Cancelled {
        number: u64,
    },
    Folder {
        number: u64,
        ask: FolderAsk,
    },
    Alive,
    Done(Done, Facts),
}

/// How an order ended.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Done {
    /// The run has ended.
    Ran { outcome: Box<SentOutcome>, is_lost: bool },
    /// The order was carried out. A state comes beside this if it was asked for.
    Well,
    /// A copy of this many bytes is kept.
    Kept { bytes: u64 },
    /// The order failed, with this error and its causes.
    Failed(String),
}

/// What the embedding process wants to know of an interpreter after each order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Facts {
    pub(crate) memory_bytes: u64,
    pub(crate) has_much_work_ahead: bool,
    pub(crate) had_code: bool,
}

/// A request for a kept state, which goes over a socket of its own: whoever wants a state doesn't
/// wait for a run to end.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum StateAsk {
    /// Sends a copy as a memory file; nothing comes if there is none of this number.
    Send(u64),
    Forget(u64),
}

/// From the embedding process to the helper.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum HelperOrder {
    /// To be loaded, once.
    Load(Vec<u8>),
    /// Fork a worker with this number; its descriptors come beside this.
    Fork(u64),
    /// Kill this worker, if it is alive.
    Kill(u64),
}

/// From the helper.
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
}
