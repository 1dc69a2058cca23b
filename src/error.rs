//! Everything that keeps a job from having an outcome. What a program does is an outcome.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::source::BadSource;
use engine::{
    BadFunction, BadMount, BadMountPath, BadPath, BadProgram, CacheError, EngineError, ImageError,
    PackageError, SessionError,
};
use scheduler::{Refusal, SchedulerStartError};

/// The longest time that a call can ask for, in seconds; the pool's own limit comes first.
pub(crate) const MOST_TOOL_CALL_SECONDS: f64 = 86_400.0;

/// The fields of a call.
pub(crate) const TOOL_CALL_FIELDS: [&str; 7] =
    ["code", "timeout", "stdin", "args", "env", "files", "variables"];

/// No outcome can be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The Python build can't be had or loaded.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The image can't be made or found.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// A package can't be added to an image.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// A session can't be put aside, saved or revived.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The cache can't be used.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The scheduler can't be started.
    #[error(transparent)]
    Start(#[from] SchedulerStartError),
    /// The job or the session was not taken.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A file can't be given to a job under this path.
    #[error(transparent)]
    Path(#[from] BadPath),
    /// A folder of the host can't be given to a job.
    #[error(transparent)]
    Mount(#[from] BadMount),
    /// A folder can't be mounted at this path.
    #[error(transparent)]
    MountPath(#[from] BadMountPath),
    /// A program is given something that no process could be given.
    #[error(transparent)]
    Program(#[from] BadProgram),
    /// A tool's call is none.
    #[error(transparent)]
    ToolCall(BadToolCall),
    /// A host function can't be had in Python.
    #[error(transparent)]
    Function(#[from] BadFunction),
    /// A file of a job can't be read.
    #[error("can't read `{}`: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A program is no text.
    #[error("can't read `{}` as Python source: {cause}", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        cause: BadSource,
    },
    /// The thread that loads, reads or writes died.
    #[error("the thread that loads and stores died: {0}")]
    Load(String),
}

impl Error {
    /// Whether the same call may well succeed later, once there is less load: a queue is full,
    /// memory is short, or the deadline can't be met.
    pub fn is_overloaded(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.is_overload())
    }

    /// When the same call may succeed, by the measured service times; `None` if nothing was
    /// measured yet, or time alone doesn't help. For [`Refusal::NoWorker`], which isn't for load, it
    /// is when a worker is tried again.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused(refusal) => refusal.retry_after(),
            _ => None,
        }
    }
}

/// A call that can't be run, said so that whoever wrote it can put it right.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BadToolCall {
    /// A field is of another type, or the whole call is.
    #[error("`{field}` must be {expected}")]
    Type {
        /// The field, such as `args`.
        field: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// There is no code.
    #[error("give the program as `code`")]
    NoCode,
    /// There is a field that calls don't have.
    #[error("there is no field `{field}`; use {}", TOOL_CALL_FIELDS.join(", "))]
    Unknown {
        /// The field.
        field: String,
    },
    /// The time is no time.
    #[error("`timeout` is {seconds}; give seconds above 0, at most {MOST_TOOL_CALL_SECONDS}")]
    Timeout {
        /// What was given.
        seconds: f64,
    },
    /// The contents of a file are no base64.
    #[error(
        "the `base64` of the file `{path}` is none; use the digits A-Z a-z 0-9 + / with padding"
    )]
    Base64 {
        /// The file.
        path: String,
    },
    /// A file can't have this name.
    #[error(transparent)]
    Path(#[from] BadPath),
    /// A variable, or one of the environment, can't be one.
    #[error(transparent)]
    Program(#[from] BadProgram),
}

impl From<BadToolCall> for Error {
    fn from(bad: BadToolCall) -> Self {
        Self::ToolCall(bad)
    }
}
