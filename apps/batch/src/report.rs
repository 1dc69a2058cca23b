//! The result of a line that ran in a pool of this process, and its kept files.

use std::sync::Arc;

use hatchery::Outcome;
use hatchery::files::{ChangeKind, ChangedFile, LeftOutFiles, OutputFolder, display_files};
use hatchery::wire::ProblemKind;
use serde_json::{Value, json};
use tokio::task::JoinError;

use crate::output::STRAGGLER;
use crate::pool_runner::Ended;
use crate::runner::Ran;
use crate::tally::Ending;

/// What it takes to report the result of a line.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) has_contents: bool,
    pub(crate) kept: OutputFolders,
    /// The name of this line's folder, if anything is kept.
    pub(crate) folder: String,
}

/// The folders that keep what lines produce.
#[derive(Debug, Clone, Default)]
pub(crate) struct OutputFolders {
    /// For files that programs created or changed.
    pub(crate) files: Option<Arc<OutputFolder>>,
    /// For what programs displayed.
    pub(crate) displays: Option<Arc<OutputFolder>>,
}

impl OutputFolders {
    /// Returns whether anything is kept.
    pub(crate) fn is_any(&self) -> bool {
        self.files.is_some() || self.displays.is_some()
    }
}

impl Report {
    /// Returns the result of a job. Writes the job's files first, so that they exist when the result
    /// is read.
    pub(crate) async fn of(self, ended: Result<Ended, hatchery::Error>) -> Result<Ran, JoinError> {
        let (outcome, cut) = match ended {
            Ok(ended) => ended,
            Err(error) => return Ok(Ran::new(refusal(&error), Ending::Refused)),
        };
        let mut result = match self.has_contents {
            true => outcome.to_tool_json_with_files(),
            false => outcome.to_tool_json(),
        };
        if let Some(cut) = cut {
            let (kind, message) = (&result["status"], cut.to_string());
            result["error"] = json!({ "kind": kind, "reason": STRAGGLER, "message": message });
        }
        let ending = Ending::of(&outcome);
        if !self.kept.is_any() {
            return Ok(Ran::new(result, ending));
        }
        let problem = self.keep(outcome, &mut result).await?;
        result["output_error"] = problem.clone().into();
        Ok(match problem {
            None => Ran::new(result, ending),
            Some(problem) if ending == Ending::Succeeded => {
                Ran::new(result, Ending::Failed).not_kept(problem)
            }
            Some(problem) => Ran::new(result, ending).not_kept(problem),
        })
    }

    /// Writes what is kept of an outcome, and says in the result where. Returns what couldn't be
    /// written.
    async fn keep(self, outcome: Outcome, result: &mut Value) -> Result<Option<String>, JoinError> {
        let OutputFolders { files, displays } = self.kept;
        if files.is_some() && outcome.left_out_files != LeftOutFiles::default() {
            result["left_out_files"] = json!(outcome.left_out_files);
        }
        let shown = displays.map(|root| ("displays_dir", root, display_files(&outcome)));
        let made = files.map(|root| ("output_dir", root, outcome.files));
        let mut problems = Vec::new();
        for (field, root, files) in made.into_iter().chain(shown) {
            result[field] = keep(root, &self.folder, files, &mut problems).await?;
        }
        Ok(summary(problems))
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
) -> Result<Value, JoinError> {
    if files.iter().all(|file| file.kind == ChangeKind::Deleted) {
        return Ok(Value::Null);
    }
    let path = root.path().join(name).to_string_lossy().into_owned();
    let name = name.to_owned();
    let write = move || match root.folder(&name) {
        Ok(folder) => folder.keep(&files),
        Err(error) => vec![format!("can't create the folder `{name}`: {error}")],
    };
    problems.extend(tokio::task::spawn_blocking(write).await?);
    Ok(path.into())
}

/// Returns the first problem, and how many more there are.
fn summary(problems: Vec<String>) -> Option<String> {
    let more = problems.len().saturating_sub(1);
    let first = problems.into_iter().next()?;
    Some(if more == 0 { first } else { format!("{first} (and {more} more)") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hatchery::{Job, Verdict};

    fn report(kept: OutputFolders) -> Report {
        Report { has_contents: true, kept, folder: "a".to_owned() }
    }

    #[test]
    fn a_refusal_says_why_and_when_it_may_end() {
        use hatchery::Refusal;
        use std::time::Duration;
        let refused = |retry_after| {
            let refusal = Refusal::QueueFull { tenant: None, queued: 1, limit: 1, retry_after };
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
        let kept = || OutputFolders { files: Some(Arc::clone(&root)), displays: None };
        let ran = report(kept()).of(Ok((with_file("x/y"), None))).await.unwrap();
        assert_eq!((ran.ending, ran.not_kept), (Ending::Succeeded, None));
        let result = ran.result;
        assert_eq!(result["output_dir"], base.path().join("a").to_str().unwrap());
        assert_eq!(
            (&result["output_error"], &result["files"][0]["data"]),
            (&Value::Null, &json!("Zg=="))
        );
        assert_eq!(std::fs::read(base.path().join("a/x/y")).unwrap(), b"f");

        // `x` is a folder already.
        let ran = report(kept()).of(Ok((with_file("x"), None))).await.unwrap();
        assert!(ran.ending == Ending::Failed && ran.result["success"] == true);
        let problem = ran.not_kept.unwrap();
        assert!(problem.contains("can't write `x`"), "{problem}");
        assert_eq!(ran.result["output_error"], problem);
    }

    #[tokio::test]
    async fn a_line_without_files_has_no_folder() {
        let base = tempfile::tempdir().unwrap();
        let root = Some(Arc::new(OutputFolder::open(base.path()).unwrap()));
        let kept = OutputFolders { files: root.clone(), displays: root };
        let mut outcome = Outcome::not_run(Verdict::Cancelled);
        outcome.left_out_files.undone = 2;
        let Ran { result, ending, .. } = report(kept).of(Ok((outcome, None))).await.unwrap();
        assert_eq!(ending, Ending::Cancelled);
        assert_eq!((&result["output_dir"], &result["displays_dir"]), (&Value::Null, &Value::Null));
        assert_eq!(result["left_out_files"], json!({ "undone": 2, "links": 0 }));
        assert!(!base.path().join("a").exists());
        assert!(result["error"].get("reason").is_none());
    }
}
