//! Whether and when a worker that ended is replaced. Pure.

use std::time::Duration;

use crate::config::PoolConfig;

/// Failures in a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct History {
    failures: u32,
}

/// What becomes of a worker's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum Decision {
    /// Another worker takes it after this time.
    ReplaceAfter(Duration),
    /// Nobody does.
    Leave,
}

impl History {
    /// One more worker failed: the first is replaced at once, later ones wait twice as long each
    /// time, and the last is given up.
    pub(super) fn failed(&mut self, config: &PoolConfig) -> Decision {
        self.failures = self.failures.saturating_add(1);
        if self.failures >= config.most_failures {
            return Decision::Leave;
        }
        let delay = match self.failures {
            0 | 1 => Duration::ZERO,
            failures => {
                let factor = 1_u32.checked_shl(failures - 2).unwrap_or(u32::MAX);
                config.first_back_off.saturating_mul(factor).min(config.longest_back_off)
            }
        };
        Decision::ReplaceAfter(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_off_doubles_up_to_its_limit_and_then_gives_up() {
        let config = PoolConfig {
            isolated_workers: 1,
            first_back_off: Duration::from_millis(100),
            longest_back_off: Duration::from_millis(300),
            most_failures: 6,
        };
        let mut history = History::default();
        let decisions: Vec<_> = (0..6).map(|_| history.failed(&config)).collect();
        let after = |milliseconds| Decision::ReplaceAfter(Duration::from_millis(milliseconds));
        let expected = [after(0), after(100), after(200), after(300), after(300), Decision::Leave];
        assert_eq!(decisions, expected);
    }
}
