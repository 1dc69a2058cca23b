//! A job as JSON: in a line of a batch, a tool call of an agent, or a request to a server.
//!
//! A [`Job`] is the data. An [`Intake`] reads one and says which fields a caller may use, and
//! [`job_schema`] describes it. Errors are [`InvalidJob`]; a job that wasn't run has a [`Problem`]
//! in its result. Nothing here runs a job, so that clients can use this crate alone.
//!
//! ```
//! use std::time::Duration;
//! use wire::{Intake, Job};
//!
//! // A client.
//! let timeout = Some(Duration::from_secs(5));
//! let job = Job { timeout, ..Job::code("6 * 7") };
//! let text = serde_json::to_string(&job)?;
//! assert_eq!(text, r#"{"code":"6 * 7","timeout":5.0}"#);
//!
//! // A server.
//! assert_eq!(Intake::BATCH.parse(text.as_bytes())?, job);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub use intake::{Field, Intake};
pub use job::{Call, Contents, Deterministic, Job, Limits, Priority};
pub use problem::{InvalidJob, Problem, ProblemKind};
pub use schema::job_schema;

use serde_json::Value;

mod intake;
mod job;
pub mod message;
mod problem;
mod read;
mod schema;
#[cfg(test)]
mod tests;

/// The version of the format, which is in the `$id` of [`job_schema`].
///
/// It increases when a valid job becomes invalid or changes its meaning: a field is removed, or
/// gets another type, unit or a narrower range. A new field doesn't change it, since an older
/// reader refuses the job by the field's name.
pub const VERSION: u32 = 1;

/// Returns JSON as one line, without the line's end. Characters that are legal in JSON but that
/// terminals may obey are escaped: DEL, and the C1 controls from U+0080 to U+009F.
///
/// ```
/// let value = serde_json::json!({ "shown": "\u{9b}2J" });
/// assert_eq!(wire::to_line(&value), r#"{"shown":"\u009b2J"}"#);
/// ```
pub fn to_line(value: &Value) -> String {
    let json = value.to_string();
    // In UTF-8, C1 controls begin with this byte.
    if !json.bytes().any(|byte| matches!(byte, 0x7f | 0xc2)) {
        return json;
    }
    let mut line = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '\u{7f}'..='\u{9f}' => line.push_str(&format!("\\u{:04x}", u32::from(character))),
            _ => line.push(character),
        }
    }
    line
}

#[cfg(test)]
mod line_tests {
    use super::*;

    #[test]
    fn json_stays_what_it_is_and_controls_nothing() {
        let value = serde_json::json!({ "a": "\u{9b}2J\u{7f}ä€©\n" });
        let line = to_line(&value);
        assert_eq!(line, r#"{"a":"\u009b2J\u007fä€©\n"}"#);
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), value);
        assert_eq!(to_line(&serde_json::json!(["a", 1])), r#"["a",1]"#);
    }
}
