//! Who runs next, who waits, who is refused.
//!
//! Goals, in order: every submitted job ends in exactly one outcome; nothing waits while a worker
//! that could run it is idle; first come, first served; every refusal carries its reason.
//!
//! The abstract problem: jobs wait in one queue for isolated workers and in one queue for each
//! session; at most `concurrent` jobs run at once. Whenever a job comes or a worker becomes ready,
//! the oldest job that could run now does.
//!
//! Enter at `model.rs`: the decisions, as plain functions of a model and an event that give effects
//! (`effect.rs`). `actor.rs` is the shell around it: it turns messages into events and carries the
//! effects out. `scheduler.rs` and `ticket.rs` are what callers hold.

#![forbid(unsafe_code)]

pub use config::SchedulerConfig;
pub use error::{ConfigError, Refusal, SchedulerStartError};
pub use job::JobRequest;
pub use scheduler::{Scheduler, SessionRef};
pub use status::{Phase, SchedulerStatus, SessionStatus, Totals};
pub use ticket::Ticket;

mod actor;
mod config;
mod effect;
mod error;
mod job;
mod message;
mod model;
mod scheduler;
mod status;
mod ticket;
mod timer;
