//! A job as a tool of agents: a call by a model, and JSON schemas of calls and results
//! (`Outcome::to_tool_json`).
//!
//! Calls are not trusted: a call gets no access to the host, and no more time than the pool allows.

use engine::{Outcome, Verdict};
use serde_json::Value as Json;
use wire::{Intake, Problem};

use crate::failure::Error;
use crate::job::Job;

impl Job {
    /// Creates the job of a tool call, as [`schema`] describes it: an object with `code`. Optional
    /// are `timeout` (seconds), `stdin`, `args`, `env`, `files` and `variables` (JSON by name).
    /// `files` maps paths in the workspace to texts, or to objects whose only field, `base64`, has
    /// padded base64 of RFC 4648.
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
    pub fn from_tool_call(call: &Json) -> Result<Self, Error> {
        Self::from_wire(Intake::TOOL.job(call.clone())?, &Intake::TOOL)
    }
}

/// Returns the JSON schema of a call, for software that offers tools to a model. The schema's title
/// is the tool's name, and its description the tool's description.
///
/// ```
/// let schema = hatchery::tool::schema();
/// assert_eq!(schema["title"], "run_python");
/// ```
pub fn schema() -> Json {
    let mut schema = Intake::TOOL.plain_schema();
    schema["title"] = "run_python".into();
    schema["description"] = DESCRIPTION.into();
    schema
}

const DESCRIPTION: &str = "Runs a Python program in a sandbox with numpy, pandas, scipy and matplotlib, \
    and with no network but what its operator allows. Variables and files of earlier calls are there only if the calls share a \
    session; otherwise each call starts fresh. The last expression's value is returned, so there \
    is no need to print it.";

/// Returns the result of a call that didn't run, with all fields of other results. Its `status` is
/// `not_run`, and its `error` is the problem, whose message says what to do.
///
/// ```
/// use hatchery::{Job, tool};
///
/// let error = Job::from_tool_call(&serde_json::json!({ "cod": "1" })).unwrap_err();
/// let result = tool::refusal(&error.problem());
/// assert_eq!(result["error"]["message"], error.to_string());
/// ```
pub fn refusal(problem: &Problem) -> Json {
    let mut result = Outcome::not_run(Verdict::Cancelled).to_tool_json();
    result["status"] = NOT_RUN.into();
    result["error"] = serde_json::json!(problem);
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
    use std::time::Duration;

    use serde_json::json;
    use wire::{InvalidJob, ProblemKind};

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
        let mut fields: Vec<&str> = Intake::TOOL.fields().map(wire::Field::name).collect();
        fields.sort_unstable();
        assert_eq!(described, fields);
    }

    /// What models read: a change of it is a change of the tool.
    #[test]
    fn the_schema_is_as_it_was() {
        let texts = json!({ "type": "string" });
        let bytes = json!({
            "type": "object",
            "properties": { "base64": { "type": "string" } },
            "required": ["base64"],
            "additionalProperties": false,
        });
        let expected = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "run_python",
            "description": "Runs a Python program in a sandbox with numpy, pandas, scipy and \
                matplotlib, and with no network but what its operator allows. Variables and files of earlier calls are there only \
                if the calls share a session; otherwise each call starts fresh. The last \
                expression's value is returned, so there is no need to print it.",
            "type": "object",
            "properties": {
                "code": { "type": "string", "description": "The program." },
                "timeout": {
                    "type": "number",
                    "description": "Seconds that the program may take. It can be shorter than the \
                        pool's own limit, not longer.",
                    "exclusiveMinimum": 0,
                    "maximum": 86_400.0,
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
                    "description": "Files in the working directory, by their relative paths: \
                        texts, or bytes as {\"base64\": ...}.",
                    "additionalProperties": { "anyOf": [texts, bytes] },
                },
                "variables": {
                    "type": "object",
                    "description": "Variables that the program finds, by name.",
                },
            },
            "required": ["code"],
            "additionalProperties": false,
        });
        assert_eq!(schema(), expected);
    }

    #[test]
    fn errors_name_the_field() {
        let files = "`files` must be an object of strings, or for bytes of {\"base64\": string}";
        for (call, expected) in [
            (json!([]), "a job is a JSON object, such as {\"code\": \"1 + 1\"}"),
            (json!({}), "give the program as `code`"),
            (json!({"code": 1}), "`code` must be a string, not 1"),
            (json!({"code": "", "args": "a"}), "`args` must be an array of strings, not \"a\""),
            (
                json!({"code": "", "args": [1]}),
                "`args` must be an array of strings, not one with 1",
            ),
            (
                json!({"code": "", "env": {"A": 1}}),
                "`env` must be an object of strings, not one with 1",
            ),
            (json!({"code": "", "files": []}), &format!("{files}, not an array")),
            (json!({"code": "", "files": {"a": 1}}), &format!("{files}, not one with 1")),
            (
                json!({"code": "", "files": {"a": {"base64": 1}}}),
                &format!("{files}, not one with an object"),
            ),
            (
                json!({"code": "", "files": {"a": {"base64": "", "mode": 1}}}),
                &format!("{files}, not one with an object"),
            ),
            (json!({"code": "", "variables": 1}), "`variables` must be an object, not 1"),
            (
                json!({"code": "", "timeout": "1"}),
                "`timeout` must be a number of seconds, such as 1.5, not \"1\"",
            ),
            (
                json!({"code": "", "tenant": "a"}),
                "`tenant` can't be used here: the pool's operator decides whose job it is and how urgent",
            ),
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
        let file = |text: &str| {
            let files = json!({ "a": { "base64": text } });
            Job::from_tool_call(&json!({ "code": "", "files": files }))
        };
        for text in ["", "Zg==", "Zm8=", "Zm9v", "+/+/"] {
            assert!(file(text).is_ok(), "{text}");
        }
        let unpadded = ["Z", "Zg", "Zg=", "Zg===", "Z===", "====", "=", "Z=g="];
        let others = ["Zh==", "Zm9=", "Zm 9", "Zm9v\n", "Zm9vZg==Zm9v", "Zm-_", "Zmé"];
        for text in unpadded.into_iter().chain(others) {
            let refused = file(text).unwrap_err();
            assert!(matches!(refused, Error::Job(InvalidJob::Base64(..))), "{text}: {refused}");
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

    #[test]
    fn the_kinds_of_errors_are_those_of_results() {
        let schema = result_schema();
        let named = schema["properties"]["error"]["properties"]["kind"]["enum"].as_array().unwrap();
        let kinds: Vec<Json> = ProblemKind::ALL.iter().map(|kind| json!(kind)).collect();
        assert_eq!(*named, kinds);
    }
}
