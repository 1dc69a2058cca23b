//! Why a kernel can't start, can't be installed, or ends.

use std::io;
use std::path::PathBuf;

use zeromq::ZmqError;

/// Why a connection file can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The file can't be read.
    #[error("can't read the connection file `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file isn't what front ends write.
    #[error("the connection file isn't one of Jupyter")]
    Form(#[source] serde_json::Error),
    /// Messages are to be signed in another way.
    #[error("can't sign messages with `{scheme}`, only with `hmac-sha256`")]
    Scheme {
        /// What the file asks for.
        scheme: String,
    },
    /// Anybody who reaches the address could run programs.
    #[error("other machines may reach `{address}`, but the connection file has no key")]
    NoKey {
        /// The address.
        address: String,
    },
}

/// Why a kernel can't start, or ended unexpectedly.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// A socket can't listen at its address.
    #[error("can't listen at `{endpoint}`")]
    Bind {
        /// The address, as ZeroMQ writes it.
        endpoint: String,
        /// The error of the socket.
        source: ZmqError,
    },
    /// The system gives no random numbers.
    #[error("the operating system provides no random numbers")]
    Random(#[source] getrandom::Error),
    /// The pool refuses the kernel's session.
    #[error("the pool refused the session of the kernel")]
    Session(#[source] hatchery::Error),
    /// The session's first job failed.
    #[error("the session of the kernel can't start: {problem}")]
    Begin {
        /// What went wrong.
        problem: String,
    },
    /// A socket ended by itself.
    #[error("a socket of the kernel closed")]
    Ended,
}

/// Why a kernel can't be installed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// The name isn't one of a kernel.
    #[error("`{name}` can't be a kernel's name: use letters, digits, `-`, `.` and `_`")]
    Name {
        /// The name.
        name: String,
    },
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
    /// A file can't be written.
    #[error("can't write `{}`", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}
