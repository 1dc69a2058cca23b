#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub use checkpoint::Checkpoint;
pub use engine::{
    BadMount, BadMountPath, BadPath, BadProgram, CACHE_DIR_VARIABLE, COPY_ON_WRITE_VARIABLE,
    CacheDir, CacheError, ChangeKind, ChangedFile, Chunk, Deterministic, EngineConfig, EngineError,
    Event, EventKind, Exception, HostKind, ImageError, ImageInfo, LimitHit, LimitKind, Limits,
    MimeBundle, MimeData, ModuleError, Outcome, PYTHON_WHEEL_VARIABLE, Program, Progress,
    ProgressSink, PythonBuild, PythonError, SandboxFailure, SessionError, Silent, StackFrame,
    Stream, SyntaxPosition, Usage, Verdict, WHEEL_REQUIREMENT, check_path,
};
pub use error::Error;
pub use image::{find_image, image_keys, images, remove_image};
pub use job::Job;
pub use pool::{SessionId, SessionPlace, WorkerActivity, WorkerId, WorkerStatus};
pub use runtime::{Builder, Hatchery};
pub use scheduler::{
    ConfigError, Events, Phase, Refusal, SchedulerStartError, SchedulerStatus as Status,
    SessionStatus, Ticket, Totals,
};
pub use session::Session;

mod checkpoint;
mod error;
mod image;
mod job;
mod runtime;
mod session;
