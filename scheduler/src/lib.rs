//! Decides which job runs next, which wait, which are refused and which sessions are evicted.
//!
//! Goals, in order:
//!
//! 1. Every admitted job ends in exactly one outcome.
//! 2. Nothing exceeds its limits, and the pool stays up.
//! 3. Tenants get their shares, and nothing starves.
//! 4. No worker idles while a job could run on it.
//! 5. Every refusal, eviction and retirement carries its reason.
//!
//! The abstract problem: workers are interchangeable, and each runs one job at a time. Jobs belong
//! to tenants, which share CPU time by weight. Within a tenant, jobs are ordered by age, shifted by
//! priority. The jobs of a session run one at a time, in order, if possible where its state is. A
//! job is refused if it would miss its deadline by the measured times. One ledger with one limit
//! counts all memory. Near the limit, idle sessions are compressed and offloaded to disk, longest
//! idle first. The pool grows while jobs could run, and shrinks when workers idle.
//!
//! Start at `model.rs`, which makes the decisions: pure functions from a model, an event and the
//! time to effects (`effect.rs`). `policy/` has the rules. The shell around it, `actor.rs`, turns
//! messages into events and executes the effects. It does so one message at a time, if possible on
//! the sender's thread (`combiner.rs`). Callers hold handles of `scheduler.rs` and `ticket.rs`, and
//! see `status.rs`, `explain.rs` and `decision.rs`.

#![forbid(unsafe_code)]

pub use config::{SchedulerConfig, SessionsConfig, TenantConfig, WorkersConfig};
pub use decision::{
    Decision, DecisionKind, DegradedReason, EndReason, EvictedTo, EvictionReason, RetireReason,
};
pub use decision::{Decisions, NextDecision};
pub use error::{ConfigError, Refusal, SchedulerStartError};
pub use explain::{Explanation, JobState, WaitReason};
pub use job::{DEFAULT_TENANT, JobObserver, JobRequest, Priority};
pub use message::ForkNames;
pub use metrics::describe as describe_metrics;
pub use scheduler::{Branch, Scheduler};
pub use status::{
    ErrorStatus, ForkOrigin, LastEnded, Latencies, MemoryStatus, Percentiles, Phase,
    ProgramErrorStatus, QueueDepth, SchedulerStatus, SessionPlaces, SessionStatus, TenantStatus,
    Totals, TreeStatus,
};
pub use ticket::{AwaitedTicket, Events, Ticket};

mod actor;
mod combiner;
mod config;
mod decision;
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
