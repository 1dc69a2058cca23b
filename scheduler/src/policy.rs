//! The rules behind the decisions, each with the state that it needs. Pure.
//!
//! `fair_queue.rs`: whose job is next, and how long jobs will take. `workers.rs`: the workers and
//! how many there should be. `health.rs`: whether they can do their work. `residency.rs`: where the
//! states of sessions are, and which is evicted next. `holdings.rs`: what tenants hold, and what
//! forks share. `model.rs` combines them.

pub(crate) mod fair_queue;
pub(crate) mod health;
pub(crate) mod holdings;
pub(crate) mod residency;
pub(crate) mod workers;
