//! The server over real connections, on the real build.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

/// Attempts to get around the server, each by its name.
mod attempts;
/// Lines in, lines out.
mod batches;
mod client;
/// Clients that generators make of the document.
mod generated;
/// Requests that must be refused, after which the server serves on.
mod hostile;
/// Jobs, their events, and answers that are kept.
mod jobs;
/// Status, health, refusals for load, and the end.
mod pool;
mod server;
/// Sessions from the first to the last.
mod sessions;
/// What tenants see of one another.
mod tenants;
/// Tokens in other places than the usual one, and servers without any.
mod tokens;
/// Bytes that are on their way.
mod transit;
