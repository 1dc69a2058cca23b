//! The limits on the calls of one run.

use crate::limits::{LimitKind, Limits};
use crate::run::functions::rooms::Sum;

/// The most host memory that the arguments of calls in flight may take together: a text of 1 MiB
/// can become 100 MiB of objects, and a function may keep them as long as it runs.
const ARGUMENTS_IN_FLIGHT_BYTES: usize = 256 << 20;

/// The limits of one run.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallLimits {
    pub(super) count: u64,
    pub(super) argument_bytes: usize,
    pub(super) result_bytes: usize,
    pub(super) in_flight: usize,
}

impl CallLimits {
    pub(super) fn of(limits: &Limits) -> Self {
        Self {
            count: limits.function_calls.min(u64::from(u32::MAX - 1)),
            argument_bytes: limits.function_argument_bytes,
            result_bytes: limits.function_result_bytes,
            in_flight: limits.functions_in_flight,
        }
    }

    /// Returns the limit that these calls exceed, the allowed amount, and the used amount.
    pub(super) fn excess(&self, taken: Sum) -> Option<(LimitKind, u64, u64)> {
        if taken.calls > self.in_flight {
            let (allowed, used) = (self.in_flight as u64, taken.calls as u64);
            return Some((LimitKind::FunctionsInFlight, allowed, used));
        }
        let (allowed, used) = (ARGUMENTS_IN_FLIGHT_BYTES as u64, taken.bytes as u64);
        (used > allowed).then_some((LimitKind::FunctionArguments, allowed, used))
    }
}
