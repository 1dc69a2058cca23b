//! Decides whether and when a worker that ended is replaced. Pure.

use std::time::Duration;

use crate::config::PoolConfig;

/// The history of one place in the pool, passed from a worker to its replacement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct History {
    /// Consecutive workers that died before they had an interpreter.
    failures: u32,
}

/// What happens to a worker's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum Decision {
    /// Another worker takes it after this delay.
    ReplaceAfter(Duration),
    /// The place is given up.
    Leave,
}

impl History {
    /// Records that a worker died. A worker that had an interpreter is replaced at once: what it
    /// ran may have killed it, which says nothing about the next worker. So is the first that had
    /// none; after that the delay doubles each time, and in the end the place is given up, so that jobs
    /// are refused instead of waiting without end.
    pub(super) fn died(&mut self, had_interpreter: bool, config: &PoolConfig) -> Decision {
        if had_interpreter {
            self.failures = 0;
            return Decision::ReplaceAfter(Duration::ZERO);
        }
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

    fn config() -> PoolConfig {
        PoolConfig {
            first_back_off: Duration::from_millis(100),
            longest_back_off: Duration::from_millis(300),
            most_failures: 6,
            ..PoolConfig::default()
        }
    }

    fn after(milliseconds: u64) -> Decision {
        Decision::ReplaceAfter(Duration::from_millis(milliseconds))
    }

    #[test]
    fn back_off_doubles_up_to_its_limit_and_then_gives_up() {
        let mut history = History::default();
        let decisions: Vec<_> = (0..6).map(|_| history.died(false, &config())).collect();
        let expected = [after(0), after(100), after(200), after(300), after(300), Decision::Leave];
        assert_eq!(decisions, expected);
    }

    #[test]
    fn a_place_that_once_worked_is_given_up_as_well() {
        let mut history = History::default();
        assert_eq!(history.died(true, &config()), after(0));
        let decisions: Vec<_> = (0..5).map(|_| history.died(false, &config())).collect();
        assert_eq!(decisions, [after(0), after(100), after(200), after(300), after(300)]);
        // A worker that starts ends the series.
        assert_eq!(history.died(true, &config()), after(0));
        assert_eq!(history.died(false, &config()), after(0));
        for _ in 0..4 {
            assert_ne!(history.died(false, &config()), Decision::Leave);
        }
        assert_eq!(history.died(false, &config()), Decision::Leave);
    }
}
