//! Jobs that run for HTTP clients, so that other clients of the same tenant can interrupt them.

use std::collections::HashMap;
use std::sync::Arc;

use axum::http::StatusCode;
use hatchery::event::Events;
use hatchery::{JobId, Outcome, Ticket, Verdict};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::failure::Failure;
use super::state;
use crate::caller::Caller;
use crate::service::{EarlyEnd, Share, Shares};

/// The running jobs. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Jobs {
    transit: Shares,
    running: Arc<Mutex<HashMap<JobId, JobEntry>>>,
}

#[derive(Debug)]
struct JobEntry {
    tenant: Option<String>,
    end: mpsc::Sender<EarlyEnd>,
}

/// Requests to end one job that may wait to be passed on. Further ones say nothing new.
const MOST_ENDINGS: usize = 8;

/// How a job ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// The result as JSON.
    pub(super) result: Value,
    /// Whether the sandbox failed.
    pub(super) has_failed: bool,
    /// Whether asking again can't help.
    pub(super) is_final: bool,
    /// Until the result is sent.
    pub(super) held: Share,
}

impl Jobs {
    /// There are none yet. Their results are counted.
    pub(super) fn new(transit: Shares) -> Self {
        Self { transit, running: Arc::default() }
    }

    /// Waits for a job on behalf of its caller. Its result has the contents of files if `has_files`.
    pub(super) fn start(&self, caller: &Caller, mut ticket: Ticket, has_files: bool) -> RunningJob {
        let job = ticket.job_id();
        let events = ticket.events();
        let (end, mut endings) = mpsc::channel(MOST_ENDINGS);
        let tenant = caller.tenant().map(str::to_owned);
        self.running.lock().insert(job, JobEntry { tenant, end });
        let listed = Listed { jobs: self.clone(), job };
        let (transit, caller) = (self.transit.clone(), caller.clone());
        let mut task = JoinSet::new();
        task.spawn(async move {
            let _listed = listed;
            let outcome = loop {
                tokio::select! {
                    outcome = ticket.outcome() => break outcome,
                    Some(ending) = endings.recv() => ending(&ticket),
                }
            };
            // What nobody has room for is gone at once, however long its reader takes.
            let bytes = bytes(&outcome, has_files);
            let held = transit.hold(&caller, bytes).map_err(|_| too_large(bytes))?;
            Ok(Ended::of(&outcome, has_files, held))
        });
        RunningJob { job, events, task }
    }

    /// Ends a job early; returns whether the caller has such a job. Callers without a tenant have
    /// all of them.
    pub(super) fn end(&self, caller: &Caller, job: JobId, ending: EarlyEnd) -> bool {
        let running = self.running.lock();
        let own = running.get(&job).filter(|entry| {
            caller.tenant().is_none_or(|tenant| entry.tenant.as_deref() == Some(tenant))
        });
        own.map(|entry| entry.end.try_send(ending)).is_some()
    }
}

/// Takes the job off the list.
#[derive(Debug)]
struct Listed {
    jobs: Jobs,
    job: JobId,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.jobs.running.lock().remove(&self.job);
    }
}

/// A running job. Dropping it cancels the job.
#[derive(Debug)]
pub(super) struct RunningJob {
    pub(super) job: JobId,
    pub(super) events: Events,
    /// The one task that holds the ticket.
    task: JoinSet<Result<Ended, Failure>>,
}

impl RunningJob {
    /// Waits for the end, once.
    ///
    /// # Errors
    /// The server ends, or has no room for the result.
    pub(super) async fn ended(&mut self) -> Result<Ended, Failure> {
        let ended = self.task.join_next().await.and_then(Result::ok);
        ended.unwrap_or_else(|| Err(state::ended()))
    }
}

impl Ended {
    fn of(outcome: &Outcome, has_files: bool, held: Share) -> Self {
        let result = match has_files {
            true => outcome.to_tool_json_with_files(),
            false => outcome.to_tool_json(),
        };
        let has_failed = matches!(outcome.verdict, Verdict::SandboxFailed(_));
        let is_final = !has_failed && outcome.verdict != Verdict::Cancelled;
        Self { result, has_failed, is_final, held }
    }
}

fn too_large(bytes: usize) -> Failure {
    let message = format!(
        "the program has run, but its result of {bytes} bytes doesn't fit beside your unread \
         answers: read those first, or leave out files"
    );
    Failure::new(StatusCode::TOO_MANY_REQUESTS, "bodies", message)
}

/// Returns about how long the result is as JSON: bytes are there in base64.
fn bytes(outcome: &Outcome, has_files: bool) -> usize {
    let bundles = match &outcome.verdict {
        Verdict::Completed { bundle, .. } => Some(bundle),
        _ => None,
    };
    let bundles = bundles.into_iter().chain(&outcome.displays);
    let shown = bundles.flat_map(|bundle| bundle.iter()).map(|(_, data)| data.as_bytes().len());
    let files = outcome.files.iter().filter(|_| has_files).map(|file| file.contents.len());
    let texts = outcome.stdout.len() + outcome.stderr.len();
    (texts + shown.sum::<usize>() + files.sum::<usize>()) / 3 * 4
}
