//! The code interpreter of E2B: cells that run in contexts, and stream what they do.
//!
//! A context is a session. Cells without a context run in the default one of their sandbox, whose
//! files are those of the sandbox. Requests that name no sandbox have one for each tenant. The SDK
//! speaks to one port if `E2B_API_URL` and `E2B_SANDBOX_URL` name it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Extension, Router};
use hatchery::wire::{self, Problem, ProblemKind};
use hatchery::{Interface, Job};
use serde::Deserialize;
use serde_json::{Value, json};

use super::request::{ReceivedRequest, Unreadable, body_limit};
use super::run::submit;
use crate::answer::{json as json_answer, with_retry_after};
use crate::caller::Caller;
use crate::service::Service;
use contexts::{Context, Contexts, Interpreter, is_gone};
use lines::{RunningCell, follow, restarted};
use sandboxes::Visit;

mod contexts;
mod files;
mod lines;
mod sandboxes;

/// How long a cell tries to get into the pool's queue before it is refused.
const PATIENCE: Duration = Duration::from_secs(10);

/// The names of the one language.
const NAMES: [&str; 3] = ["python", "python3", "py"];

/// Serves a pool as E2B's code interpreter.
pub fn router(service: Service) -> Router {
    Router::new()
        .route("/health", get(async |_: Visit| json_answer(StatusCode::OK, &json!("OK"))))
        .route("/execute", post(execute))
        .route("/contexts", get(list).post(create))
        .route("/contexts/{id}", delete(remove))
        .route("/contexts/{id}/restart", post(restart))
        .merge(files::routes())
        .merge(sandboxes::routes())
        .layer(body_limit())
        .layer(Extension(Interface::E2b))
        .with_state(Interpreter { contexts: Arc::new(Contexts::new(service)) })
}

#[derive(Deserialize)]
struct ExecuteRequest {
    code: String,
    context_id: Option<String>,
    language: Option<String>,
    env_vars: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct CreateContext {
    cwd: Option<String>,
    language: Option<String>,
}

async fn execute(
    State(interpreter): State<Interpreter>,
    visit: Visit,
    sent: ReceivedRequest,
) -> Response {
    let (_, request) = match sent.read::<ExecuteRequest>() {
        Ok(read) => read,
        Err(unreadable) => return invalid(&unreadable),
    };
    interpreter.execute(&visit, request).await.unwrap_or_else(|refused| *refused)
}

async fn list(State(interpreter): State<Interpreter>, visit: Visit) -> Response {
    let contexts = interpreter.contexts.list(&visit.owner);
    let contexts: Vec<Value> = contexts.iter().map(|context| description(context)).collect();
    json_answer(StatusCode::OK, &contexts)
}

async fn create(
    State(interpreter): State<Interpreter>,
    visit: Visit,
    sent: ReceivedRequest,
) -> Response {
    let (_, request) = match sent.read::<CreateContext>() {
        Ok(read) => read,
        Err(unreadable) => return invalid(&unreadable),
    };
    if let Some(refused) = other_language(request.language.as_deref()) {
        return refused;
    }
    match interpreter.contexts.open(&visit, request.cwd).await {
        Ok(context) => json_answer(StatusCode::OK, &description(&context)),
        Err(problem) => failed(&problem),
    }
}

async fn remove(
    State(interpreter): State<Interpreter>,
    Path(id): Path<String>,
    visit: Visit,
) -> Response {
    let Some(context) = interpreter.contexts.find(&visit.owner, &id) else { return missing(&id) };
    interpreter.contexts.remove(&visit.caller, &context);
    json_answer(StatusCode::OK, &Value::Null)
}

async fn restart(
    State(interpreter): State<Interpreter>,
    Path(id): Path<String>,
    visit: Visit,
) -> Response {
    let Some(context) = interpreter.contexts.find(&visit.owner, &id) else { return missing(&id) };
    match interpreter.contexts.restart(&visit.caller, &context).await {
        Ok(()) => json_answer(StatusCode::OK, &Value::Null),
        Err(problem) => failed(&problem),
    }
}

impl Interpreter {
    async fn execute(
        &self,
        visit: &Visit,
        request: ExecuteRequest,
    ) -> Result<Response, Box<Response>> {
        if request.context_id.is_some() && request.language.is_some() {
            let message = "Only one of context_id or language can be provided";
            return Err(text(StatusCode::BAD_REQUEST, message).into());
        }
        if let Some(refused) = other_language(request.language.as_deref()) {
            return Err(refused.into());
        }
        let refused = |problem: Problem| Box::new(failed(&problem));
        let job = cell(visit, &request).map_err(refused)?;
        let entered = match &request.context_id {
            None => self.enter_default(visit, job).await.map_err(refused)?,
            Some(id) => {
                let context = self.contexts.find(&visit.owner, id);
                let context = context.ok_or_else(|| Box::new(missing(id)))?;
                self.enter(&visit.caller, job, &context).await.map_err(|problem| {
                    if is_gone(&problem) {
                        self.contexts.remove(&visit.caller, &context);
                        return missing(id).into();
                    }
                    refused(problem)
                })?
            }
        };
        let room = visit.transit.clone().map(|transit| (transit, visit.caller.clone()));
        Ok(entered.map_or_else(restarted, |cell| follow(cell, room)))
    }

    /// Submits a job to the default context, as [`Self::enter`] does. The pool closes idle sessions;
    /// then the default context is a new one.
    async fn enter_default(&self, visit: &Visit, job: Job) -> Result<Option<RunningCell>, Problem> {
        let context = self.contexts.default(visit).await?;
        match self.enter(&visit.caller, job.clone(), &context).await {
            Err(problem) if is_gone(&problem) => {
                self.contexts.remove(&visit.caller, &context);
                let context = self.contexts.default(visit).await?;
                self.enter(&visit.caller, job, &context).await
            }
            entered => entered,
        }
    }

    /// Submits a job to a context when its turn comes; `None` if the context is restarted or removed
    /// before that.
    async fn enter(
        &self,
        caller: &Caller,
        job: Job,
        context: &Context,
    ) -> Result<Option<RunningCell>, Problem> {
        let place = Arc::clone(&context.room).try_acquire_owned().map_err(|_| {
            let message = "too many cells of this context wait for their turn";
            Problem::new(ProblemKind::Refused, message).with_reason("cells")
        })?;
        let ended = context.ended.subscribe();
        let mut turn = Arc::clone(&context.turn).lock_owned().await;
        if ended.has_changed().unwrap_or(true) {
            return Ok(None);
        }
        let session = context.session();
        let service = &self.contexts.service;
        if turn.is_fresh {
            let begin = service.notebook_job(caller, &session).await?.workdir(&context.cwd);
            let begin = begin.map_err(|error| error.problem())?;
            let begun = submit(service, caller, &begin, Some(&session), PATIENCE).await?;
            Service::begun(&begun.await)?;
            turn.is_fresh = false;
        }
        let ticket = submit(service, caller, &job, Some(&session), PATIENCE).await?;
        Ok(Some(RunningCell { ticket, turn, place, ended, session }))
    }
}

/// The job of a cell.
fn cell(visit: &Visit, request: &ExecuteRequest) -> Result<Job, Problem> {
    let mut env = visit.sandbox.as_ref().map(|sandbox| sandbox.envs.clone()).unwrap_or_default();
    env.extend(request.env_vars.clone().unwrap_or_default());
    let job = wire::Job { env, ..notebook::guest::Cell::next(&request.code).wire() };
    Ok(visit.caller.job(job)?.keep_files())
}

fn description(context: &Context) -> Value {
    json!({ "id": context.id, "language": "python", "cwd": context.cwd })
}

/// The answer to a request for another language than Python.
fn other_language(language: Option<&str>) -> Option<Response> {
    let other = language.filter(|language| !NAMES.contains(&language.to_lowercase().as_str()))?;
    let message = format!("the language {other:?} isn't supported: this server runs python");
    Some(text(StatusCode::BAD_REQUEST, &message))
}

fn missing(id: &str) -> Response {
    text(StatusCode::NOT_FOUND, &format!("Context {id} not found"))
}

fn failed(problem: &Problem) -> Response {
    let message = &problem.message;
    match problem.kind {
        ProblemKind::Usage => text(StatusCode::BAD_REQUEST, message),
        ProblemKind::Refused => {
            with_retry_after(text(StatusCode::TOO_MANY_REQUESTS, message), problem)
        }
        _ => text(StatusCode::INTERNAL_SERVER_ERROR, message),
    }
}

/// The answer to a request that can't be read.
fn invalid(unreadable: &Unreadable) -> Response {
    let status = match unreadable.status {
        StatusCode::PAYLOAD_TOO_LARGE => StatusCode::PAYLOAD_TOO_LARGE,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    };
    let detail = json!([{ "type": "invalid", "loc": ["body"], "msg": unreadable.message }]);
    json_answer(status, &json!({ "detail": detail }))
}

fn text(status: StatusCode, message: &str) -> Response {
    (status, message.to_owned()).into_response()
}
