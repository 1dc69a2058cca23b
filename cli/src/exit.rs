//! Exit codes, and how outcomes and errors map to them.

use std::io;
use std::process::ExitCode;

use hatchery::error::PackageError;
use hatchery::wire::ProblemKind;
use hatchery::{Outcome, SandboxFailure, Verdict};

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything went well.
    Success,
    /// The program exited with this code.
    Program(u8),
    /// The program raised; in a batch, some job did not succeed.
    Failed,
    /// The usage was wrong; in a batch, some line was invalid.
    Usage,
    /// Parts of a batch lack results.
    Missing,
    /// A limit ended the program.
    Limit,
    /// The sandbox failed, or could not be set up.
    Sandbox,
    /// The user interrupted.
    Interrupted,
    /// The reader of the output is gone.
    BrokenPipe,
    /// A signal of this number asked the process to end.
    Signal(u8),
}

impl Exit {
    pub(crate) fn of_outcome(outcome: &Outcome) -> Self {
        match &outcome.verdict {
            Verdict::Completed { .. } => Self::Success,
            Verdict::Exited { code, .. } => Self::Program(*code),
            Verdict::Raised(_) | Verdict::Tampered(_) => Self::Failed,
            Verdict::Limit(_) => Self::Limit,
            Verdict::Cancelled => Self::Interrupted,
            // The user's input can't be placed, or its options contradict each other.
            Verdict::SandboxFailed(
                SandboxFailure::Workspace { .. } | SandboxFailure::NotDeterministic,
            ) => Self::Usage,
            _ => Self::Sandbox,
        }
    }

    /// Returns the exit of a job, given how often Ctrl-C came, and whether its files and displays
    /// were all written.
    pub(crate) fn of_job(outcome: &Outcome, interrupts: u32, are_kept: bool) -> Self {
        match Self::of_outcome(outcome) {
            Self::Success | Self::Program(0) if !are_kept => Self::Failed,
            // The program failed because of Ctrl-C.
            Self::Failed if interrupts > 0 => Self::Interrupted,
            exit => exit,
        }
    }

    /// Returns the exit of a failed command: a `UsageError` is the user's mistake, anything else
    /// the sandbox's failure.
    pub(crate) fn of_error(error: &anyhow::Error) -> Self {
        let of_batch = error.downcast_ref::<batch::Error>();
        let is_usage = of_batch.is_some_and(batch::Error::is_usage);
        if is_usage || error.is::<UsageError>() || error.downcast_ref().is_some_and(is_of_input) {
            return Self::Usage;
        }
        if of_batch.is_some_and(batch::Error::is_broken_pipe) {
            return Self::BrokenPipe;
        }
        match error.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::BrokenPipe) => Self::BrokenPipe,
            _ => Self::Sandbox,
        }
    }
}

/// Returns whether the user's input is at fault, whatever the machine: it can't be given to a
/// program or go into an image, or the session file belongs to another image.
pub(crate) fn is_of_input(error: &hatchery::Error) -> bool {
    use hatchery::error::ImageError::{ModuleName, NoSuchImage, Package, Prepare};
    use hatchery::error::SessionError::{NotASession, OtherBuild, OtherImage};
    match error {
        hatchery::Error::Package(error) | hatchery::Error::Image(Package(error)) => {
            !matches!(error, PackageError::Pip(..) | PackageError::Cache(_))
        }
        hatchery::Error::Image(Prepare { .. } | ModuleName(..) | NoSuchImage { .. }) => true,
        hatchery::Error::Session(NotASession { .. } | OtherBuild { .. } | OtherImage { .. }) => {
            true
        }
        error => error.kind() == ProblemKind::Usage,
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Success => 0,
            Exit::Program(code) => code,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Missing => 3,
            Exit::Limit => 124,
            Exit::Sandbox => 125,
            Exit::Interrupted => 130,
            // As a shell reports a process killed by SIGPIPE.
            Exit::BrokenPipe => 141,
            Exit::Signal(number) => 128 + number,
        })
    }
}

/// A mistake that the user can fix. If an error shows the mistake, this is its context, and the
/// error stays the cause.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub(crate) String);
