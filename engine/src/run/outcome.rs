//! How one run ended.
//!
//! Three kinds of bad news never mix: the program failed, a limit was hit, the sandbox failed.

use std::time::Duration;

use crate::run::functions::Recording;
pub use exception::{Exception, StackFrame, SyntaxPosition};
pub use mime::{MimeBundle, MimeData};

use crate::files::changes::ChangedFile;
use crate::limits::LimitHit;
use crate::run::value::Value;

mod exception;
pub(crate) mod mime;
mod tool;

/// How one run ended, with everything that it said and used.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// How it ended.
    pub verdict: Verdict,
    /// Standard output, as far as `Limits::output_bytes` allowed.
    pub stdout: Vec<u8>,
    /// Standard error, likewise.
    pub stderr: Vec<u8>,
    /// Whether output was dropped because of `Limits::output_bytes`.
    pub output_truncated: bool,
    /// What the program showed by `display` and figures of matplotlib, in order, as far as
    /// `Limits::display_bytes` and `Limits::display_count` allowed.
    pub displays: Vec<MimeBundle>,
    /// Files in the workspace that the run created, modified or deleted, sorted by path. Empty
    /// unless the run was a success, or its job keeps files anyway: what a failed run did to files
    /// is undone.
    pub files: Vec<ChangedFile>,
    /// Limits that stood in the program's way without ending it: memory and files that it was
    /// refused, output and displays that were dropped.
    pub limits_met: Vec<LimitHit>,
    /// Where the program was when an interrupt ended it, if a limit or a cancellation did so.
    pub interrupted_at: Option<Exception>,
    /// Whether the job took its interpreter with it, and its session went back to where it was
    /// before the job: variables, files and all, but with other random numbers to come. Then `files`
    /// is empty.
    pub session_restored: bool,
    /// Its calls of host functions, if they were to be recorded.
    pub recording: Option<Recording>,
    /// What it used.
    pub usage: Usage,
}

impl Outcome {
    /// The exit code of a program that aborted its interpreter: as a shell has it, 128 and the
    /// number of SIGABRT.
    pub const ABORTED: u8 = 128 + 6;
    /// The exit code of a program that made its interpreter crash: 128 and the number of SIGSEGV.
    pub const CRASHED: u8 = 128 + 11;

    /// The outcome of a job that never ran.
    pub fn not_run(verdict: Verdict) -> Self {
        Self {
            verdict,
            stdout: Vec::new(),
            stderr: Vec::new(),
            output_truncated: false,
            displays: Vec::new(),
            files: Vec::new(),
            limits_met: Vec::new(),
            interrupted_at: None,
            session_restored: false,
            recording: None,
            usage: Usage::default(),
        }
    }

    /// Whether the program ran to its end, or left with `sys.exit(0)`, and what it did to its
    /// session stays; [`Self::passed`] tells these apart.
    pub fn is_success(&self) -> bool {
        let ended =
            matches!(self.verdict, Verdict::Completed { .. } | Verdict::Exited { code: 0, .. });
        ended && !self.session_restored
    }

    /// Whether the program ran to its very end, and what it did to its session stays.
    ///
    /// That is less than [`Self::is_success`] takes: a program that leaves with `sys.exit(0)` or
    /// `os._exit(0)` hasn't run what follows there, such as the tests of a grader behind the code
    /// that is graded. So whoever asks whether all of it has run asks this.
    pub fn passed(&self) -> bool {
        matches!(self.verdict, Verdict::Completed { .. }) && !self.session_restored
    }

    /// Standard output as text; bytes that are no UTF-8 become U+FFFD. `stdout` has them as they
    /// were.
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text, likewise.
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// The program ran to its end.
    Completed {
        /// The last expression as JSON, where that holds it: texts, numbers, booleans, `None`,
        /// lists, tuples and dictionaries of these, what derives from them, and scalars of NumPy.
        /// Keys that are numbers, booleans or `None` become texts, as in Python's `json.dumps`,
        /// unless two would become the same. Integers are exact, whatever their size; but those of
        /// more than 64 bits have no value unless `serde_json` keeps them, by its feature
        /// `arbitrary_precision`, nor have those of more digits than Python writes (4,300, unless
        /// the program has raised that). Infinities and NaN, and dates, decimals, sets and other
        /// objects have no value either, but their `repr`. What is larger
        /// than `Limits::result_bytes` is left out, and `Outcome::limits_met` says so.
        value: Option<serde_json::Value>,
        /// The last expression's `repr`; `None` if there is no last expression or it is `None`.
        repr: Option<String>,
        /// Its other forms, if its class has some: HTML, SVG, PNG and so on, without
        /// `text/plain`, which is `repr`. Forms that make it larger than `Limits::result_bytes`
        /// are left out, and `Outcome::limits_met` says so.
        bundle: MimeBundle,
        /// The last expression as an array, a frame or bytes, where it is one; scalars of NumPy are
        /// arrays without dimensions, beside their `value`. What is larger than
        /// `Limits::result_data_bytes` is left out, and `Outcome::limits_met` says so.
        data: Option<Value>,
    },
    /// The program ended with an exception.
    Raised(Box<Exception>),
    /// The program left by `sys.exit` or `os._exit`, or it aborted its interpreter (code 134) or
    /// made it crash (code 139).
    Exited {
        /// The exit code, as a process would have it: 0 to 255.
        code: u8,
        /// What `sys.exit` was given if that was neither a number nor `None`, or that it aborted.
        message: Option<String>,
    },
    /// A limit ended the program.
    Limit(LimitHit),
    /// The caller ended the program.
    Cancelled,
    /// The program damaged what ran it, and that is why there is no other verdict: it replaced parts
    /// of the agent that serves it inside the sandbox, wrote over the interpreter's memory, or forged
    /// a reply. What exactly the host can't know. Nothing outside of the run was reached, and its
    /// interpreter is discarded.
    Tampered(Tampering),
    /// The sandbox failed; the program is not to blame.
    SandboxFailed(SandboxFailure),
}

/// What came of the agent instead of a reply, as the host saw it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the program damaged the interpreter that ran it: {0}")]
pub struct Tampering(pub String);

/// What failed on our side.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxFailure {
    /// The guest faulted in a way that no program should be able to cause.
    #[error("the guest trapped: {0}")]
    Trap(String),
    /// A host function panicked.
    #[error("a host function panicked: {0}")]
    HostPanic(String),
    /// What the caller gave, an input file or a mounted folder, can't be put where it should be.
    #[error("can't put `{path}` into the sandbox: {detail}")]
    Workspace {
        /// The file, or where the folder was to be.
        path: String,
        /// What the filesystem said.
        detail: String,
    },
    /// The job is to be deterministic, and its session began without that.
    #[error(
        "the session began with another clock and other random numbers; \
             ask for determinism in its first job"
    )]
    NotDeterministic,
    /// No interpreter could be started.
    #[error("no interpreter could be started: {0}")]
    Start(String),
    /// The worker that ran the job died.
    #[error("the worker died: {0}")]
    WorkerDied(String),
    /// The session was lost while the job waited for it; the job never ran.
    #[error("the session was lost while the job waited for it: {0}")]
    SessionLost(String),
}

impl SandboxFailure {
    /// Whether another interpreter may do better. What the caller gave, and sessions that are gone,
    /// are the same everywhere.
    pub fn is_of_interpreter(&self) -> bool {
        match self {
            Self::Trap(_) | Self::HostPanic(_) | Self::Start(_) | Self::WorkerDied(_) => true,
            Self::Workspace { .. } | Self::NotDeterministic | Self::SessionLost(_) => false,
        }
    }
}

/// What a run used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// From submission to the first instruction.
    pub queue_wait: Duration,
    /// On the clock, from the first instruction of the program to its end.
    pub wall: Duration,
    /// On the CPU clock of the thread that ran the guest.
    pub cpu: Duration,
    /// Linear memory at the end, in bytes; a guest never gives memory back.
    pub peak_memory_bytes: u64,
    /// Bytes that the program wrote to both streams, dropped ones included.
    pub output_bytes: u64,
    /// Calls from the guest to the host.
    pub host_calls: u64,
    /// By how many bytes its files grew at most, beyond those that it began with. What was deleted
    /// before the end counts.
    pub file_growth_bytes: u64,
}

/// What became of the interpreter in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Afterwards {
    /// It can run again, with the state that the run left.
    Usable,
    /// It is gone, and its state with it.
    Lost,
}
