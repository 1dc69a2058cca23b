//! The requests of a connection about jobs and sessions. Jobs are submitted in order, and followed
//! until they end.

use std::collections::BTreeMap;

use hatchery::error::chain;
use hatchery::event::{EventKind, Events};
use hatchery::files::ChangeKind;
use hatchery::value::{Attached, attach, data_of};
use hatchery::{Outcome, Ticket, Verdict};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use wire::message::{Event, Explore, RequestId, Run, ServerMessage, SessionAction};
use wire::{Problem, ProblemKind};

use super::client::{FramesClient, FramesRun, Given, lent, reply};
use super::outbox::{Gone, Outbox};
use crate::caller::Caller;
use crate::service::{EarlyEnd, Service};

/// Commands to one job that may wait. Further ones would change nothing.
const MOST_COMMANDS: usize = 8;

/// Submits a job, and follows it in a task.
pub(super) async fn submit(
    client: &mut FramesClient,
    run: Run,
    attached: &mut Attached,
) -> Result<(), Problem> {
    let Run { id, job, session, events, contents, functions, data, files } = run;
    if client.running.lock().contains_key(&id) {
        let text = "a job of this connection has the same id; use another one, or wait for its end";
        return Err(Problem::new(ProblemKind::Usage, text));
    }
    let mut job = client.caller.job(job)?;
    for (name, data) in data {
        job = job.variable(name, attached.value(data)?);
    }
    for (path, attachment) in files {
        job = job.input(path, attached.take(attachment)?).map_err(|error| error.problem())?;
    }
    let (calls, outbox) = (&client.calls, &client.outbox);
    for function in functions {
        job = job.function(lent(function, &id, calls, outbox)?);
    }
    let ticket = client.service.submit(&client.caller, job, session.as_deref()).await?;
    let (commands, mut ordered) = mpsc::channel(MOST_COMMANDS);
    let running = FramesRun { job_id: ticket.job_id(), commands };
    client.running.lock().insert(id.clone(), running);
    let (outbox, all) = (client.outbox.clone(), client.running.clone());
    client.tasks.spawn(async move {
        let ended = until_end(&id, ticket, events, &outbox, &mut ordered).await;
        // Its id can be used again as soon as the client knows of the end.
        all.lock().remove(&id);
        if let Ok(outcome) = ended {
            let _ = send_outcome(id, outcome, contents, &outbox).await;
        }
    });
    Ok(())
}

/// Waits for the end of a job, whose events are sent before.
async fn until_end(
    id: &RequestId,
    mut ticket: Ticket,
    wants_events: bool,
    outbox: &Outbox,
    commands: &mut mpsc::Receiver<EarlyEnd>,
) -> Result<Outcome, Gone> {
    let mut events = wants_events.then(|| ticket.events());
    loop {
        tokio::select! {
            biased;
            Some(command) = commands.recv() => command(&ticket),
            event = next(&mut events), if events.is_some() => match event {
                Some(event) => send_event(id, event, outbox).await?,
                None => events = None,
            },
            outcome = ticket.outcome(), if events.is_none() => return Ok(outcome),
        }
    }
}

async fn next(events: &mut Option<Events>) -> Option<hatchery::event::Event> {
    match events {
        Some(events) => events.next().await,
        None => None,
    }
}

async fn send_event(
    id: &RequestId,
    event: hatchery::event::Event,
    outbox: &Outbox,
) -> Result<(), Gone> {
    let mut attachments: Vec<&[u8]> = Vec::new();
    let kind = match &event.kind {
        EventKind::Started => Event::Started,
        EventKind::Output { stream, bytes } => {
            let attachment = attach(bytes, &mut attachments);
            Event::Output { stream: stream.name().to_owned(), attachment }
        }
        EventKind::Display(bundle) => Event::Display { bundle: json!(bundle) },
        EventKind::HostCall { name } => Event::HostCall { name: name.clone() },
        EventKind::Retried => Event::Retried,
        EventKind::FileChanged { path, kind } => {
            Event::FileChanged { path: path.clone(), change: json!(kind) }
        }
        // The outcome says so.
        _ => return Ok(()),
    };
    let message = ServerMessage::Event { id: id.clone(), sequence: event.sequence, event: kind };
    outbox.send(&message, &attachments).await
}

async fn send_outcome(
    id: RequestId,
    outcome: Outcome,
    has_contents: bool,
    outbox: &Outbox,
) -> Result<(), Gone> {
    let mut attachments: Vec<&[u8]> = Vec::new();
    let data = match &outcome.verdict {
        Verdict::Completed { data: Some(data), .. } => data_of(data, &mut attachments),
        _ => None,
    };
    let mut files = BTreeMap::new();
    if has_contents {
        for file in outcome.files.iter().filter(|file| file.kind != ChangeKind::Deleted) {
            files.insert(file.path.clone(), attach(&file.contents, &mut attachments));
        }
    }
    let result = outcome.to_tool_json();
    outbox.send(&ServerMessage::Outcome { id, result, data, files }, &attachments).await
}

/// Acts on a session, and answers. Opening and closing take effect before the next request is taken;
/// all else may take longer than others should wait.
pub(super) async fn act(
    client: &mut FramesClient,
    id: RequestId,
    session: String,
    action: SessionAction,
    attached: Attached,
) {
    let (service, caller) = (client.service.clone(), client.caller.clone());
    let is_quick =
        matches!(action, SessionAction::Open | SessionAction::OpenOn { .. } | SessionAction::Close);
    let acting = perform(service, caller, session, action, attached);
    match is_quick {
        true => reply(&client.outbox, id, acting.await).await,
        false => client.answer(id, acting),
    }
}

async fn perform(
    service: Service,
    caller: Caller,
    session: String,
    action: SessionAction,
    mut attached: Attached,
) -> Result<Given, Problem> {
    let (caller, session) = (&caller, session.as_str());
    match action {
        SessionAction::Open => service.open(caller, session, None).await?,
        SessionAction::OpenOn { python } => service.open(caller, session, Some(&python)).await?,
        SessionAction::BeginNotebook => begin_notebook(&service, caller, session).await?,
        SessionAction::Fork { to } => service.fork(caller, session, &to).await?,
        SessionAction::ForkMany { count } => {
            return Ok(json!(service.fork_many(caller, session, count).await?).into());
        }
        SessionAction::Checkpoint { checkpoint } => {
            service.checkpoint(caller, session, &checkpoint).await?;
        }
        SessionAction::Restore { checkpoint } => {
            service.restore(caller, session, &checkpoint).await?;
        }
        SessionAction::Reset => service.reset(caller, session).await?,
        SessionAction::Close => service.close(caller, session)?,
        SessionAction::Save => {
            let folder = folder()?;
            let path = folder.path().join("session");
            service.save(caller, session, &path).await?;
            let state = tokio::fs::read(&path).await.map_err(|error| unkept(&error))?;
            return Ok(Given { value: json!(state.len()), attachments: vec![state] });
        }
        SessionAction::Revive => {
            let folder = folder()?;
            let path = folder.path().join("session");
            let state = attached.take(0)?;
            tokio::fs::write(&path, state).await.map_err(|error| unkept(&error))?;
            service.revive(caller, session, &path).await.map_err(|mut problem| {
                // The client knows nothing of the file.
                let file = format!("`{}`", path.display());
                problem.message = problem.message.replace(&file, "the state");
                problem
            })?;
        }
        SessionAction::Workspace => {
            let workspace = service.workspace(caller, session).await?;
            let (mut places, mut attachments) = (BTreeMap::new(), Vec::new());
            for (path, _) in workspace.files() {
                if let Some(contents) = workspace.read(&path) {
                    places.insert(path, attachments.len());
                    attachments.push(contents);
                }
            }
            return Ok(Given { value: json!(places), attachments });
        }
        _ => {
            let text = "this server doesn't know what to do with the session";
            return Err(Problem::new(ProblemKind::Usage, text));
        }
    }
    Ok(Value::Null.into())
}

/// Runs the candidates of an exploration in a task, and tells of each as it ends.
pub(super) fn explore(client: &mut FramesClient, id: RequestId, session: String, explore: Explore) {
    let (service, caller) = (client.service.clone(), client.caller.clone());
    let (outbox, request) = (client.outbox.clone(), id.clone());
    client.answer(id, async move {
        let mut exploration = service.explore(&caller, &session, explore).await?;
        let mut sequence = 0;
        while let Some(ended) = exploration.next().await {
            let (result, problem) = match &ended.result {
                Ok(outcome) => (Some(outcome.to_tool_json()), None),
                Err(problem) => (None, Some(problem.clone())),
            };
            let (candidate, survivor) = (ended.candidate, ended.survivor.clone());
            let event = Event::Explored { candidate, result, problem, survivor };
            let message = ServerMessage::Event { id: request.clone(), sequence, event };
            if outbox.send(&message, &[]).await.is_err() {
                exploration.give_up(&ended);
                break;
            }
            sequence += 1;
        }
        Ok(Value::Null)
    });
}

async fn begin_notebook(service: &Service, caller: &Caller, session: &str) -> Result<(), Problem> {
    let job = service.notebook_job(caller, session).await?;
    Service::begun(&service.submit(caller, job, Some(session)).await?.await)
}

fn folder() -> Result<tempfile::TempDir, Problem> {
    tempfile::tempdir().map_err(|error| unkept(&error))
}

fn unkept(error: &std::io::Error) -> Problem {
    let text = format!("a session's state can't be kept on the server's disk: {}", chain(error));
    Problem::new(ProblemKind::Sandbox, text)
}
