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
    #[error("the session can't start: {0}")]
    Begin(Problem),
    /// Parameters can't be used, and what to do.
    #[error("the parameters can't be used: {0}")]
    Parameters(String),
    /// Patterns can't be applied to outputs, and what to do.
    #[error("the outputs can't be compared: {0}")]
    Patterns(String),
    /// A file can't be written.
    #[error("can't write `{0}`")]
    Write(PathBuf, #[source] io::Error),
    /// A file can't be removed.
    #[error("can't remove `{0}`")]
    Remove(PathBuf, #[source] io::Error),
    /// The session isn't saved for a later run, in the file that should have it.
    #[error("the session is not saved in `{0}`")]
    NotKept(PathBuf, #[source] Box<Error>),
}
