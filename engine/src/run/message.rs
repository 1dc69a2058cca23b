//! Runs that cross to another process and back: programs and outcomes as plain data, for postcard.
//!
//! A guest may have taken over its worker process, so nothing from one is trusted. The constructors
//! that check values from a guest build them, and what the embedding process knows itself isn't
//! sent. Output and displays are its transcript's, host functions and mounted folders stay where
//! they are and are named by numbers.

pub use encoding::InvalidMessage;
pub use outcome::OutcomeMessage;
pub use program::{ProgramMessage, Proxies};

pub(in crate::run) mod encoding;
mod outcome;
mod program;

#[cfg(test)]
mod tests;
