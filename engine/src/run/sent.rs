//! Runs that cross to another process and back: programs and outcomes as plain data, for postcard.
//!
//! A worker process may be in the hands of its guest, so nothing that comes from one is believed:
//! values are built by the constructors that check values from a guest, and what the embedding
//! process knows itself isn't sent at all. Output and displays are its transcript's, host functions
//! and mounted folders stay where they are and are named by numbers.

pub use addition::{Addition, Additions};
pub use error::InvalidSent;
pub use limits::SentLimits;
pub use outcome::SentOutcome;
pub use program::{Lent, SentProgram};

mod addition;
mod error;
mod limits;
mod outcome;
mod program;
mod text;
mod value;

#[cfg(test)]
mod tests;
