//! Reading from devices and writing to them.

use super::Wasi;
use super::bytes::{Buffer, GuestBytes};
use super::descriptors::Access;
use crate::errno::Errno;
use crate::files::device::Device;

/// The most bytes that one call reads, so that no call takes long; programs call again.
const MOST_READ_BYTES: u32 = 1 << 20;

impl Wasi {
    pub(super) fn read_device(
        &mut self,
        guest: GuestBytes<'_>,
        device: Device,
        access: Access,
        buffers: &[Buffer],
    ) -> Result<u32, Errno> {
        if !access.read {
            return Err(Errno::BadDescriptor);
        }
        let mut total = 0_u32;
        for buffer in buffers {
            let len = buffer.len.min(MOST_READ_BYTES - total);
            let random = |bytes: &mut [u8]| self.random.fill(bytes);
            total += guest.with(Buffer { len, ..*buffer }, |to| device.read(to, random))?? as u32;
        }
        Ok(total)
    }
}

/// Discards what is written, after checking that the buffers are in guest memory.
pub(super) fn write_device(
    guest: GuestBytes<'_>,
    access: Access,
    buffers: &[Buffer],
) -> Result<u32, Errno> {
    if !access.write {
        return Err(Errno::BadDescriptor);
    }
    let mut total = 0_u32;
    for buffer in buffers {
        guest.look(*buffer, |_| ())?;
        total = total.checked_add(buffer.len).ok_or(Errno::Invalid)?;
    }
    Ok(total)
}
