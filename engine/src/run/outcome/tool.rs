//! An outcome as one JSON object, for tools and for lines of a batch.

use std::collections::BTreeMap;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;

use super::{Exception, MimeBundle, Outcome, RequestLog, SandboxFailure, Usage, Verdict};
use crate::cause::chain;
use crate::files::changes::{ChangeKind, ChangedFile};
use crate::limits::{LimitHit, LimitKind};

// The result format that agents' REPL tools share, followed by further fields. The comments on
// fields are their descriptions in the schema.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "run_python_result")]
struct ToolResult<'a> {
    /// Standard output.
    stdout: String,
    /// Standard error.
    stderr: String,
    /// The traceback of the exception that ended the program.
    exception: Option<&'a str>,
    /// Whether it ran to its end, or left with sys.exit(0) before.
    success: bool,
    /// Seconds.
    execution_time: f64,
    /// Whether a limit on time or a deadline ended it.
    timed_out: bool,
    /// Whether it ran to its very end. Not so if it left with sys.exit(0) or os._exit(0), which is
    /// a success: what follows there hasn't run.
    passed: bool,
    #[schemars(extend("enum" = STATUSES))]
    status: &'static str,
    /// The last expression, if it is JSON.
    value: Option<&'a serde_json::Value>,
    /// Why `value` is null though the last expression isn't None.
    #[serde(skip_serializing_if = "Option::is_none")]
    value_missing: Option<&'a str>,
    /// The last expression's repr, unless it is None.
    repr: Option<&'a str>,
    /// Its other forms: MIME types and texts, bytes in base64.
    #[schemars(with = "Option<BTreeMap<String, String>>")]
    bundle: Option<&'a MimeBundle>,
    /// What the program showed, each in forms as in `bundle`.
    #[schemars(with = "Vec<BTreeMap<String, String>>")]
    displays: &'a [MimeBundle],
    exit_code: Option<u8>,
    /// What sys.exit was given, or how the interpreter ended.
    message: Option<&'a str>,
    /// The traceback of where an interrupt ended the program.
    interrupted_at: Option<&'a str>,
    /// Whether it was ended by force, and its session is as it was before it.
    session_restored: bool,
    #[schemars(schema_with = "error_schema")]
    error: Option<ToolError<'a>>,
    /// Whether output was dropped.
    truncated: bool,
    /// Files that the program created, modified or deleted.
    files: Vec<ToolFile<'a>>,
    /// Limits that stood in its way without ending it.
    limits_met: &'a [LimitHit],
    /// Its requests over HTTP.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    requests: &'a [RequestLog],
    usage: ToolUsage,
}

/// The names of verdicts, and that of a call that didn't run.
const STATUSES: [&str; 8] = [
    "completed",
    "raised",
    "exited",
    "limit",
    "cancelled",
    "tampered",
    "sandbox_failed",
    "not_run",
];

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum ToolError<'a> {
    Exception(&'a Exception),
    Limit {
        #[serde(flatten)]
        hit: LimitHit,
        message: String,
    },
    #[serde(untagged)]
    Other {
        kind: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<&'static str>,
        message: String,
    },
}

/// Returns the schema of what all errors have, those of calls that didn't run included.
fn error_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": ["object", "null"],
        "properties": {
            "kind": {
                "enum": [
                    "exception", "limit", "cancelled", "tampered", "sandbox", "usage", "refused",
                ],
            },
            "message": { "type": "string" },
            "reason": {
                "type": ["string", "null"],
                "description": "Why it did not run, as one word.",
            },
            "retry_after": {
                "type": "number",
                "description": "In how many seconds the same job may be accepted.",
            },
        },
        "required": ["kind", "message"],
    })
}

#[derive(Serialize, JsonSchema)]
struct ToolFile<'a> {
    path: &'a str,
    #[schemars(with = "String", extend("enum" = ["created", "modified", "deleted"]))]
    change: ChangeKind,
    bytes: usize,
    /// Its contents in base64. Only there if contents were asked for, and not of a file that was
    /// deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    data: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct ToolUsage {
    queue_ms: f64,
    wall_ms: f64,
    cpu_ms: f64,
    peak_memory_bytes: u64,
    output_bytes: u64,
    host_calls: u64,
    file_growth_bytes: u64,
}

/// Returns the JSON schema of a result: of [`Outcome::to_tool_json`], and of a call that didn't
/// run.
pub fn result_schema() -> serde_json::Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let settings = settings.with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<ToolResult<'_>>();
    RecursiveTransform(plain).transform(&mut schema);
    schema.to_value()
}

/// Leaves out the formats of numbers, which say nothing in JSON, and line ends within descriptions.
fn plain(schema: &mut Schema) {
    schema.remove("format");
    if let Some(serde_json::Value::String(description)) = schema.get_mut("description") {
        *description = description.replace('\n', " ");
    }
}

impl Outcome {
    /// Returns the outcome as a JSON object.
    ///
    /// The first six fields are those that REPL tools of agents agree on: `stdout`, `stderr`,
    /// `exception` (the traceback, or null), `success`, `execution_time` (seconds) and `timed_out`.
    /// Hatchery's own follow: `passed` ([`Self::passed`]: it ran to its very end, which a `success`
    /// that left with `sys.exit(0)` didn't), `status` (`completed`, `raised`, `exited`, `limit`,
    /// `cancelled`, `tampered` or `sandbox_failed`), `value`, `repr`, `bundle`, `displays`,
    /// `exit_code`, `message`, `interrupted_at`, `session_restored`, `error`, `truncated`, `files`,
    /// `limits_met`, `requests` if there are some, and `usage`. `bundle` and each of `displays` are objects from MIME types to
    /// texts, bytes in base64. The `error` of an exception has the fields of [`Exception`]. A
    /// `value` of null means either `None` or no JSON; then `value_missing` says why. `files` has
    /// no contents; [`Self::to_tool_json_with_files`] does.
    pub fn to_tool_json(&self) -> serde_json::Value {
        self.tool_json(false)
    }

    /// Returns the same with the contents of each changed file, as `data` in base64.
    /// `Limits::file_bytes` bounds them.
    pub fn to_tool_json_with_files(&self) -> serde_json::Value {
        self.tool_json(true)
    }

    fn tool_json(&self, has_contents: bool) -> serde_json::Value {
        let (value, value_missing, repr, bundle) = match &self.verdict {
            Verdict::Completed { value, repr, bundle, missing, .. } => {
                (value.as_ref(), missing.as_deref(), repr.as_deref(), Some(bundle))
            }
            _ => (None, None, None, None),
        };
        let (exit_code, message) = match &self.verdict {
            Verdict::Exited { code, message } => (Some(*code), message.as_deref()),
            _ => (None, None),
        };
        let exception = match &self.verdict {
            Verdict::Raised(exception) => Some(exception.traceback.as_str()),
            _ => None,
        };
        let files = self.files.iter();
        let result = ToolResult {
            stdout: self.stdout_text(),
            stderr: self.stderr_text(),
            exception,
            success: self.is_success(),
            execution_time: self.usage.wall.as_secs_f64(),
            timed_out: self.is_timeout(),
            passed: self.passed(),
            status: self.verdict.name(),
            value,
            value_missing,
            repr,
            bundle: bundle.filter(|bundle| !bundle.is_empty()),
            displays: &self.displays,
            exit_code,
            message,
            interrupted_at: self.interrupted_at.as_ref().map(|at| at.traceback.as_str()),
            session_restored: self.session_restored,
            error: tool_error(&self.verdict),
            truncated: self.output_truncated,
            files: files.map(|file| ToolFile::of(file, has_contents)).collect(),
            limits_met: &self.limits_met,
            requests: &self.requests,
            usage: ToolUsage::of(&self.usage),
        };
        serde_json::to_value(result).expect("strings, numbers and values have a JSON form")
    }

    /// Returns whether a time limit ended the job: wall time, CPU time, or its deadline, even in
    /// the queue.
    pub fn is_timeout(&self) -> bool {
        let is_time =
            |limit| matches!(limit, LimitKind::Wall | LimitKind::Cpu | LimitKind::Deadline);
        matches!(&self.verdict, Verdict::Limit(hit) if is_time(hit.limit))
    }
}

impl Verdict {
    /// Returns the name in results, such as `completed`.
    pub fn name(&self) -> &'static str {
        self.into()
    }
}

fn tool_error(verdict: &Verdict) -> Option<ToolError<'_>> {
    let (kind, message) = match verdict {
        Verdict::Raised(exception) => return Some(ToolError::Exception(exception)),
        Verdict::Limit(hit) => {
            return Some(ToolError::Limit { hit: *hit, message: hit.to_string() });
        }
        Verdict::Completed { .. } | Verdict::Exited { .. } => return None,
        Verdict::Cancelled => ("cancelled", "the job was cancelled".to_owned()),
        Verdict::Tampered(tampering) => ("tampered", tampering.to_string()),
        Verdict::SandboxFailed(failure) => {
            let is_usage = matches!(failure, SandboxFailure::NotDeterministic);
            (if is_usage { "usage" } else { "sandbox" }, chain(failure).to_string())
        }
    };
    // As further jobs of the session are refused.
    let is_lost = matches!(verdict, Verdict::SandboxFailed(SandboxFailure::SessionLost(_)));
    Some(ToolError::Other { kind, reason: is_lost.then_some("session_gone"), message })
}

impl<'a> ToolFile<'a> {
    fn of(file: &'a ChangedFile, has_contents: bool) -> Self {
        let has_data = has_contents && file.kind != ChangeKind::Deleted;
        let data = has_data.then(|| BASE64_STANDARD.encode(&file.contents));
        Self { path: &file.path, change: file.kind, bytes: file.contents.len(), data }
    }
}

impl ToolUsage {
    fn of(usage: &Usage) -> Self {
        let milliseconds = |duration: std::time::Duration| duration.as_secs_f64() * 1e3;
        Self {
            queue_ms: milliseconds(usage.queue_wait),
            wall_ms: milliseconds(usage.wall),
            cpu_ms: milliseconds(usage.cpu),
            peak_memory_bytes: usage.peak_memory_bytes,
            output_bytes: usage.output_bytes,
            host_calls: usage.host_calls,
            file_growth_bytes: usage.file_growth_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_six_agreed_fields_are_there() {
        let exception =
            Exception::new("ValueError", "test error", "Traceback …\nValueError: test error\n");
        let context = Some(Box::new(Exception::new("KeyError", "'x'", "")));
        let exception = Exception { context, ..exception };
        let json = Outcome::not_run(Verdict::Raised(exception.into())).to_tool_json();
        assert_eq!(json["stdout"], "");
        assert_eq!(json["stderr"], "");
        assert_eq!(json["exception"], "Traceback …\nValueError: test error\n");
        assert_eq!(json["success"], false);
        assert_eq!(json["execution_time"], 0.0);
        assert_eq!(json["timed_out"], false);
        assert_eq!(json["error"]["type"], "ValueError");
        assert_eq!(json["error"]["kind"], "exception");
        assert_eq!(json["error"]["context"]["type"], "KeyError");
    }

    /// A grader appends its tests to the code that it grades; they don't run if the code exits.
    #[test]
    fn only_what_ran_to_its_end_has_passed() {
        let completed = Verdict::Completed {
            value: None,
            repr: None,
            bundle: MimeBundle::default(),
            data: None,
            missing: None,
        };
        let left = Verdict::Exited { code: 0, message: None };
        for (verdict, session_restored, success, passed) in [
            (completed.clone(), false, true, true),
            (completed, true, false, false),
            (left, false, true, false),
            (Verdict::Cancelled, false, false, false),
        ] {
            let outcome = Outcome { session_restored, ..Outcome::not_run(verdict) };
            let json = outcome.to_tool_json();
            assert_eq!((&json["success"], &json["passed"]), (&json!(success), &json!(passed)));
        }
    }

    #[test]
    fn a_wall_limit_is_a_timeout_and_no_exception() {
        let hit = LimitHit::new(LimitKind::Wall, 1000, 1003);
        let json = Outcome::not_run(Verdict::Limit(hit)).to_tool_json();
        assert_eq!(json["timed_out"], true);
        assert_eq!(json["exception"], serde_json::Value::Null);
        assert_eq!(json["error"]["limit"], "wall");
        assert_eq!(json["error"]["used"], 1003);
    }
    #[test]
    fn every_limit_on_time_is_a_timeout() {
        for limit in [LimitKind::Wall, LimitKind::Cpu, LimitKind::Deadline, LimitKind::HostCalls] {
            let hit = LimitHit::new(limit, 1, 2);
            let outcome = Outcome::not_run(Verdict::Limit(hit));
            assert_eq!(outcome.is_timeout(), limit != LimitKind::HostCalls, "{}", limit.name());
        }
    }

    /// One reason tells it, whether the job found the loss or was refused after it.
    #[test]
    fn a_lost_session_has_the_reason_of_a_refusal() {
        let error = |failure| {
            let outcome = Outcome::not_run(Verdict::SandboxFailed(failure));
            outcome.to_tool_json()["error"]["reason"].clone()
        };
        assert_eq!(error(SandboxFailure::SessionLost("no copy".into())), "session_gone");
        assert_eq!(error(SandboxFailure::NotDeterministic), json!(null));
    }

    #[test]
    fn the_schema_describes_results() {
        let schema = result_schema();
        let result = Outcome::not_run(Verdict::Cancelled).to_tool_json();
        let mut fields: Vec<&str> =
            result.as_object().unwrap().keys().map(String::as_str).collect();
        let required = schema["required"].as_array().unwrap().iter();
        let mut required: Vec<&str> = required.filter_map(|name| name.as_str()).collect();
        fields.sort_unstable();
        required.sort_unstable();
        assert_eq!(fields, required);
        for field in fields {
            assert!(schema["properties"].get(field).is_some(), "{field}");
        }
        let statuses = schema["properties"]["status"]["enum"].as_array().unwrap();
        assert!(statuses.contains(&result["status"]) && statuses.contains(&json!("not_run")));
        let description = schema["properties"]["passed"]["description"].as_str().unwrap();
        assert!(description.contains("os._exit(0), which is a success"), "{description}");
        assert!(
            schema["$defs"].is_null() && !schema.to_string().contains("\"format\""),
            "{schema}"
        );
    }

    #[test]
    fn files_have_contents_where_they_are_wanted() {
        let file = |path: &str, kind, contents: &[u8]| ChangedFile {
            path: path.to_owned(),
            kind,
            contents: contents.to_owned(),
        };
        let files =
            vec![file("a", ChangeKind::Created, b"\xff"), file("b", ChangeKind::Deleted, b"")];
        let outcome = Outcome { files, ..Outcome::not_run(Verdict::Cancelled) };
        let without = json!([
            { "path": "a", "change": "created", "bytes": 1 },
            { "path": "b", "change": "deleted", "bytes": 0 },
        ]);
        assert_eq!(outcome.to_tool_json()["files"], without);
        let mut with = without;
        with[0]["data"] = json!("/w==");
        assert_eq!(outcome.to_tool_json_with_files()["files"], with);
    }
}
