//! What is open for one client.

use std::collections::HashMap;
use std::sync::Arc;

use hatchery::JobId;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use wire::message::{RequestId, ServerMessage};

use super::calls::Calls;
use super::outbox::Outbox;
use crate::caller::Caller;
use crate::service::Service;

/// A client and what it waits for. Dropped, it cancels its jobs.
pub(super) struct FramesClient {
    pub(super) service: Service,
    pub(super) caller: Caller,
    pub(super) outbox: Outbox,
    pub(super) calls: Arc<Calls>,
    pub(super) running: Arc<Mutex<HashMap<RequestId, FramesRun>>>,
    /// The requests that are under way.
    pub(super) tasks: JoinSet<()>,
}

/// A job that has not ended.
#[derive(Debug)]
pub(super) struct FramesRun {
    pub(super) job_id: JobId,
    pub(super) commands: mpsc::Sender<RunCommand>,
}

/// What a client can do to its running job.
#[derive(Debug, Clone, Copy)]
pub(super) enum RunCommand {
    Interrupt,
    Cancel,
    Stop,
}

impl FramesClient {
    pub(super) fn new(service: Service, caller: Caller, outbox: Outbox) -> Self {
        let (calls, running) = (Arc::default(), Arc::default());
        Self { service, caller, outbox, calls, running, tasks: JoinSet::new() }
    }

    /// Gives a command to a running job. One that has ended needs none.
    pub(super) fn command(&self, id: &RequestId, command: RunCommand) {
        if let Some(running) = self.running.lock().get(id) {
            let _ = running.commands.try_send(command);
        }
    }

    /// Says that a request has succeeded.
    pub(super) async fn done(&self, id: RequestId, value: Value) {
        let _ = self.outbox.send(&ServerMessage::Done { id, value }, &[]).await;
    }
}
