//! Outcomes, on their way back from a worker process.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::encoding::{InvalidMessage, optional_text, text};

use crate::files::changes::{ChangedFile, LeftOutFiles};
use crate::files::check_path;
use crate::limits::LimitHit;
use crate::run::functions::Recording;
use crate::run::outcome::mime::forms;
use crate::run::outcome::{
    Exception, MimeBundle, Outcome, RequestLog, SandboxFailure, Tampering, Usage, Verdict,
};
use crate::run::value::Value;

/// An outcome as plain data, without the output and the displays, which the transcript has.
#[derive(Debug, Serialize, Deserialize)]
pub struct OutcomeMessage(#[serde(with = "OutcomeFields")] Outcome);

impl OutcomeMessage {
    /// Takes an outcome.
    pub fn new(outcome: Outcome) -> Self {
        Self(outcome)
    }

    /// Returns the outcome, still without its output, and with the usage that only its worker knows.
    ///
    /// # Errors
    /// A path in it leads out of the workspace, where a caller that keeps the files would write.
    pub fn outcome(self) -> Result<Outcome, InvalidMessage> {
        let mut paths = self.0.files.iter().map(|file| check_path(&file.path));
        paths
            .try_for_each(|is_sound| is_sound)
            .map_err(|error| InvalidMessage::because("a path", &error))?;
        let usage =
            Usage { queue_wait: Duration::ZERO, output_bytes: 0, network_bytes: 0, ..self.0.usage };
        Ok(Outcome { usage, ..self.0 })
    }
}

/// The fields that are sent of [`Outcome`], which is no format of its own; so below.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Outcome")]
struct OutcomeFields {
    #[serde(with = "VerdictFields")]
    verdict: Verdict,
    #[serde(skip)]
    stdout: Vec<u8>,
    #[serde(skip)]
    stderr: Vec<u8>,
    #[serde(skip)]
    output_truncated: bool,
    #[serde(skip)]
    displays: Vec<MimeBundle>,
    files: Vec<ChangedFile>,
    left_out_files: LeftOutFiles,
    limits_met: Vec<LimitHit>,
    #[serde(with = "optional_text")]
    interrupted_at: Option<Exception>,
    #[serde(skip)]
    session_restored: bool,
    /// The embedding process makes the requests.
    #[serde(skip)]
    requests: Vec<RequestLog>,
    #[serde(with = "optional_text")]
    recording: Option<Recording>,
    usage: Usage,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Verdict")]
enum VerdictFields {
    Completed {
        #[serde(with = "optional_text")]
        value: Option<Json>,
        repr: Option<String>,
        #[serde(with = "forms")]
        bundle: MimeBundle,
        data: Option<Value>,
        missing: Option<String>,
    },
    Raised(#[serde(with = "text")] Box<Exception>),
    Exited {
        code: u8,
        message: Option<String>,
    },
    Limit(LimitHit),
    Cancelled,
    Tampered(Tampering),
    SandboxFailed(SandboxFailure),
}
