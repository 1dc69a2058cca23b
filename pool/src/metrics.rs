//! The metrics that only the pool can measure, under the names that operators see.

use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_histogram, histogram};

use crate::session::Tier;

const SPAWN_DURATION: &str = "hatchery_spawn_duration_seconds";
const RESTARTS: &str = "hatchery_actor_restarts_total";
const OFFLOAD_DURATION: &str = "hatchery_offload_duration_seconds";
const CODE_HITS: &str = "hatchery_code_cache_hits_total";

/// Describes the metrics to the installed recorder.
pub fn describe() {
    describe_histogram!(SPAWN_DURATION, Unit::Seconds, "Time to start an interpreter.");
    describe_counter!(RESTARTS, "Actors that were replaced after they ended.");
    describe_histogram!(
        OFFLOAD_DURATION,
        Unit::Seconds,
        "Time to compress a suspended session or offload it to disk."
    );
    describe_counter!(CODE_HITS, "Runs of programs that had been compiled ahead.");
}

/// Records that an interpreter was started in this time.
pub(crate) fn spawned(took: Duration) {
    histogram!(SPAWN_DURATION).record(took);
}

/// Records that a worker replaces one that ended.
pub(crate) fn worker_restarted() {
    counter!(RESTARTS, "actor" => "worker").increment(1);
}

/// Records a run of a program that had been compiled ahead.
pub fn had_code() {
    counter!(CODE_HITS).increment(1);
}

/// Records that a session was offloaded in this time.
pub(crate) fn offloaded(tier: Tier, took: Duration) {
    histogram!(OFFLOAD_DURATION, "to" => <&str>::from(tier)).record(took);
}
