//! Exit codes.

use std::io;
use std::process::ExitCode;

use hatchery::{Outcome, PackageError, SandboxFailure, Verdict};

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything went well.
    Success,
    /// The program left with this code.
    Program(u8),
    /// The program raised; in a batch, some job did not succeed.
    Failed,
    /// The usage was wrong; in a batch, some line was malformed.
    Usage,
    /// A limit ended the program.
    Limit,
    /// The sandbox failed, or could not be set up.
    Sandbox,
    /// The user interrupted.
    Interrupted,
    /// Whoever read the output went away.
    BrokenPipe,
    /// A signal with this number asked for the end.
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
            // What the user gave can't be put where it should be, or doesn't go together.
            Verdict::SandboxFailed(
                SandboxFailure::Workspace { .. } | SandboxFailure::NotDeterministic,
            ) => Self::Usage,
            _ => Self::Sandbox,
        }
    }

    /// That of a job that heard Ctrl-C so often, whose files and displays were written, or weren't.
    pub(crate) fn of_followed(outcome: &Outcome, interrupts: u32, are_kept: bool) -> Self {
        match Self::of_outcome(outcome) {
            Self::Success | Self::Program(0) if !are_kept => Self::Failed,
            // The program heard Ctrl-C and ended of it.
            Self::Failed if interrupts > 0 => Self::Interrupted,
            exit => exit,
        }
    }

    /// Mistakes of the user are `UsageError`s; whatever else ends a command is the sandbox's.
    pub(crate) fn of_error(error: &anyhow::Error) -> Self {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        match kind {
            Some(io::ErrorKind::BrokenPipe) => Self::BrokenPipe,
            _ if error.is::<UsageError>() || is_bad_image(error) || is_bad_session(error) => {
                Self::Usage
            }
            _ => Self::Sandbox,
        }
    }
}

/// Whether what the user wants in an image can't go there, whatever the machine is like.
fn is_bad_image(error: &anyhow::Error) -> bool {
    use hatchery::ImageError::{ModuleName, NoSuchImage, Package, Prepare};
    match error.downcast_ref::<hatchery::Error>() {
        Some(hatchery::Error::Package(error) | hatchery::Error::Image(Package(error))) => {
            !matches!(
                error,
                PackageError::Pip { .. } | PackageError::NoPip { .. } | PackageError::Cache(_)
            )
        }
        Some(hatchery::Error::Image(Prepare { .. } | ModuleName { .. } | NoSuchImage { .. })) => {
            true
        }
        _ => false,
    }
}

/// Whether the file that the user named holds no session, or none that can go on here.
fn is_bad_session(error: &anyhow::Error) -> bool {
    use hatchery::SessionError::{NotASession, OtherImage};
    matches!(
        error.downcast_ref::<hatchery::Error>(),
        Some(hatchery::Error::Session(NotASession { .. } | OtherImage { .. }))
    )
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Success => 0,
            Exit::Program(code) => code,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Limit => 124,
            Exit::Sandbox => 125,
            Exit::Interrupted => 130,
            // As a shell reports a process that SIGPIPE ended.
            Exit::BrokenPipe => 141,
            Exit::Signal(number) => 128 + number,
        })
    }
}

/// Something that the user can put right.
#[derive(Debug)]
pub(crate) struct UsageError(pub(crate) String);

impl std::fmt::Display for UsageError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}
