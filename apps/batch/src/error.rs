//! What can prevent a batch, or end it. The end of a line is never an error: it is in the line's
//! result.

use std::io;
use std::path::PathBuf;

use serde_json::Value;
use tokio::task::JoinError;

/// A batch can't begin, or can't go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file of the jobs can't be opened.
    #[error("can't read `{}`", .0.display())]
    Open(PathBuf, #[source] io::Error),
    /// Reading the jobs has failed. The lines that were read have their results.
    #[error("can't read jobs")]
    Read(#[source] io::Error),
    /// The file for the results can't be created or locked.
    #[error("can't write `{}`", .0.display())]
    Create(PathBuf, #[source] io::Error),
    /// Another batch writes to the file for the results.
    #[error(
        "another batch writes to `{}`: wait until it ends, or write to another file (`--out`)",
        .0.display()
    )]
    InUse(PathBuf),
    /// What an earlier run left can't be resumed from.
    #[error("can't resume from `{}`", .0.display())]
    Resume(PathBuf, #[source] InvalidResults),
    /// Results that aren't final can't be removed from the file. All results are still there.
    #[error("can't remove results from the file")]
    Remove(#[source] io::Error),
    /// The results of a shard can't be merged.
    #[error("can't merge `{}`", .0.display())]
    Part(PathBuf, #[source] InvalidResults),
    /// Two parts that are to be merged are one.
    #[error("`{}` and `{}` are the same file", .0.display(), .1.display())]
    SamePart(PathBuf, PathBuf),
    /// Writing results has failed.
    #[error("can't write results")]
    Write(#[source] io::Error),
    /// A line's program can't be read, since no file descriptor is left for it.
    #[error(
        "line {0}: {1}; no running job could free descriptors: raise the limit on open files \
         (`ulimit -n`), or use fewer workers (`--workers`)"
    )]
    NoDescriptor(usize, String),
    /// What runs the jobs has failed, as by losing its connection.
    #[error("can't run the line with id {0}")]
    Run(Value, #[source] Box<dyn std::error::Error + Send + Sync>),
    /// A task or a thread of the batch has panicked.
    #[error("a task of the batch failed")]
    Task(#[source] JoinError),
}

/// Why a file isn't what it should be: the results of a batch.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidResults {
    /// It can't be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is a folder, a pipe or a device.
    #[error("it is not a regular file")]
    NoFile,
    /// A line is something else.
    #[error("line {0} is not a result of a batch")]
    NoResult(usize, #[source] serde_json::Error),
    /// A line is the result of a job, but doesn't say of which.
    #[error("line {0} is a result without a `digest`")]
    NoDigest(usize),
    /// A line is a result of another shard than the batch that is to be resumed.
    #[error("line {line} is a result of {there}, and this is {here}: give each shard its own file")]
    OtherShard {
        /// The line's number, from 1.
        line: usize,
        /// The shard that the line names.
        there: String,
        /// The shard of the batch.
        here: String,
    },
    /// A line is the result of a batch without shards.
    #[error("line {0} has no `shard`: it isn't the result of a batch with --shard")]
    NoShard(usize),
    /// A line is of another number of shards than other results.
    #[error(
        "line {line} is a result of shard {shard}{other}: all parts must have the same number of \
         shards"
    )]
    OtherCount {
        /// The line's number, from 1.
        line: usize,
        /// The shard that the line names.
        shard: crate::Shard,
        /// What other results are of, and where they are, if they are in another part.
        other: String,
    },
}

impl Error {
    /// Returns whether the caller can mend it: a file that was named can't be used.
    ///
    /// ```
    /// use std::path::Path;
    ///
    /// let error = batch::Output::resume(Path::new("/"), None).unwrap_err();
    /// assert!(error.is_usage());
    /// ```
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Open(..) | Self::Create(..) | Self::InUse(_) => true,
            Self::Resume(..) | Self::Part(..) | Self::SamePart(..) => true,
            Self::Read(_) | Self::Remove(_) | Self::Write(_) => false,
            Self::NoDescriptor(..) | Self::Run(..) | Self::Task(_) => false,
        }
    }

    /// Returns whether the reader of the results is gone.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Write(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
