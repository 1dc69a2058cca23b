#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub use checkpoint::Checkpoint;
pub use engine::{
    BadMount, BadMountPath, BadPath, BadProgram, CACHE_DIR_VARIABLE, CacheDir, CacheError,
    ChangeKind, ChangedFile, Chunk, Deterministic, EngineConfig, EngineError, Exception, HostKind,
    LimitHit, LimitKind, Limits, ModuleError, Outcome, PYTHON_WHEEL_VARIABLE, Program, Progress,
    ProgressSink, PythonBuild, PythonError, SandboxFailure, Silent, Stream, Usage, Verdict,
    WHEEL_REQUIREMENT, check_path,
};
pub use error::Error;
pub use job::Job;
pub use pool::{SessionId, SessionPlace, WorkerActivity, WorkerId, WorkerStatus};
pub use runtime::{Builder, Hatchery};
pub use scheduler::{
    ConfigError, Phase, Refusal, SchedulerStartError, SchedulerStatus as Status, SessionStatus,
    Ticket, Totals,
};
pub use session::Session;

mod checkpoint;
mod error;
mod job;
mod runtime;
mod session;
