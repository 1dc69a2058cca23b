//! What is wrong with a job. The messages tell its author how to correct it.

use crate::field::Field;

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
        known: Vec<&'static str>,
    },
    /// The field exists, but this caller may not use it.
    #[error("`{field}` can't be used here: {}", field.reason())]
    NotTaken {
        /// The field.
        field: Field,
    },
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
    /// The contents of a file aren't valid base64.
    #[error(
        "the `base64` of the file `{path}` is invalid; use the digits A-Z a-z 0-9 + / with padding"
    )]
    Base64 {
        /// The file, a key of the field `files`.
        path: String,
    },
    /// No field says what to run.
    #[error("give the program as {expected}")]
    NoProgram {
        /// The fields that would.
        expected: String,
    },
    /// Two fields say what to run.
    #[error("give only one of `{first}` and `{second}`")]
    TwoPrograms {
        /// The one field.
        first: Field,
        /// The other.
        second: Field,
    },
}
