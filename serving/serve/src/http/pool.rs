//! Requests about the pool and its running jobs: status, decisions, metrics, health, shutdown.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use futures_util::stream::{Stream, StreamExt, iter, unfold};
use hatchery::decision::{Decisions, NextDecision};
use hatchery::event::EventKind;
use hatchery::python::PackageInfo;
use hatchery::status::Phase;
use hatchery::{JobId, Ticket, WorkerId, tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::body;
use super::failure::Failure;
use super::running::{Ended, RunningJob};
use super::state::{AppState, Client};
use crate::answer;
use crate::http::query::{Named, all};
use crate::service::{EarlyEnd, Share};

type Answered = Result<Response, Failure>;
type SharedState = State<Arc<AppState>>;

/// The type of metrics in Prometheus's text format.
pub(super) const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The longest time to drain for: a day.
const MOST_SECONDS: f64 = 86_400.0;

/// Says whether the pool takes jobs.
pub(super) async fn health(State(state): SharedState) -> Response {
    let is_ready = state.config.ready.as_ref().is_none_or(|ready| *ready.borrow());
    let (code, status) = match state.service.pool().status().phase {
        Phase::Open if is_ready => (StatusCode::OK, "ok"),
        Phase::Open => (StatusCode::SERVICE_UNAVAILABLE, "starting"),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
    };
    answer::json(code, &json!({ "status": status }))
}

/// Returns the status of the pool, or what a tenant may know of it.
pub(super) async fn status(client: Client) -> Response {
    let status = client.state.service.pool().status();
    let Some(tenant) = client.caller.tenant() else {
        return answer::json(StatusCode::OK, &status);
    };
    let own = status.tenants.iter().find(|status| status.tenant == tenant);
    let prefix = format!("{tenant}/");
    let sessions = status.sessions.iter().filter_map(|session| {
        let name = session.name.strip_prefix(&prefix)?;
        let (queued, place) = (session.queue_depth, &session.place);
        let python = &session.python;
        Some(json!({ "name": name, "python": python, "queue_depth": queued, "place": place }))
    });
    let own = json!({
        "version": status.version,
        "phase": status.phase,
        "tenant": tenant,
        "queued": own.map_or(0, |own| own.queued.iter().map(|queued| queued.depth).sum()),
        "running": own.map_or(0, |own| own.running),
        "sessions": sessions.collect::<Vec<_>>(),
    });
    answer::json(StatusCode::OK, &own)
}

/// Returns what pools on many machines are doing; null if this server knows of none.
pub(super) async fn cluster(client: Client) -> Answered {
    for_all(&client)?;
    let state = match &client.state.config.cluster {
        None => Value::Null,
        Some(ask) => ask()
            .await
            .map_err(|message| Failure::new(StatusCode::SERVICE_UNAVAILABLE, "cluster", message))?,
    };
    Ok(answer::json(StatusCode::OK, &json!({ "cluster": state })))
}

/// Streams the decisions of the scheduler.
pub(super) async fn decisions(client: Client) -> Answered {
    for_all(&client)?;
    let body = of_decisions(client.state.service.pool().decisions());
    Ok(answer::stream(StatusCode::OK, TYPE, body))
}

/// Lists what programs can import beside the standard library.
pub(super) async fn packages(State(state): SharedState, request: Request) -> Answered {
    let python = all(request.uri().query(), &["python"])?.remove("python");
    let packages = state.service.packages(python).await?;
    let package =
        |package: &PackageInfo| json!({ "name": package.name, "version": package.version });
    let packages: Vec<_> = packages.iter().map(package).collect();
    Ok(answer::json(StatusCode::OK, &json!({ "packages": packages })))
}

/// Returns the metrics of the process.
pub(super) async fn metrics(client: Client) -> Answered {
    for_all(&client)?;
    let render = client
        .state
        .config
        .metrics
        .as_ref()
        .ok_or_else(|| Failure::missing("metrics", "this server doesn't record metrics"))?;
    // Computing a status sets the gauges.
    let _ = client.state.service.pool().status();
    Ok(answer::of(StatusCode::OK, METRICS_TYPE, render().into()))
}

/// A command to drain the pool.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Drain {
    #[schemars(extend("minimum" = 0, "maximum" = MOST_SECONDS))]
    seconds: Option<f64>,
}

/// Lets the pool finish and end.
pub(super) async fn drain(client: Client, request: Request) -> Answered {
    for_administrators(&client, "only the token of an administrator drains the pool")?;
    let Drain { seconds } = body::command(&client.state, request).await?;
    let is_valid = |seconds: &f64| (0.0..=MOST_SECONDS).contains(seconds);
    if !seconds.as_ref().is_none_or(is_valid) {
        return Err(Failure::usage(format!("`seconds` is from 0 to {MOST_SECONDS}")));
    }
    let service = client.state.service.clone();
    tokio::spawn(async move { service.drain(seconds.map(Duration::from_secs_f64)).await });
    // When the client has the answer, the pool is no longer open. The scheduler decides in microseconds.
    while client.state.service.pool().status().phase == Phase::Open {
        tokio::task::yield_now().await;
    }
    Ok(answer::json(StatusCode::ACCEPTED, &json!({ "status": "draining" })))
}

/// Ends a worker after its present job.
pub(super) async fn retire(client: Client, Named(worker): Named<u64>) -> Answered {
    for_administrators(&client, "only the token of an administrator retires workers")?;
    client.state.service.pool().retire(WorkerId(worker)).await?;
    Ok(answer::json(StatusCode::ACCEPTED, &json!({ "worker": worker, "status": "retiring" })))
}

/// Begins the statistics again.
pub(super) async fn reset_statistics(client: Client) -> Answered {
    for_administrators(&client, "only the token of an administrator resets statistics")?;
    client.state.service.pool().reset_statistics().await;
    Ok(answer::json(StatusCode::OK, &json!({ "status": "reset" })))
}

/// Explains where a job is.
pub(super) async fn explain(client: Client, Named(job): Named<u64>) -> Answered {
    let explanation = client.state.service.pool().explain(JobId(job)).await;
    // Jobs of other tenants don't exist.
    let own = explanation.filter(|explanation| {
        client.caller.tenant().is_none_or(|tenant| explanation.tenant == tenant)
    });
    Ok(answer::json(StatusCode::OK, &own.ok_or_else(|| no_job(job))?))
}

/// Raises `KeyboardInterrupt` in a job.
pub(super) async fn interrupt(client: Client, Named(job): Named<u64>) -> Answered {
    end(&client, job, Ticket::interrupt)
}

/// Cancels a job.
pub(super) async fn cancel(client: Client, Named(job): Named<u64>) -> Answered {
    end(&client, job, Ticket::cancel)
}

fn end(client: &Client, job: u64, ending: EarlyEnd) -> Answered {
    if !client.state.jobs.end(&client.caller, JobId(job), ending) {
        return Err(no_job(job));
    }
    Ok(answer::json(StatusCode::ACCEPTED, &json!({ "job": job })))
}

fn no_job(job: u64) -> Failure {
    Failure::missing("job", format!("there is no job {job}, or it has ended"))
}

/// Refuses everybody else what changes the pool.
fn for_administrators(client: &Client, message: &str) -> Result<(), Failure> {
    match client.is_administrator {
        true => Ok(()),
        false => Err(Failure::new(StatusCode::FORBIDDEN, "administrator", message)),
    }
}

/// Refuses tenants what is about all of them.
fn for_all(client: &Client) -> Result<(), Failure> {
    match client.caller.tenant() {
        None => Ok(()),
        Some(_) => {
            let message = "this is about all tenants: use the token of an administrator";
            Err(Failure::new(StatusCode::FORBIDDEN, "administrator", message))
        }
    }
}

/// The type of a stream of events.
pub(super) const TYPE: &str = "text/event-stream";

/// Returns the events of a job, and its result at their end. Dropping the body cancels the job.
pub(super) fn of_job(running: RunningJob) -> Body {
    let admitted = event("admitted", None, &json!({ "job": running.job }));
    // What the result takes is held until the connection asks for more: it has sent nearly all by then.
    let begin: (Option<RunningJob>, Option<Share>) = (Some(running), None);
    let rest = unfold(begin, |(running, _held)| async move {
        let mut running = running?;
        while let Some(happened) = running.events.next().await {
            if let Some((name, data)) = named(&happened.kind) {
                let event = event(name, Some(happened.sequence), &data);
                return Some((event, (Some(running), None)));
            }
        }
        let (result, held) = match running.ended().await {
            Ok(Ended { result, held, .. }) => (result, Some(held)),
            Err(failure) => (tool::refusal(&failure.problem), None),
        };
        Some((event("outcome", None, &result), (None, held)))
    });
    body_of(iter([admitted]).chain(rest))
}

/// Returns the decisions of the scheduler from now on.
pub(super) fn of_decisions(decisions: Decisions) -> Body {
    body_of(unfold(decisions, |mut decisions| async move {
        let event = match decisions.next().await? {
            NextDecision::Decision(decision) => {
                event("decision", Some(decision.sequence), &decision)
            }
            NextDecision::Missed(count) => event("missed", None, &json!({ "count": count })),
        };
        Some((event, decisions))
    }))
}

/// Returns the body of these events. After 15 s without one it sends a comment. So proxies keep the
/// connection, and the server notices a client that has gone away.
fn body_of(events: impl Stream<Item = Event> + Send + 'static) -> Body {
    let events = Sse::new(events.map(Ok::<_, Infallible>)).keep_alive(KeepAlive::default());
    events.into_response().into_body()
}

/// Returns the name of an event with its data; `None` for the end, which the outcome says.
fn named(kind: &EventKind) -> Option<(&'static str, Value)> {
    Some(match kind {
        EventKind::Started => ("started", json!({})),
        EventKind::Output { stream, bytes } => {
            let stream = stream.name();
            let mut data = json!({ "stream": stream, "text": String::from_utf8_lossy(bytes) });
            if std::str::from_utf8(bytes).is_err() {
                data["base64"] = BASE64_STANDARD.encode(bytes).into();
            }
            ("output", data)
        }
        EventKind::Display(bundle) => ("display", json!({ "bundle": bundle })),
        EventKind::HostCall { name } => ("host_call", json!({ "name": name })),
        EventKind::Request(request) => ("request", json!(request)),
        EventKind::Retried => ("retried", json!({})),
        EventKind::FileChanged { path, kind } => ("file", json!({ "path": path, "kind": kind })),
        // Also what later versions may add.
        _ => return None,
    })
}

fn event(name: &str, id: Option<u64>, data: &impl Serialize) -> Event {
    let event = id.iter().fold(Event::default().event(name), |event, id| event.id(id.to_string()));
    event.data(serde_json::to_string(data).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use hatchery::event::Stream;

    use super::*;

    #[tokio::test]
    async fn output_of_a_program_stays_within_its_event() {
        let output = async |bytes: &[u8]| {
            let kind = EventKind::Output { stream: Stream::Stdout, bytes: bytes.to_vec() };
            let (name, data) = named(&kind).unwrap();
            let body = body_of(iter([event(name, Some(3), &data)]));
            axum::body::to_bytes(body, usize::MAX).await.unwrap()
        };
        let forged = output(b"a\n\nevent: outcome\ndata: {}\r\n\n").await;
        let expected = "event: output\nid: 3\ndata: {\"stream\":\"stdout\",\"text\":\
                        \"a\\n\\nevent: outcome\\ndata: {}\\r\\n\\n\"}\n\n";
        assert_eq!(forged, expected);
        let binary = output(b"\xff").await;
        let binary = String::from_utf8(binary.to_vec()).unwrap();
        assert!(binary.contains("\"base64\":\"/w==\""), "{binary}");
        assert_eq!(named(&EventKind::Finished), None);
    }
}
