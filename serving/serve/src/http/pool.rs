//! What concerns the pool and its running jobs: status, decisions, metrics, health, the end.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use hatchery::python::PackageInfo;
use hatchery::status::Phase;
use hatchery::{JobId, WorkerId};
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer;
use super::body;
use super::door::{Door, Visitor};
use super::events;
use super::failure::Failure;
use super::query::{self, Named};
use super::running::Ending;

type Answered = Result<Response, Failure>;
type Doorway = State<Arc<Door>>;
type Who = Extension<Visitor>;

/// The type of metrics in Prometheus's text format.
pub(super) const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The longest time to drain for: a day.
const MOST_SECONDS: f64 = 86_400.0;

/// Says whether the pool takes jobs.
pub(super) async fn health(State(door): Doorway) -> Response {
    let is_ready = door.config.ready.as_ref().is_none_or(|ready| *ready.borrow());
    let (code, status) = match door.service.pool().status().phase {
        Phase::Open if is_ready => (StatusCode::OK, "ok"),
        Phase::Open => (StatusCode::SERVICE_UNAVAILABLE, "starting"),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
    };
    answer::json(code, &json!({ "status": status }))
}

/// Returns the status of the pool, or what a tenant may know of it.
pub(super) async fn status(State(door): Doorway, Extension(visitor): Who) -> Response {
    let status = door.service.pool().status();
    let Some(tenant) = visitor.caller.tenant() else {
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
pub(super) async fn cluster(State(door): Doorway, Extension(visitor): Who) -> Answered {
    for_all(&visitor)?;
    let state = match &door.config.cluster {
        None => Value::Null,
        Some(ask) => ask()
            .await
            .map_err(|message| Failure::new(StatusCode::SERVICE_UNAVAILABLE, "cluster", message))?,
    };
    Ok(answer::json(StatusCode::OK, &json!({ "cluster": state })))
}

/// Streams the decisions of the scheduler.
pub(super) async fn decisions(State(door): Doorway, Extension(visitor): Who) -> Answered {
    for_all(&visitor)?;
    let body = events::of_decisions(door.service.pool().decisions());
    Ok(answer::stream(StatusCode::OK, events::TYPE, body))
}

/// Lists what programs can import beside the standard library.
pub(super) async fn packages(State(door): Doorway, request: Request) -> Answered {
    let of_other;
    let packages = match query::only(request.uri().query(), "python")? {
        None => &door.config.packages,
        Some(name) => {
            of_other = door.service.packages(name).await?;
            &of_other
        }
    };
    let package =
        |package: &PackageInfo| json!({ "name": package.name, "version": package.version });
    let packages: Vec<_> = packages.iter().map(package).collect();
    Ok(answer::json(StatusCode::OK, &json!({ "packages": packages })))
}

/// Returns the metrics of the process.
pub(super) async fn metrics(State(door): Doorway, Extension(visitor): Who) -> Answered {
    for_all(&visitor)?;
    let render = door
        .config
        .metrics
        .as_ref()
        .ok_or_else(|| Failure::missing("metrics", "this server doesn't record metrics"))?;
    // Computing a status sets the gauges.
    let _ = door.service.pool().status();
    Ok(answer::of(StatusCode::OK, METRICS_TYPE, render().into()))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Drain {
    seconds: Option<f64>,
}

/// Lets the pool finish and end.
pub(super) async fn drain(
    State(door): Doorway,
    Extension(visitor): Who,
    request: Request,
) -> Answered {
    for_administrators(&visitor, "only the token of an administrator drains the pool")?;
    let Drain { seconds } = body::command(&door, request).await?;
    let is_valid = |seconds: &f64| (0.0..=MOST_SECONDS).contains(seconds);
    if !seconds.as_ref().is_none_or(is_valid) {
        return Err(Failure::usage(format!("`seconds` is from 0 to {MOST_SECONDS}")));
    }
    let service = door.service.clone();
    tokio::spawn(async move { service.drain(seconds.map(Duration::from_secs_f64)).await });
    // Whoever has the answer finds the pool no longer open. The scheduler decides in microseconds.
    while door.service.pool().status().phase == Phase::Open {
        tokio::task::yield_now().await;
    }
    Ok(answer::json(StatusCode::ACCEPTED, &json!({ "status": "draining" })))
}

/// Ends a worker after its present job.
pub(super) async fn retire(
    State(door): Doorway,
    Extension(visitor): Who,
    Named(worker): Named<u64>,
) -> Answered {
    for_administrators(&visitor, "only the token of an administrator retires workers")?;
    door.service.pool().retire(WorkerId(worker)).await?;
    Ok(answer::json(StatusCode::ACCEPTED, &json!({ "worker": worker, "status": "retiring" })))
}

/// Begins the statistics again.
pub(super) async fn reset_statistics(State(door): Doorway, Extension(visitor): Who) -> Answered {
    for_administrators(&visitor, "only the token of an administrator resets statistics")?;
    door.service.pool().reset_statistics().await;
    Ok(answer::json(StatusCode::OK, &json!({ "status": "reset" })))
}

/// Explains where a job is.
pub(super) async fn explain(
    State(door): Doorway,
    Extension(visitor): Who,
    Named(job): Named<u64>,
) -> Answered {
    let explanation = door.service.pool().explain(JobId(job)).await;
    // Jobs of other tenants don't exist.
    let own = explanation.filter(|explanation| {
        visitor.caller.tenant().is_none_or(|tenant| explanation.tenant == tenant)
    });
    Ok(answer::json(StatusCode::OK, &own.ok_or_else(|| no_job(job))?))
}

/// Raises `KeyboardInterrupt` in a job.
pub(super) async fn interrupt(door: Doorway, visitor: Who, job: Named<u64>) -> Answered {
    end(&door, &visitor, job.0, Ending::Interrupt)
}

/// Cancels a job.
pub(super) async fn cancel(door: Doorway, visitor: Who, job: Named<u64>) -> Answered {
    end(&door, &visitor, job.0, Ending::Cancel)
}

fn end(door: &Door, visitor: &Visitor, job: u64, ending: Ending) -> Answered {
    if !door.jobs.end(&visitor.caller, JobId(job), ending) {
        return Err(no_job(job));
    }
    Ok(answer::json(StatusCode::ACCEPTED, &json!({ "job": job })))
}

fn no_job(job: u64) -> Failure {
    Failure::missing("job", format!("there is no job {job}, or it has ended"))
}

/// Refuses everybody else what changes the pool.
fn for_administrators(visitor: &Visitor, message: &str) -> Result<(), Failure> {
    match visitor.is_administrator {
        true => Ok(()),
        false => Err(Failure::new(StatusCode::FORBIDDEN, "administrator", message)),
    }
}

/// Refuses tenants what is about all of them.
fn for_all(visitor: &Visitor) -> Result<(), Failure> {
    match visitor.caller.tenant() {
        None => Ok(()),
        Some(_) => {
            let message = "this is about all tenants: use the token of an administrator";
            Err(Failure::new(StatusCode::FORBIDDEN, "administrator", message))
        }
    }
}
