//! `POST /run_jupyter`: cells in one session, which is closed afterwards.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use hatchery::event::EventKind;
use hatchery::wire::{self, Problem, ProblemKind};
use hatchery::{LimitKind, Outcome, Verdict};
use notebook::guest::Cell;
use notebook::{CellEvent, joined};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::request::{Sent, plain, seconds, to_base64};
use super::super::run::{fault, is_gone, retried, submit};
use super::{SPARE, failed, inputs, sent};
use crate::answer::json as json_answer;
use crate::caller::{Caller, unguessable};
use crate::facades::run::failure;
use crate::service::Service;

#[derive(Deserialize)]
pub(super) struct RunJupyter {
    cells: Vec<String>,
    /// 0 for no limit but the total.
    #[serde(default)]
    cell_timeout: f64,
    #[serde(default = "total")]
    total_timeout: f64,
    #[serde(default)]
    kernel: Kernel,
    #[serde(default)]
    files: BTreeMap<String, Option<String>>,
    #[serde(default)]
    fetch_files: Vec<String>,
}

#[derive(Default, Deserialize)]
enum Kernel {
    #[default]
    #[serde(rename = "python3")]
    Python3,
}

fn total() -> f64 {
    45.0
}

/// What the cells left.
struct Notebook {
    cells: Vec<Value>,
    /// The time that they took.
    wall: Duration,
    files: BTreeMap<String, String>,
    /// Why not all of them ran to their ends.
    end: Option<EarlyStop>,
}

enum EarlyStop {
    /// The time of all cells was up.
    Late,
    /// A cell took the session with it.
    Lost(String),
}

/// A session that is closed when its request is over, or given up.
struct Opened<'a> {
    service: &'a Service,
    caller: &'a Caller,
    name: String,
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        // Another caller that closed it did the same.
        let _ = self.service.close(self.caller, &self.name);
    }
}

pub(super) async fn run_jupyter(
    State(service): State<Service>,
    Sent(caller, request): Sent<RunJupyter>,
) -> Response {
    let Kernel::Python3 = request.kernel;
    let total = seconds(request.total_timeout);
    // Each time the cells begin in a new session.
    let run = || run_cells(&service, &caller, &request, total);
    let has_failed = |problem: &Problem| problem.kind == ProblemKind::Sandbox;
    match retried(total + SPARE, has_failed, run).await {
        Ok(notebook) => json_answer(StatusCode::OK, &answer(notebook)),
        Err(problem) => failed(&problem, json!({ "driver": null, "cells": [] })),
    }
}

async fn run_cells(
    service: &Service,
    caller: &Caller,
    request: &RunJupyter,
    total: Duration,
) -> Result<Notebook, Problem> {
    let mut files = inputs(&request.files)?;
    let name = format!("jupyter-{}", unguessable());
    service.open(caller, &name, None).await?;
    let opened = Opened { service, caller, name };
    let mut notebook =
        Notebook { cells: Vec::new(), wall: Duration::ZERO, files: BTreeMap::new(), end: None };
    if !request.cells.is_empty() {
        let job = service.notebook_job(caller, &opened.name).await?;
        let begun = submit(service, caller, &job, Some(&opened.name), SPARE).await?;
        Service::begun(&begun.await)?;
    }
    for cell in &request.cells {
        let left = total.saturating_sub(notebook.wall);
        let limit = match request.cell_timeout > 0.0 {
            true => seconds(request.cell_timeout).min(left),
            false => left,
        };
        let job = wire::Job {
            files: std::mem::take(&mut files),
            timeout: Some(limit.max(seconds(0.0))),
            ..Cell::next(cell).wire()
        };
        let job = caller.job(job)?.keep_files();
        let mut ticket = match submit(service, caller, &job, Some(&opened.name), SPARE).await {
            Ok(ticket) => ticket,
            Err(problem) if is_gone(&problem) => {
                notebook.end = Some(EarlyStop::Lost(problem.message));
                break;
            }
            Err(problem) => return Err(problem),
        };
        let outcome = ticket.outcome().await;
        if let Some(problem) = fault(&outcome) {
            return Err(problem);
        }
        notebook.wall += outcome.usage.wall;
        notebook.cells.push(cell_result(&outcome));
        let is_cut =
            matches!(&outcome.verdict, Verdict::Limit(hit) if hit.limit == LimitKind::Wall);
        if is_cut && notebook.wall >= total {
            notebook.end = Some(EarlyStop::Late);
            break;
        }
    }
    notebook.files = fetched(&opened, request).await?;
    Ok(notebook)
}

/// The files to fetch that are there, in base64.
async fn fetched(
    opened: &Opened<'_>,
    request: &RunJupyter,
) -> Result<BTreeMap<String, String>, Problem> {
    if request.fetch_files.is_empty() {
        return Ok(BTreeMap::new());
    }
    if request.cells.is_empty() {
        let found = |asked: &String| Some((asked.clone(), sent(&request.files, asked)?));
        return Ok(request.fetch_files.iter().filter_map(found).collect());
    }
    let workspace = match opened.service.workspace(opened.caller, &opened.name).await {
        Ok(workspace) => workspace,
        Err(problem) if is_gone(&problem) => return Ok(BTreeMap::new()),
        Err(problem) => return Err(problem),
    };
    let found = |asked: &String| Some((asked.clone(), to_base64(&workspace.read(plain(asked))?)));
    Ok(request.fetch_files.iter().filter_map(found).collect())
}

fn cell_result(outcome: &Outcome) -> Value {
    let shown = outcome.displays.iter().cloned().map(EventKind::Display);
    let display: Vec<Value> = shown
        .filter_map(|shown| match CellEvent::of(shown)? {
            CellEvent::Display { data, .. } | CellEvent::Result { data, .. } => Some(joined(data)),
            _ => None,
        })
        .collect();
    let error = failure(outcome).map(|ending| {
        let lines: Vec<&str> = ending.traceback.lines().collect();
        json!({ "ename": ending.name, "evalue": ending.message, "traceback": lines })
    });
    json!({
        "stdout": outcome.stdout_text(),
        "stderr": outcome.stderr_text(),
        "display": display,
        "error": error.into_iter().collect::<Vec<_>>(),
    })
}

fn answer(notebook: Notebook) -> Value {
    let (status, return_code, stderr) = match notebook.end {
        None => ("Finished", Some(0), String::new()),
        Some(EarlyStop::Late) => ("TimeLimitExceeded", None, String::new()),
        Some(EarlyStop::Lost(message)) => ("Finished", Some(1), message),
    };
    json!({
        "status": if return_code == Some(0) { "Success" } else { "Failed" },
        "message": "",
        "driver": {
            "status": status,
            "execution_time": notebook.wall.as_secs_f64(),
            "return_code": return_code,
            "stdout": "",
            "stderr": stderr,
        },
        "cells": notebook.cells,
        "executor_pod_name": null,
        "files": notebook.files,
    })
}
