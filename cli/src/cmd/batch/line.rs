//! Lines of a batch: what they ask for, and what is wrong with invalid ones.

use std::path::Path;
use std::time::Duration;

use hatchery::error::chain;
use hatchery::wire::{Intake, InvalidJob, Problem, ProblemKind};
use hatchery::{Job, Limits};
use serde_json::{Value, json};

use super::scripts::{self, NoJob};
use crate::args::ConductArguments;

/// Digits of a digest: 128 bits, so that no two lines share one.
const DIGEST_DIGITS: usize = 32;

/// A line may have every field, and its limits replace those of the command.
const INTAKE: Intake = Intake::BATCH;

/// What the command's options give to every line.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) limits: Limits,
    /// A job with input files and mounts, and nothing else.
    pub(super) files: Job,
    pub(super) conduct: ConductArguments,
}

/// An invalid line.
#[derive(Debug, PartialEq)]
pub(super) struct BadLine {
    pub(super) id: Value,
    pub(super) problem: String,
}

/// Why a line yields no request.
#[derive(Debug)]
pub(super) enum NoRequest {
    /// The line is invalid.
    Bad(BadLine),
    /// Too many file descriptors are in use to read the program. Carries the system's message.
    NoDescriptor(String),
}

impl BadLine {
    pub(super) fn result(self, number: usize) -> Value {
        let message = format!("line {number}: {}", self.problem);
        json!({
            "id": self.id,
            "success": false,
            "passed": false,
            "error": Problem::new(ProblemKind::Usage, message),
        })
    }
}

/// The job of a line, and what goes with it.
#[derive(Debug)]
pub(super) struct Request {
    /// The line's own, or its number.
    pub(super) id: Value,
    /// Hexadecimal digest of the line, and of the program if that is in a file.
    pub(super) digest: String,
    /// Without its deadline, which already runs.
    pub(super) job: Job,
    /// From when the line was read.
    pub(super) deadline: Option<Duration>,
    /// Size of the line, its program and its files.
    pub(super) bytes: usize,
}

/// A line that is run elsewhere.
#[cfg(feature = "nats")]
#[derive(Debug)]
pub(super) struct Outgoing {
    /// The line's own, or its number.
    pub(super) id: Value,
    /// As that of a [`Request`].
    pub(super) digest: String,
    /// With its id, and the text of its program.
    pub(super) job: hatchery::wire::Job,
    /// The name of the session whose turn it is.
    pub(super) session: Option<String>,
    /// Size of the line and its program.
    pub(super) bytes: usize,
}

/// Parses a line; `None` if it is empty. Blocks while it reads the line's program. If the line
/// `is_ahead` of what the workers need, it must leave descriptors for them.
pub(super) fn parse(
    bytes: &[u8],
    number: usize,
    is_ahead: bool,
    shared: &Shared,
) -> Result<Option<Request>, NoRequest> {
    let made = parse_as(bytes, number, |value, bytes| request(value, bytes, is_ahead, shared))?;
    Ok(made.map(|(id, request)| Request { id, ..request }))
}

/// Parses a line that is run elsewhere, which is checked as if it were run here.
#[cfg(feature = "nats")]
pub(super) fn parse_outgoing(
    bytes: &[u8],
    number: usize,
    is_ahead: bool,
) -> Result<Option<Outgoing>, NoRequest> {
    let made = parse_as(bytes, number, |value, bytes| outgoing(value, bytes, is_ahead))?;
    Ok(made.map(|(id, outgoing)| {
        let job = hatchery::wire::Job { id: Some(id.clone()), ..outgoing.job };
        Outgoing { id, job, ..outgoing }
    }))
}

/// Parses a line, of whose fields something is made, and returns that with the line's id.
fn parse_as<T>(
    bytes: &[u8],
    number: usize,
    make: impl FnOnce(Value, &[u8]) -> Result<T, NoJob>,
) -> Result<Option<(Value, T)>, NoRequest> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if bytes.trim_ascii().is_empty() {
        return Ok(None);
    }
    let by_number = Value::from(number);
    let mut value: Value = match serde_json::from_slice(bytes) {
        Ok(value) => value,
        Err(error) => return Err(bad(by_number, chain(&InvalidJob::from(error)).to_string())),
    };
    // Taken before the rest is read, so that it is known even if the rest is invalid.
    let id = value.get_mut("id").map(Value::take).filter(|id| !id.is_null()).unwrap_or(by_number);
    match make(value, bytes) {
        Ok(made) => Ok(Some((id, made))),
        Err(NoJob::Bad(problem)) => Err(bad(id, problem)),
        Err(NoJob::NoDescriptor(problem)) => Err(NoRequest::NoDescriptor(problem)),
    }
}

/// Returns the request of a line without its id.
fn request(value: Value, bytes: &[u8], is_ahead: bool, shared: &Shared) -> Result<Request, NoJob> {
    let mut line = INTAKE.job(value).map_err(hatchery::Error::from)?;
    let file = line.file.take();
    let deadline = line.deadline.take();
    let base = match &file {
        Some(path) => scripts::job(Path::new(path), is_ahead)?,
        None => Job::default(),
    };
    let job = shared.give(base).with_wire(line, &INTAKE)?;
    let digest = digest(bytes, file.is_some().then(|| job.source()));
    let bytes = bytes.len() + job.source().len() + job.input_bytes();
    Ok(Request { id: Value::Null, digest, job, deadline, bytes })
}

/// Returns what is sent of a line, without its id.
#[cfg(feature = "nats")]
fn outgoing(mut value: Value, bytes: &[u8], is_ahead: bool) -> Result<Outgoing, NoJob> {
    // Beside the fields of the job, as in the frames of `serve`.
    let session = match value.as_object_mut().and_then(|line| line.remove("session")) {
        None | Some(Value::Null) => None,
        Some(Value::String(name)) => Some(name),
        Some(_) => return Err(NoJob::Bad("`session` must be a text".to_owned())),
    };
    let mut line = INTAKE.job(value).map_err(hatchery::Error::from)?;
    let file = line.file.take();
    let base = match &file {
        Some(path) => scripts::job(Path::new(path), is_ahead)?,
        None => Job::default(),
    };
    let job = base.with_wire(line.clone(), &INTAKE)?;
    let digest = digest(bytes, file.is_some().then(|| job.source()));
    if file.is_some() {
        line.code = Some(job.source().to_owned());
    }
    let bytes = bytes.len() + job.source().len();
    Ok(Outgoing { id: Value::Null, digest, job: line, session, bytes })
}

impl Shared {
    /// Gives a line's job what every line gets. What the line says itself goes over it.
    fn give(&self, job: Job) -> Job {
        self.conduct.apply(job.with_files_of(&self.files)).limits(self.limits.clone())
    }
}

fn bad(id: Value, problem: String) -> NoRequest {
    NoRequest::Bad(BadLine { id, problem })
}

/// Returns a digest that tells apart lines with the same id.
fn digest(line: &[u8], program: Option<&str>) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(line.trim_ascii());
    if let Some(program) = program {
        hasher.update(b"\n").update(program.as_bytes());
    }
    hasher.finalize().to_hex()[..DIGEST_DIGITS].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &[u8]) -> Result<Option<Request>, BadLine> {
        parse(text, 7, true, &Shared::default()).map_err(|none| match none {
            NoRequest::Bad(bad) => bad,
            none => panic!("{none:?}"),
        })
    }

    fn problem(text: &str) -> BadLine {
        parsed(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn ids_are_kept_as_they_are() {
        let id = |text: &str| parsed(text.as_bytes()).unwrap().unwrap().id;
        assert_eq!(id(r#"{"id": "a", "code": "1"}"#), json!("a"));
        assert_eq!(id(r#"{"id": [1], "code": "1"}"#), json!([1]));
        assert_eq!(id(r#"{"code": "1"}"#), json!(7));
        assert_eq!(id("\u{feff}{\"code\": \"1\"}\r"), json!(7));
        assert!(parsed(b" \r").unwrap().is_none());
    }

    #[test]
    fn malformed_lines_say_what_is_wrong() {
        assert_eq!(problem("{").id, json!(7));
        let bad = BadLine {
            id: json!(3),
            problem: "give the program as `code` or `file`, or a `call`".to_owned(),
        };
        assert_eq!(problem(r#"{"id": 3}"#), bad);
        assert!(problem(r#"{"id": 3, "code": "", "file": "x"}"#).problem.contains("one of"));
        assert!(problem(r#"{"call": {"function": "a:b", "arg": 1}}"#).problem.contains("arg"));
        assert!(problem(r#"{"id": 3, "cod": ""}"#).problem.contains("cod"));
        assert!(problem(r#"{"code": "", "timeout": -1}"#).problem.contains("timeout"));
        assert!(problem(r#"{"code": "", "deadline": 0}"#).problem.contains("deadline"));
        assert!(problem(r#"{"code": "", "priority": "urgent"}"#).problem.contains("`normal`"));
        assert!(problem("[]").problem.contains("is a JSON object"));
        assert!(problem(r#"[null, "1"]"#).problem.contains("is a JSON object"));
        let not_text = parsed(b"{\"code\": \"\xff\"}").unwrap_err();
        assert!(not_text.problem.contains("unicode"), "{not_text:?}");
    }

    #[test]
    fn errors_name_their_field() {
        for (line, start) in [
            (
                r#"{"code": "", "timeout": "1s"}"#,
                "`timeout` must be a number of seconds, such as 1.5, not \"1s\"",
            ),
            (r#"{"code": "", "deadline": [1]}"#, "`deadline` must be a number of seconds"),
            (r#"{"call": 5}"#, "`call` must be an object with `function`, such as"),
            (r#"{"code": "", "tenant": 5}"#, "`tenant` must be a string, not 5"),
            (
                r#"{"code": "", "priority": "urgent"}"#,
                "`priority` must be `high`, `normal` or `low`, not \"urgent\"",
            ),
            (r#"{"code": "", "priorit": "high"}"#, "there is no field `priorit`; use id, code"),
            (
                r#"{"call": {"function": "a:b", "arg": 1}}"#,
                "there is no field `call.arg`; use function, args, keywords",
            ),
            (r#"{"code": "", "deadline": 1e300}"#, "`deadline` is 1e300; give"),
            (r#"{"code": "", "limits": {"memory": 1}}"#, "`limits.memory` is 1; give bytes from"),
            (r#"{"code": "", "variables": {"a b": 1}}"#, "`a b`"),
        ] {
            let problem = problem(line).problem;
            assert!(problem.starts_with(start), "{line}: {problem}");
        }
    }

    #[test]
    fn numbers_keep_all_their_digits() {
        let id = "123456789012345678901234567890";
        let request = parsed(format!(r#"{{"id": {id}, "code": "1"}}"#).as_bytes());
        assert_eq!(request.unwrap().unwrap().id.to_string(), id);
    }

    #[test]
    fn a_field_that_is_null_is_not_given() {
        let line = r#"{"code": "1", "tenant": null, "priority": null, "deadline": null}"#;
        assert!(parsed(line.as_bytes()).is_ok());
    }

    #[test]
    fn files_are_texts_or_bytes_by_path() {
        let line = r#"{"code": "1", "files": {"a": "text", "b/c": {"base64": "/w=="}}}"#;
        let shared =
            Shared { files: Job::default().input("d", "12").unwrap(), ..Shared::default() };
        let request = parse(line.as_bytes(), 1, true, &shared).unwrap().unwrap();
        assert_eq!(request.job.input_bytes(), 7);
        for (files, expected) in [
            ("[]", "`files` must be"),
            (r#"{"a": 1}"#, "`files` must be"),
            (r#"{"../a": ""}"#, "relative path"),
            (r#"{"a": {"base64": "?"}}"#, "base64"),
        ] {
            let problem = problem(&format!(r#"{{"code": "", "files": {files}}}"#)).problem;
            assert!(problem.contains(expected), "{problem}");
        }
    }

    #[test]
    fn digests_tell_lines_apart_and_ignore_their_ends() {
        let digest = |text: &str| parsed(text.as_bytes()).unwrap().unwrap().digest;
        let one = digest(r#"{"code": "1"}"#);
        assert_eq!((one.len(), &one), (DIGEST_DIGITS, &digest("\u{feff} {\"code\": \"1\"}\r")));
        assert_ne!(one, digest(r#"{"code": "2"}"#));
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("a.py");
        let line = json!({ "file": program }).to_string();
        std::fs::write(&program, "1").unwrap();
        let before = digest(&line);
        assert_eq!(before, digest(&line));
        std::fs::write(&program, "2").unwrap();
        assert_ne!(before, digest(&line));
    }

    #[test]
    fn a_deadline_is_a_number_of_seconds() {
        let deadline = |text: &str| parsed(text.as_bytes()).unwrap().unwrap().deadline;
        assert_eq!(deadline(r#"{"code": "1"}"#), None);
        let line = r#"{"code": "1", "deadline": 1.5, "tenant": "a", "priority": "high"}"#;
        assert_eq!(deadline(line), Some(Duration::from_millis(1500)));
    }
}
