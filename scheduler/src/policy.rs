//! The rules that decisions follow, each with the state that it needs. Pure.
//!
//! `shares.rs`: whose job is next. `estimate.rs`: how long things will take. `fleet.rs`: the workers
//! and how many there should be. `residency.rs`: where the states of sessions are, and which of them
//! makes room. `ledger.rs`: what the memory is used for.
//!
//! None of them decides alone; `model.rs` puts them together.

pub(crate) mod estimate;
pub(crate) mod fleet;
pub(crate) mod ledger;
pub(crate) mod residency;
pub(crate) mod shares;
