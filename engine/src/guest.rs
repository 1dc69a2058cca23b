//! Hatchery's code inside the guest: the agent package and its protocol, and how deep C code may
//! recurse there.
//!
//! Owns the agent's Python sources, requests to it and replies from it. Replies come from untrusted
//! code and are parsed accordingly. May use `python/` and the wings below.

pub(crate) mod agent;
pub(crate) mod recursion;
