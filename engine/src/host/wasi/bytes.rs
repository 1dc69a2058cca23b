//! Guest memory as host functions see it: every pointer and length is checked, a bad one gives only
//! `Fault`, and nothing is allocated before its size is bounded.

use crate::errno::Errno;
use crate::memory::GuestMemory;

/// The most buffers that one call may name, as `IOV_MAX` on Linux.
const MOST_BUFFERS: u32 = 1024;

/// Guest memory, lent to one host function.
#[derive(Clone, Copy)]
pub(crate) struct GuestBytes<'a>(pub(crate) &'a GuestMemory);

/// A buffer in guest memory, not checked yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Buffer {
    pub(crate) at: u32,
    pub(crate) len: u32,
}

impl GuestBytes<'_> {
    pub(crate) fn with<T>(
        &self,
        buffer: Buffer,
        work: impl FnOnce(&mut [u8]) -> T,
    ) -> Result<T, Errno> {
        self.0.with_bytes(buffer.at, buffer.len, work).ok_or(Errno::Fault)
    }

    pub(crate) fn read<const N: usize>(&self, at: u32) -> Result<[u8; N], Errno> {
        let mut bytes = [0; N];
        self.with(Buffer { at, len: N as u32 }, |source| bytes.copy_from_slice(source))?;
        Ok(bytes)
    }

    pub(crate) fn write(&self, at: u32, bytes: &[u8]) -> Result<(), Errno> {
        let len = u32::try_from(bytes.len()).map_err(|_| Errno::Overflow)?;
        self.with(Buffer { at, len }, |target| target.copy_from_slice(bytes))
    }

    pub(crate) fn write_u32(&self, at: u32, value: u32) -> Result<(), Errno> {
        self.write(at, &value.to_le_bytes())
    }

    pub(crate) fn write_u64(&self, at: u32, value: u64) -> Result<(), Errno> {
        self.write(at, &value.to_le_bytes())
    }

    /// Reads a UTF-8 text of at most `most` bytes.
    pub(crate) fn text(&self, buffer: Buffer, most: usize) -> Result<String, Errno> {
        if buffer.len as usize > most {
            return Err(Errno::NameTooLong);
        }
        let bytes = self.with(buffer, |bytes| bytes.to_vec())?;
        String::from_utf8(bytes).map_err(|_| Errno::IllegalSequence)
    }

    /// Reads the buffers of a scattered read or write (`iovec`: address and length, 4 bytes each).
    pub(crate) fn buffers(&self, at: u32, count: u32) -> Result<Vec<Buffer>, Errno> {
        if count > MOST_BUFFERS {
            return Err(Errno::Invalid);
        }
        self.with(Buffer { at, len: count * 8 }, |bytes| {
            let field = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
            let buffer = |item: &[u8]| Buffer { at: field(&item[..4]), len: field(&item[4..]) };
            bytes.chunks_exact(8).map(buffer).collect()
        })
    }
}
