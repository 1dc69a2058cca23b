//! What of ours runs inside the guest: the agent package and its protocol, and how deep C code may
//! recurse there.
//!
//! Owns the Python sources of the agent, requests to it and replies from it. Replies come from
//! untrusted code and are parsed as such. May use `build/` and the wings below.

pub(crate) mod agent;
pub(crate) mod recursion;
