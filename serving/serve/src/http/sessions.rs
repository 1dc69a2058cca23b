//! `/v1/sessions`: sessions of the caller.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use hatchery::files::check_path;
use serde::Deserialize;
use serde_json::{Value, json};

use super::body;
use super::failure::Failure;
use super::routes::Named;
use super::state::{AppState, Client};
use crate::answer;

type Answered = Result<Response, Failure>;
type SharedState = State<Arc<AppState>>;
type FromClient = Extension<Client>;

/// A command with the name of a checkpoint.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Name {
    name: String,
}

/// A command to open a session.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Open {
    name: String,
    /// The name of its Python build.
    python: Option<String>,
}

/// A command with the name of a further session.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct To {
    to: String,
}

/// A command that says nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// Lists the sessions.
pub(super) async fn list(State(state): SharedState, Extension(client): FromClient) -> Answered {
    let names = state.service.sessions(&client.caller);
    let sessions: Vec<Value> = names.into_iter().map(|name| json!({ "name": name })).collect();
    Ok(answer::json(StatusCode::OK, &json!({ "sessions": sessions })))
}

/// Opens a session.
pub(super) async fn open(
    State(state): SharedState,
    Extension(client): FromClient,
    request: Request,
) -> Answered {
    let Open { name, python } = body::command(&state, request).await?;
    state.service.open(&client.caller, &name, python.as_deref()).await?;
    Ok(named(StatusCode::CREATED, &name))
}

/// Closes a session.
pub(super) async fn close(
    State(state): SharedState,
    Extension(client): FromClient,
    Named(name): Named<String>,
) -> Answered {
    state.service.close(&client.caller, &name)?;
    Ok(named(StatusCode::OK, &name))
}

/// Opens a session that continues from another one.
pub(super) async fn fork(
    State(state): SharedState,
    Extension(client): FromClient,
    Named(name): Named<String>,
    request: Request,
) -> Answered {
    let To { to } = body::command(&state, request).await?;
    state.service.fork(&client.caller, &name, &to).await?;
    Ok(named(StatusCode::CREATED, &to))
}

/// Captures a session's state.
pub(super) async fn checkpoint(
    State(state): SharedState,
    Extension(client): FromClient,
    Named(session): Named<String>,
    request: Request,
) -> Answered {
    let Name { name } = body::command(&state, request).await?;
    if name.is_empty() || name.len() > MOST_NAME_BYTES {
        let message = format!("give a `name` of 1 to {MOST_NAME_BYTES} bytes for the checkpoint");
        return Err(Failure::usage(message));
    }
    state.service.checkpoint(&client.caller, &session, &name).await?;
    Ok(named(StatusCode::CREATED, &name))
}

/// The longest name of a checkpoint.
const MOST_NAME_BYTES: usize = 200;

/// Restores a checkpoint.
pub(super) async fn restore(
    State(state): SharedState,
    Extension(client): FromClient,
    Named(session): Named<String>,
    request: Request,
) -> Answered {
    let Name { name } = body::command(&state, request).await?;
    state.service.restore(&client.caller, &session, &name).await?;
    Ok(named(StatusCode::OK, &session))
}

/// Resets a session.
pub(super) async fn reset(
    State(state): SharedState,
    Extension(client): FromClient,
    Named(name): Named<String>,
    request: Request,
) -> Answered {
    let Nothing {} = body::command(&state, request).await?;
    state.service.reset(&client.caller, &name).await?;
    Ok(named(StatusCode::OK, &name))
}

/// Lists the files of a session.
pub(super) async fn files(
    State(state): SharedState,
    Extension(client): FromClient,
    Named(name): Named<String>,
) -> Answered {
    let files = state.service.workspace(&client.caller, &name).await?.files();
    let file = |(path, bytes)| json!({ "path": path, "bytes": bytes });
    let files: Vec<Value> = files.into_iter().map(file).collect();
    Ok(answer::json(StatusCode::OK, &json!({ "files": files })))
}

/// Returns a file of a session as it is.
pub(super) async fn file(
    State(state): SharedState,
    Extension(client): FromClient,
    Named((name, path)): Named<(String, String)>,
) -> Answered {
    check_path(&path).map_err(|error| Failure::usage(error.to_string()))?;
    let workspace = state.service.workspace(&client.caller, &name).await?;
    let contents = workspace.read(&path).ok_or_else(|| {
        Failure::missing("file", format!("there is no file `{path}` in the session"))
    })?;
    let held = state.transit.hold(&client.caller, contents.len())?;
    // Never as what it might be: a page of a program would be one of this server.
    Ok(answer::of(StatusCode::OK, "application/octet-stream", held.until_sent(contents.into())))
}

fn named(status: StatusCode, name: &str) -> Response {
    answer::json(status, &json!({ "name": name }))
}
