//! The `error` in the result of a job that wasn't run.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::intake::Field;

/// What kind of error a result has: the `kind` of its `error`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProblemKind {
    /// The program raised an exception.
    Exception,
    /// A limit ended the program.
    Limit,
    /// The job was cancelled.
    Cancelled,
    /// The program broke what its result is made of.
    Tampered,
    /// The sandbox failed or couldn't be set up; the program isn't at fault.
    Sandbox,
    /// The job, or the configuration, is invalid. The same job fails again.
    Usage,
    /// The pool refused the job, which may succeed later.
    Refused,
}

impl ProblemKind {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::Exception,
        Self::Limit,
        Self::Cancelled,
        Self::Tampered,
        Self::Sandbox,
        Self::Usage,
        Self::Refused,
    ];
}

/// Why a job wasn't run: the `error` of its result.
///
/// ```
/// use wire::{Problem, ProblemKind};
///
/// let problem = Problem::new(ProblemKind::Usage, "give the program as `code`");
/// let json = serde_json::to_value(&problem).expect("it is text");
/// assert_eq!(json["kind"], "usage");
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "Why a request failed.")]
#[non_exhaustive]
pub struct Problem {
    /// What kind of problem it is.
    #[schemars(with = "String")]
    pub kind: ProblemKind,
    /// Why the pool refused the job: a word of a fixed list, such as `queue_full`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What failed, and what to do.
    pub message: String,
    /// In how many seconds the same job may be accepted, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<f64>,
}

impl Problem {
    /// Creates a problem with nothing but a kind and a message.
    pub fn new(kind: ProblemKind, message: impl Into<String>) -> Self {
        Self { kind, reason: None, message: message.into(), retry_after: None }
    }

    /// Sets why the pool refused the job.
    pub fn with_reason(self, reason: impl Into<String>) -> Self {
        Self { reason: Some(reason.into()), ..self }
    }

    /// Sets when the same job may be accepted.
    pub fn with_retry_after(self, retry_after: Option<Duration>) -> Self {
        Self { retry_after: retry_after.map(|time| time.as_secs_f64()), ..self }
    }
}

/// An invalid job. Nested fields are named with their parents: `limits.memory`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidJob {
    /// The text isn't JSON.
    #[error("this is not valid JSON")]
    Json(#[from] serde_json::Error),
    /// It is JSON, but no object.
    #[error("a job is a JSON object, such as {{\"code\": \"1 + 1\"}}")]
    NotAnObject,
    /// There is no such field.
    #[error("there is no field `{field}`; use {}", known.join(", "))]
    Unknown {
        /// The field, cut if it is long.
        field: String,
        /// The fields that can be used there.
        known: Vec<String>,
    },
    /// The field exists, but this caller may not use it.
    #[error("`{}` can't be used here: {}", .0, .0.reason())]
    NotTaken(Field),
    /// The value has the wrong type.
    #[error("`{field}` must be {expected}, not {found}")]
    Type {
        /// The field.
        field: &'static str,
        /// What it must be.
        expected: &'static str,
        /// The value, or what it is if it is long.
        found: String,
    },
    /// The number is too small or too large.
    #[error("`{field}` is {found}; give {expected}")]
    Range {
        /// The field.
        field: &'static str,
        /// The number.
        found: String,
        /// The unit and the range.
        expected: String,
    },
    /// The contents of the file at this path aren't valid base64.
    #[error(
        "the `base64` of the file `{0}` is invalid; use the digits A-Z a-z 0-9 + / with padding"
    )]
    Base64(String),
    /// No field says what to run; one of these would.
    #[error("give the program as {0}")]
    NoProgram(String),
    /// Two fields say what to run.
    #[error("give only one of `{first}` and `{second}`")]
    TwoPrograms {
        /// The one field.
        first: Field,
        /// The other.
        second: Field,
    },
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_problem_has_only_what_is_known() {
        let problem = Problem::new(ProblemKind::Refused, "why");
        assert_eq!(json!(problem), json!({ "kind": "refused", "message": "why" }));
        let whole =
            problem.with_reason("queue_full").with_retry_after(Some(Duration::from_millis(1500)));
        let expected = json!({
            "kind": "refused", "reason": "queue_full", "message": "why", "retry_after": 1.5,
        });
        assert_eq!(json!(whole), expected);
        assert_eq!(serde_json::from_value::<Problem>(expected).unwrap(), whole);
    }
}
