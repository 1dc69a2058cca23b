//! What a batch reports while it runs.

use serde_json::Value;

use crate::tally::{Ending, Tally};

/// A step of a batch.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A line has its result, which is written or, in an ordered batch, waits for earlier ones.
    Done {
        /// The line's id.
        id: &'a Value,
        /// How its job ended.
        ending: Ending,
        /// Whether the result is one of an earlier run.
        is_earlier: bool,
        /// The lines so far by how they ended, this one included.
        tally: &'a Tally,
    },
    /// Files or displays of a line couldn't be written where they are kept. Its result says so too.
    NotKept {
        /// The line's id.
        id: &'a Value,
        /// What couldn't be written, and why.
        problem: &'a str,
    },
    /// All lines have been read.
    AllRead {
        /// How many of them have a result or will get one.
        lines: u64,
    },
}
