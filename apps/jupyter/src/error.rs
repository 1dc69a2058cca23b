//! Why a kernel can't start, can't be installed, or ends.

use std::io;
use std::path::PathBuf;

use zeromq::ZmqError;

/// Why a connection file can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The file can't be read.
    #[error("can't read the connection file `{}`", .0.display())]
    Read(PathBuf, #[source] io::Error),
    /// The file isn't what front ends write.
    #[error("the connection file isn't one of Jupyter")]
    Form(#[source] serde_json::Error),
    /// Messages are to be signed by this scheme.
    #[error("can't sign messages with `{0}`, only with `hmac-sha256`")]
    Scheme(String),
    /// Anybody who reaches the address could run programs.
    #[error("other machines may reach `{0}`, but the connection file has no key")]
    NoKey(String),
}

/// Why a kernel can't start, or ended unexpectedly.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// A socket can't listen at its address, which is written as ZeroMQ has it.
    #[error("can't listen at `{0}`")]
    Bind(String, #[source] ZmqError),
    /// The system gives no random numbers.
    #[error("the operating system provides no random numbers")]
    Random(#[source] getrandom::Error),
    /// The pool refuses the kernel's session.
    #[error("the pool refused the session of the kernel")]
    Session(#[source] hatchery::Error),
    /// The session's first job failed, for this reason.
    #[error("the session of the kernel can't start: {0}")]
    Begin(String),
    /// A socket ended by itself.
    #[error("a socket of the kernel closed")]
    Ended,
}

/// Why a kernel can't be installed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// The name isn't one of a kernel.
    #[error("`{0}` can't be a kernel's name: use letters, digits, `-`, `.` and `_`")]
    Name(String),
    /// The folder of the user is unknown.
    #[error(
        "the folder for kernels is unknown: set `HOME` or `JUPYTER_DATA_DIR`, or give `--prefix DIR`"
    )]
    NoHome,
    /// No Python environment is active.
    #[error(
        "`--sys-prefix` needs an environment: activate it, which sets `VIRTUAL_ENV` or `CONDA_PREFIX`, or give `--prefix DIR`"
    )]
    NoEnvironment,
    /// A file or folder can't be written.
    #[error("can't write `{}`", .0.display())]
    Write(PathBuf, #[source] io::Error),
}
