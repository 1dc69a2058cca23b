//! The system call that a worker was killed for, as its parent reads it.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::names::name_of;

/// The system call that the kernel refused to a worker, which then ended with `SIGSYS`.
///
/// The worker writes it into memory that it shares with its parent. A guest that runs code of its own
/// there can write anything, so this explains an end to a reader, and decides nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefusedCall(u32);

impl RefusedCall {
    /// Reads what the worker wrote into the word that
    /// [`Confinement::refused`](crate::Confinement::refused) named; `None` if that is nothing.
    pub fn read(word: &AtomicU32) -> Option<Self> {
        word.load(Ordering::Acquire).checked_sub(1).map(Self)
    }

    /// Returns the number of the system call.
    pub fn number(self) -> u32 {
        self.0
    }

    /// Writes a refused call into the shared word, as the worker does, unless there is one already. A
    /// number of -1 stays unknown.
    pub fn write(number: u32, word: &AtomicU32) {
        let value = number.wrapping_add(1);
        // Only the first counts, so it doesn't matter whether this one was written.
        let _ = word.compare_exchange(0, value, Ordering::Release, Ordering::Relaxed);
    }
}

/// The name of the system call, or its number.
impl fmt::Display for RefusedCall {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match name_of(self.0) {
            Some(name) => formatter.write_str(name),
            None => write!(formatter, "system call {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_refused_call_is_read() {
        let word = AtomicU32::new(0);
        assert_eq!(RefusedCall::read(&word), None);
        RefusedCall::write(u32::MAX, &word);
        assert_eq!(RefusedCall::read(&word), None);
        for number in [257, 41] {
            RefusedCall::write(number, &word);
        }
        assert_eq!(RefusedCall::read(&word).unwrap().to_string(), "openat");
    }

    #[test]
    fn every_number_has_a_text() {
        let text = |number| RefusedCall(number).to_string();
        assert_eq!([text(0), text(334), text(424)], ["read", "rseq", "pidfd_send_signal"]);
        assert_eq!([text(435), text(462)], ["clone3", "mseal"]);
        assert_eq!([text(337), text(423)], ["system call 337", "system call 423"]);
        assert_eq!(text(u32::MAX - 1), "system call 4294967294");
    }
}
