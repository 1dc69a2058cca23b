//! How one run ended.
//!
//! Three kinds of bad news never mix: the program failed, a limit was hit, the sandbox failed.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::run::egress::NetworkEffects;
use crate::run::functions::Recording;
pub use exception::{Exception, StackFrame, SyntaxPosition};
pub use mime::{MimeBundle, MimeData};
pub use request::{RequestFailure, RequestLog};

use crate::cause::Cause;
use crate::files::changes::{ChangedFile, LeftOutFiles};
use crate::limits::LimitHit;
use crate::limits::advice::Interface;
use crate::run::transcript::{Stream, Transcript};
use crate::run::value::Value;

mod exception;
pub(crate) mod mime;
pub(crate) mod request;
pub(crate) mod tool;

/// The end of one run, with its output and usage.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Outcome {
    /// How it ended.
    pub verdict: Verdict,
    /// Standard output, as far as `Limits::output_bytes` allowed.
    pub stdout: Vec<u8>,
    /// Standard error, likewise.
    pub stderr: Vec<u8>,
    /// Whether output was dropped because of `Limits::output_bytes`.
    pub output_truncated: bool,
    /// What the program showed by `display` and matplotlib figures, in order, as far as
    /// `Limits::display_bytes` and `Limits::display_count` allowed.
    pub displays: Vec<MimeBundle>,
    /// Files in the workspace that the run created, modified or deleted, sorted by path. Empty if
    /// the run failed and its job doesn't keep files, since its changes are then undone.
    pub files: Vec<ChangedFile>,
    /// What the run left in its workspace that isn't in `files`.
    pub left_out_files: LeftOutFiles,
    /// Limits that the program hit without ending: refused memory and files, dropped output and
    /// displays.
    pub limits_met: Vec<LimitHit>,
    /// Where the program was when an interrupt ended it, if a limit or a cancellation did so.
    pub interrupted_at: Option<Exception>,
    /// Whether the job lost its interpreter, and its session returned to its state before the job,
    /// variables and files included. Only its random numbers are new. Then `files` is empty.
    pub session_restored: bool,
    /// Its requests over HTTP, in the order in which they began.
    pub requests: Vec<RequestLog>,
    /// Its calls of host functions, if the job records them.
    pub recording: Option<Recording>,
    /// What it used.
    pub usage: Usage,
}

impl Outcome {
    /// The exit code of a program that aborted its interpreter: as in a shell, 128 plus the number
    /// of SIGABRT.
    pub const ABORTED: u8 = 128 + 6;
    /// The exit code of a program that crashed its interpreter: 128 plus the number of SIGSEGV.
    pub const CRASHED: u8 = 128 + 11;

    /// Returns the outcome of a job that never ran.
    pub fn not_run(verdict: Verdict) -> Self {
        Self {
            verdict,
            stdout: Vec::new(),
            stderr: Vec::new(),
            output_truncated: false,
            displays: Vec::new(),
            files: Vec::new(),
            left_out_files: LeftOutFiles::default(),
            limits_met: Vec::new(),
            interrupted_at: None,
            session_restored: false,
            requests: Vec::new(),
            recording: None,
            usage: Usage::default(),
        }
    }

    /// Adds the output of its transcript, and closes that. A failure of the sandbox leaves the
    /// transcript open, because the caller may run the program again.
    #[must_use]
    pub fn with_output(self, transcript: &Transcript) -> Self {
        self.files.iter().for_each(|file| transcript.file_changed(file));
        if !matches!(self.verdict, Verdict::SandboxFailed(_)) {
            transcript.close();
        }
        Self {
            stdout: transcript.text_of(Stream::Stdout),
            stderr: transcript.text_of(Stream::Stderr),
            output_truncated: transcript.is_truncated(),
            displays: transcript.displays(),
            usage: Usage { output_bytes: transcript.written_bytes(), ..self.usage },
            ..self
        }
    }

    /// Adds what the run did on the network.
    pub fn add_network(&mut self, NetworkEffects { requests, recording }: NetworkEffects) {
        let bytes = requests.iter().map(|one| one.bytes_up + one.bytes_down);
        self.usage.network_bytes += bytes.sum::<u64>();
        self.requests = requests;
        if let Some(own) = &mut self.recording {
            own.network = recording;
        }
    }

    /// Puts advice into the words of the interface through which the job came.
    pub fn word_for(&mut self, interface: Interface) {
        match &mut self.verdict {
            Verdict::Limit(hit) => *hit = hit.worded_for(interface),
            Verdict::Raised(exception) => exception.word_for(interface),
            _ => {}
        }
        self.limits_met.iter_mut().for_each(|hit| *hit = hit.worded_for(interface));
    }

    /// Returns whether the program ran to its end or left with `sys.exit(0)`, and its changes to
    /// the session stay. [`Self::passed`] tells the two apart.
    pub fn is_success(&self) -> bool {
        let ended =
            matches!(self.verdict, Verdict::Completed { .. } | Verdict::Exited { code: 0, .. });
        ended && !self.session_restored
    }

    /// Returns whether the program ran to its very end, and its changes to the session stay.
    ///
    /// Stricter than [`Self::is_success`]: a program that leaves with `sys.exit(0)` or
    /// `os._exit(0)` hasn't run the code after that. A grader may have appended tests there.
    pub fn passed(&self) -> bool {
        matches!(self.verdict, Verdict::Completed { .. }) && !self.session_restored
    }

    /// Returns standard output as text; bytes that aren't UTF-8 become U+FFFD. `stdout` has the
    /// original bytes.
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Returns standard error as text, likewise.
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// The program ran to its end.
    Completed {
        /// The last expression as JSON, if it has that form. That are texts, numbers, booleans,
        /// `None`, lists, tuples and dictionaries of these, subclasses of them, and NumPy scalars.
        /// Keys that are numbers, booleans or `None` become texts, as in Python's `json.dumps`,
        /// unless two would become equal. Integers are exact. Those of more than 64 bits have a
        /// value only with the feature `arbitrary_precision` of `serde_json`. Those with more
        /// digits than Python writes (4,300, unless the program has raised that) have none.
        /// Infinities, NaN, dates, decimals, sets and other objects have no value; `missing` says
        /// so. A value larger than `Limits::result_bytes` is left out, and `Outcome::limits_met`
        /// says so.
        value: Option<serde_json::Value>,
        /// The last expression's `repr`; `None` if there is no last expression or its value is
        /// `None`.
        repr: Option<String>,
        /// Its other forms, if its class has some: HTML, SVG, PNG and so on, without `text/plain`,
        /// which is `repr`. Forms beyond `Limits::result_bytes` are left out, and
        /// `Outcome::limits_met` says so.
        bundle: MimeBundle,
        /// The last expression if it is an array, a frame or bytes. Other values that JSON can't
        /// hold have the tagged form. NumPy scalars are arrays without dimensions, beside their
        /// `value`. Data beyond `Limits::result_data_bytes` is left out, and `Outcome::limits_met`
        /// says so.
        data: Option<Value>,
        /// Why there is no `value`, in words, if the last expression isn't `None`.
        missing: Option<String>,
    },
    /// The program ended with an exception.
    Raised(Box<Exception>),
    /// The program left by `sys.exit` or `os._exit`, or it aborted (code 134) or crashed (code 139)
    /// its interpreter.
    Exited {
        /// The exit code, as of a process: 0 to 255.
        code: u8,
        /// The argument of `sys.exit` if it was neither a number nor `None`, or a note of an abort
        /// or crash.
        message: Option<String>,
    },
    /// A limit ended the program.
    Limit(LimitHit),
    /// The caller ended the program.
    Cancelled,
    /// The program damaged the interpreter that ran it. So there is no other verdict. It replaced
    /// parts of the agent inside the sandbox, wrote over the interpreter's memory, or forged a
    /// reply. The host can't know which. It reached nothing outside of the run, and its interpreter
    /// is discarded.
    Tampered(Tampering),
    /// The sandbox failed; the program is not to blame.
    SandboxFailed(SandboxFailure),
}

/// What the host received instead of the agent's reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("the program damaged the interpreter that ran it: {0}")]
#[non_exhaustive]
pub struct Tampering(pub String);

impl Tampering {
    /// Creates one from a description of what was received.
    pub fn new(received: impl Into<String>) -> Self {
        Self(received.into())
    }
}

/// A failure of the sandbox. Its cause is its `source()`, which [`chain`](crate::chain) prints with
/// it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum SandboxFailure {
    /// The guest faulted in a way that no program should be able to cause.
    #[error("the guest trapped")]
    Trap(#[source] Cause),
    /// A host function panicked.
    #[error("a host function panicked: {0}")]
    HostPanic(String),
    /// An input file or a mounted folder can't be put where it belongs.
    #[error("can't put `{path}` into the sandbox")]
    Workspace {
        /// The path of the file or the mount.
        path: String,
        /// The error of the filesystem.
        #[source]
        cause: Cause,
    },
    /// The job asks to be deterministic, and its session didn't begin so.
    #[error(
        "the session started with another clock and other random numbers; request determinism in \
         its first job"
    )]
    NotDeterministic,
    /// No interpreter could be started.
    #[error("no interpreter could be started")]
    Start(#[source] Cause),
    /// The worker that ran the job died.
    #[error("the worker died")]
    WorkerDied(#[source] Cause),
    /// The session was lost while the job waited for it; the job never ran.
    #[error("the session was lost while the job waited for it")]
    SessionLost(#[source] Cause),
}

impl SandboxFailure {
    /// Returns whether another interpreter may succeed. Invalid inputs and lost sessions fail
    /// everywhere.
    pub fn is_of_interpreter(&self) -> bool {
        match self {
            Self::Trap(_) | Self::HostPanic(_) | Self::Start(_) | Self::WorkerDied(_) => true,
            Self::Workspace { .. } | Self::NotDeterministic | Self::SessionLost(_) => false,
        }
    }
}

/// The resources that a run used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Usage {
    /// The time from submission to the first instruction.
    pub queue_wait: Duration,
    /// The time from the first instruction of the program to its end.
    pub wall: Duration,
    /// The CPU time of the thread that ran the guest.
    pub cpu: Duration,
    /// The linear memory at the end, in bytes, without that of hidden modules; a guest never gives
    /// memory back.
    pub peak_memory_bytes: u64,
    /// Bytes that the program wrote to both streams, dropped ones included.
    pub output_bytes: u64,
    /// Calls from the guest to the host.
    pub host_calls: u64,
    /// The largest growth of its files in bytes, beyond those that it began with. Files that were
    /// deleted before the end count.
    pub file_growth_bytes: u64,
    /// Bytes that it sent and received over connections.
    pub network_bytes: u64,
}

/// The state of the interpreter after a run. There is no third state: what isn't usable is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Afterwards {
    /// It can run again, with the state that the run left.
    Usable,
    /// It is gone, and its state with it.
    Lost,
}
