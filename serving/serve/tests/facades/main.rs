//! The HTTP interfaces of other products, on one real pool: as raw requests, and with those products'
//! own clients.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

/// Commands in E2B's sandboxes.
mod commands;
/// E2B's code interpreter.
mod e2b;
/// SandboxFusion.
mod fusion;
/// Piston.
mod piston;
/// Sessions for cells, and from what they continue.
mod prepared;
/// Clients from the package index, unchanged.
mod stock;

/// The server and a client of plain HTTP.
mod server;
