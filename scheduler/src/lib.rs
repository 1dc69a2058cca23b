//! Who runs next, who waits, who is refused.
//!
//! Goals, in order: every submitted job ends in exactly one outcome; nothing waits while a worker
//! that could run it is idle; first come, first served; every refusal carries its reason.
//!
//! The abstract problem: workers are all alike. Isolated jobs wait in one queue, those of each
//! session in one of its own, of which one job runs at a time; at most `concurrent` run at once.
//! Whenever a job comes or a worker becomes ready, the oldest job that could run now does. A worker
//! keeps the state of the session that it ran last, so that session's next job goes there if the
//! worker is idle; else the state moves.
//!
//! Enter at `model.rs`: the decisions, as plain functions of a model and an event that give effects
//! (`effect.rs`). `actor.rs` is the shell around it: it turns messages into events and carries the
//! effects out. `scheduler.rs` and `ticket.rs` are what callers hold.

#![forbid(unsafe_code)]

pub use config::SchedulerConfig;
pub use error::{ConfigError, Refusal, SchedulerStartError};
pub use job::JobRequest;
pub use scheduler::Scheduler;
pub use status::{Phase, SchedulerStatus, SessionStatus, Totals};
pub use ticket::{Events, Ticket};

mod actor;
mod config;
mod effect;
mod error;
mod job;
mod message;
mod model;
mod policy;
mod scheduler;
mod status;
mod ticket;
mod timer;
