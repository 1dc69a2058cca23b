//! What can go wrong around a notebook's cells: the pool, and files of the host.

use std::io;
use std::path::PathBuf;

use crate::problem::Problem;

/// A failure that isn't a cell's own.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The pool refused a job, lost the session, or can't save it.
    #[error(transparent)]
    Pool(#[from] hatchery::Error),
    /// The first job of the session failed.
    #[error("the session can't start: {problem}")]
    Begin {
        /// What happened in it.
        problem: Problem,
    },
    /// Parameters can't be used, and what to do.
    #[error("the parameters can't be used: {0}")]
    Parameters(String),
    /// Patterns can't be applied to outputs, and what to do.
    #[error("the outputs can't be compared: {0}")]
    Patterns(String),
    /// A file can't be written.
    #[error("can't write `{path}`")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file can't be removed.
    #[error("can't remove `{path}`")]
    Remove {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The session isn't saved for a later run.
    #[error("the session is not saved in `{path}`")]
    NotKept {
        /// The file that should have it.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<Error>,
    },
}
