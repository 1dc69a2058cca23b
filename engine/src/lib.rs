//! One sandboxed CPython interpreter. Synchronous: no actors, no async runtime.
//!
//! ```text
//! PythonBuild --compile once--> Engine --prepare once--> Image --start--> Interpreter --run--> Outcome
//!    (PyPI wheel, pinned)      (shared)               (a file)  <--reset--  (one thread)
//!                                                                              ^ |
//!                                                                       resume | v suspend
//!                                                                           SessionState
//! ```
//!
//! Trusted are the build, by its pinned hash, and the compiled module, by the seal of this user's
//! cache. So is this crate. Untrusted is every program, and everything that a guest sends, writes
//! or requests. A guest can only do what its imports do. Those are checked against a list when a
//! module is loaded.

#[cfg(not(target_os = "linux"))]
compile_error!("Hatchery runs on Linux alone: it needs its page map, signals and memory files");

pub use cache::CacheDir;
pub use cache::hash_on_one_thread;
pub use cause::{Cause, chain};
pub use config::{
    CACHE_BOUND_VARIABLE, COPY_ON_WRITE_VARIABLE, EngineConfig, HOST_KERNELS_VARIABLE, HostKind,
    ImageMapping, PinnedModule, Progress, ProgressSink, Silent,
};
pub use counted::counted;
pub use error::{
    CacheError, EngineError, ImageError, ModuleError, PackageError, PipError, PythonError,
    SessionError, StartError,
};
pub use files::changes::Workspace;
pub use files::changes::{ChangeKind, ChangedFile, LeftOutFiles};
pub use files::digest::FolderDigests;
pub use files::mount::{
    FolderAnswer, FolderAsk, FolderIdentity, FolderServer, InvalidMount, Mount, ProxiedFolder,
};
pub use files::{InvalidPath, MAX_PATH_BYTES, check_path};
pub use interpreter::Interpreter;
pub use interpreter::engine::Engine;
pub use interpreter::image::store::{
    add as add_image, find as find_image, keys as image_keys, list as images,
    remove as remove_image,
};
pub use interpreter::image::{Image, ImageInfo};
pub use interpreter::judge::panic_text;
pub use interpreter::session::message::SessionMessage;
pub use interpreter::session::{
    PackedRest, PackedSession, SessionParts, SessionState,
    forks::{BranchedState, Lineage, SharedBytes},
};
pub use interpreter::survey::BuildInfo;
pub use interrupt::reason::{OVERDUE_AFTER, Overdue, StopReason};
pub use interrupt::stop::{StopHandle, StopTarget};
pub use limits::advice::Interface;
pub use limits::{LimitHit, LimitKind, Limits};
pub use memory::faults::own_handlers;
pub use memory::sys::return_free_memory;
pub use owner::OwnerProcess;
pub use places::{
    CACHE_DIR_VARIABLE, PYODIDE, PYTHON_MODULE_HASH_VARIABLE, PYTHON_MODULE_VARIABLE,
    PYTHON_VARIABLE, PYTHON_WHEEL_VARIABLE, WHEEL_REQUIREMENT,
};
pub use python::distribution::PythonBuild;
pub use python::module::key::WASMER_VERSION;
pub use python::packages::Package;
pub use python::packages::info::PythonTarget;
pub use python::packages::info::{PackageInfo, PackageOrigin};
pub use python::prune::{
    CacheEntry, CacheEntryKind, Prune, Pruned, entries as cache_entries, prune as prune_cache,
};
pub use python::spec::{ImageSpec, Setup};
pub use run::egress::{
    NetworkActivity, NetworkAnswer, NetworkEffects, NetworkPeer, NetworkReply, RequestUnderWay,
};
pub use run::functions::calls::Cancellation;
pub use run::functions::served::{Answer, Served, ServedCalls};
pub use run::functions::{
    Callee, Delivery, HostCall, HostError, HostFunctions, InvalidFunction, Parameter,
    RecordedAnswer, RecordedCall, Recording, Reply, Room, RunId, Signature,
};
pub use run::message::{InvalidMessage, OutcomeMessage, ProgramMessage, Proxies};
pub use run::network::{Destination, InvalidDestination, Network};
pub use run::outcome::tool::result_schema as tool_result_schema;
pub use run::outcome::{
    Afterwards, Exception, MimeBundle, MimeData, Outcome, RequestFailure, RequestLog,
    SandboxFailure, StackFrame, SyntaxPosition, Tampering, Usage, Verdict,
};
pub use run::program::{
    Call, Deterministic, InputFile, InvalidMountPath, InvalidProgram, MountedFolder, Program,
    ProgramEntry, Script, workdir,
};
pub use run::transcript::{Addition, Cursor, Event, EventKind, Next, Stream, Transcript};
pub use run::value::{
    Array, Column, Element, Frame, InvalidValue, MOST_DIMENSIONS, Tagged, Value, Variables,
};

mod cache;
mod cause;
mod config;
mod counted;
mod errno;
mod error;
mod files;
mod guest;
mod host;
mod installed;
mod interpreter;
mod interrupt;
mod limits;
mod memory;
mod owner;
mod places;
mod python;
mod run;
