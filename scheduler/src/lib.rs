//! Who runs next, who waits, who is refused, who makes room.
//!
//! Goals, in order: every admitted job ends in exactly one outcome; nothing is taken beyond what
//! was allowed, and the pool stays up; tenants get their shares, and nothing waits for ever; no
//! worker idles while a job could run on it; every refusal, eviction and retirement carries its
//! reason.
//!
//! The abstract problem: workers are all alike, and each runs one job at a time. Jobs belong to
//! tenants, which share the CPU time by their weights; the jobs of a tenant go by age, shifted by
//! their priority. Those of a session run one at a time, in order, and cost least where the
//! session's state is. A job with a deadline is refused if by the measured times it can't make it.
//! Whatever takes memory, at work or at rest, is in one ledger with one limit; near it sessions
//! that rest are compressed and spilled to disk, longest at rest first. Workers come while jobs
//! could run, and go when they idle.
//!
//! Enter at `model.rs`: the decisions, as plain functions of a model, an event and the time that
//! give effects (`effect.rs`), by the rules in `policy/`. `actor.rs` is the shell around it: it
//! turns messages into events and carries the effects out. `scheduler.rs` and `ticket.rs` are what
//! callers hold; `status.rs`, `explain.rs` and `decision.rs` are what they are shown.

#![forbid(unsafe_code)]

pub use config::{SchedulerConfig, SessionsConfig, TenantConfig, WorkersConfig};
pub use decision::{Decision, DecisionKind, EvictedTo, EvictionReason, RetireReason};
pub use decisions::{Decisions, NextDecision};
pub use error::{ConfigError, Refusal, SchedulerStartError};
pub use explain::{Explanation, JobState, WaitReason};
pub use job::{JobRequest, Priority};
pub use metrics::describe as describe_metrics;
pub use scheduler::Scheduler;
pub use status::{
    ErrorStatus, Latencies, MemoryStatus, Percentiles, Phase, ProgramErrorStatus, QueueDepth,
    SchedulerStatus, SessionPlaces, SessionStatus, TenantStatus, Totals,
};
pub use ticket::{Events, Ticket};

mod actor;
mod config;
mod decision;
mod decisions;
mod effect;
mod error;
mod explain;
mod job;
mod measures;
mod message;
mod metrics;
mod model;
mod policy;
mod scheduler;
mod status;
mod ticket;
mod timer;
