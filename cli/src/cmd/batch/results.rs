//! Results of lines: what they hold, how they are counted, and in which order they are written.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use anyhow::Context;
use hatchery::files::{ChangeKind, ChangedFile, OutputFolder, display_files};
use hatchery::wire::{ProblemKind, to_line};
use hatchery::{Outcome, Verdict};
use serde_json::{Value, json};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::shard::Shard;
use crate::terminal;

use super::attempts;
use super::earlier::STRAGGLER;

/// Bytes of results that may wait for those of earlier lines. Beyond it, no further lines are read
/// until the first of these has ended.
const MOST_HELD_BYTES: usize = 64 << 20;

/// Counts of lines by how they ended.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Jobs by their `Ending`.
    pub(super) ended: [usize; 6],
    pub(super) malformed: usize,
    /// How many of those that ended did so in an earlier run.
    pub(super) earlier: usize,
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Succeeded,
    /// The program failed, or its files or displays couldn't be written.
    Failed,
    Limited,
    Cancelled,
    SandboxFailed,
    Refused,
}

/// What it takes to report the result of a line.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) id: Value,
    pub(super) digest: String,
    pub(super) shard: Option<Shard>,
    pub(super) has_contents: bool,
    pub(super) kept: Kept,
    /// The name of this line's folder, if anything is kept.
    pub(super) folder: String,
}

/// The folders that keep what lines produce.
#[derive(Debug, Clone, Default)]
pub(super) struct Kept {
    /// For files that programs created or changed.
    pub(super) files: Option<Arc<OutputFolder>>,
    /// For what programs displayed.
    pub(super) displays: Option<Arc<OutputFolder>>,
}

/// The destination of results.
pub(super) enum Sink {
    /// Written synchronously by the batch's task, so that an interrupt leaves whole lines.
    File(File),
    Stream(Box<dyn AsyncWrite + Unpin + Send>),
}

/// Writes results as they come, or in the order of their lines.
pub(super) struct Results {
    sink: Sink,
    order: Option<Order>,
}

/// Holds results that wait for those of earlier lines.
#[derive(Debug, Default)]
struct Order {
    /// The index of the result to write next.
    next: u64,
    held: BTreeMap<u64, String>,
    bytes: usize,
}

impl Tally {
    pub(super) fn count(&mut self, ending: Ending) {
        self.ended[ending as usize] += 1;
    }

    /// Returns the counts of jobs by ending, with the names that the status uses.
    pub(super) fn endings(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let names = ["succeeded", "failed", "limited", "cancelled", "sandbox_failed", "refused"];
        names.into_iter().zip(self.ended)
    }

    pub(super) fn succeeded(&self) -> usize {
        self.ended[Ending::Succeeded as usize]
    }

    /// Returns how many lines have their result.
    pub(super) fn done(&self) -> usize {
        self.malformed + self.ended.iter().sum::<usize>()
    }

    /// Returns how many jobs did not succeed.
    pub(super) fn unsuccessful(&self) -> usize {
        self.done() - self.malformed - self.succeeded()
    }
}

impl Ending {
    fn of(outcome: &Outcome) -> Self {
        match &outcome.verdict {
            _ if outcome.is_success() => Self::Succeeded,
            Verdict::Limit(_) => Self::Limited,
            Verdict::Cancelled => Self::Cancelled,
            Verdict::SandboxFailed(_) => Self::SandboxFailed,
            _ => Self::Failed,
        }
    }

    /// Returns how a job ended that has this result.
    #[cfg(feature = "nats")]
    pub(super) fn of_result(result: &serde_json::Map<String, Value>) -> Self {
        match result.get("status").and_then(Value::as_str) {
            _ if result.get("success") == Some(&Value::Bool(true)) => Self::Succeeded,
            None => Self::Refused,
            Some("limit") => Self::Limited,
            Some("cancelled") => Self::Cancelled,
            Some("sandbox_failed") => Self::SandboxFailed,
            Some(_) => Self::Failed,
        }
    }
}

impl Kept {
    /// Returns whether anything is kept.
    pub(super) fn is_any(&self) -> bool {
        self.files.is_some() || self.displays.is_some()
    }
}

impl Report {
    /// Returns the result line of a job, and its ending. Writes the job's files first, so that they
    /// exist when the line is read.
    pub(super) async fn line(
        self,
        ended: Result<attempts::Ended, hatchery::Error>,
    ) -> anyhow::Result<(String, Ending)> {
        let (mut result, ending) = match ended {
            Ok((outcome, cut)) => {
                let mut result = match self.has_contents {
                    true => outcome.to_tool_json_with_files(),
                    false => outcome.to_tool_json(),
                };
                if let Some(cut) = cut {
                    let (kind, message) = (&result["status"], cut.to_string());
                    result["error"] =
                        json!({ "kind": kind, "reason": STRAGGLER, "message": message });
                }
                result["digest"] = self.digest.into();
                let ending = Ending::of(&outcome);
                let is_any_kept = self.kept.is_any();
                let Kept { files, displays } = self.kept;
                let shown = displays.map(|root| ("displays_dir", root, display_files(&outcome)));
                let made = files.map(|root| ("output_dir", root, outcome.files));
                let mut problems = Vec::new();
                for (field, root, files) in made.into_iter().chain(shown) {
                    result[field] = keep(root, &self.folder, files, &mut problems).await?;
                }
                if is_any_kept {
                    result["output_error"] = report_problems(&problems, &self.id).into();
                }
                match ending {
                    Ending::Succeeded if !problems.is_empty() => (result, Ending::Failed),
                    ending => (result, ending),
                }
            }
            Err(error) => (refusal(&error), Ending::Refused),
        };
        result["id"] = self.id;
        Ok((line_of(result, self.shard), ending))
    }
}

/// Returns the result of a job that the pool refused. Its error always has a `reason`, which is null
/// if the pool wasn't asked.
fn refusal(error: &hatchery::Error) -> Value {
    let mut problem = error.problem();
    problem.kind = ProblemKind::Refused;
    let mut error = json!(problem);
    error["reason"] = problem.reason.into();
    json!({ "success": false, "passed": false, "error": error })
}

/// Writes the files of a line, if any. Returns the path of their folder, or null.
async fn keep(
    root: Arc<OutputFolder>,
    name: &str,
    files: Vec<ChangedFile>,
    problems: &mut Vec<String>,
) -> anyhow::Result<Value> {
    if files.iter().all(|file| file.kind == ChangeKind::Deleted) {
        return Ok(Value::Null);
    }
    let path = root.path().join(name).to_string_lossy().into_owned();
    let name = name.to_owned();
    let write = move || match root.folder(&name) {
        Ok(folder) => folder.keep(&files),
        Err(error) => vec![format!("can't create the folder `{name}`: {error}")],
    };
    problems.extend(tokio::task::spawn_blocking(write).await.context("a write died")?);
    Ok(path.into())
}

/// Reports what couldn't be written for the line of this id, and returns the text for its result.
fn report_problems(problems: &[String], id: &Value) -> Option<String> {
    let first = problems.first()?;
    let text = match problems.len() {
        1 => first.clone(),
        count => format!("{first} (and {} more)", count - 1),
    };
    terminal::error(format_args!("line with id {id}: {text}"));
    Some(text)
}

/// Formats a result as a line, which says which shard it is of, if it is of one.
pub(super) fn line_of(mut result: Value, shard: Option<Shard>) -> String {
    if let Some(shard) = shard {
        result["shard"] = shard.to_string().into();
    }
    format!("{}\n", to_line(&result))
}

impl Results {
    pub(super) fn new(sink: Sink, is_ordered: bool) -> Self {
        Self { sink, order: is_ordered.then(Order::default) }
    }

    /// Takes the result of the line at this index among those that get one, from 0.
    pub(super) async fn put(&mut self, place: u64, line: String) -> anyhow::Result<()> {
        let Some(order) = &mut self.order else { return self.sink.write(line).await };
        order.hold(place, line);
        while let Some(line) = self.order.as_mut().and_then(Order::next) {
            self.sink.write(line).await?;
        }
        Ok(())
    }

    /// Returns how many results wait for those of earlier lines.
    pub(super) fn held(&self) -> usize {
        self.order.as_ref().map_or(0, |order| order.held.len())
    }

    /// Returns whether further results may wait too.
    pub(super) fn has_room(&self) -> bool {
        self.order.as_ref().is_none_or(|order| order.bytes < MOST_HELD_BYTES)
    }
}

impl Order {
    fn hold(&mut self, place: u64, line: String) {
        self.bytes += line.len();
        self.held.insert(place, line);
    }

    /// Takes the next result in order, if it has arrived.
    fn next(&mut self) -> Option<String> {
        let line = self.held.remove(&self.next)?;
        self.next += 1;
        self.bytes -= line.len();
        Some(line)
    }
}

impl Sink {
    async fn write(&mut self, line: String) -> anyhow::Result<()> {
        match self {
            Self::File(file) => file.write_all(line.as_bytes())?,
            // Flushed, so that readers of a pipe see each result at once.
            Self::Stream(stream) => {
                stream.write_all(line.as_bytes()).await?;
                stream.flush().await?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hatchery::Job;

    /// Returns what the file holds after each result.
    async fn written(is_ordered: bool, places: &[u64]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let mut results = Results::new(Sink::File(File::create(&path).unwrap()), is_ordered);
        let mut written = Vec::new();
        for place in places {
            results.put(*place, place.to_string()).await.unwrap();
            written.push(std::fs::read_to_string(&path).unwrap());
        }
        assert_eq!(results.held(), 0);
        written
    }

    #[tokio::test]
    async fn results_come_as_they_end_or_in_order() {
        assert_eq!(written(false, &[2, 0, 1]).await, ["2", "20", "201"]);
        assert_eq!(written(true, &[2, 0, 1, 3]).await, ["", "0", "012", "0123"]);
    }

    #[tokio::test]
    async fn results_that_wait_are_bounded() {
        let mut results = Results::new(Sink::Stream(Box::new(tokio::io::sink())), true);
        results.put(1, "x".repeat(MOST_HELD_BYTES)).await.unwrap();
        assert_eq!((results.held(), results.has_room()), (1, false));
        results.put(0, String::new()).await.unwrap();
        assert_eq!((results.held(), results.has_room()), (0, true));
    }

    fn report(kept: Kept) -> Report {
        let (digest, folder) = ("d".to_owned(), "a".to_owned());
        Report { id: json!([1]), digest, shard: None, has_contents: true, kept, folder }
    }

    #[test]
    fn a_refusal_says_why_and_when_it_may_end() {
        use hatchery::Refusal;
        use std::time::Duration;
        let refused = |retry_after| {
            let refusal = Refusal::QueueFull { queued: 1, limit: 1, retry_after };
            refusal_error(refusal.into())
        };
        let error = refused(Some(Duration::from_millis(1500)));
        assert_eq!((&error["kind"], &error["reason"]), (&json!("refused"), &json!("queue_full")));
        assert_eq!(error["retry_after"], 1.5);
        assert!(error["message"].as_str().unwrap().starts_with("the queue is full"), "{error}");
        assert!(refused(None).get("retry_after").is_none());
        let unasked = refusal_error(Job::file("/missing").unwrap_err());
        assert_eq!((&unasked["kind"], &unasked["reason"]), (&json!("refused"), &Value::Null));
        assert!(unasked.as_object().unwrap().contains_key("reason"));
    }

    fn refusal_error(error: hatchery::Error) -> Value {
        refusal(&error)["error"].take()
    }

    fn with_file(path: &str) -> Outcome {
        let mut outcome = Outcome::not_run(Verdict::Exited { code: 0, message: None });
        outcome.files = vec![ChangedFile::new(path, ChangeKind::Created, b"f")];
        outcome
    }

    #[tokio::test]
    async fn files_are_kept_before_their_line_is_made() {
        let base = tempfile::tempdir().unwrap();
        let root = Arc::new(OutputFolder::open(base.path()).unwrap());
        let kept = || Kept { files: Some(Arc::clone(&root)), displays: None };
        let (line, ending) = report(kept()).line(Ok((with_file("x/y"), None))).await.unwrap();
        let result: Value = serde_json::from_str(&line).unwrap();
        assert!(ending == Ending::Succeeded && line.ends_with('\n'));
        assert_eq!((&result["id"], &result["digest"]), (&json!([1]), &json!("d")));
        assert_eq!(result["output_dir"], base.path().join("a").to_str().unwrap());
        assert_eq!(
            (&result["output_error"], &result["files"][0]["data"]),
            (&Value::Null, &json!("Zg=="))
        );
        assert_eq!(std::fs::read(base.path().join("a/x/y")).unwrap(), b"f");

        // `x` is a folder already.
        let (line, ending) = report(kept()).line(Ok((with_file("x"), None))).await.unwrap();
        let result: Value = serde_json::from_str(&line).unwrap();
        assert!(ending == Ending::Failed && result["success"] == true);
        assert!(result["output_error"].as_str().unwrap().contains("can't write `x`"), "{result}");
    }

    #[tokio::test]
    async fn a_line_without_files_has_no_folder() {
        let base = tempfile::tempdir().unwrap();
        let root = Some(Arc::new(OutputFolder::open(base.path()).unwrap()));
        let kept = Kept { files: root.clone(), displays: root };
        let outcome = Outcome::not_run(Verdict::Cancelled);
        let (line, ending) = report(kept).line(Ok((outcome, None))).await.unwrap();
        let result: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(ending, Ending::Cancelled);
        assert_eq!((&result["output_dir"], &result["displays_dir"]), (&Value::Null, &Value::Null));
        assert!(!base.path().join("a").exists());
        assert!(result["error"].get("reason").is_none());
    }
}
