//! Pools on many machines, on one: `hatchery worker` and `hatchery submit` with a real NATS server.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]
#![expect(
    clippy::disallowed_methods,
    reason = "processes are waited for and killed at moments in time"
)]

/// The commands as processes, and files of lines.
mod commands;

/// Servers of known versions.
mod server;

/// What goes in comes out as from a local batch.
mod batches;

/// Everything is killed at random moments.
mod kills;

/// Credentials that are refused, servers that go away, queues that are full, clocks that jump.
mod troubles;

/// Jobs that claim to be those of others.
mod forgeries;

/// Limits and priorities of tenants.
mod tenants;

/// What the queue costs.
mod costs;

/// The library: events, cancelling, tenants.
mod library;

/// Sessions with a home, whose owners are killed, stopped and sent away.
mod sessions;

/// The image of a pool, published and fetched.
mod images;
