//! The error of the facade: what prevents a job from having an outcome. How a program ends is an
//! outcome.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::network::NetworkError;
use crate::pythons::InvalidPython;
use crate::record::error::RecordError;
use crate::source::InvalidSource;
use egress::InvalidRule;
use engine::{
    CacheError, Cause, EngineError, ImageError, InvalidFunction, InvalidMount, InvalidMountPath,
    InvalidPath, InvalidProgram, ModuleError, PackageError, PythonError, SessionError,
};
use process::ProcessError;
use scheduler::{Refusal, SchedulerStartError};
use wire::{InvalidJob, Problem, ProblemKind};

/// An operation failed before a program ran.
///
/// The message says what failed and what helps; what caused it is the error's
/// [`source`](std::error::Error::source). [`chain`](crate::error::chain) prints both, as do the
/// usual reporters of errors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The Python build can't be installed or loaded.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// One of several Python builds of a pool can't be loaded, or not with the image that is
    /// wanted.
    #[error("the Python build `{name}` can't be used")]
    Build {
        /// Its name.
        name: String,
        /// Why not.
        source: Box<Error>,
    },
    /// The pool or the session can't have a Python build of this name.
    #[error(transparent)]
    Python(#[from] InvalidPython),
    /// A rule for requests isn't valid.
    #[error(transparent)]
    Rule(#[from] InvalidRule),
    /// Programs can't be allowed to connect, or not where a job asks to.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The image can't be built or found.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// A package can't be added to an image.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// A session can't be suspended, saved or revived.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Worker processes can't be had.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The cache can't be used.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The scheduler can't be started.
    #[error(transparent)]
    Start(#[from] SchedulerStartError),
    /// The job or the session was refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A file can't be given to a job at this path.
    #[error(transparent)]
    Path(#[from] InvalidPath),
    /// A folder of the host can't be mounted.
    #[error(transparent)]
    Mount(#[from] InvalidMount),
    /// A folder can't be mounted at this path.
    #[error(transparent)]
    MountPath(#[from] InvalidMountPath),
    /// A program has an argument, a variable or another input that it can't be given.
    #[error(transparent)]
    Program(#[from] InvalidProgram),
    /// A job that was sent as JSON is invalid.
    #[error(transparent)]
    Job(#[from] InvalidJob),
    /// A host function can't be offered to Python.
    #[error(transparent)]
    Function(#[from] InvalidFunction),
    /// A file of a job can't be read.
    #[error("can't read `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file isn't Python source.
    #[error("can't read `{}` as Python source", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        cause: InvalidSource,
    },
    /// A session can't be recorded, or a recording not be replayed.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The thread that loads, reads or writes died.
    #[error("the thread that loads or stores the data died")]
    Load(#[source] Cause),
}

/// Returns whether what the caller gave as a Python build is none.
fn is_no_build(error: &EngineError) -> bool {
    use ModuleError::{ForbiddenImport, NoEntrance, SharedMemory};
    match error {
        EngineError::Python(PythonError::Unusable(..)) => true,
        EngineError::Module(error) => {
            matches!(error, ForbiddenImport { .. } | NoEntrance | SharedMemory)
        }
        _ => false,
    }
}

impl Error {
    /// Returns whether the same call may succeed later, under less load. This holds for a full
    /// queue, short memory, and a deadline that can't be met.
    ///
    /// ```no_run
    /// # async fn example(pool: hatchery::Hatchery) -> Result<(), hatchery::Error> {
    /// use hatchery::Job;
    ///
    /// match pool.run(Job::code("1 + 1")).await {
    ///     Ok(outcome) => println!("{:?}", outcome.verdict),
    ///     Err(error) if error.is_overloaded() => {
    ///         println!("try again in {:?}: {error}", error.retry_after());
    ///     }
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_overloaded(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.is_overload())
    }

    /// Returns when the same call may succeed, estimated from earlier jobs. `None` without earlier
    /// jobs, or if waiting doesn't help. For [`Refusal::NoWorker`], which isn't caused by load, it
    /// is when a worker starts again.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused(refusal) => refusal.retry_after(),
            _ => None,
        }
    }

    /// Returns the kind of the problem in the result of a job: a refusal by the pool, a mistake of
    /// the caller, or a sandbox that can't be set up.
    pub fn kind(&self) -> ProblemKind {
        match self {
            Self::Refused(_) => ProblemKind::Refused,
            Self::Job(_) | Self::Path(_) | Self::Mount(_) | Self::MountPath(_) => {
                ProblemKind::Usage
            }
            Self::Program(_) | Self::Read { .. } | Self::NotText { .. } | Self::Python(_) => {
                ProblemKind::Usage
            }
            Self::Network(_) | Self::Rule(_) | Self::Function(_) => ProblemKind::Usage,
            Self::Session(
                SessionError::NotASession { .. }
                | SessionError::Damaged(..)
                | SessionError::OtherBuild { .. }
                | SessionError::OtherImage { .. },
            ) => ProblemKind::Usage,
            Self::Record(error) if !matches!(error, RecordError::Stopped(_)) => ProblemKind::Usage,
            Self::Build { source, .. } => source.kind(),
            Self::Engine(error) | Self::Image(ImageError::Engine(error)) if is_no_build(error) => {
                ProblemKind::Usage
            }
            _ => ProblemKind::Sandbox,
        }
    }

    /// Returns the `error` for the result of a job that wasn't run because of this error.
    ///
    /// ```
    /// use hatchery::Job;
    /// use hatchery::wire::ProblemKind;
    ///
    /// let problem = Job::code("1").input("../data.csv", "1,2\n").unwrap_err().problem();
    /// assert_eq!(problem.kind, ProblemKind::Usage);
    /// assert!(problem.message.contains("../data.csv"));
    /// ```
    pub fn problem(&self) -> Problem {
        let problem = Problem::new(self.kind(), engine::chain(self).to_string());
        match self {
            Self::Refused(refusal) => problem.with_reason(refusal.name()),
            _ => problem,
        }
        .with_retry_after(self.retry_after())
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;
    use crate::runtime::Hatchery;

    #[tokio::test]
    async fn an_error_says_its_cause_once_through_all_layers() {
        let started = Hatchery::builder().package("/nowhere/a.whl").start().await;
        let error = started.unwrap_err();
        let cause = error.source().expect("the system's error").downcast_ref::<io::Error>();
        assert_eq!(cause.map(io::Error::kind), Some(io::ErrorKind::NotFound));
        assert_eq!(error.to_string(), "can't read `/nowhere/a.whl`");
        let text = engine::chain(&error).to_string();
        assert!(text.starts_with("can't read `/nowhere/a.whl`: No such file"), "{text}");
        assert_eq!(text.matches("No such file").count(), 1, "{text}");
    }
}
