//! Results of lines: what they say, how they are counted, and in which order they are written.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use anyhow::Context;
use hatchery::{ChangeKind, ChangedFile};
use serde_json::{Value, json};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::output::OutputFolder;
use crate::{escapes, terminal};

use super::attempts;
use super::earlier::STRAGGLER;

/// Results that may wait for those of earlier lines. Beyond it no further lines are read until the
/// first of these has ended.
const MOST_HELD_BYTES: usize = 64 << 20;

/// What became of the lines.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) succeeded: usize,
    pub(super) failed: usize,
    pub(super) malformed: usize,
    /// Of those that succeeded and failed, how many were done before.
    pub(super) earlier: usize,
}

/// The result of a line, as it is being made.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) id: Value,
    pub(super) digest: String,
    pub(super) has_contents: bool,
    /// Where the files of lines go, and the name of this line's folder there.
    pub(super) folder: Option<(Arc<OutputFolder>, String)>,
}

/// Where results go.
pub(super) enum Sink {
    /// Written at once and by no other thread, so that an interrupt leaves whole lines.
    File(File),
    Stream(Box<dyn AsyncWrite + Unpin + Send>),
}

/// Writes results, as they come or in the order of their lines.
pub(super) struct Results {
    sink: Sink,
    order: Option<Order>,
}

/// Results that wait for those of earlier lines.
#[derive(Debug, Default)]
struct Order {
    /// The place of the result that is to be written next.
    next: u64,
    held: BTreeMap<u64, String>,
    bytes: usize,
}

impl Tally {
    pub(super) fn count(&mut self, is_success: bool) {
        match is_success {
            true => self.succeeded += 1,
            false => self.failed += 1,
        }
    }
}

impl Report {
    /// The line for how a job ended, and whether it was a success. Its files are written first, so
    /// that they are there for whoever reads the line.
    pub(super) async fn line(
        self,
        ended: Result<attempts::Ended, hatchery::Error>,
    ) -> anyhow::Result<(String, bool)> {
        let (mut result, is_success) = match ended {
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
                let is_success = outcome.is_success();
                let is_kept = match self.folder {
                    Some(folder) => keep(folder, &self.id, outcome.files, &mut result).await?,
                    None => true,
                };
                (result, is_success && is_kept)
            }
            Err(error) => (refusal(&error), false),
        };
        result["id"] = self.id;
        Ok((line_of(&result), is_success))
    }
}

/// The result of a job that wasn't taken.
fn refusal(error: &hatchery::Error) -> Value {
    let reason = match error {
        hatchery::Error::Refused(refusal) => Some(refusal.name()),
        _ => None,
    };
    let message = error.to_string();
    let error = json!({ "kind": "refused", "reason": reason, "message": message });
    json!({ "success": false, "passed": false, "error": error })
}

/// Writes the files of a line, and says in its result where, or what went wrong. Returns whether
/// all were written.
async fn keep(
    (root, name): (Arc<OutputFolder>, String),
    id: &Value,
    files: Vec<ChangedFile>,
    result: &mut Value,
) -> anyhow::Result<bool> {
    let path = root.path().join(&name);
    let is_any = files.iter().any(|file| file.kind != ChangeKind::Deleted);
    result["output_dir"] = is_any.then(|| path.to_string_lossy()).into();
    result["output_error"] = Value::Null;
    if !is_any {
        return Ok(true);
    }
    let write = move || match root.folder(&name) {
        Ok(folder) => folder.keep(&files),
        Err(error) => vec![format!("can't make the folder `{name}`: {error}")],
    };
    let problems = tokio::task::spawn_blocking(write).await.context("a write died")?;
    let Some(first) = problems.first() else { return Ok(true) };
    let more = match problems.len() {
        1 => String::new(),
        count => format!(" (and {} more)", count - 1),
    };
    terminal::note(format_args!("of the line with id {id}: {first}{more}"));
    result["output_error"] = format!("{first}{more}").into();
    Ok(false)
}

/// A result as it is written.
pub(super) fn line_of(result: &Value) -> String {
    format!("{}\n", escapes::in_json(&result.to_string()))
}

impl Results {
    pub(super) fn new(sink: Sink, is_ordered: bool) -> Self {
        Self { sink, order: is_ordered.then(Order::default) }
    }

    /// Takes the result of the line at this place among those that have one, counted from 0.
    pub(super) async fn put(&mut self, place: u64, line: String) -> anyhow::Result<()> {
        let Some(order) = &mut self.order else { return self.sink.write(line).await };
        order.hold(place, line);
        while let Some(line) = self.order.as_mut().and_then(Order::next) {
            self.sink.write(line).await?;
        }
        Ok(())
    }

    /// How many results wait for those of earlier lines.
    pub(super) fn held(&self) -> usize {
        self.order.as_ref().map_or(0, |order| order.held.len())
    }

    /// Whether further ones could wait too.
    pub(super) fn has_room(&self) -> bool {
        self.order.as_ref().is_none_or(|order| order.bytes < MOST_HELD_BYTES)
    }
}

impl Order {
    fn hold(&mut self, place: u64, line: String) {
        self.bytes += line.len();
        self.held.insert(place, line);
    }

    /// The next result in order, if it is there.
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
            // Readers of a pipe see each result as it comes.
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
    use hatchery::{Outcome, Verdict};

    /// What is in the file after each result that comes.
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

    fn report(folder: Option<(Arc<OutputFolder>, String)>) -> Report {
        Report { id: json!([1]), digest: "d".to_owned(), has_contents: true, folder }
    }

    fn with_file(path: &str) -> Outcome {
        let path = path.to_owned();
        let file = ChangedFile { path, kind: ChangeKind::Created, contents: b"f".to_vec() };
        let verdict = Verdict::Exited { code: 0, message: None };
        Outcome { files: vec![file], ..Outcome::not_run(verdict) }
    }

    #[tokio::test]
    async fn files_are_kept_before_their_line_is_made() {
        let base = tempfile::tempdir().unwrap();
        let root = Arc::new(OutputFolder::open(base.path()).unwrap());
        let folder = || Some((Arc::clone(&root), "a".to_owned()));
        let (line, is_success) = report(folder()).line(Ok((with_file("x/y"), None))).await.unwrap();
        let result: Value = serde_json::from_str(&line).unwrap();
        assert!(is_success && line.ends_with('\n'));
        assert_eq!((&result["id"], &result["digest"]), (&json!([1]), &json!("d")));
        assert_eq!(result["output_dir"], base.path().join("a").to_str().unwrap());
        assert_eq!(
            (&result["output_error"], &result["files"][0]["data"]),
            (&Value::Null, &json!("Zg=="))
        );
        assert_eq!(std::fs::read(base.path().join("a/x/y")).unwrap(), b"f");

        // `x` is a folder already.
        let (line, is_success) = report(folder()).line(Ok((with_file("x"), None))).await.unwrap();
        let result: Value = serde_json::from_str(&line).unwrap();
        assert!(!is_success && result["success"] == true);
        assert!(result["output_error"].as_str().unwrap().contains("can't keep `x`"), "{result}");
    }

    #[tokio::test]
    async fn a_line_without_files_has_no_folder() {
        let base = tempfile::tempdir().unwrap();
        let folder = Some((Arc::new(OutputFolder::open(base.path()).unwrap()), "a".to_owned()));
        let outcome = Outcome::not_run(Verdict::Cancelled);
        let (line, _) = report(folder).line(Ok((outcome, None))).await.unwrap();
        let result: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(result["output_dir"], Value::Null);
        assert!(!base.path().join("a").exists());
        assert!(result["error"].get("reason").is_none());
    }
}
