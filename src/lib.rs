//! Runs untrusted Python programs, many at a time, inside your own process.
//!
//! Each program gets its own CPython, compiled to WebAssembly, with numpy, pandas and dozens of
//! other packages. Its time, memory, output and files are limited. Interpreters start from an image
//! with modules already imported, and return to it after each job. A scheduler shares the pool
//! between sessions and tenants.
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
//! # Requirements
//!
//! Linux on x86-64 is tested. The first start needs Python 3 with pip on the host. It fetches the
//! Python build through pip (98 MB) and compiles it in one or two minutes. Later starts take a
//! fraction of a second.
//!
//! # Topics
//!
//! The root has the names that most programs use; each module below has the rest of one topic.
//!
//! - **Pools**: [`Hatchery`], made by its [`Builder`]. [`Hatchery::status`] returns a
//!   [`status::Status`], [`Hatchery::decisions`] follows what the scheduler decides, and
//!   [`Hatchery::explain`] says why a job waits.
//! - **Jobs**: [`Job`] says what to run, [`Limits`] what it may use. [`Hatchery::run`] returns the
//!   [`Outcome`], [`Hatchery::submit`] a [`Ticket`], which waits, interrupts and cancels, and from
//!   which [`event`]s are read.
//! - **Results**: an [`Outcome`] has a [`Verdict`] and the output. [`outcome`] has the types of its
//!   other parts, and [`files`] those of files.
//! - **Variables**: JSON, bytes, [`Array`]s and frames, as a [`Value`].
//! - **Sessions**: a [`Session`] and its [`Checkpoint`]s; [`SessionsConfig`] says what becomes of
//!   idle sessions. [`Session::fork_many`] opens copies of one, and [`Session::explore`] runs
//!   programs on copies, for search.
//! - **Sharing**: [`TenantConfig`] and [`Priority`]; a [`Refusal`] says why a job isn't admitted.
//! - **Host functions**: [`HostFunction`] and [`HostError`]; [`recording`] replays their calls.
//! - **Recordings**: [`Session::record`] and [`Hatchery::recorder`]; [`record`] runs them again.
//! - **Images**: [`Builder::preload`], [`Builder::setup`] and [`Builder::package`] say what is in
//!   one; [`image`] lists and removes them, and [`cache`] everything else that is cached.
//! - **Tools of agents**: [`Job::from_tool_call`], [`Outcome::to_tool_json`] and the schemas in
//!   [`tool`].
//! - **Output on a terminal**: [`terminal`] makes it harmless.
//! - **Jobs as JSON**: [`wire`] reads and describes them, and [`Job::from_wire`] makes jobs of them.
//! - **Errors**: [`Error`] says whether a call may succeed later ([`Error::is_overloaded`],
//!   [`Error::retry_after`]), and [`error`] has its causes. What a program does is never an error:
//!   it is in its outcome's verdict.
//!
//! # Features
//!
//! - `exact-integers`: whole numbers of more than 64 bits are exact in variables, arguments, values
//!   and results. It turns on `serde_json/arbitrary_precision` for the whole program, so a library
//!   shouldn't. Off by default.
//! - `wasix`, on by default: wasmer-wasix as another host under the guest.
//!
//! # What may change
//!
//! Structs and enums that will get fields or variants are `#[non_exhaustive]`. Configurations such
//! as [`Limits`] aren't, so that you can write `Limits { wall_time, ..Limits::default() }`. End
//! each of them in `..`, and a new field breaks nothing.
//!
//! The repository has a guide, in `docs/guide`, and `docs/runtime-semantics.md` states what callers
//! may rely on.
#![forbid(unsafe_code)]

pub use builder::{Builder, Isolation, be_helper};
#[doc(inline)]
pub use engine::{
    Array, Call, Destination, Deterministic, Exception, HostError, Interface, LimitHit, LimitKind,
    Limits, Outcome, SandboxFailure, Value, Verdict,
};
pub use failure::Error;
pub use forks::{Exploration, Explored, Keep};
pub use functions::HostFunction;
pub use job::Job;
#[doc(inline)]
pub use pool::{DEFAULT_PYTHON, JobId, SessionId, WorkerId};
pub use process::{Helper, ProcessError};
pub use runtime::Hatchery;
#[doc(inline)]
pub use scheduler::{
    AwaitedTicket, DEFAULT_TENANT, Priority, Refusal, SessionsConfig, TenantConfig, Ticket,
};
pub use session::Checkpoint;
pub use session::Session;

mod attached;
mod builder;
pub mod cache;
mod failure;
mod forks;
mod functions;
pub mod image;
mod imports;
mod job;
mod learning;
pub mod metrics;
mod network;
mod output;
pub mod python;
mod pythons;
pub mod record;
mod runtime;
mod session;
pub mod source;
pub mod terminal;
pub mod tool;

/// The Rust of the README and the guide, compiled and run as doctests. `cli/tests/all/guide.rs` holds
/// that no document with Rust in it is missing here.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../docs/guide/getting-started.md")]
#[doc = include_str!("../docs/guide/jobs.md")]
#[doc = include_str!("../docs/guide/sessions.md")]
#[doc = include_str!("../docs/guide/shell.md")]
#[doc = include_str!("../docs/guide/recordings.md")]
#[doc = include_str!("../docs/guide/sharing.md")]
#[doc = include_str!("../docs/guide/host-functions.md")]
struct Guide;

/// What the environment configures: the cache, the Python build, the host under the guest.
///
/// A [`Builder`] begins with [`EngineConfig::from_env`](config::EngineConfig::from_env), and its
/// methods replace single values.
pub mod config {
    #[doc(inline)]
    pub use engine::{
        CACHE_BOUND_VARIABLE, CACHE_DIR_VARIABLE, COPY_ON_WRITE_VARIABLE, EngineConfig,
        HOST_KERNELS_VARIABLE, HostKind, ImageMapping, PYODIDE, PYTHON_MODULE_HASH_VARIABLE,
        PYTHON_MODULE_VARIABLE, PYTHON_WHEEL_VARIABLE, PinnedModule,
    };
}

/// Which HTTP requests programs may make ([`Builder::egress`]), with which secrets.
///
/// ```
/// use hatchery::egress::EgressFile;
///
/// let file: EgressFile = toml::from_str(
///     r#"
///     allow = ["GET,POST https://api.example.com/v1/*"]
///     secrets = ["API_KEY=env:EXAMPLE_KEY@https://api.example.com"]
///     "#,
/// )?;
/// assert_eq!(file.allow[0].to_string(), "GET,POST https://api.example.com/v1/*");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub mod egress {
    #[doc(inline)]
    pub use ::egress::{
        Egress, EgressError, EgressFile, EgressLimits, InvalidRule, InvalidSecret, Lookup,
        Resolver, Rule, Secret, SecretSource, SystemResolver,
    };
}

/// What the scheduler decides, and why a job waits.
///
/// ```no_run
/// # async fn example(pool: hatchery::Hatchery) -> Result<(), hatchery::Error> {
/// use hatchery::Job;
/// use hatchery::decision::{DecisionKind, NextDecision};
///
/// let mut decisions = pool.decisions();
/// let ticket = pool.submit(Job::code("sum(range(1000))")).await?;
/// if let Some(explanation) = pool.explain(ticket.job_id()).await {
///     println!("{explanation}");
/// }
/// while let Some(next) = decisions.next().await {
///     match next {
///         NextDecision::Decision(decision) => match decision.kind {
///             DecisionKind::Refused { message, .. } => eprintln!("{message}"),
///             kind => println!("{:?}: {kind:?}", decision.at),
///         },
///         NextDecision::Missed(count) => eprintln!("{count} decisions were missed"),
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub mod decision {
    #[doc(inline)]
    pub use scheduler::{
        Decision, DecisionKind, Decisions, DegradedReason, EndReason, EvictedTo, EvictionReason,
        Explanation, JobState, NextDecision, RetireReason, WaitReason,
    };
}

/// The causes of an [`Error`], except those of jobs as JSON, in [`wire`], and of [`source`] files,
/// which are in their modules.
///
/// No message repeats its cause. To print an error with its causes, use [`chain`](error::chain):
///
/// ```
/// use hatchery::Job;
/// use hatchery::error::chain;
///
/// let error = Job::file("no-such-file.py").unwrap_err();
/// assert_eq!(error.to_string(), "can't read `no-such-file.py`");
/// let text = chain(&error).to_string();
/// assert!(text.starts_with("can't read `no-such-file.py`: No such file"), "{text}");
/// ```
///
/// Match on an error for what it is about:
///
/// ```
/// use hatchery::{Error, Job};
///
/// let error = Job::code("1").input("../data.csv", "1,2\n").unwrap_err();
/// let Error::Path(cause) = &error else { panic!("{error}") };
/// assert_eq!(cause.path, "../data.csv");
/// ```
pub mod error {
    pub use crate::network::NetworkError;
    pub use crate::pythons::InvalidPython;
    #[doc(inline)]
    pub use engine::{
        CacheError, Cause, EngineError, ImageError, InvalidDestination, InvalidFunction,
        InvalidMount, InvalidMountPath, InvalidPath, InvalidProgram, InvalidValue, ModuleError,
        PackageError, PipError, PythonError, SessionError, StartError, chain, counted,
    };
    #[doc(inline)]
    pub use scheduler::{ConfigError, SchedulerStartError};
}

/// What happens in a job while it runs, in one order.
///
/// ```no_run
/// # async fn example(pool: hatchery::Hatchery) -> Result<(), hatchery::Error> {
/// use hatchery::Job;
/// use hatchery::event::EventKind;
///
/// let ticket = pool.submit(Job::code("print('a'); display(1)")).await?;
/// let mut events = ticket.events();
/// while let Some(event) = events.next().await {
///     match event.kind {
///         EventKind::Output { bytes, .. } => print!("{}", String::from_utf8_lossy(&bytes)),
///         EventKind::Display(bundle) => println!("{:?}", bundle.text("text/html")),
///         _ => {}
///     }
/// }
/// let outcome = ticket.await;
/// # drop(outcome);
/// # Ok(())
/// # }
/// ```
pub mod event {
    #[doc(inline)]
    pub use engine::{Event, EventKind, Stream};
    #[doc(inline)]
    pub use scheduler::Events;
}

/// Files of a job and of a session.
///
/// ```
/// use hatchery::files::check_path;
///
/// assert!(check_path("plots/totals.png").is_ok());
/// assert!(check_path("../totals.png").is_err());
/// ```
pub mod files {
    pub use crate::output::OutputFolder;
    pub use crate::output::{display_files, display_forms};
    #[doc(inline)]
    pub use engine::{ChangeKind, ChangedFile, FolderDigests, LeftOutFiles, Workspace, check_path};
}

/// The parts of an [`Outcome`].
///
/// ```
/// use hatchery::error::chain;
/// use hatchery::{Outcome, Verdict};
///
/// /// Describes how a job ended.
/// fn report(outcome: &Outcome) -> String {
///     match &outcome.verdict {
///         Verdict::Completed { repr, .. } => repr.clone().unwrap_or_default(),
///         Verdict::Raised(exception) => {
///             format!("{}: {}", exception.type_name, exception.message)
///         }
///         Verdict::Exited { code, .. } => format!("exit code {code}"),
///         Verdict::Limit(hit) => format!("reached the limit `{}`", hit.limit.name()),
///         Verdict::SandboxFailed(failure) => format!("not the program's: {}", chain(failure)),
///         other => other.name().to_owned(),
///     }
/// }
///
/// let outcome = Outcome::not_run(Verdict::Cancelled);
/// assert_eq!(report(&outcome), "cancelled");
/// assert!(!outcome.is_success() && !outcome.passed() && !outcome.is_timeout());
/// assert_eq!(outcome.stdout_text() + &outcome.stderr_text(), "");
/// for display in &outcome.displays {
///     println!("{:?}", display.text("text/html"));
/// }
/// for file in &outcome.files {
///     println!("{}: {:?}", file.path, file.kind);
/// }
/// println!("{:?} of CPU time", outcome.usage.cpu);
/// ```
pub mod outcome {
    #[doc(inline)]
    pub use engine::{
        MimeBundle, MimeData, RequestFailure, RequestLog, StackFrame, SyntaxPosition, Tampering,
        Usage,
    };
}

/// The progress of a start, for [`Builder::progress`].
///
/// ```
/// use hatchery::Hatchery;
/// use hatchery::progress::{Progress, ProgressSink};
///
/// #[derive(Debug)]
/// struct Log;
///
/// impl ProgressSink for Log {
///     fn report(&self, progress: Progress) {
///         eprintln!("{progress:?}");
///     }
/// }
///
/// let builder = Hatchery::builder().progress(Log);
/// # drop(builder);
/// ```
pub mod progress {
    #[doc(inline)]
    pub use engine::{Progress, ProgressSink, Silent};
}

/// Recordings of a job's calls of host functions, to replay them.
///
/// ```no_run
/// # async fn example(pool: hatchery::Hatchery) -> Result<(), hatchery::Error> {
/// use hatchery::{Deterministic, Job};
///
/// let job = Job::code("from hatchery import host; host.price(item='chair')")
///     .deterministic(Deterministic::new(7));
/// let first = pool.run(job.clone().record_host_calls()).await?;
/// if let Some(recording) = first.recording {
///     // The same run again, without calling `price`.
///     pool.run(job.replay_host_calls(recording)).await?;
/// }
/// # Ok(())
/// # }
/// ```
pub mod recording {
    #[doc(inline)]
    pub use engine::{Delivery, RecordedAnswer, RecordedCall, Recording};
}

/// The status of a pool, as [`Hatchery::status`] returns it. It serializes to JSON.
///
/// ```no_run
/// # fn example(pool: hatchery::Hatchery) {
/// let status = pool.status();
/// println!("{} jobs wait, {} run", status.queue_depth, status.running);
/// for tenant in &status.tenants {
///     println!("{}: {} running", tenant.tenant, tenant.running);
/// }
/// println!("{} of {} bytes", status.memory.used_bytes(), status.memory.limit_bytes);
/// # }
/// ```
pub mod status {
    #[doc(inline)]
    pub use engine::{NetworkActivity, RequestUnderWay};
    #[doc(inline)]
    pub use pool::{
        IsolationStatus, MissingLayer, SessionPlace, WorkerActivity, WorkerStatus, WorkersIn,
    };
    #[doc(inline)]
    pub use scheduler::{
        ErrorStatus, ForkOrigin, LastEnded, Latencies, MemoryStatus, Percentiles, Phase,
        ProgramErrorStatus, QueueDepth, SchedulerStatus as Status, SessionPlaces, SessionStatus,
        TenantStatus, Totals, TreeStatus,
    };
}

/// Data frames, what arrays and columns consist of, and the form of other values. [`Value`] and
/// [`Array`] are at the root.
pub mod value {
    #[doc(inline)]
    pub use engine::{Column, Element, Frame, Tagged};

    #[doc(hidden)]
    pub use crate::attached::{Attached, attach, data_of};
}

/// Jobs as JSON, for everything that takes them from others: the crate `hatchery-wire`, which
/// clients can use alone.
///
/// ```
/// use hatchery::Job;
/// use hatchery::wire::Intake;
///
/// let sent = br#"{"id": 1, "code": "input()", "stdin": "a line", "timeout": 5}"#;
/// let mut sent = Intake::BATCH.parse(sent)?;
/// assert_eq!(sent.id.take(), Some(1.into()));
/// let job = Job::from_wire(sent, &Intake::BATCH)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub mod wire {
    #[doc(inline)]
    pub use ::wire::{
        Call, Contents, Deterministic, Field, Intake, InvalidJob, Job, Limits, Priority, Problem,
        ProblemKind, VERSION, job_schema, to_line,
    };
}
