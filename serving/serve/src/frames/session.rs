//! The requests of a connection about sessions, other than running jobs in them.

use std::collections::BTreeMap;

use hatchery::error::chain;
use serde_json::{Value, json};
use wire::message::{RequestId, ServerMessage, SessionAction};
use wire::{Problem, ProblemKind};

use super::client::FramesClient;
use super::data::Attached;
use crate::caller::Caller;
use crate::service::Service;

/// What an action gives: a value, and attachments.
type Given = (Value, Vec<Vec<u8>>);

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
    let outbox = client.outbox.clone();
    if is_quick {
        let done = acting.await;
        let _ = outbox.send(&answer(id, &done), &[]).await;
        return;
    }
    client.tasks.spawn(async move {
        let done = acting.await;
        let attachments = done.as_ref().map(|(_, attachments)| attachments.as_slice());
        let attachments: Vec<&[u8]> =
            attachments.unwrap_or_default().iter().map(Vec::as_slice).collect();
        let _ = outbox.send(&answer(id, &done), &attachments).await;
    });
}

fn answer(id: RequestId, done: &Result<Given, Problem>) -> ServerMessage {
    match done {
        Ok((value, _)) => ServerMessage::Done { id, value: value.clone() },
        Err(problem) => ServerMessage::Refused { id: Some(id), problem: problem.clone() },
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
    let nothing = (Value::Null, Vec::new());
    match action {
        SessionAction::Open => service.open(caller, session, None).await?,
        SessionAction::OpenOn { python } => service.open(caller, session, Some(&python)).await?,
        SessionAction::BeginNotebook => begin_notebook(&service, caller, session).await?,
        SessionAction::Fork { to } => service.fork(caller, session, &to).await?,
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
            return Ok((json!(state.len()), vec![state]));
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
            return Ok((json!(places), attachments));
        }
        _ => {
            let text = "this server doesn't know what to do with the session";
            return Err(Problem::new(ProblemKind::Usage, text));
        }
    }
    Ok(nothing)
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
