//! One sandboxed CPython interpreter. Synchronous: no actors, no async runtime.
//!
//! ```text
//! PythonBuild --compile once--> Engine --start--> Interpreter --run--> Outcome
//!    (PyPI wheel, pinned)      (shared)         (one thread)
//! ```
//!
//! What is trusted: the build, by its pinned hash; the compiled module, by the seal that this
//! user's cache put on it; this crate. What isn't: every program, and with it everything that a
//! guest sends, writes or asks for. A guest can do only what its imports do, and those are on a
//! list that is checked when a module is loaded.

pub use cache::{CACHE_DIR_VARIABLE, CacheDir};
pub use config::{EngineConfig, HostKind, Progress, ProgressSink, Silent};
pub use engine::Engine;
pub use error::{CacheError, EngineError, ModuleError, PythonError, StartError};
pub use files::mount::{BadMount, Mount};
pub use interpreter::Interpreter;
pub use limits::{LimitHit, LimitKind, Limits};
pub use outcome::{
    Afterwards, ChangeKind, ChangedFile, Exception, Outcome, SandboxFailure, StopReason, Usage,
    Verdict,
};
pub use program::{
    BadMountPath, BadPath, BadProgram, Deterministic, InputFile, MAX_PATH_BYTES, MountedFolder,
    Program, check_path,
};
pub use python::{PYTHON_WHEEL_VARIABLE, PythonBuild, WHEEL_REQUIREMENT};
pub use stop::StopHandle;
pub use transcript::{Chunk, Cursor, Next, Stream, Transcript};

mod agent;
mod cache;
mod config;
mod engine;
mod errno;
mod error;
mod files;
mod host;
mod interpreter;
mod interrupt;
mod library;
mod limits;
mod memory;
mod meter;
mod module;
mod outcome;
mod program;
mod python;
mod seal;
mod stop;
mod transcript;
mod tunables;
