//! Lines of a batch: what they ask for, and what is wrong with those that are no job.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use hatchery::{Call, Job, Limits, Priority};
use serde::Deserialize;
use serde_json::{Value, json};

/// One line of the input.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    /// Any JSON value; read before the rest, so that it is known when the rest is malformed.
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
    /// Seconds.
    timeout: Option<f64>,
    tenant: Option<String>,
    #[serde(default)]
    priority: PriorityName,
    /// Seconds from when the line is read.
    deadline: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PriorityName {
    High,
    #[default]
    Normal,
    Low,
}

/// A function in place of a program.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallLine {
    /// `module:function`.
    function: String,
    #[serde(default)]
    args: Vec<Value>,
    #[serde(default)]
    keywords: BTreeMap<String, Value>,
}

/// A line that is no job.
#[derive(Debug, PartialEq)]
pub(super) struct BadLine {
    pub(super) id: Value,
    pub(super) problem: String,
}

impl BadLine {
    pub(super) fn result(self, number: usize) -> Value {
        let message = format!("line {number}: {}", self.problem);
        json!({
            "id": self.id,
            "success": false,
            "error": { "kind": "usage", "message": message },
        })
    }
}

/// What a line asks for.
#[derive(Debug)]
pub(super) struct Request {
    /// As the line has it, or its number.
    pub(super) id: Value,
    /// Without its deadline, which runs already.
    pub(super) job: Job,
    /// From when the line was read.
    pub(super) deadline: Option<Duration>,
    /// Of the line, and of the program if that is in a file.
    pub(super) bytes: usize,
}

/// What a line asks for; `None` if it is empty.
pub(super) fn parse(
    bytes: &[u8],
    number: usize,
    limits: &Limits,
) -> Result<Option<Request>, BadLine> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if bytes.trim_ascii().is_empty() {
        return Ok(None);
    }
    let by_number = Value::from(number);
    let value: Value = serde_json::from_slice(bytes)
        .map_err(|error| BadLine { id: by_number.clone(), problem: error.to_string() })?;
    let id = value.get("id").filter(|id| !id.is_null()).cloned().unwrap_or(by_number);
    let job = serde_json::from_value::<Line>(value)
        .map_err(|error| error.to_string())
        .and_then(|line| line.job(limits));
    match job {
        Ok((job, deadline)) => {
            let bytes = bytes.len() + job.source().len();
            Ok(Some(Request { id, job, deadline, bytes }))
        }
        Err(problem) => Err(BadLine { id, problem }),
    }
}

impl Line {
    fn job(self, limits: &Limits) -> Result<(Job, Option<Duration>), String> {
        let job = match (self.code, self.file, self.call) {
            (Some(code), None, None) => Job::code(code),
            (None, Some(file), None) => Job::file(file).map_err(|error| error.to_string())?,
            (None, None, Some(call)) => call.job(),
            (None, None, None) => {
                return Err("give the program as `code` or `file`, or a `call`".to_owned());
            }
            _ => return Err("give one of `code`, `file` and `call`".to_owned()),
        };
        let variables = self.variables.into_iter();
        let job = variables.fold(job, |job, (name, value)| job.variable(name, value));
        let mut limits = limits.clone();
        if let Some(timeout) = self.timeout {
            limits.wall_time = seconds("timeout", timeout)?;
        }
        let deadline = self.deadline.map(|deadline| seconds("deadline", deadline)).transpose()?;
        let job = job.priority(self.priority.into());
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

fn seconds(field: &str, seconds: f64) -> Result<Duration, String> {
    let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero());
    time.ok_or_else(|| {
        format!("`{field}` is {seconds}; give a number of seconds above 0 and below 1e19")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &[u8]) -> Result<Option<Request>, BadLine> {
        parse(text, 7, &Limits::default())
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
        assert!(problem("[]").problem.contains("struct Line"));
        let not_text = parsed(b"{\"code\": \"\xff\"}").unwrap_err();
        assert!(not_text.problem.contains("unicode"), "{not_text:?}");
    }

    #[test]
    fn a_deadline_is_a_number_of_seconds() {
        let deadline = |text: &str| parsed(text.as_bytes()).unwrap().unwrap().deadline;
        assert_eq!(deadline(r#"{"code": "1"}"#), None);
        let line = r#"{"code": "1", "deadline": 1.5, "tenant": "a", "priority": "high"}"#;
        assert_eq!(deadline(line), Some(Duration::from_millis(1500)));
    }
}
