//! Outcomes, on their way back from a worker process.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::InvalidSent;
use super::text::Text;
use super::value::SentValue;
use crate::cause::{Cause, causes};
use crate::files::changes::{ChangeKind, ChangedFile, LeftOutFiles};
use crate::files::path::check_path;
use crate::limits::LimitHit;
use crate::run::functions::Recording;
use crate::run::outcome::{
    Exception, MimeBundle, MimeData, Outcome, SandboxFailure, Tampering, Usage, Verdict,
};
use crate::run::value::Value;

/// An outcome as plain data, without the output and the displays, which the transcript has.
#[derive(Debug, Serialize, Deserialize)]
pub struct SentOutcome {
    verdict: SentVerdict,
    files: Vec<SentChange>,
    left_out_files: LeftOutFiles,
    limits_met: Vec<LimitHit>,
    interrupted_at: Option<Text<Exception>>,
    recording: Option<Text<Recording>>,
    usage: SentUsage,
}

#[derive(Debug, Serialize, Deserialize)]
enum SentVerdict {
    Completed {
        value: Option<Text<serde_json::Value>>,
        repr: Option<String>,
        bundle: Vec<(String, SentData)>,
        data: Option<SentValue>,
        missing: Option<String>,
    },
    Raised(Text<Exception>),
    Exited {
        code: u8,
        message: Option<String>,
    },
    Limit(LimitHit),
    Cancelled,
    Tampered(String),
    SandboxFailed(SentFailure),
}

#[derive(Debug, Serialize, Deserialize)]
enum SentFailure {
    Trap(Vec<String>),
    HostPanic(String),
    Workspace { path: String, cause: Vec<String> },
    NotDeterministic,
    Start(Vec<String>),
    WorkerDied(Vec<String>),
    SessionLost(Vec<String>),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum SentData {
    Text(String),
    Bytes(#[serde(with = "serde_bytes")] Vec<u8>),
}

#[derive(Debug, Serialize, Deserialize)]
struct SentChange {
    path: String,
    kind: SentKind,
    #[serde(with = "serde_bytes")]
    contents: Vec<u8>,
}

#[derive(Debug, Serialize, Deserialize)]
enum SentKind {
    Created,
    Modified,
    Deleted,
}

#[derive(Debug, Serialize, Deserialize)]
struct SentUsage {
    wall: Duration,
    cpu: Duration,
    peak_memory_bytes: u64,
    host_calls: u64,
    file_growth_bytes: u64,
}

impl SentOutcome {
    /// Copies an outcome.
    pub fn new(outcome: &Outcome) -> Self {
        let Usage { wall, cpu, peak_memory_bytes, host_calls, file_growth_bytes, .. } =
            outcome.usage;
        Self {
            verdict: (&outcome.verdict).into(),
            files: outcome.files.iter().map(SentChange::from).collect(),
            left_out_files: outcome.left_out_files,
            limits_met: outcome.limits_met.clone(),
            interrupted_at: outcome.interrupted_at.clone().map(Text),
            recording: outcome.recording.clone().map(Text),
            usage: SentUsage { wall, cpu, peak_memory_bytes, host_calls, file_growth_bytes },
        }
    }

    /// Returns the outcome, still without its output.
    ///
    /// # Errors
    /// A value, a path or a MIME type in it is invalid.
    pub fn outcome(self) -> Result<Outcome, InvalidSent> {
        let files: Result<Vec<_>, _> = self.files.into_iter().map(ChangedFile::try_from).collect();
        let SentUsage { wall, cpu, peak_memory_bytes, host_calls, file_growth_bytes } = self.usage;
        let usage = Usage {
            wall,
            cpu,
            peak_memory_bytes,
            host_calls,
            file_growth_bytes,
            ..Usage::default()
        };
        Ok(Outcome {
            files: files?,
            left_out_files: self.left_out_files,
            limits_met: self.limits_met,
            interrupted_at: self.interrupted_at.map(|Text(exception)| exception),
            recording: self.recording.map(|Text(recording)| recording),
            usage,
            ..Outcome::not_run(self.verdict.try_into()?)
        })
    }
}

impl From<&Verdict> for SentVerdict {
    fn from(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Completed { value, repr, bundle, data, missing } => Self::Completed {
                value: value.clone().map(Text),
                repr: repr.clone(),
                bundle: sent_bundle(bundle),
                data: data.as_ref().map(SentValue::from),
                missing: missing.clone(),
            },
            Verdict::Raised(exception) => Self::Raised(Text((**exception).clone())),
            Verdict::Exited { code, message } => {
                Self::Exited { code: *code, message: message.clone() }
            }
            Verdict::Limit(hit) => Self::Limit(*hit),
            Verdict::Cancelled => Self::Cancelled,
            Verdict::Tampered(Tampering(received)) => Self::Tampered(received.clone()),
            Verdict::SandboxFailed(failure) => Self::SandboxFailed(failure.into()),
        }
    }
}

impl TryFrom<SentVerdict> for Verdict {
    type Error = InvalidSent;

    fn try_from(sent: SentVerdict) -> Result<Self, InvalidSent> {
        Ok(match sent {
            SentVerdict::Completed { value, repr, bundle, data, missing } => Self::Completed {
                value: value.map(|Text(json)| json),
                repr,
                bundle: received_bundle(bundle)?,
                data: data.map(Value::try_from).transpose()?,
                missing,
            },
            SentVerdict::Raised(Text(exception)) => Self::Raised(Box::new(exception)),
            SentVerdict::Exited { code, message } => Self::Exited { code, message },
            SentVerdict::Limit(hit) => Self::Limit(hit),
            SentVerdict::Cancelled => Self::Cancelled,
            SentVerdict::Tampered(received) => Self::Tampered(Tampering(received)),
            SentVerdict::SandboxFailed(failure) => Self::SandboxFailed(failure.into()),
        })
    }
}

/// Copies a bundle's forms.
pub(super) fn sent_bundle(bundle: &MimeBundle) -> Vec<(String, SentData)> {
    let data = |data: &MimeData| match data {
        MimeData::Text(text) => SentData::Text(text.clone()),
        MimeData::Bytes(bytes) => SentData::Bytes(bytes.clone()),
    };
    bundle.iter().map(|(name, form)| (name.to_owned(), data(form))).collect()
}

pub(super) fn received_bundle(forms: Vec<(String, SentData)>) -> Result<MimeBundle, InvalidSent> {
    let data = |data| match data {
        SentData::Text(text) => MimeData::Text(text),
        SentData::Bytes(bytes) => MimeData::Bytes(bytes),
    };
    let forms = forms.into_iter().map(|(name, form)| (name, data(form))).collect();
    MimeBundle::new(forms).ok_or_else(|| InvalidSent::new("forms with invalid MIME types"))
}

impl From<&ChangedFile> for SentChange {
    fn from(file: &ChangedFile) -> Self {
        let kind = match file.kind {
            ChangeKind::Created => SentKind::Created,
            ChangeKind::Modified => SentKind::Modified,
            ChangeKind::Deleted => SentKind::Deleted,
        };
        Self { path: file.path.clone(), kind, contents: file.contents.clone() }
    }
}

impl TryFrom<SentChange> for ChangedFile {
    type Error = InvalidSent;

    /// A path that leads out of the workspace would be written there by whoever keeps the files.
    fn try_from(sent: SentChange) -> Result<Self, InvalidSent> {
        check_path(&sent.path).map_err(|error| InvalidSent::because("a path", &error))?;
        let kind = match sent.kind {
            SentKind::Created => ChangeKind::Created,
            SentKind::Modified => ChangeKind::Modified,
            SentKind::Deleted => ChangeKind::Deleted,
        };
        Ok(Self { path: sent.path, kind, contents: sent.contents })
    }
}

impl From<&SandboxFailure> for SentFailure {
    fn from(failure: &SandboxFailure) -> Self {
        match failure {
            SandboxFailure::Trap(cause) => Self::Trap(steps(cause)),
            SandboxFailure::HostPanic(text) => Self::HostPanic(text.clone()),
            SandboxFailure::Workspace { path, cause } => {
                Self::Workspace { path: path.clone(), cause: steps(cause) }
            }
            SandboxFailure::NotDeterministic => Self::NotDeterministic,
            SandboxFailure::Start(cause) => Self::Start(steps(cause)),
            SandboxFailure::WorkerDied(cause) => Self::WorkerDied(steps(cause)),
            SandboxFailure::SessionLost(cause) => Self::SessionLost(steps(cause)),
        }
    }
}

impl From<SentFailure> for SandboxFailure {
    fn from(sent: SentFailure) -> Self {
        match sent {
            SentFailure::Trap(steps) => Self::Trap(cause(steps)),
            SentFailure::HostPanic(text) => Self::HostPanic(text),
            SentFailure::Workspace { path, cause: steps } => {
                Self::Workspace { path, cause: cause(steps) }
            }
            SentFailure::NotDeterministic => Self::NotDeterministic,
            SentFailure::Start(steps) => Self::Start(cause(steps)),
            SentFailure::WorkerDied(steps) => Self::WorkerDied(cause(steps)),
            SentFailure::SessionLost(steps) => Self::SessionLost(cause(steps)),
        }
    }
}

fn steps(cause: &Cause) -> Vec<String> {
    std::iter::once(cause.to_string()).chain(causes(cause).map(ToString::to_string)).collect()
}

/// Builds an error that reads as the one whose texts these are.
fn cause(steps: Vec<String>) -> Cause {
    let mut steps = steps.into_iter().rev();
    let first = Cause::new(steps.next().unwrap_or_else(|| "it didn't say why".to_owned()));
    steps.fold(first, |cause, step| Cause::because(step, cause))
}
