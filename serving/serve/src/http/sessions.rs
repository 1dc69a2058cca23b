//! `/v1/sessions`: sessions of the caller.

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use hatchery::files::check_path;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use wire::message::Explore;

use super::body::{self, Received};
use super::failure::Failure;
use super::state::{self, Client};
use crate::answer;
use crate::http::query::Named;

type Answered = Result<Response, Failure>;

/// A command with the name of a checkpoint.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Name {
    name: String,
}

/// A command to open a session.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Open {
    name: String,
    /// The name of the Python build on which it runs.
    python: Option<String>,
}

/// A command with the name of another session.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct To {
    to: String,
}

/// A command with a number of sessions.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Count {
    /// 1 or more.
    count: usize,
}

/// A command that says nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// Lists the sessions.
pub(super) async fn list(client: Client) -> Answered {
    let names = client.state.service.sessions(&client.caller);
    let sessions: Vec<Value> = names.into_iter().map(|name| json!({ "name": name })).collect();
    Ok(answer::json(StatusCode::OK, &json!({ "sessions": sessions })))
}

/// Opens a session.
pub(super) async fn open(client: Client, request: Request) -> Answered {
    let Open { name, python } = body::command(&client.state, request).await?;
    client.state.service.open(&client.caller, &name, python.as_deref()).await?;
    Ok(named(StatusCode::CREATED, &name))
}

/// Closes a session.
pub(super) async fn close(client: Client, Named(name): Named<String>) -> Answered {
    client.state.service.close(&client.caller, &name)?;
    Ok(named(StatusCode::OK, &name))
}

/// Opens a session that continues from another one.
pub(super) async fn fork(client: Client, Named(name): Named<String>, request: Request) -> Answered {
    let To { to } = body::command(&client.state, request).await?;
    client.state.service.fork(&client.caller, &name, &to).await?;
    Ok(named(StatusCode::CREATED, &to))
}

/// Opens many sessions that continue from one.
pub(super) async fn fork_many(
    client: Client,
    Named(name): Named<String>,
    request: Request,
) -> Answered {
    let Count { count } = body::command(&client.state, request).await?;
    let names = client.state.service.fork_many(&client.caller, &name, count).await?;
    let forks: Vec<Value> = names.into_iter().map(|name| json!({ "name": name })).collect();
    Ok(answer::json(StatusCode::CREATED, &json!({ "sessions": forks })))
}

/// Lines of an exploration that wait for the client to read.
const MOST_WAITING: usize = 16;

/// Runs programs on forks of a session, and answers with a line for each as it ends.
pub(super) async fn explore(
    client: Client,
    Named(name): Named<String>,
    request: Request,
) -> Answered {
    let Received { bytes, held } = body::read(&client.state, request).await?;
    let reading = tokio::task::spawn_blocking(move || serde_json::from_slice(&bytes));
    let explore: Explore = reading
        .await
        .map_err(|_| state::ended())?
        .map_err(|error| Failure::usage(format!("the body isn't valid: {error}")))?;
    let mut exploration = client.state.service.explore(&client.caller, &name, explore).await?;
    let (lines, receiver) = mpsc::channel(MOST_WAITING);
    tokio::spawn(async move {
        // The candidates that wait are the request's.
        let _held = held;
        loop {
            let ended = tokio::select! {
                () = lines.closed() => return,
                ended = exploration.next() => ended,
            };
            let Some(ended) = ended else { return };
            let mut line = json!({ "candidate": ended.candidate, "survivor": ended.survivor });
            match &ended.result {
                Ok(outcome) => line["result"] = outcome.to_tool_json(),
                Err(problem) => line["error"] = json!(problem),
            }
            let mut line = serde_json::to_vec(&line).unwrap_or_default();
            line.push(b'\n');
            let hold = || client.state.transit.hold(&client.caller, line.len());
            let held = match hold() {
                // There may be room once the client has read the lines before.
                Err(_) => lines.reserve_many(MOST_WAITING).await.ok().map(|_| hold()),
                held => Some(held),
            };
            let is_sent = match held {
                Some(Ok(held)) => lines.send(held.until_sent(line.into())).await.is_ok(),
                Some(Err(problem)) => {
                    let why = json!({ "candidate": ended.candidate, "error": problem });
                    let _ = lines.send(format!("{why}\n").into()).await;
                    false
                }
                None => false,
            };
            if !is_sent {
                exploration.give_up(&ended);
                return;
            }
        }
    });
    Ok(answer::lines(receiver))
}

/// Captures a session's state.
pub(super) async fn checkpoint(
    client: Client,
    Named(session): Named<String>,
    request: Request,
) -> Answered {
    let Name { name } = body::command(&client.state, request).await?;
    if name.is_empty() || name.len() > MOST_NAME_BYTES {
        let message = format!("give a `name` of 1 to {MOST_NAME_BYTES} bytes for the checkpoint");
        return Err(Failure::usage(message));
    }
    client.state.service.checkpoint(&client.caller, &session, &name).await?;
    Ok(named(StatusCode::CREATED, &name))
}

/// The longest name of a checkpoint.
const MOST_NAME_BYTES: usize = 200;

/// Restores a checkpoint.
pub(super) async fn restore(
    client: Client,
    Named(session): Named<String>,
    request: Request,
) -> Answered {
    let Name { name } = body::command(&client.state, request).await?;
    client.state.service.restore(&client.caller, &session, &name).await?;
    Ok(named(StatusCode::OK, &session))
}

/// Resets a session.
pub(super) async fn reset(
    client: Client,
    Named(name): Named<String>,
    request: Request,
) -> Answered {
    let Nothing {} = body::command(&client.state, request).await?;
    client.state.service.reset(&client.caller, &name).await?;
    Ok(named(StatusCode::OK, &name))
}

/// Lists the files of a session.
pub(super) async fn files(client: Client, Named(name): Named<String>) -> Answered {
    let files = client.state.service.workspace(&client.caller, &name).await?.files();
    let file = |(path, bytes)| json!({ "path": path, "bytes": bytes });
    let files: Vec<Value> = files.into_iter().map(file).collect();
    Ok(answer::json(StatusCode::OK, &json!({ "files": files })))
}

/// Returns a file of a session as it is.
pub(super) async fn file(client: Client, Named((name, path)): Named<(String, String)>) -> Answered {
    check_path(&path).map_err(|error| Failure::usage(error.to_string()))?;
    let workspace = client.state.service.workspace(&client.caller, &name).await?;
    let contents = workspace.read(&path).ok_or_else(|| {
        Failure::missing("file", format!("there is no file `{path}` in the session"))
    })?;
    let held = client.state.transit.hold(&client.caller, contents.len())?;
    // Never as what it might be: a page of a program would be one of this server.
    Ok(answer::of(StatusCode::OK, "application/octet-stream", held.until_sent(contents.into())))
}

fn named(status: StatusCode, name: &str) -> Response {
    answer::json(status, &json!({ "name": name }))
}
