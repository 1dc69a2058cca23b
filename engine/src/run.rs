//! The inputs and results of a run: program, values and host functions; transcript and outcome.
//!
//! Owns the types that callers see, and how values cross into Python and back. It doesn't run
//! anything. May use `files/`, `interrupt/` and the wings below.

pub(crate) mod egress;
pub(crate) mod functions;
pub(crate) mod message;
pub(crate) mod names;
pub(crate) mod network;
pub(crate) mod outcome;
pub(crate) mod program;
pub(crate) mod transcript;
pub(crate) mod value;
