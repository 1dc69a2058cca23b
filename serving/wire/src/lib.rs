//! A job as JSON: what a line of a batch, a call of an agent's tool or a request to a server says.
//!
//! A [`Job`] is the data, an [`Intake`] reads one and says which fields a caller may use, and
//! [`job_schema`] describes it to others. Errors are [`InvalidJob`]; a job that wasn't run has a
//! [`Problem`] in its result. Nothing here runs a job, so that clients can use this crate alone.
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
pub use line::to_line;
pub use problem::{InvalidJob, Problem, ProblemKind};
pub use schema::job_schema;

mod intake;
mod job;
mod line;
pub mod message;
mod problem;
mod read;
mod schema;
#[cfg(test)]
mod tests;

/// The version of the format, which is in the `$id` of [`job_schema`].
///
/// It goes up when a job that was valid becomes invalid or means something else: a field is removed,
/// gets another type or unit, or a narrower range. A further field doesn't change it, since a reader
/// that doesn't know the field refuses the job by the field's name.
pub const VERSION: u32 = 1;
