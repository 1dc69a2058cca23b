//! `POST /v1/batches`: a job in each line, and a result in each line as the jobs end.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use hatchery::tool;
use hatchery::wire::{Problem, ProblemKind};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::body;
use super::failure::Failure;
use super::running::Ended;
use super::state::{self, AppState, Client};
use crate::answer;
use crate::caller::Caller;
use crate::http::query::Options;
use crate::service::Share;

/// Jobs of one batch that are with the scheduler at once. More fill the queue of the tenant; fewer
/// leave workers idle.
const MOST_RUNNING: usize = 64;
/// Results that wait for the client to read.
const MOST_WAITING: usize = 16;

/// Runs a batch.
pub(super) async fn batch(client: Client, request: Request) -> Result<Response, Failure> {
    let options = Options::read(request.uri().query(), &["files"])?;
    // Refused before anything is received.
    let held = client.state.transit.hold(&client.caller, 1)?;
    let (results, lines) = mpsc::channel(MOST_WAITING);
    let batch = Batch { state: client.state, caller: client.caller, has_files: options.has_files };
    tokio::spawn(batch.run(request.into_body(), held, results));
    Ok(answer::lines(lines))
}

#[derive(Clone)]
struct Batch {
    state: Arc<AppState>,
    caller: Caller,
    has_files: bool,
}

impl Batch {
    /// Reads lines and runs them until both ends are reached, or the client has gone away. Jobs
    /// that run then are cancelled.
    async fn run(self, body: Body, held: Share, results: mpsc::Sender<Bytes>) {
        let idle = self.state.config.idle_time;
        let mut lines = BodyLines::new(body, held, self.state.config.body_bytes);
        let mut running = JoinSet::new();
        let mut number = 0_u64;
        let mut has_more = true;
        // Whether the lines that run take all the room there is.
        let mut is_full = false;
        // Lines whose results fit into a quarter of what the tenant may hold, as far as is known.
        let mut most_running = MOST_RUNNING;
        while has_more || !running.is_empty() {
            let result = tokio::select! {
                () = results.closed() => return,
                line = timeout(idle, lines.next()),
                    if has_more && !is_full && running.len() < most_running =>
                {
                    match line {
                        Ok(Ok(Some((line, held)))) => {
                            number += 1;
                            let batch = self.clone();
                            running.spawn(async move { batch.line(line, held, number).await });
                            continue;
                        }
                        Ok(Ok(None)) => {
                            has_more = false;
                            continue;
                        }
                        // Those that run make room.
                        Ok(Err(failure)) if failure.is_load() && !running.is_empty() => {
                            is_full = true;
                            continue;
                        }
                        Ok(Err(failure)) => {
                            has_more = false;
                            refusal(failure.problem, (number + 1).into())
                        }
                        // The jobs of the batch may take longer than this.
                        Err(_) if !running.is_empty() => continue,
                        Err(_) => {
                            has_more = false;
                            let message = "the next line didn't arrive in time";
                            let problem = Problem::new(ProblemKind::Usage, message);
                            refusal(problem.with_reason("too_slow"), (number + 1).into())
                        }
                    }
                }
                Some(ended) = running.join_next() => {
                    is_full = false;
                    let Ok(result) = ended else { continue };
                    let fitting = self.state.transit.largest() / 4 / result.len().max(1);
                    most_running = most_running.min(fitting.max(1));
                    result
                }
            };
            if results.send(result).await.is_err() {
                return;
            }
        }
    }

    /// Returns the result of a line, which is counted until its job is submitted.
    async fn line(&self, line: Bytes, held: Share, number: u64) -> Bytes {
        let mut id = number.into();
        match self.outcome(line, held, &mut id).await {
            Ok((mut result, held)) => {
                result["id"] = id;
                held.until_sent(line_of(&result))
            }
            Err(problem) => refusal(problem, id),
        }
    }

    async fn outcome(
        &self,
        line: Bytes,
        held: Share,
        id: &mut Value,
    ) -> Result<(Value, Share), Problem> {
        // Known even if the rest of the line isn't valid.
        if let Some(given) = id_of(&line) {
            *id = given;
        }
        let job = state::job(&self.caller, line).await?;
        let submitted = self.state.service.submit_patiently(&self.caller, &job, None, is_load);
        let ticket = submitted.await?;
        drop((job, held));
        let mut running = self.state.jobs.start(&self.caller, ticket, self.has_files);
        let job = running.job;
        let Ended { mut result, held, .. } = running.ended().await?;
        result["job"] = job.0.into();
        Ok((result, held))
    }
}

/// Returns whether a job is refused for the load alone.
fn is_load(problem: &Problem) -> bool {
    matches!(
        problem.reason.as_deref(),
        Some("queue_full" | "queue_bytes" | "tenant_queue_full" | "tenant_queue_bytes")
    )
}

/// Returns the id that a line gives its job.
fn id_of(line: &[u8]) -> Option<Value> {
    #[derive(serde::Deserialize)]
    struct LineId {
        id: Option<Value>,
    }
    serde_json::from_slice::<LineId>(line).ok()?.id
}

fn refusal(problem: Problem, id: Value) -> Bytes {
    let mut result = tool::refusal(&problem);
    result["id"] = id;
    line_of(&result)
}

fn line_of(result: &Value) -> Bytes {
    let mut line = serde_json::to_vec(result).unwrap_or_default();
    line.push(b'\n');
    line.into()
}

/// Splits a body into lines.
struct BodyLines {
    body: Body,
    most: usize,
    /// What was received and isn't a whole line yet.
    part: BytesMut,
    /// What was received and has no room yet.
    next: Bytes,
    /// Counts both.
    held: Share,
    /// How much of the part has no line end.
    searched: usize,
    has_ended: bool,
}

impl BodyLines {
    fn new(body: Body, held: Share, most: usize) -> Self {
        let (part, next) = (BytesMut::new(), Bytes::new());
        Self { body, most, part, next, held, searched: 0, has_ended: false }
    }

    /// Returns the next line that isn't blank, and counts it; `None` at the end. Cancel-safe, and can
    /// be called again if there was no room.
    async fn next(&mut self) -> Result<Option<(Bytes, Share)>, Failure> {
        loop {
            let rest = &self.part[self.searched..];
            let line = match rest.iter().position(|byte| *byte == b'\n') {
                Some(at) => self.part.split_to(self.searched + at + 1),
                None if self.has_ended => self.part.split(),
                None => {
                    self.searched = self.part.len();
                    if self.part.len() > self.most {
                        let message = format!("a line has more than {} bytes", self.most);
                        let problem = Problem::new(ProblemKind::Usage, message);
                        return Err(problem.with_reason("too_large").into());
                    }
                    self.receive().await?;
                    continue;
                }
            };
            self.searched = 0;
            let held = self.held.split(line.len());
            if !line.trim_ascii().is_empty() {
                return Ok(Some((line.freeze(), held)));
            }
            if self.has_ended && self.part.is_empty() {
                return Ok(None);
            }
        }
    }

    async fn receive(&mut self) -> Result<(), Failure> {
        if self.next.is_empty() {
            // The caller bounds the time.
            match body::next(&mut self.body, Duration::MAX).await? {
                Some(bytes) => self.next = bytes,
                None => self.has_ended = true,
            }
        }
        self.held.reach(self.part.len() + self.next.len())?;
        self.part.extend_from_slice(&mem::take(&mut self.next));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;

    use super::*;
    use crate::service::Shares;

    fn lines(
        parts: impl IntoIterator<Item = Result<Bytes, Infallible>, IntoIter: Send + 'static>,
    ) -> BodyLines {
        let held = Shares::new(1000).hold(&Caller::owner(), 1).unwrap();
        BodyLines::new(Body::from_stream(stream::iter(parts)), held, 100)
    }

    #[tokio::test]
    async fn lines_are_whole_wherever_the_body_is_cut() {
        let text = b"{\"a\": 1}\n\n  \r\n{\"b\": 2}\r\nlast";
        for length in 1..=text.len() {
            let parts: Vec<Result<Bytes, Infallible>> =
                text.chunks(length).map(|part| Ok(Bytes::copy_from_slice(part))).collect();
            let mut lines = lines(parts);
            let mut found = Vec::new();
            while let Some((line, _)) = lines.next().await.unwrap() {
                found.push(line.trim_ascii().to_vec());
            }
            assert_eq!(found, [&b"{\"a\": 1}"[..], b"{\"b\": 2}", b"last"], "{length}");
        }
    }

    #[tokio::test]
    async fn a_line_without_end_is_refused() {
        let parts = (0..).map(|_| Ok::<_, Infallible>(Bytes::from_static(b"xxxxxxxxxx")));
        let refused = lines(parts).next().await.unwrap_err().problem;
        assert_eq!(refused.reason.as_deref(), Some("too_large"));
    }
}
