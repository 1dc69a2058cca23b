//! E2B's control plane: creates, describes, lists, extends and ends sandboxes.
//!
//! A sandbox is a set of contexts with its own files, environment variables, metadata and timeout.
//! Only the tenant who created it finds it, by a random id. A paused one keeps all of that, answers
//! nobody and has no end, until it is resumed. What this server can't give a sandbox is refused,
//! never ignored.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::extract::{FromRequestParts, Path, RawQuery, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use bytes::Bytes;
use hatchery::wire::Problem;
use hatchery::{Job, Limits, wire};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::super::request::{Refused, Sender, Sent, in_form};
use super::contexts::{Contexts, Owner};
use crate::answer::json as json_answer;
use crate::caller::{Caller, unguessable};
use crate::service::Shares;

/// Says to which sandbox a request goes.
const SANDBOX: &str = "e2b-sandbox-id";

/// Has what [`Caller::access_to`] returned to the one who created the sandbox.
pub(crate) const ACCESS_TOKEN: &str = "x-access-token";

/// Where requests to a sandbox go.
const PATHS: [&str; 3] = ["/execute", "/files", "/health"];
const PREFIXES: [&str; 3] = ["/contexts", "/filesystem.Filesystem", "/process.Process"];

/// Returns the id of a sandbox and the access to it that a request has, if it goes there.
pub(crate) fn access<'a>(headers: &'a HeaderMap, path: &str) -> Option<(&'a str, blake3::Hash)> {
    let is_below = |prefix: &&str| {
        path.strip_prefix(*prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if !PATHS.contains(&path) && !PREFIXES.iter().any(is_below) {
        return None;
    }
    let id = headers.get(SANDBOX)?.to_str().ok()?;
    Some((id, blake3::Hash::from_hex(headers.get(ACCESS_TOKEN)?).ok()?))
}

/// The id that the SDK gives every sandbox when `E2B_DEBUG` is set, without asking the server.
const DEBUG: &str = "debug_sandbox_id";

/// The templates that the SDK names by itself.
const TEMPLATES: [&str; 2] = ["base", "code-interpreter-v1"];

/// The release of E2B's daemon whose calls about files are those of this server.
const ENVD_VERSION: &str = "0.5.7";

/// The time of a sandbox that is created without one, as the SDK documents it.
const DEFAULT_SECONDS: u64 = 300;
/// The longest time of a sandbox from now on: a day.
const MOST_SECONDS: u64 = 86_400;
/// The time of a forked sandbox without one, and the most forks of a request, as E2B documents them.
const FORK_SECONDS: i64 = 15;
const MOST_FORKS: usize = 100;
/// Sandboxes on a page of a list.
const PAGE: usize = 100;

/// A sandbox.
#[derive(Debug)]
pub(super) struct Sandbox {
    pub(super) owner: Owner,
    /// For every cell.
    pub(super) envs: BTreeMap<String, String>,
    /// The requests that its cells may make, as in a job; `None` for all that the pool allows.
    pub(super) egress: Option<Vec<String>>,
    metadata: BTreeMap<String, String>,
    /// Whether it is paused at its end, and not killed.
    pauses: bool,
    started: (Instant, SystemTime),
    life: watch::Sender<Lifetime>,
}

/// How long a sandbox lives.
#[derive(Debug, Clone, Copy)]
struct Lifetime {
    /// The last end, while it is paused.
    ends: Instant,
    is_paused: bool,
}

/// Whose contexts a request is about: those of a sandbox, or of a tenant outside of any.
pub(super) struct Visit {
    pub(super) caller: Caller,
    pub(super) owner: Owner,
    pub(super) sandbox: Option<Arc<Sandbox>>,
    /// Counts what waits for the client to read, if the layer in front does so.
    pub(super) transit: Option<Shares>,
}

impl Visit {
    /// Makes a job of the caller in the sandbox, whose changes to files stay however it ends.
    pub(super) fn job(
        &self,
        job: wire::Job,
        envs: BTreeMap<String, String>,
    ) -> Result<Job, Problem> {
        let sandbox = self.sandbox.as_ref();
        let mut env = sandbox.map(|sandbox| sandbox.envs.clone()).unwrap_or_default();
        env.extend(envs);
        let egress = sandbox.and_then(|sandbox| sandbox.egress.clone());
        Ok(self.caller.job(wire::Job { env, egress, ..job })?.keep_files())
    }

    /// Returns what counts bytes that wait for the client, and whose they are.
    pub(super) fn room(&self) -> Option<(Shares, Caller)> {
        self.transit.clone().map(|transit| (transit, self.caller.clone()))
    }
}

impl FromRequestParts<Arc<Contexts>> for Visit {
    type Rejection = Response;

    async fn from_request_parts(
        parts: &mut Parts,
        contexts: &Arc<Contexts>,
    ) -> Result<Self, Response> {
        let Ok(Sender(caller)) = Sender::from_request_parts(parts, contexts).await;
        let transit = parts.extensions.get::<Shares>().cloned();
        let id = parts.headers.get(SANDBOX).map(|id| id.to_str().unwrap_or_default());
        match id {
            None => Ok(Self { owner: Owner::of(&caller), sandbox: None, caller, transit }),
            Some(DEBUG) => Err(code_form(&Refused::bad(
                "with `E2B_DEBUG` all sandboxes would be one: unset it, and set `E2B_API_URL` and \
                 `E2B_SANDBOX_URL` to the address of this server",
            ))),
            Some(id) => {
                let killed = "the sandbox was not found: it was killed, or it timed out";
                let sandbox = contexts.sandbox(&caller, id).ok_or_else(|| gone(id, killed))?;
                if sandbox.life.borrow().is_paused {
                    let paused =
                        "the sandbox was not found: it is paused, and `connect` resumes it";
                    return Err(gone(id, paused));
                }
                Ok(Self { owner: sandbox.owner.clone(), sandbox: Some(sandbox), caller, transit })
            }
        }
    }
}

pub(super) fn routes() -> Router<Arc<Contexts>> {
    let routes = Router::new()
        .route("/sandboxes", get(list).post(create))
        .route("/v2/sandboxes", get(list).post(create))
        .route("/sandboxes/{id}", get(describe).delete(kill))
        .route("/sandboxes/{id}/timeout", post(set_timeout))
        .route("/sandboxes/{id}/connect", post(connect))
        .route("/v2/sandboxes/{id}/connect", post(connect))
        .route("/sandboxes/{id}/pause", post(pause))
        .route("/sandboxes/{id}/resume", post(connect))
        .route("/sandboxes/{id}/fork", post(fork))
        .route("/sandboxes/{id}/{*action}", any(unsupported));
    in_form(routes, code_form)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CreateSandbox {
    #[serde(rename = "templateID")]
    template: String,
    timeout: Option<i64>,
    metadata: Option<BTreeMap<String, String>>,
    env_vars: Option<BTreeMap<String, String>>,
    #[serde(rename = "allow_internet_access")]
    allow_internet_access: Option<bool>,
    network: Option<SandboxNetwork>,
    auto_pause: Option<bool>,
    auto_pause_memory: Option<bool>,
    /// What else was asked for.
    #[serde(flatten)]
    more: Map<String, Value>,
}

/// What a sandbox may reach.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct SandboxNetwork {
    allow_out: Vec<String>,
    deny_out: Vec<String>,
}

/// What stands for all addresses.
const ALL_TRAFFIC: &str = "0.0.0.0/0";

impl CreateSandbox {
    /// Returns the rules for the requests of cells, or why there can't be such.
    fn egress(&self, is_allowed: bool) -> Result<Option<Vec<String>>, String> {
        if self.allow_internet_access == Some(false) {
            return Ok(Some(Vec::new()));
        }
        if self.allow_internet_access == Some(true) && !is_allowed {
            return Err(
                "sandboxes of this server can't have `allow_internet_access`: its operator \
                        allows no requests over HTTP"
                    .to_owned(),
            );
        }
        let Some(SandboxNetwork { allow_out, deny_out }) = &self.network else { return Ok(None) };
        if let Some(other) = deny_out.iter().find(|denied| *denied != ALL_TRAFFIC) {
            return Err(format!(
                "`denyOut` can't have `{other}`: use `{ALL_TRAFFIC}` and `allowOut`"
            ));
        }
        if !is_allowed && !allow_out.is_empty() {
            let why = "its operator allows no requests over HTTP";
            return Err(format!("sandboxes of this server can't have `allowOut`: {why}"));
        }
        if allow_out.iter().any(|allowed| allowed == ALL_TRAFFIC) {
            return Ok(None);
        }
        if let Some(range) = allow_out.iter().find(|allowed| allowed.contains('/')) {
            return Err(format!("`allowOut` can't have `{range}`: name hosts and addresses"));
        }
        // The operator's rules decide on private addresses.
        let rule = |host: &String| ["http", "https"].map(|it| format!("* {it}://{host}/* private"));
        let is_limited = !allow_out.is_empty() || !deny_out.is_empty();
        Ok(is_limited.then(|| allow_out.iter().flat_map(rule).collect()))
    }

    /// Returns what this server can't give, with the reason.
    fn unsupported(&self) -> Option<String> {
        if !TEMPLATES.contains(&self.template.as_str()) {
            let templates = TEMPLATES.join("` and `");
            return Some(format!(
                "there is no template `{}`: this server has `{templates}`, which are alike",
                self.template
            ));
        }
        let is_asked = |name: &&str| match self.more.get(*name) {
            None | Some(Value::Null | Value::Bool(false)) => false,
            Some(Value::Array(values)) => !values.is_empty(),
            Some(Value::Object(members)) => members.get("enabled") != Some(&Value::Bool(false)),
            Some(_) => true,
        };
        let names = ["autoResume", "mcp", "iam", "volumeMounts"];
        if is_asked(&names[0]) {
            let message =
                "no request resumes a paused sandbox but `connect`: leave `autoResume` out";
            return Some(message.to_owned());
        }
        let Some(name) = names.iter().find(|name| is_asked(name)) else {
            return (self.auto_pause_memory == Some(false)).then(|| WITH_MEMORY.to_owned());
        };
        Some(format!("sandboxes of this server can't have `{name}`: leave it out"))
    }
}

/// Why nothing is paused without its variables.
const WITH_MEMORY: &str =
    "a paused sandbox keeps files and variables: leave out the mode `filesystem`";

#[derive(Default, Deserialize)]
struct Time {
    timeout: Option<i64>,
    /// Whether variables are wanted, of one that was paused.
    memory: Option<bool>,
}

#[derive(Default, Deserialize)]
struct ForkSandbox {
    timeout: Option<i64>,
    count: Option<usize>,
}

/// As E2B's control plane and its daemon say that a request is refused.
pub(super) fn code_form(refused: &Refused) -> Response {
    let code = refused.status.as_u16();
    json_answer(refused.status, &json!({ "code": code, "message": refused.message }))
}

type Answered = Result<Response, Refused>;

async fn create(
    State(contexts): State<Arc<Contexts>>,
    Sent(caller, request): Sent<CreateSandbox>,
) -> Answered {
    request.unsupported().map_or(Ok(()), |reason| Err(Refused::bad(reason)))?;
    let ends = end(request.timeout)?;
    let egress = request.egress(contexts.service.pool().allows_connections());
    let egress = egress.map_err(Refused::bad)?;
    let envs = request.env_vars.unwrap_or_default();
    // Refused now rather than by every cell.
    let (env, rules) = (envs.clone(), egress.clone());
    caller.job(wire::Job { env, egress: rules, ..wire::Job::code("") })?;
    let sandbox = Sandbox {
        owner: Owner { sandbox: Some(unguessable()), ..Owner::of(&caller) },
        envs,
        egress,
        metadata: request.metadata.unwrap_or_default(),
        pauses: request.auto_pause.unwrap_or_default(),
        started: now(),
        life: watch::Sender::new(Lifetime { ends, is_paused: false }),
    };
    let sandbox = begin(&contexts, caller.clone(), sandbox)?;
    Ok(json_answer(StatusCode::CREATED, &contexts.described(&caller, &sandbox)))
}

/// Adds a sandbox, and ends it when its time is over.
fn begin(
    contexts: &Arc<Contexts>,
    caller: Caller,
    sandbox: Sandbox,
) -> Result<Arc<Sandbox>, Problem> {
    let sandbox = Arc::new(sandbox);
    contexts.add(Arc::clone(&sandbox))?;
    let (weak, life) = (Arc::downgrade(contexts), sandbox.life.subscribe());
    tokio::spawn(expire(weak, caller, life, Arc::clone(&sandbox)));
    Ok(sandbox)
}

/// Creates sandboxes that continue from the present state of one. All share one copy of its state,
/// so either all are created or none.
async fn fork(
    State(contexts): State<Arc<Contexts>>,
    Path(id): Path<String>,
    Sender(caller): Sender,
    body: Bytes,
) -> Answered {
    let request: ForkSandbox = match body.is_empty() {
        true => ForkSandbox::default(),
        false => serde_json::from_slice(&body).map_err(|error| Refused::bad(error.to_string()))?,
    };
    let count = request.count.unwrap_or(1);
    if !(1..=MOST_FORKS).contains(&count) {
        return Err(Refused::bad(format!("`count` is from 1 to {MOST_FORKS}")));
    }
    let ends = end(Some(request.timeout.unwrap_or(FORK_SECONDS)))?;
    let sandbox = contexts.known_sandbox(&caller, &id)?;
    sandbox.check_running()?;
    let mut forks = Vec::with_capacity(count);
    let mut failed = None;
    for _ in 0..count {
        let fork = Sandbox {
            owner: Owner { sandbox: Some(unguessable()), ..sandbox.owner.clone() },
            envs: sandbox.envs.clone(),
            egress: sandbox.egress.clone(),
            metadata: sandbox.metadata.clone(),
            pauses: sandbox.pauses,
            started: now(),
            life: watch::Sender::new(Lifetime { ends, is_paused: false }),
        };
        match begin(&contexts, caller.clone(), fork) {
            Ok(fork) => forks.push(fork),
            Err(problem) => failed = Some(problem),
        }
    }
    if failed.is_none() {
        let owners: Vec<Owner> = forks.iter().map(|fork| fork.owner.clone()).collect();
        failed = contexts.fork(&caller, &sandbox.owner, &owners).await.err();
    }
    let Some(problem) = failed else {
        let forks =
            forks.iter().map(|fork| json!({ "sandbox": contexts.described(&caller, fork) }));
        return Ok(json_answer(StatusCode::CREATED, &forks.collect::<Vec<Value>>()));
    };
    for fork in forks {
        contexts.end(&caller, &fork.owner);
        fork.end();
    }
    let is_busy = problem.reason.as_deref() == Some("session_busy");
    Err(match is_busy {
        true => Refused::new(StatusCode::CONFLICT, problem.message),
        false => problem.into(),
    })
}

async fn describe(
    State(contexts): State<Arc<Contexts>>,
    Path(id): Path<String>,
    Sender(caller): Sender,
) -> Answered {
    let sandbox = contexts.known_sandbox(&caller, &id)?;
    Ok(json_answer(StatusCode::OK, &contexts.described(&caller, &sandbox)))
}

async fn list(
    State(contexts): State<Arc<Contexts>>,
    RawQuery(query): RawQuery,
    Sender(caller): Sender,
) -> Answered {
    let mut sandboxes = contexts.sandboxes(&caller);
    sandboxes.sort_by_key(|sandbox| std::cmp::Reverse(sandbox.started.0));
    let (mut most, mut first) = (PAGE, 0);
    for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        match (&*name, &*value) {
            ("metadata", wanted) => {
                sandboxes.retain(|sandbox| sandbox.has_metadata(wanted));
            }
            ("state", states) => {
                sandboxes.retain(|sandbox| states.split(',').any(|it| it == sandbox.state()));
            }
            ("order", "asc") => sandboxes.reverse(),
            ("limit", limit) => most = limit.parse().unwrap_or(PAGE).clamp(1, PAGE),
            ("nextToken", token) => first = token.parse().unwrap_or(usize::MAX),
            ("order", _) => {}
            (name, _) => {
                let message = format!("this server can't list sandboxes by `{name}`");
                return Err(Refused::bad(message));
            }
        }
    }
    let page: Vec<Value> = sandboxes
        .iter()
        .skip(first)
        .take(most)
        .map(|sandbox| contexts.described(&caller, sandbox))
        .collect();
    let after = first.saturating_add(page.len());
    let mut answer = json_answer(StatusCode::OK, &page);
    if after < sandboxes.len() {
        answer.headers_mut().insert("x-next-token", HeaderValue::from(after));
    }
    Ok(answer)
}

async fn kill(
    State(contexts): State<Arc<Contexts>>,
    Path(id): Path<String>,
    Sender(caller): Sender,
) -> Answered {
    let sandbox = contexts.known_sandbox(&caller, &id)?;
    contexts.end(&caller, &sandbox.owner);
    sandbox.end();
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn set_timeout(
    State(contexts): State<Arc<Contexts>>,
    Path(id): Path<String>,
    Sent(caller, time): Sent<Time>,
) -> Answered {
    let (sandbox, ends) = (contexts.known_sandbox(&caller, &id)?, end(time.timeout)?);
    sandbox.check_running()?;
    sandbox.life.send_modify(|life| life.ends = ends);
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Resumes a paused sandbox, and only ever gives another one more time.
async fn connect(
    State(contexts): State<Arc<Contexts>>,
    Path(id): Path<String>,
    Sent(caller, time): Sent<Time>,
) -> Answered {
    let (sandbox, ends) = (contexts.known_sandbox(&caller, &id)?, end(time.timeout)?);
    if time.memory == Some(false) {
        return Err(Refused::bad(WITH_MEMORY));
    }
    let mut was_paused = false;
    sandbox.life.send_modify(|life| {
        was_paused = life.is_paused;
        let ends = if was_paused { ends } else { ends.max(life.ends) };
        *life = Lifetime { ends, is_paused: false };
    });
    let status = if was_paused { StatusCode::CREATED } else { StatusCode::OK };
    Ok(json_answer(status, &contexts.described(&caller, &sandbox)))
}

/// Pauses a sandbox. What runs or waits in it was let in before, and ends.
async fn pause(
    State(contexts): State<Arc<Contexts>>,
    Path(id): Path<String>,
    Sender(caller): Sender,
    body: Bytes,
) -> Answered {
    let asked: Time = match body.is_empty() {
        true => Time::default(),
        false => serde_json::from_slice(&body).map_err(|error| Refused::bad(error.to_string()))?,
    };
    if asked.memory == Some(false) {
        return Err(Refused::bad(WITH_MEMORY));
    }
    let sandbox = contexts.known_sandbox(&caller, &id)?;
    match sandbox.pause() {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => Err(Refused::new(StatusCode::CONFLICT, "the sandbox is paused already")),
    }
}

async fn unsupported(Path((_, action)): Path<(String, String)>) -> Refused {
    let instead = "`fork` copies a sandbox, and `pause` keeps it";
    let message = format!("this server has no `{action}` of sandboxes: {instead}");
    Refused::new(StatusCode::NOT_IMPLEMENTED, message)
}

impl Contexts {
    fn known_sandbox(&self, caller: &Caller, id: &str) -> Result<Arc<Sandbox>, Refused> {
        let missing = || Refused::new(StatusCode::NOT_FOUND, format!("there is no sandbox `{id}`"));
        self.sandbox(caller, id).ok_or_else(missing)
    }

    fn described(&self, caller: &Caller, sandbox: &Sandbox) -> Value {
        let mut described = sandbox.described(self.service.pool().limits());
        if let Some(access) = caller.access_to(sandbox.id()) {
            described["envdAccessToken"] = access.to_hex().as_str().into();
        }
        described
    }
}

impl Sandbox {
    /// Returns its id.
    pub(super) fn id(&self) -> &str {
        self.owner.sandbox.as_deref().unwrap_or_default()
    }

    fn state(&self) -> &'static str {
        if self.life.borrow().is_paused { "paused" } else { "running" }
    }

    /// Returns whether it wasn't paused.
    fn pause(&self) -> bool {
        self.life.send_if_modified(|life| !std::mem::replace(&mut life.is_paused, true))
    }

    /// Lets what waits for its end know of it.
    fn end(&self) {
        self.life.send_replace(Lifetime { ends: now().0, is_paused: false });
    }

    fn check_running(&self) -> Result<(), Refused> {
        let message = "the sandbox is paused: `connect` resumes it";
        match self.life.borrow().is_paused {
            true => Err(Refused::new(StatusCode::CONFLICT, message)),
            false => Ok(()),
        }
    }

    fn described(&self, limits: &Limits) -> Value {
        let (began, started) = self.started;
        let ends = started + self.life.borrow().ends.saturating_duration_since(began);
        let time = |time| humantime::format_rfc3339_millis(time).to_string();
        json!({
            "sandboxID": self.id(),
            "templateID": TEMPLATES[1],
            "clientID": "hatchery",
            "envdVersion": ENVD_VERSION,
            "startedAt": time(started),
            "endAt": time(ends),
            "state": self.state(),
            "cpuCount": 1,
            "memoryMB": limits.memory_bytes >> 20,
            "diskSizeMB": limits.file_bytes >> 20,
            "metadata": self.metadata,
        })
    }

    /// Whether it has all the metadata of a query, each part of which is encoded by itself.
    fn has_metadata(&self, query: &str) -> bool {
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        form_urlencoded::parse(query.as_bytes())
            .all(|(name, value)| self.metadata.get(&decoded(&name)) == Some(&decoded(&value)))
    }
}

/// Ends or pauses a sandbox when its time is over.
async fn expire(
    contexts: Weak<Contexts>,
    caller: Caller,
    mut lives: watch::Receiver<Lifetime>,
    sandbox: Arc<Sandbox>,
) {
    loop {
        let Lifetime { ends, is_paused } = *lives.borrow_and_update();
        // The sender is in the sandbox.
        let changed = lives.changed();
        if is_paused {
            let _ = changed.await;
            continue;
        }
        if timeout_at(ends, changed).await.is_ok() {
            continue;
        }
        let Some(contexts) = contexts.upgrade() else { return };
        let is_kept = sandbox.pauses && {
            sandbox.pause();
            // It may have been killed meanwhile.
            contexts.sandbox(&caller, sandbox.id()).is_some()
        };
        if !is_kept {
            return contexts.end(&caller, &sandbox.owner);
        }
    }
}

/// Returns the end of a sandbox that lives for so many seconds from now on.
fn end(seconds: Option<i64>) -> Result<Instant, Refused> {
    let seconds = seconds.map_or(Ok(DEFAULT_SECONDS), u64::try_from);
    match seconds {
        Ok(seconds) if seconds <= MOST_SECONDS => Ok(now().0 + Duration::from_secs(seconds)),
        _ => Err(Refused::bad(format!("`timeout` is from 0 to {MOST_SECONDS} seconds"))),
    }
}

fn now() -> (Instant, SystemTime) {
    (Instant::now(), SystemTime::now())
}

/// As E2B's proxy answers for a sandbox that isn't there.
fn gone(id: &str, message: &str) -> Response {
    let answer = json!({ "sandboxId": id, "message": message, "code": 502 });
    json_answer(StatusCode::BAD_GATEWAY, &answer)
}
