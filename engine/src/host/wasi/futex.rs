//! Futexes: what the functions of WASIX read and write. The gate does the waiting and waking.

use std::time::Duration;

use super::Wasi;
use super::bytes::GuestBytes;
use crate::errno::Errno;
use crate::memory::tunables::Waited;

/// The size of the word that threads wait for, and its alignment.
const WORD_BYTES: u32 = 4;

impl Wasi {
    /// Checks the address of a futex, and reads the timeout: a tag and nanoseconds, 8 bytes each.
    /// Returns the part of it that the caller must wait; `None` to wait without a timeout.
    pub(crate) fn futex_begin(
        &mut self,
        guest: GuestBytes<'_>,
        at: u32,
        timeout: u32,
        out_woken: u32,
    ) -> Result<Option<Duration>, Errno> {
        if !at.is_multiple_of(WORD_BYTES) {
            return Err(Errno::Invalid);
        }
        guest.read::<{ WORD_BYTES as usize }>(at)?;
        guest.write(out_woken, &[0])?;
        let timeout: [u8; 16] = guest.read(timeout)?;
        let (tag, nanoseconds) = timeout.split_at(8);
        if tag[0] == 0 {
            return Ok(None);
        }
        let nanoseconds = nanoseconds.try_into().expect("eight bytes");
        let timeout = Duration::from_nanos(u64::from_le_bytes(nanoseconds));
        Ok(Some(self.clock.sleep(timeout)))
    }
}

/// Tells the guest whether it was woken, or the value had changed.
pub(crate) fn futex_end(
    guest: GuestBytes<'_>,
    waited: Waited,
    out_woken: u32,
) -> Result<(), Errno> {
    guest.write(out_woken, &[u8::from(matches!(waited, Waited::Notified | Waited::Changed))])
}
