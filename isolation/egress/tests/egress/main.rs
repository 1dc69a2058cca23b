//! Requests of programs against servers on loopback.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod attempts;
mod http1;
mod latency;
mod limits;
mod replay;
mod secrets;
mod support;
