//! How long to measure, and what.

use std::path::PathBuf;
use std::time::Duration;

/// How long rounds go on, once there are enough of them.
const ROUNDS: Duration = Duration::from_secs(60);
const QUICK_ROUNDS: Duration = Duration::from_secs(15);

/// How to measure.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub(crate) struct Settings {
    /// Measure for 15 s in place of 60, with a quarter of the samples.
    pub(crate) is_quick: bool,
    /// The command line `hatchery`, whose `run -c` is timed from its start to its first outcome; `None`
    /// leaves that figure out.
    pub(crate) program: Option<PathBuf>,
}

impl Settings {
    /// Measures for 15 s.
    pub(crate) fn quick() -> Self {
        Self { is_quick: true, ..Self::default() }
    }

    /// Returns how long rounds go on.
    pub(crate) fn time(&self) -> Duration {
        if self.is_quick { QUICK_ROUNDS } else { ROUNDS }
    }
}
