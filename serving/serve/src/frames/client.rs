//! The state of one client.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hatchery::{HostError, HostFunction, JobId};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use wire::message::{CallError, Function, Parameter, RequestId, ServerMessage};
use wire::{Problem, ProblemKind};

use super::outbox::Outbox;
use crate::caller::Caller;
use crate::service::{EarlyEnd, Service};

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
    pub(super) commands: mpsc::Sender<EarlyEnd>,
}

impl FramesClient {
    pub(super) fn new(service: Service, caller: Caller, outbox: Outbox) -> Self {
        let (calls, running) = (Arc::default(), Arc::default());
        Self { service, caller, outbox, calls, running, tasks: JoinSet::new() }
    }

    /// Gives a command to a running job. One that has ended needs none.
    pub(super) fn command(&self, id: &RequestId, command: EarlyEnd) {
        if let Some(running) = self.running.lock().get(id) {
            let _ = running.commands.try_send(command);
        }
    }

    /// Says that a request has succeeded.
    pub(super) async fn done(&self, id: RequestId, value: Value) {
        reply(&self.outbox, id, Ok(value.into())).await;
    }

    /// Answers a request once that is possible.
    pub(super) fn answer<T: Into<Given> + Send + 'static>(
        &mut self,
        id: RequestId,
        answering: impl Future<Output = Result<T, Problem>> + Send + 'static,
    ) {
        let outbox = self.outbox.clone();
        self.tasks.spawn(async move { reply(&outbox, id, answering.await.map(T::into)).await });
    }
}

/// What a request gives.
pub(super) struct Given {
    pub(super) value: Value,
    pub(super) attachments: Vec<Vec<u8>>,
}

impl From<Value> for Given {
    fn from(value: Value) -> Self {
        Self { value, attachments: Vec::new() }
    }
}

/// Answers a request.
pub(super) async fn reply(outbox: &Outbox, id: RequestId, answer: Result<Given, Problem>) {
    let (message, attachments) = match answer {
        Ok(Given { value, attachments }) => (ServerMessage::Done { id, value }, attachments),
        Err(problem) => (ServerMessage::Refused { id: Some(id), problem }, Vec::new()),
    };
    let attachments: Vec<&[u8]> = attachments.iter().map(Vec::as_slice).collect();
    let _ = outbox.send(&message, &attachments).await;
}

type Answer = Result<Value, HostError>;

/// The calls of one connection that wait for an answer.
#[derive(Debug, Default)]
pub(super) struct Calls {
    last: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Answer>>>,
}

impl Calls {
    /// Answers a call. One that nobody waits for any more is ignored.
    pub(super) fn answer(&self, call: u64, value: Value, error: Option<CallError>) {
        let waiting = self.waiting.lock().remove(&call);
        if let Some(waiting) = waiting {
            let answer = match error {
                None => Ok(value),
                Some(CallError { kind, message }) => Err(HostError::new(kind, message)),
            };
            // The program may have ended meanwhile.
            let _ = waiting.send(answer);
        }
    }
}

/// Returns a function that asks the client.
pub(super) fn lent(
    function: Function,
    id: &RequestId,
    calls: &Arc<Calls>,
    outbox: &Outbox,
) -> Result<HostFunction, Problem> {
    let Function { name, doc, parameters, returns, tagged, timeout } = function;
    let asked = (name.clone(), id.clone(), Arc::clone(calls), outbox.clone());
    let lent = HostFunction::future(name.clone(), move |arguments: Map<String, Value>| {
        let (name, id, calls, outbox) = asked.clone();
        ask(name, id, arguments, calls, outbox)
    });
    let mut lent = lent.doc(doc).returns(returns);
    if tagged {
        lent = lent.tagged();
    }
    if let Some(seconds) = timeout {
        let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero());
        lent = lent.timeout(time.ok_or_else(|| {
            let text = format!("the timeout of `{name}` must be a number of seconds above 0");
            Problem::new(ProblemKind::Usage, text)
        })?);
    }
    let Some(parameters) = parameters else { return Ok(lent) };
    let parameters = parameters.into_iter();
    Ok(parameters.fold(
        lent.no_parameters(),
        |lent, Parameter { name, hint, default }| match default {
            None => lent.parameter(name, hint),
            Some(default) => lent.parameter_with_default(name, hint, default),
        },
    ))
}

/// A call that waits. Dropped without an answer, it tells the client.
struct Waiting {
    call: u64,
    calls: Arc<Calls>,
    outbox: Outbox,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.calls.waiting.lock().remove(&self.call).is_some() {
            self.outbox.send_soon(&ServerMessage::CallDropped { call: self.call });
        }
    }
}

async fn ask(
    name: String,
    id: RequestId,
    arguments: Map<String, Value>,
    calls: Arc<Calls>,
    outbox: Outbox,
) -> Answer {
    let call = calls.last.fetch_add(1, Ordering::Relaxed);
    let (sender, receiver) = oneshot::channel();
    calls.waiting.lock().insert(call, sender);
    let _waiting = Waiting { call, calls, outbox: outbox.clone() };
    let gone = || {
        HostError::new("ConnectionError", "the client that provides this function has disconnected")
    };
    let message = ServerMessage::Call { id, call, name, arguments };
    outbox.send(&message, &[]).await.map_err(|_| gone())?;
    receiver.await.unwrap_or_else(|_| Err(gone()))
}
