//! `POST /v1/run`: one job, answered with its result or with its events.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, HeaderName};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use hatchery::JobId;
use tokio::sync::watch;

use super::body::{self, Received};
use super::clock;
use super::door::{self, Door, Visitor};
use super::failure::Failure;
use super::idempotency::{Answer, Begun, MOST_KEY_BYTES, Settled};
use super::pool::{TYPE, of_job};
use super::query::{Named, Options};
use super::running::{Ended, Running};
use crate::answer;
use crate::service::Share;

/// Says which job an answer is about.
const JOB: HeaderName = HeaderName::from_static("hatchery-job");
const KEY: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Runs a job.
pub(super) async fn run(
    State(door): State<Arc<Door>>,
    Extension(visitor): Extension<Visitor>,
    request: Request,
) -> Result<Response, Failure> {
    let options = Options::read(request.uri().query(), &["session", "files"])?;
    answered(&door, visitor, options, request).await
}

/// Runs a job in the session of the path.
pub(super) async fn run_in_session(
    State(door): State<Arc<Door>>,
    Extension(visitor): Extension<Visitor>,
    Named(session): Named<String>,
    request: Request,
) -> Result<Response, Failure> {
    let options = Options::read(request.uri().query(), &["files"])?;
    answered(&door, visitor, Options { session: Some(session), ..options }, request).await
}

async fn answered(
    door: &Arc<Door>,
    visitor: Visitor,
    options: Options,
    request: Request,
) -> Result<Response, Failure> {
    let is_streamed = accepts_events(request.headers());
    let key = key(request.headers())?;
    if is_streamed && key.is_some() {
        return Err(Failure::usage(
            "a stream of events can't be repeated: leave out `Idempotency-Key`, or take JSON",
        ));
    }
    let received = body::read(door, request).await?;
    if let Some(key) = key {
        return keyed(door, visitor, options, received, key).await;
    }
    let running = submit(door, &visitor, &options, received).await?;
    if is_streamed {
        let job = running.job();
        let body = of_job(running);
        return Ok(marked(answer::stream(StatusCode::OK, TYPE, body), job));
    }
    let (answer, held) = ended(running).await?;
    Ok(response(&answer, held))
}

/// Runs a job unless one was sent under this key. It runs on if its client goes away, since that is
/// when clients ask again.
async fn keyed(
    door: &Arc<Door>,
    visitor: Visitor,
    options: Options,
    received: Received,
    key: String,
) -> Result<Response, Failure> {
    let mut request = blake3::Hasher::new();
    let session = options.session.as_deref().map_or(String::new(), |name| format!("/{name}"));
    request.update(format!("{} {} ", options.has_files, session.len()).as_bytes());
    request.update(session.as_bytes()).update(&received.bytes);
    let key = (visitor.caller.tenant().map(str::to_owned), key);
    match door.answers.begin(key, request.finalize(), clock::now()) {
        Begun::Other => Err(Failure::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "idempotency_key",
            "another request was sent under this `Idempotency-Key`; use each for one request",
        )),
        Begun::Again(answer) => {
            let mut response = settled(door, &visitor, answer).await?;
            response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
            Ok(response)
        }
        Begun::New(slot, answer) => {
            let (own, sender) = (Arc::clone(door), visitor.clone());
            tokio::spawn(async move {
                let settled = match submit(&own, &sender, &options, received).await {
                    Ok(running) => ended(running).await.map(|(answer, _)| Arc::new(answer)),
                    Err(failure) => Err(failure),
                };
                slot.settle(settled, clock::now());
            });
            settled(door, &visitor, answer).await
        }
    }
}

async fn settled(
    door: &Door,
    visitor: &Visitor,
    mut answer: watch::Receiver<Option<Settled>>,
) -> Result<Response, Failure> {
    let settled = answer.wait_for(Option::is_some).await.map_err(|_| door::ended())?.clone();
    let answer = settled.unwrap_or_else(|| Err(door::ended()))?;
    let held = door.transit.hold(&visitor.caller, answer.result.len())?;
    Ok(response(&answer, held))
}

async fn submit(
    door: &Door,
    visitor: &Visitor,
    options: &Options,
    received: Received,
) -> Result<Running, Failure> {
    let Received { bytes, held } = received;
    let job = door::job(&visitor.caller, bytes).await?;
    let session = options.session.as_deref();
    let ticket = door.service.submit(&visitor.caller, job, session).await?;
    drop(held);
    Ok(door.jobs.start(&visitor.caller, ticket, options.has_files))
}

async fn ended(mut running: Running) -> Result<(Answer, Share), Failure> {
    let job = running.job();
    let Ended { result, has_failed, is_final, held } = running.ended().await?;
    let status = match has_failed {
        true => StatusCode::INTERNAL_SERVER_ERROR,
        false => StatusCode::OK,
    };
    let result = serde_json::to_vec(&result).unwrap_or_default().into();
    Ok((Answer { status, result, job, is_final }, held))
}

fn response(answer: &Answer, held: Share) -> Response {
    let body = Body::from(held.until_sent(answer.result.clone()));
    marked(answer::stream(answer.status, "application/json", body), answer.job)
}

fn marked(mut response: Response, job: JobId) -> Response {
    response.headers_mut().insert(JOB, job.0.into());
    response
}

fn accepts_events(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut types = accepted.flat_map(|value| value.split(','));
    types.any(|part| {
        part.split(';').next().is_some_and(|name| name.trim().eq_ignore_ascii_case(TYPE))
    })
}

fn key(headers: &HeaderMap) -> Result<Option<String>, Failure> {
    let mut values = headers.get_all(KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    match value.to_str() {
        Ok(key) if (1..=MOST_KEY_BYTES).contains(&key.len()) && values.next().is_none() => {
            Ok(Some(key.to_owned()))
        }
        _ => Err(Failure::usage(format!(
            "`Idempotency-Key` is given once, and has 1 to {MOST_KEY_BYTES} characters of ASCII"
        ))),
    }
}
