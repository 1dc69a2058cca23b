//! Lines of a batch: what they ask for, and what is wrong with invalid ones.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use hatchery::{Call, Job, Limits, Priority};
use serde::Deserialize;
use serde_json::{Value, json};

use super::scripts::{self, NoJob};
use crate::args::ConductArguments;

/// Digits of a digest: 128 bits, so that no two lines share one.
const DIGEST_DIGITS: usize = 32;

/// One line of the input.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    /// Any JSON value. Parsed before the rest, so that it is known even if the rest is malformed.
    #[serde(rename = "id")]
    _id: Option<Value>,
    code: Option<String>,
    file: Option<PathBuf>,
    call: Option<CallLine>,
    #[serde(default)]
    variables: BTreeMap<String, Value>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    stdin: String,
    /// By path in the workspace: strings, or `{"base64": …}`.
    files: Option<Value>,
    /// In seconds.
    timeout: Option<Seconds>,
    tenant: Option<String>,
    priority: Option<PriorityName>,
    /// In seconds, from when the line is read.
    deadline: Option<Seconds>,
}

/// A time as a JSON number.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Value")]
struct Seconds(f64);

impl TryFrom<Value> for Seconds {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let seconds = value.as_f64().filter(|seconds| seconds.is_finite()).map(Self);
        seconds.ok_or_else(|| format!("write a number of seconds, such as 1.5, not {value}"))
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PriorityName {
    High,
    Normal,
    Low,
}

/// A function to call instead of running a program.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with `function`, such as \"math:sqrt\"")]
struct CallLine {
    /// As `module:function`.
    function: String,
    #[serde(default)]
    args: Vec<Value>,
    #[serde(default)]
    keywords: BTreeMap<String, Value>,
}

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
            "error": { "kind": "usage", "message": message },
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

/// Parses a line; `None` if it is empty. Blocks while it reads the line's program. If the line
/// `is_ahead` of what the workers need, it must leave descriptors for them.
pub(super) fn parse(
    bytes: &[u8],
    number: usize,
    is_ahead: bool,
    shared: &Shared,
) -> Result<Option<Request>, NoRequest> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if bytes.trim_ascii().is_empty() {
        return Ok(None);
    }
    let by_number = Value::from(number);
    let value: Value = match serde_json::from_slice(bytes) {
        Ok(value) => value,
        Err(error) => return Err(bad(by_number, error.to_string())),
    };
    let id = value.get("id").filter(|id| !id.is_null()).cloned().unwrap_or(by_number);
    if !value.is_object() {
        return Err(bad(id, "a job is a JSON object, such as {\"code\": \"1 + 1\"}".to_owned()));
    }
    let job = serde_json::from_value::<Line>(value)
        .map_err(|error| NoJob::Bad(problem_of(bytes, &error)))
        .and_then(|line| {
            let is_in_file = line.file.is_some();
            let (job, deadline) = line.job(is_ahead, shared)?;
            let digest = digest(bytes, is_in_file.then(|| job.source()));
            let bytes = bytes.len() + job.source().len() + job.input_bytes();
            Ok(Request { id: id.clone(), digest, job, deadline, bytes })
        });
    job.map(Some).map_err(|unread| match unread {
        NoJob::Bad(problem) => bad(id, problem),
        NoJob::NoDescriptor(problem) => NoRequest::NoDescriptor(problem),
    })
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

/// Describes an error with the field that it is in: serde's error alone doesn't name it.
fn problem_of(bytes: &[u8], error: &serde_json::Error) -> String {
    let fields = serde_json::from_slice::<serde_json::Map<_, _>>(bytes).unwrap_or_default();
    let wrong = fields.into_iter().find_map(|(name, field)| {
        let alone = Value::Object([(name.clone(), field)].into_iter().collect());
        let problem = serde_json::from_value::<Line>(alone).err()?.to_string();
        let is_named = problem.starts_with(&format!("unknown field `{name}`"));
        Some(if is_named { problem } else { format!("`{name}`: {problem}") })
    });
    wrong.unwrap_or_else(|| error.to_string())
}

impl Line {
    fn job(self, is_ahead: bool, shared: &Shared) -> Result<(Job, Option<Duration>), NoJob> {
        let job = match (self.code, self.file, self.call) {
            (Some(code), None, None) => Job::code(code),
            (None, Some(file), None) => scripts::job(&file, is_ahead)?,
            (None, None, Some(call)) => call.job(),
            (None, None, None) => {
                let problem = "give the program as `code` or `file`, or a `call`";
                return Err(problem.to_owned().into());
            }
            _ => return Err("give one of `code`, `file` and `call`".to_owned().into()),
        };
        let variables = self.variables.into_iter();
        let job = variables.fold(job, |job, (name, value)| job.variable(name, value));
        let job = job.with_files_of(&shared.files);
        let job = match &self.files {
            Some(files) => job.json_files(files).map_err(hatchery::Error::from)?,
            None => job,
        };
        let job = shared.conduct.apply(job);
        let mut limits = shared.limits.clone();
        if let Some(timeout) = self.timeout {
            limits.wall_time = seconds("timeout", timeout)?;
        }
        let deadline = self.deadline.map(|deadline| seconds("deadline", deadline)).transpose()?;
        let priority = self.priority.map(Priority::from).unwrap_or_default();
        let job = job.priority(priority);
        let job = self.tenant.into_iter().fold(job, |job, tenant| job.tenant(tenant.as_str()));
        let job = self.env.into_iter().fold(job, |job, (name, value)| job.env(name, value));
        Ok((job.args(self.args).stdin(self.stdin).limits(limits), deadline))
    }
}

impl CallLine {
    fn job(self) -> Job {
        let call = self.args.into_iter().fold(Call::new(&self.function), Call::arg);
        let keywords = self.keywords.into_iter();
        keywords.fold(call, |call, (name, value)| call.keyword(name, value)).into()
    }
}

impl From<PriorityName> for Priority {
    fn from(name: PriorityName) -> Self {
        match name {
            PriorityName::High => Self::High,
            PriorityName::Normal => Self::Normal,
            PriorityName::Low => Self::Low,
        }
    }
}

fn seconds(field: &str, Seconds(seconds): Seconds) -> Result<Duration, String> {
    let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero());
    time.ok_or_else(|| {
        // `{:?}` avoids printing a number with hundreds of digits.
        format!("`{field}` is {seconds:?}; give a number of seconds above 0 and below 1e19")
    })
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
                "`timeout`: write a number of seconds, such as 1.5, not \"1s\"",
            ),
            (r#"{"code": "", "deadline": [1]}"#, "`deadline`: write a number of seconds"),
            (r#"{"call": 5}"#, "`call`: invalid type: number, expected an object with `function`"),
            (r#"{"code": "", "tenant": 5}"#, "`tenant`: invalid type: number, expected a string"),
            (r#"{"code": "", "priority": "urgent"}"#, "`priority`: unknown variant `urgent`"),
            (r#"{"code": "", "priorit": "high"}"#, "unknown field `priorit`"),
            (r#"{"call": {"function": "a:b", "arg": 1}}"#, "`call`: unknown field `arg`"),
            (r#"{"code": "", "deadline": 1e300}"#, "`deadline` is 1e300; give"),
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
