//! One sandboxed CPython interpreter. Synchronous: no actors, no async runtime.
//!
//! ```text
//! PythonBuild --compile once--> Engine --prepare once--> Image --start--> Interpreter --run--> Outcome
//!    (PyPI wheel, pinned)      (shared)               (a file)  <--reset--  (one thread)
//!                                                                              ^ |
//!                                                                       attach | v park
//!                                                                           SessionState
//! ```
//!
//! What is trusted: the build, by its pinned hash; the compiled module, by the seal that this
//! user's cache put on it; this crate. What isn't: every program, and with it everything that a
//! guest sends, writes or asks for. A guest can do only what its imports do, and those are on a
//! list that is checked when a module is loaded.

pub use base64::decode as decode_base64;
pub use cache::{CACHE_DIR_VARIABLE, CacheDir};
pub use config::{
    CACHE_BOUND_VARIABLE, COPY_ON_WRITE_VARIABLE, EngineConfig, HostKind, Progress, ProgressSink,
    Silent,
};
pub use engine::Engine;
pub use error::{
    CacheError, EngineError, ImageError, ModuleError, PackageError, PythonError, SessionError,
    StartError,
};
pub use files::mount::{BadMount, Mount};
pub use files::workspace::Workspace;
pub use functions::{
    BadFunction, Callee, Cancellation, Delivery, HostCall, HostError, HostFunctions, Parameter,
    RecordedAnswer, RecordedCall, Recording, Reply, Room, Signature,
};
pub use image::store::{
    find as find_image, keys as image_keys, list as images, remove as remove_image,
};
pub use image::{Image, ImageInfo, ImageSpec, Setup};
pub use interpreter::Interpreter;
pub use limits::{LimitHit, LimitKind, Limits};
pub use meter::OVERDUE_AFTER;
pub use outcome::{
    Afterwards, ChangeKind, ChangedFile, Exception, MimeBundle, MimeData, Outcome, SandboxFailure,
    StackFrame, StopReason, SyntaxPosition, Tampering, Usage, Verdict,
};
pub use packages::{Package, PackageInfo, PackageOrigin};
pub use program::{
    BadMountPath, BadPath, BadProgram, Call, Deterministic, Entry, InputFile, MAX_PATH_BYTES,
    MountedFolder, Program, Script, check_path, workdir,
};
pub use prune::{
    CacheEntry, CacheEntryKind, Prune, Pruned, entries as cache_entries, prune as prune_cache,
};
pub use python::{PYTHON_WHEEL_VARIABLE, PythonBuild, WHEEL_REQUIREMENT};
pub use session::{PackedRest, PackedSession, SessionState};
pub use stop::{Overdue, StopHandle};
pub use transcript::{Chunk, Cursor, Event, EventKind, Next, Stream, Transcript};
pub use value::{Array, BadValue, Column, Element, Frame, MOST_DIMENSIONS, Value, Variables};

mod agent;
mod base64;
mod cache;
mod config;
mod engine;
mod errno;
mod error;
#[cfg(target_os = "linux")]
mod faults;
#[cfg(not(target_os = "linux"))]
#[path = "faults_disabled.rs"]
mod faults;
mod files;
mod functions;
mod host;
mod image;
mod interpreter;
mod interrupt;
mod library;
mod limits;
mod memory;
mod meter;
mod module;
mod names;
mod outcome;
mod packages;
mod program;
mod prune;
mod python;
mod replace;
mod seal;
mod session;
mod stack;
mod stop;
mod transcript;
mod tunables;
mod value;
