//! The Rust of the README and the guide, compiled and run as doctests. Nothing else uses this
//! module; `cli/tests/all/guide.rs` holds that no document with Rust in it is missing here.

/// The README.
#[doc = include_str!("../README.md")]
struct Readme;

/// A first program.
#[doc = include_str!("../docs/guide/getting-started.md")]
struct GettingStarted;

/// Jobs: what they run, show and are given.
#[doc = include_str!("../docs/guide/jobs.md")]
struct Jobs;

/// Sessions: forks, checkpoints, files.
#[doc = include_str!("../docs/guide/sessions.md")]
struct Sessions;

/// Tenants, priorities, deadlines, status.
#[doc = include_str!("../docs/guide/sharing.md")]
struct Sharing;

/// Host functions, recorded and replayed.
#[doc = include_str!("../docs/guide/host-functions.md")]
struct HostFunctions;
