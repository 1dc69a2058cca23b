//! Runs Python programs that you don't trust, many at a time, inside your own process.
//!
//! Each program gets a CPython of its own, compiled to WebAssembly, with numpy, pandas and dozens
//! of other packages, and limits on time, memory, output and files. Interpreters begin from an
//! image in which modules are already imported, and return to it after each job. A scheduler shares
//! the pool between sessions and tenants.
//!
//! The pool runs on [tokio](https://docs.rs/tokio); start and use it from within a runtime:
//!
//! ```
//! use hatchery::{Hatchery, Job};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), hatchery::Error> {
//!     let pool = Hatchery::builder().workers(2).preload(["numpy"]).start().await?;
//!
//!     // A fresh interpreter for each job.
//!     let outcome = pool.run(Job::code("import numpy as np; print(np.arange(3).sum())")).await?;
//!     assert_eq!(outcome.stdout_text(), "3\n");
//!
//!     // A session keeps its variables.
//!     let session = pool.session("analysis").await?;
//!     session.run(Job::code("x = 42")).await?;
//!     assert_eq!(session.run(Job::code("print(x)")).await?.stdout_text(), "42\n");
//!
//!     pool.drain().await;
//!     Ok(())
//! }
//! ```
//!
//! The first start fetches the Python build through pip and compiles it, which takes a minute or
//! two; later starts take a fraction of a second.
//!
//! # Where to find what
//!
//! - **Pools**: [`Hatchery`], made by its [`Builder`]. [`Hatchery::status`] returns a [`Status`],
//!   [`Hatchery::decisions`] what the scheduler decides, [`Hatchery::explain`] why a job waits.
//! - **Jobs**: [`Job`] says what to run, [`Limits`] what it may use. [`Hatchery::run`] returns the
//!   [`Outcome`], [`Hatchery::submit`] a [`Ticket`], whose [`Events`] tell what happens.
//! - **Results**: an [`Outcome`] has a [`Verdict`], output, [`MimeBundle`]s, [`ChangedFile`]s and
//!   [`Usage`]; an [`Exception`] has its frames.
//! - **Variables**: JSON, bytes, [`Array`]s and frames, as a [`Value`].
//! - **Sessions**: [`Session`], its [`Checkpoint`]s and its [`Workspace`]; [`SessionsConfig`] says
//!   what becomes of sessions that rest.
//! - **Sharing**: [`TenantConfig`], [`Priority`], and [`Refusal`] with the reasons of refusals.
//! - **Host functions**: [`HostFunction`], [`HostError`] and [`Recording`].
//! - **Images and the cache**: [`Builder::preload`], [`Builder::setup`] and [`Builder::package`];
//!   [`images`], [`find_image`], [`remove_image`], [`cache_entries`] and [`prune_cache`].
//! - **Tools of agents**: [`Job::from_tool_call`], [`tool_schema`] and [`Outcome::to_tool_json`].
//! - **Metrics**: [`describe_metrics`].
//! - **Errors**: [`Error`] says whether a call may succeed later ([`Error::is_overloaded`],
//!   [`Error::retry_after`]). What a program does is never an error, but its outcome's verdict.
//!
//! The repository has a guide, in `docs/guide`, and `docs/runtime-semantics.md` states what callers
//! may rely on.
#![forbid(unsafe_code)]

pub use cache::{cache_entries, prune_cache};
pub use checkpoint::Checkpoint;
pub use engine::{
    Array, CACHE_BOUND_VARIABLE, CACHE_DIR_VARIABLE, COPY_ON_WRITE_VARIABLE, CacheDir, CacheEntry,
    CacheEntryKind, CacheError, Call, ChangeKind, ChangedFile, Chunk, Column, Delivery,
    Deterministic, Element, EngineConfig, EngineError, Event, EventKind, Exception, Frame,
    HostError, HostKind, ImageError, ImageInfo, InvalidFunction, InvalidMount, InvalidMountPath,
    InvalidPath, InvalidProgram, InvalidValue, LimitHit, LimitKind, Limits, MimeBundle, MimeData,
    ModuleError, Outcome, PYTHON_WHEEL_VARIABLE, PackageError, PackageInfo, PackageOrigin, Program,
    Progress, ProgressSink, Prune, Pruned, PythonBuild, PythonError, RecordedAnswer, RecordedCall,
    Recording, SandboxFailure, SessionError, Silent, StackFrame, Stream, SyntaxPosition, Usage,
    Value, Verdict, WHEEL_REQUIREMENT, Workspace, check_path,
};
pub use error::{Error, InvalidToolCall};
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
pub use source::{InvalidSource, decode_source};
pub use tool::{ToolRefusal, tool_refusal, tool_result_schema, tool_schema};

mod cache;
mod checkpoint;
mod error;
mod functions;
#[cfg(doctest)]
mod guide;
mod image;
mod job;
mod runtime;
mod session;
mod source;
mod tool;
