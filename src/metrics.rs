//! Metrics, through the crate [`metrics`](https://docs.rs/metrics): names, units and labels are in
//! the repository's `docs/metrics.md`.

/// Describes each metric to the recorder that the embedding program has installed for the crate
/// `metrics`. Without a recorder, metrics cost next to nothing.
///
/// ```
/// // After a recorder is installed.
/// hatchery::metrics::describe();
/// ```
pub fn describe() {
    pool::describe_metrics();
    scheduler::describe_metrics();
}
