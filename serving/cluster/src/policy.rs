//! What a worker of a queue decides, as pure functions: how many jobs to claim, which lane to ask
//! for them, what a job's history says of it, which sessions are its own, and what becomes of them.
//!
//! Nothing here waits, reads a clock or sends; a time is the duration since a moment that the caller
//! chooses. The worker carries the decisions out, and so does the simulation of a thousand of them,
//! `examples/simulation.rs`. For that alone they are public, and they may change at any time.

pub use crate::history::Start;
pub use history::{Decision, Record};
pub use lanes::{EMPTY, Shares};
pub use partitions::is_home;
pub use room::{MOST_AHEAD, held, mean_after, room};

mod history;
mod lanes;
mod partitions;
mod room;
pub mod session;

/// Signs of life in the time of a claim: two may be lost before the claim is.
pub const SIGNS: u32 = 3;
