//! What the pool alone knows to measure. The names are the ones that operators see.

use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_histogram, histogram};

use crate::session::Stowage;

const SPAWN_DURATION: &str = "hatchery_spawn_duration_seconds";
const RESTARTS: &str = "hatchery_actor_restarts_total";
const STOW_DURATION: &str = "hatchery_stow_duration_seconds";

/// Describes them to the recorder that is installed.
pub fn describe() {
    describe_histogram!(SPAWN_DURATION, Unit::Seconds, "Starts of interpreters.");
    describe_counter!(RESTARTS, "Actors that ended and were replaced.");
    describe_histogram!(
        STOW_DURATION,
        Unit::Seconds,
        "Putting parked sessions where they take less memory."
    );
}

/// An interpreter was started in this time.
pub(crate) fn spawned(took: Duration) {
    histogram!(SPAWN_DURATION).record(took);
}

/// A worker takes the place of one that ended.
pub(crate) fn worker_restarted() {
    counter!(RESTARTS, "actor" => "worker").increment(1);
}

/// A session was stowed in this time.
pub(crate) fn stowed(stowage: Stowage, took: Duration) {
    let to = match stowage {
        Stowage::Compressed => "compressed",
        Stowage::Disk => "disk",
    };
    histogram!(STOW_DURATION, "to" => to).record(took);
}
