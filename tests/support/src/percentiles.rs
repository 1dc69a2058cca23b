//! What criterion doesn't have: medians and tails, and selecting parts of a bench.

use std::time::Duration;

/// Returns whether a part of a bench was selected: like criterion, `cargo bench --bench overload --
/// noisy` selects those with `noisy` in their names.
pub fn is_wanted(name: &str) -> bool {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    filter.is_none_or(|filter| name.contains(&filter))
}

/// Returns the time that `part` of a thousand did not exceed.
pub fn at(sorted: &[Duration], part: usize) -> Duration {
    sorted.get((sorted.len().saturating_sub(1)) * part / 1000).copied().unwrap_or_default()
}

/// Prints the percentiles, and returns the times sorted.
pub fn print(name: &str, mut times: Vec<Duration>) -> Vec<Duration> {
    times.sort_unstable();
    println!(
        "{name}: {} times, p50 {:?}, p95 {:?}, p99 {:?}, p99.9 {:?}, most {:?}",
        times.len(),
        at(&times, 500),
        at(&times, 950),
        at(&times, 990),
        at(&times, 999),
        at(&times, 1000),
    );
    times
}
