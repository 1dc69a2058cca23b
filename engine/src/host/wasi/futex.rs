//! Futexes, for a guest of one thread: nobody else can wake it, so it waits for its timeout, or for
//! a stop if it has none.

use std::time::Duration;

use super::Wasi;
use super::bytes::GuestBytes;
use crate::errno::Errno;

/// A wait that a guest asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FutexWait {
    /// The value has changed, so there is nothing to wait for.
    Changed,
    /// The part of the timeout that the caller must wait.
    For(Duration),
    Forever,
}

impl Wasi {
    /// Reads the value at `at`, and the timeout: a tag and nanoseconds, 8 bytes each. Says that the
    /// guest wasn't woken.
    pub(crate) fn futex_begin(
        &mut self,
        guest: GuestBytes<'_>,
        at: u32,
        expected: u32,
        timeout: u32,
        out_woken: u32,
    ) -> Result<FutexWait, Errno> {
        let timeout: [u8; 16] = guest.read(timeout)?;
        let value = u32::from_le_bytes(guest.read(at)?);
        guest.write(out_woken, &[u8::from(value != expected)])?;
        if value != expected {
            return Ok(FutexWait::Changed);
        }
        let (tag, nanoseconds) = timeout.split_at(8);
        if tag[0] == 0 {
            return Ok(FutexWait::Forever);
        }
        let nanoseconds = nanoseconds.try_into().expect("eight bytes");
        let timeout = Duration::from_nanos(u64::from_le_bytes(nanoseconds));
        Ok(FutexWait::For(self.clock.sleep(timeout)))
    }

    /// Wakes nobody, since the guest has one thread and that isn't waiting.
    pub(crate) fn futex_wake(
        &mut self,
        guest: GuestBytes<'_>,
        _at: u32,
        out: u32,
    ) -> Result<(), Errno> {
        guest.write(out, &[0])
    }

    pub(crate) fn futex_wake_all(
        &mut self,
        guest: GuestBytes<'_>,
        at: u32,
        out: u32,
    ) -> Result<(), Errno> {
        self.futex_wake(guest, at, out)
    }
}
