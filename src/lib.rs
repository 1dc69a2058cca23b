#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub use cache::{cache_entries, prune_cache};
pub use checkpoint::Checkpoint;
pub use engine::{
    Array, BadFunction, BadMount, BadMountPath, BadPath, BadProgram, BadValue,
    CACHE_BOUND_VARIABLE, CACHE_DIR_VARIABLE, COPY_ON_WRITE_VARIABLE, CacheDir, CacheEntry,
    CacheEntryKind, CacheError, Call, ChangeKind, ChangedFile, Chunk, Column, Delivery,
    Deterministic, Element, EngineConfig, EngineError, Event, EventKind, Exception, Frame,
    HostError, HostKind, ImageError, ImageInfo, LimitHit, LimitKind, Limits, MimeBundle, MimeData,
    ModuleError, Outcome, PYTHON_WHEEL_VARIABLE, PackageError, PackageInfo, PackageOrigin, Program,
    Progress, ProgressSink, Prune, Pruned, PythonBuild, PythonError, RecordedAnswer, RecordedCall,
    Recording, SandboxFailure, SessionError, Silent, StackFrame, Stream, SyntaxPosition, Usage,
    Value, Verdict, WHEEL_REQUIREMENT, Workspace, check_path,
};
pub use error::{BadToolCall, Error};
pub use functions::HostFunction;
pub use image::{build_packages, find_image, image_keys, images, remove_image};
pub use job::Job;
pub use pool::{JobId, SessionId, SessionPlace, WorkerActivity, WorkerId, WorkerStatus};
pub use runtime::{Builder, Hatchery, describe_metrics};
pub use scheduler::{
    ConfigError, Decision, DecisionKind, Decisions, ErrorStatus, Events, EvictedTo, EvictionReason,
    Explanation, JobState, Latencies, MemoryStatus, NextDecision, Percentiles, Phase, Priority,
    ProgramErrorStatus, QueueDepth, Refusal, RetireReason, SchedulerStartError,
    SchedulerStatus as Status, SessionPlaces, SessionStatus, SessionsConfig, TenantConfig,
    TenantStatus, Ticket, Totals, WaitReason,
};
pub use session::Session;
pub use source::{BadSource, decode_source};
pub use tool::{ToolRefusal, tool_refusal, tool_result_schema, tool_schema};

mod cache;
mod checkpoint;
mod error;
mod functions;
mod image;
mod job;
mod runtime;
mod session;
mod source;
mod tool;
