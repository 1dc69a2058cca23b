//! `POST /v1/run`: one job, answered with its result or with its events.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{ACCEPT, HeaderName};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use hatchery::JobId;
use tokio::sync::watch;

use super::body::{self, Received};
use super::failure::Failure;
use super::idempotency::{Answer, Begun, MOST_KEY_BYTES, Settled};
use super::pool::{TYPE, of_job};
use super::running::{Ended, RunningJob};
use super::state::{self, Client};
use crate::answer;
use crate::http::query::{Named, Options};
use crate::service::Share;

/// Says which job an answer is about.
const JOB: HeaderName = HeaderName::from_static("hatchery-job");
const KEY: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Runs a job.
pub(super) async fn run(client: Client, request: Request) -> Result<Response, Failure> {
    let options = Options::read(request.uri().query(), &["session", "files"])?;
    answered(client, options, request).await
}

/// Runs a job in the session of the path.
pub(super) async fn run_in_session(
    client: Client,
    Named(session): Named<String>,
    request: Request,
) -> Result<Response, Failure> {
    let options = Options::read(request.uri().query(), &["files"])?;
    answered(client, Options { session: Some(session), ..options }, request).await
}

async fn answered(client: Client, options: Options, request: Request) -> Result<Response, Failure> {
    let is_streamed = accepts_events(request.headers());
    let key = key(request.headers())?;
    if is_streamed && key.is_some() {
        return Err(Failure::usage(
            "a stream of events can't be repeated: leave out `Idempotency-Key`, or take JSON",
        ));
    }
    let received = body::read(&client.state, request).await?;
    if let Some(key) = key {
        return keyed(client, options, received, key).await;
    }
    let running = submit(&client, &options, received).await?;
    if is_streamed {
        let job = running.job;
        let body = of_job(running);
        return Ok(marked(answer::stream(StatusCode::OK, TYPE, body), job));
    }
    let (answer, held) = ended(running).await?;
    Ok(response(&answer, held))
}

/// Runs a job unless one was sent under this key. It runs on if its client goes away, since that is
/// when clients ask again.
async fn keyed(
    client: Client,
    options: Options,
    received: Received,
    key: String,
) -> Result<Response, Failure> {
    let mut request = blake3::Hasher::new();
    let session = options.session.as_deref().map_or(String::new(), |name| format!("/{name}"));
    request.update(format!("{} {} ", options.has_files, session.len()).as_bytes());
    request.update(session.as_bytes()).update(&received.bytes);
    let key = (client.caller.tenant().map(str::to_owned), key);
    match client.state.answers.begin(key, request.finalize(), Instant::now()) {
        Begun::Other => Err(Failure::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "idempotency_key",
            "another request was sent under this `Idempotency-Key`; use each for one request",
        )),
        Begun::Again(answer) => {
            let mut response = settled(&client, answer).await?;
            response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
            Ok(response)
        }
        Begun::New(slot, answer) => {
            let sender = client.clone();
            tokio::spawn(async move {
                let settled = match submit(&sender, &options, received).await {
                    Ok(running) => ended(running).await.map(|(answer, _)| Arc::new(answer)),
                    Err(failure) => Err(failure),
                };
                slot.settle(settled, Instant::now());
            });
            settled(&client, answer).await
        }
    }
}

async fn settled(
    client: &Client,
    mut answer: watch::Receiver<Option<Settled>>,
) -> Result<Response, Failure> {
    let settled = answer.wait_for(Option::is_some).await.map_err(|_| state::ended())?.clone();
    let answer = settled.unwrap_or_else(|| Err(state::ended()))?;
    let held = client.state.transit.hold(&client.caller, answer.result.len())?;
    Ok(response(&answer, held))
}

async fn submit(
    client: &Client,
    options: &Options,
    received: Received,
) -> Result<RunningJob, Failure> {
    let Received { bytes, held } = received;
    let job = state::job(&client.caller, bytes).await?;
    let session = options.session.as_deref();
    let ticket = client.state.service.submit(&client.caller, job, session).await?;
    drop(held);
    Ok(client.state.jobs.start(&client.caller, ticket, options.has_files))
}

async fn ended(mut running: RunningJob) -> Result<(Answer, Share), Failure> {
    let job = running.job;
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
