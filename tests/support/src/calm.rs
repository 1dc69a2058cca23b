//! Limits for tests whose verdict another load on the machine must not change.

use std::time::Duration;

use engine::Limits;

/// Returns the default limits, but with a limit on CPU time in place of that on wall time, which only
/// ends what waits without end.
pub fn calm() -> Limits {
    let (wall_time, cpu_time) = (Duration::from_secs(600), Some(Duration::from_secs(30)));
    Limits { wall_time, cpu_time, ..Limits::default() }
}
