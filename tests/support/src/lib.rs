//! Helpers that tests and benchmarks of several crates share.
//!
//! It is only ever a dev-dependency. Unit tests of `engine` and `pool` can't use it, since the types that
//! it names are those of the crates as libraries.
#![expect(missing_docs, reason = "only tests use it, and most names say enough")]
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

/// Things that native code in a worker would try. Their system calls are those of x86-64.
#[cfg(target_arch = "x86_64")]
pub mod attempts;
/// Limits that a busy machine doesn't reach.
pub mod calm;
/// Random numbers that are the same each time.
pub mod dice;
/// The scripted interpreter.
pub mod fake;
/// What a process takes of the machine.
pub mod footprint;
/// Python builds beside the default one.
pub mod found;
/// A client of plain HTTP.
pub mod http;
/// The image of benchmarks.
pub mod image;
/// The official Python client of MCP.
pub mod mcp;
/// What programs need of a Python build.
pub mod needs;
/// What a job writes while it runs.
pub mod output;
/// What criterion doesn't have.
pub mod percentiles;
/// The processes of a pool.
pub mod processes;
/// System calls without the C library.
pub mod raw;
/// The worker threads of this process.
pub mod threads;
/// Kills the processes of a command.
pub mod victims;
