//! A job as a tool of agents: the call, as a model writes it, and the JSON schemas of the call and
//! of its result (`Outcome::to_tool_json`).
//!
//! Calls are not trusted: a call gets no access to the host, and no more time than the pool allows.

use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use engine::{InputFile, Outcome, Verdict};
use serde_json::{Map, Value as Json, json};

pub use crate::failure::InvalidToolCall;
use crate::failure::{MOST_TOOL_CALL_SECONDS, TOOL_CALL_FIELDS};
use crate::job::Job;

/// What the field `files` must be.
const FILES: &str = "an object of strings, or for bytes of {\"base64\": string}";

impl Job {
    /// Creates the job of a tool call, as [`schema`] describes it: an object with `code` and
    /// optionally `timeout` (seconds), `stdin`, `args`, `env`, `files` (by their paths in the
    /// workspace, as in [`Self::json_files`]) and `variables` (JSON by name).
    ///
    /// The timeout can only shorten the wall time of the pool's limits.
    ///
    /// ```
    /// let call = serde_json::json!({ "code": "n * 2", "variables": { "n": 21 }, "timeout": 5 });
    /// assert!(hatchery::Job::from_tool_call(&call).is_ok());
    /// ```
    ///
    /// # Errors
    /// A field is unknown or missing, or has the wrong type or an invalid value.
    pub fn from_tool_call(call: &Json) -> Result<Self, InvalidToolCall> {
        let expected = "an object";
        let call = call.as_object().ok_or(InvalidToolCall::Type { field: "call", expected })?;
        if let Some(field) = call.keys().find(|field| !TOOL_CALL_FIELDS.contains(&field.as_str())) {
            return Err(InvalidToolCall::Unknown { field: field.clone() });
        }
        let code = text_field(call, "code")?.ok_or(InvalidToolCall::NoCode)?;
        let mut job = Self::code(code).stdin(text_field(call, "stdin")?.unwrap_or_default());
        if let Some(seconds) = given(call, "timeout") {
            let expected = "a number of seconds";
            let seconds =
                seconds.as_f64().ok_or(InvalidToolCall::Type { field: "timeout", expected })?;
            job = job.at_most(timeout(seconds)?);
        }
        if let Some(args) = given(call, "args") {
            let texts = args.as_array().and_then(|args| args.iter().map(Json::as_str).collect());
            let expected = "an array of strings";
            let texts: Vec<&str> =
                texts.ok_or(InvalidToolCall::Type { field: "args", expected })?;
            job = job.args(texts);
        }
        for (name, value) in texts_field(call, "env")? {
            job = job.env(name, value);
        }
        if let Some(files) = given(call, "files") {
            job = job.json_files(files)?;
        }
        if let Some(variables) = given(call, "variables") {
            let expected = "an object";
            let variables = variables
                .as_object()
                .ok_or(InvalidToolCall::Type { field: "variables", expected })?;
            for (name, value) in variables {
                job = job.variable(name, value.clone());
            }
        }
        job.check()?;
        Ok(job)
    }

    /// Puts files into the workspace from JSON: an object from paths to contents. Each content is a
    /// text, or an object whose only field, `base64`, has bytes (RFC 4648, padded).
    ///
    /// ```
    /// let files = serde_json::json!({ "a.csv": "x,y\n1,2\n", "b.bin": { "base64": "/wA=" } });
    /// assert!(hatchery::Job::code("open('a.csv').read()").json_files(&files).is_ok());
    /// ```
    ///
    /// # Errors
    /// The JSON has another form, the base64 is invalid, or a path is not a plain relative one.
    pub fn json_files(mut self, files: &Json) -> Result<Self, InvalidToolCall> {
        let invalid = || InvalidToolCall::Type { field: "files", expected: FILES };
        for (path, contents) in files.as_object().ok_or_else(invalid)? {
            let contents = match contents {
                Json::String(text) => text.as_bytes().to_owned(),
                Json::Object(fields) => match (fields.len(), fields.get("base64")) {
                    (1, Some(Json::String(text))) => BASE64_STANDARD
                        .decode(text)
                        .map_err(|_| InvalidToolCall::Base64 { path: path.clone() })?,
                    _ => return Err(invalid()),
                },
                _ => return Err(invalid()),
            };
            self = self.with_file(InputFile::new(path, contents)?);
        }
        Ok(self)
    }
}

/// Returns the field, unless it is missing or null.
fn given<'a>(call: &'a Map<String, Json>, field: &str) -> Option<&'a Json> {
    call.get(field).filter(|value| !value.is_null())
}

fn text_field<'a>(
    call: &'a Map<String, Json>,
    field: &'static str,
) -> Result<Option<&'a str>, InvalidToolCall> {
    let text = |value: &'a Json| {
        value.as_str().ok_or(InvalidToolCall::Type { field, expected: "a string" })
    };
    given(call, field).map(text).transpose()
}

/// Returns the strings of an object field, by name.
fn texts_field<'a>(
    call: &'a Map<String, Json>,
    field: &'static str,
) -> Result<Vec<(&'a str, &'a str)>, InvalidToolCall> {
    let Some(value) = given(call, field) else { return Ok(Vec::new()) };
    let texts = value.as_object().and_then(|texts| {
        texts.iter().map(|(name, text)| Some((name.as_str(), text.as_str()?))).collect()
    });
    texts.ok_or(InvalidToolCall::Type { field, expected: "an object of strings" })
}

fn timeout(seconds: f64) -> Result<Duration, InvalidToolCall> {
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|timeout| !timeout.is_zero() && seconds <= MOST_TOOL_CALL_SECONDS)
        .ok_or(InvalidToolCall::Timeout { seconds })
}

/// Returns the JSON schema of a call, for software that offers tools to a model. The schema's title
/// is the tool's name, and its description the tool's description.
///
/// ```
/// let schema = hatchery::tool::schema();
/// assert_eq!(schema["title"], "run_python");
/// ```
pub fn schema() -> Json {
    let texts = json!({ "type": "string" });
    let bytes = json!({
        "type": "object",
        "properties": { "base64": { "type": "string" } },
        "required": ["base64"],
        "additionalProperties": false,
    });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "run_python",
        "description": "Runs a Python program in a sandbox without network, with numpy, pandas, \
            scipy and matplotlib. Variables and files of earlier calls are there only if the calls \
            share a session; otherwise each call starts fresh. The last expression's value is \
            returned, so there is no need to print it.",
        "type": "object",
        "properties": {
            "code": { "type": "string", "description": "The program." },
            "timeout": {
                "type": "number",
                "description": "Seconds that the program may take. It can be shorter than the \
                    tool's own limit, not longer.",
                "exclusiveMinimum": 0,
                "maximum": MOST_TOOL_CALL_SECONDS,
            },
            "stdin": { "type": "string", "description": "Standard input; empty without it." },
            "args": {
                "type": "array",
                "description": "sys.argv[1:].",
                "items": texts.clone(),
            },
            "env": {
                "type": "object",
                "description": "Variables of the environment.",
                "additionalProperties": texts.clone(),
            },
            "files": {
                "type": "object",
                "description": "Files in the working directory, by their relative paths: texts, \
                    or bytes as {\"base64\": ...}.",
                "additionalProperties": { "anyOf": [texts, bytes] },
            },
            "variables": {
                "type": "object",
                "description": "Variables that the program finds, by name.",
            },
        },
        "required": ["code"],
        "additionalProperties": false,
    })
}

/// Why a call has no outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolRefusal {
    /// The call, or the configuration of the tool, is invalid.
    Usage,
    /// The pool refused it.
    Refused,
    /// The sandbox couldn't be set up.
    Sandbox,
}

/// Returns the result of a call that didn't run, with all fields of other results: its `status` is
/// `not_run`, and its `error` has the kind and the message, which says what to do.
///
/// ```
/// use hatchery::Job;
/// use hatchery::error::chain;
/// use hatchery::tool::{self, ToolRefusal};
///
/// let error = Job::from_tool_call(&serde_json::json!({ "cod": "1" })).unwrap_err();
/// let result = tool::refusal(ToolRefusal::Usage, &chain(&error).to_string());
/// assert_eq!(result["error"]["message"], error.to_string());
/// ```
pub fn refusal(kind: ToolRefusal, message: &str) -> Json {
    let mut result = Outcome::not_run(Verdict::Cancelled).to_tool_json();
    result["status"] = NOT_RUN.into();
    result["error"] = json!({ "kind": kind, "message": message });
    result
}

/// The status of a call that didn't run.
const NOT_RUN: &str = "not_run";

/// Returns the JSON schema of a result, as made by `Outcome::to_tool_json`,
/// `to_tool_json_with_files` and [`refusal`].
///
/// ```
/// let schema = hatchery::tool::result_schema();
/// assert_eq!(schema["title"], "run_python_result");
/// ```
pub fn result_schema() -> Json {
    engine::tool_result_schema()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(call: Json) -> String {
        Job::from_tool_call(&call).unwrap_err().to_string()
    }

    #[test]
    fn calls_match_the_schema() {
        let everything = json!({
            "code": "1", "timeout": 0.5, "stdin": "in", "args": ["a"], "env": {"A": "b"},
            "files": {"dir/a.csv": "1", "b": {"base64": "/w=="}}, "variables": {"x": [1, null]},
        });
        assert!(Job::from_tool_call(&everything).is_ok());
        assert!(Job::from_tool_call(&json!({"code": "", "timeout": null})).is_ok());
        let schema = schema();
        let described: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
        let mut fields = TOOL_CALL_FIELDS;
        fields.sort_unstable();
        assert_eq!(described, fields);
    }

    #[test]
    fn errors_name_the_field() {
        let files = "`files` must be an object of strings, or for bytes of {\"base64\": string}";
        for (call, expected) in [
            (json!([]), "`call` must be an object"),
            (json!({}), "give the program as `code`"),
            (json!({"code": 1}), "`code` must be a string"),
            (json!({"code": "", "args": "a"}), "`args` must be an array of strings"),
            (json!({"code": "", "args": [1]}), "`args` must be an array of strings"),
            (json!({"code": "", "env": {"A": 1}}), "`env` must be an object of strings"),
            (json!({"code": "", "files": []}), files),
            (json!({"code": "", "files": {"a": 1}}), files),
            (json!({"code": "", "files": {"a": {"base64": 1}}}), files),
            (json!({"code": "", "files": {"a": {"base64": "", "mode": 1}}}), files),
            (json!({"code": "", "variables": 1}), "`variables` must be an object"),
            (json!({"code": "", "timeout": "1"}), "`timeout` must be a number of seconds"),
        ] {
            assert_eq!(problem(call), expected);
        }
        for seconds in [0.0, -1.0, 1e9, 1e300] {
            assert!(problem(json!({"code": "", "timeout": seconds})).contains("seconds above 0"));
        }
        assert!(problem(json!({"code": "", "time": 1})).contains("no field `time`"));
        assert!(problem(json!({"code": "", "files": {"../a": ""}})).contains("../a"));
        let broken = json!({"code": "", "files": {"a.bin": {"base64": "/w"}}});
        assert!(problem(broken).contains("`a.bin`"));
        assert!(problem(json!({"code": "", "variables": {"a b": 1}})).contains("a b"));
        assert!(problem(json!({"code": "", "env": {"": ""}})).contains("environment"));
    }

    #[test]
    fn bytes_have_one_base64_form() {
        let file = |text: &str| Job::code("").json_files(&json!({ "a": { "base64": text } }));
        for text in ["", "Zg==", "Zm8=", "Zm9v", "+/+/"] {
            assert!(file(text).is_ok(), "{text}");
        }
        let unpadded = ["Z", "Zg", "Zg=", "Zg===", "Z===", "====", "=", "Z=g="];
        let others = ["Zh==", "Zm9=", "Zm 9", "Zm9v\n", "Zm9vZg==Zm9v", "Zm-_", "Zmé"];
        for text in unpadded.into_iter().chain(others) {
            let refused = file(text).unwrap_err();
            assert!(matches!(refused, InvalidToolCall::Base64 { .. }), "{text}: {refused}");
        }
    }

    #[test]
    fn a_call_gets_no_more_time_than_the_pool_allows() {
        let limits = engine::Limits::default();
        for (seconds, expected) in [(1, Duration::from_secs(1)), (60, limits.wall_time)] {
            let job = Job::from_tool_call(&json!({"code": "", "timeout": seconds})).unwrap();
            assert_eq!(job.into_request(&limits).unwrap().limits.wall_time, expected);
        }
    }
}
