//! What can prevent a measurement.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use tokio::task::JoinError;

/// A machine can't be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// A pool can't be started, or refuses a job.
    #[error(transparent)]
    Pool(#[from] hatchery::Error),
    /// A job failed. A figure of failed jobs would mean nothing.
    #[error("a job of the benchmark ended as `{ending}`: {said}")]
    Job {
        /// The name of its verdict.
        ending: &'static str,
        /// What it wrote to standard error.
        said: String,
    },
    /// A program that times itself is wrong, or its clock stands still.
    #[error("a program of the benchmark printed {printed:?}, not {expected} and its time")]
    Printed {
        /// What it printed.
        printed: String,
        /// The result that it should have.
        expected: &'static str,
    },
    /// A child process can't be started.
    #[error("can't run `{}`", program.display())]
    Start {
        /// Its program.
        program: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A child process has failed.
    #[error("`{}` failed ({status}): {said}", program.display())]
    Child {
        /// Its program.
        program: PathBuf,
        /// How it ended.
        status: ExitStatus,
        /// What it wrote to standard error.
        said: String,
    },
    /// There is no folder for saved sessions.
    #[error("can't create a folder for saved sessions")]
    Folder(#[source] io::Error),
    /// A thread of the measurement has panicked.
    #[error("a thread of the benchmark died")]
    Thread(#[from] JoinError),
}
