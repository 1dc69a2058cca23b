//! A kernel on TCP whose neighbours are hostile: anybody on the machine can connect, and none of them
//! may end it, keep honest front ends out, or cost it memory beyond a bound.
//!
//! The kernel is only bound, since no message of a stranger gets beyond its sockets; heartbeats show
//! that it lives, and the last test serves a session, too.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

/// What strangers try.
mod attempts;
/// A front end, or a stranger, byte by byte.
mod client;
