//! Jobs that run for somebody at the other end of a connection, so that others of the same tenant
//! can interrupt them.

use std::collections::HashMap;
use std::sync::Arc;

use hatchery::event::Events;
use hatchery::{JobId, Outcome, Ticket};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::caller::Caller;

/// How a job is to end early.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ending {
    /// By `KeyboardInterrupt`.
    Interrupt,
    /// By being cancelled.
    Cancel,
}

/// The running jobs. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Jobs {
    running: Arc<Mutex<HashMap<JobId, Entry>>>,
}

#[derive(Debug)]
struct Entry {
    tenant: Option<String>,
    end: mpsc::Sender<Ending>,
}

/// Requests to end one job that may wait to be passed on. Further ones say nothing new.
const MOST_ENDINGS: usize = 8;

impl Jobs {
    /// Waits for a job on behalf of its caller.
    pub(super) fn start(&self, caller: &Caller, mut ticket: Ticket) -> Running {
        let job = ticket.job_id();
        let events = ticket.events();
        let (end, mut endings) = mpsc::channel(MOST_ENDINGS);
        let (report, outcome) = oneshot::channel();
        let tenant = caller.tenant().map(str::to_owned);
        self.running.lock().insert(job, Entry { tenant, end });
        let listed = Listed { jobs: self.clone(), job };
        let task = tokio::spawn(async move {
            let _listed = listed;
            let outcome = loop {
                tokio::select! {
                    outcome = ticket.outcome() => break outcome,
                    Some(ending) = endings.recv() => match ending {
                        Ending::Interrupt => ticket.interrupt(),
                        Ending::Cancel => ticket.cancel(),
                    },
                }
            };
            let _ = report.send(outcome);
        });
        Running { job, events, outcome, task: task.abort_handle() }
    }

    /// Ends a job early; returns whether the caller has such a job. Callers without a tenant have
    /// all of them.
    pub(super) fn end(&self, caller: &Caller, job: JobId, ending: Ending) -> bool {
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
pub(super) struct Running {
    job: JobId,
    events: Events,
    outcome: oneshot::Receiver<Outcome>,
    task: AbortHandle,
}

impl Running {
    /// Returns the job.
    pub(super) fn job(&self) -> JobId {
        self.job
    }

    /// Returns the job's events.
    pub(super) fn events(&mut self) -> &mut Events {
        &mut self.events
    }

    /// Waits for the outcome, once; `None` if the server ends.
    pub(super) async fn outcome(&mut self) -> Option<Outcome> {
        (&mut self.outcome).await.ok()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // That drops the ticket, unless the job has ended.
        self.task.abort();
    }
}
