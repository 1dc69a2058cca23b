//! E2B: sandboxes with cells, files and commands. Cells run in contexts, and stream what they do.
//!
//! A context is a session. Cells without a context run in the default one of their sandbox, whose
//! files are those of the sandbox, and so do its commands. Requests that name no sandbox have one for
//! each tenant. The SDK speaks to one port if `E2B_API_URL` and `E2B_SANDBOX_URL` name it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Extension, Router};
use hatchery::wire::{Problem, ProblemKind};
use hatchery::{Interface, Job};
use serde::Deserialize;
use serde_json::{Value, json};

use super::request::{Refused, Sent, body_limit, in_form};
use super::run::{is_gone, submit};
use crate::answer::json as json_answer;
use crate::caller::Caller;
use crate::service::Service;
use contexts::{Context, Contexts};
use lines::{RunningCell, follow, restarted};
use sandboxes::Visit;

pub(crate) use sandboxes::{ACCESS_TOKEN, access};

mod commands;
mod contexts;
mod files;
mod lines;
mod sandboxes;

/// How long a cell tries to get into the pool's queue before it is refused.
const PATIENCE: Duration = Duration::from_secs(10);

/// The names of the one language.
const NAMES: [&str; 3] = ["python", "python3", "py"];

/// Serves a pool as E2B's sandboxes.
pub fn router(service: Service) -> Router {
    let cells = Router::new()
        .route("/health", get(async |_: Visit| json_answer(StatusCode::OK, &json!("OK"))))
        .route("/execute", post(execute))
        .route("/contexts", get(list).post(create))
        .route("/contexts/{id}", delete(remove))
        .route("/contexts/{id}/restart", post(restart));
    in_form(cells, cell_form)
        .merge(files::routes())
        .merge(commands::routes())
        .merge(sandboxes::routes())
        .layer(body_limit())
        .layer(Extension(Interface::E2b))
        .with_state(Arc::new(Contexts::new(service)))
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

fn cell_form(refused: &Refused) -> Response {
    match refused.is_unreadable {
        true => refused.detail(),
        false => (refused.status, refused.message.clone()).into_response(),
    }
}

type Answered = Result<Response, Refused>;

async fn execute(
    State(contexts): State<Arc<Contexts>>,
    visit: Visit,
    Sent(_, request): Sent<ExecuteRequest>,
) -> Answered {
    contexts.execute(&visit, request).await
}

async fn list(State(contexts): State<Arc<Contexts>>, visit: Visit) -> Response {
    let contexts = contexts.list(&visit.owner);
    let contexts: Vec<Value> = contexts.iter().map(|context| description(context)).collect();
    json_answer(StatusCode::OK, &contexts)
}

async fn create(
    State(contexts): State<Arc<Contexts>>,
    visit: Visit,
    Sent(_, request): Sent<CreateContext>,
) -> Answered {
    check_language(request.language.as_deref())?;
    let context = contexts.open(&visit, request.cwd).await?;
    Ok(json_answer(StatusCode::OK, &description(&context)))
}

async fn remove(
    State(contexts): State<Arc<Contexts>>,
    Path(id): Path<String>,
    visit: Visit,
) -> Answered {
    let context = contexts.known(&visit, &id)?;
    contexts.remove(&visit.caller, &context);
    Ok(json_answer(StatusCode::OK, &Value::Null))
}

async fn restart(
    State(contexts): State<Arc<Contexts>>,
    Path(id): Path<String>,
    visit: Visit,
) -> Answered {
    let context = contexts.known(&visit, &id)?;
    contexts.restart(&visit.caller, &context).await?;
    Ok(json_answer(StatusCode::OK, &Value::Null))
}

impl Contexts {
    fn known(&self, visit: &Visit, id: &str) -> Result<Arc<Context>, Refused> {
        self.find(&visit.owner, id).ok_or_else(|| missing(id))
    }

    async fn execute(&self, visit: &Visit, request: ExecuteRequest) -> Answered {
        if request.context_id.is_some() && request.language.is_some() {
            let message = "Only one of context_id or language can be provided";
            return Err(Refused::bad(message));
        }
        check_language(request.language.as_deref())?;
        let job = cell(visit, &request)?;
        let entered = match &request.context_id {
            None => self.enter_default(visit, job).await?,
            Some(id) => {
                let context = self.known(visit, id)?;
                self.enter(&visit.caller, job, &context).await.map_err(|problem| {
                    if is_gone(&problem) {
                        self.remove(&visit.caller, &context);
                        return missing(id);
                    }
                    problem.into()
                })?
            }
        };
        Ok(entered.map_or_else(restarted, |cell| follow(cell, visit.room())))
    }

    /// Submits a job to the default context, as [`Self::enter`] does. The pool closes idle sessions;
    /// then the default context is a new one.
    async fn enter_default(&self, visit: &Visit, job: Job) -> Result<Option<RunningCell>, Problem> {
        let context = self.default(visit).await?;
        match self.enter(&visit.caller, job.clone(), &context).await {
            Err(problem) if is_gone(&problem) => {
                self.remove(&visit.caller, &context);
                let context = self.default(visit).await?;
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
        let service = &self.service;
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
    let job = notebook::guest::Cell::next(&request.code).wire();
    visit.job(job, request.env_vars.clone().unwrap_or_default())
}

fn description(context: &Context) -> Value {
    json!({ "id": context.id, "language": "python", "cwd": context.cwd })
}

/// Refuses a request for another language than Python.
fn check_language(language: Option<&str>) -> Result<(), Refused> {
    let is_other = |language: &&str| !NAMES.contains(&language.to_lowercase().as_str());
    let message =
        |other| format!("the language {other:?} isn't supported: this server runs python");
    language.filter(is_other).map_or(Ok(()), |other| Err(Refused::bad(message(other))))
}

fn missing(id: &str) -> Refused {
    Refused::new(StatusCode::NOT_FOUND, format!("Context {id} not found"))
}
