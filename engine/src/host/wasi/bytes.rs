//! Guest memory as host functions see it. Every pointer and length is checked, and a bad one gives
//! only `Fault`. Nothing is allocated before its size is bounded.

use std::sync::Arc;

use crate::errno::{Errno, Result};
use crate::memory::GuestMemory;

/// The most buffers that one call may name, as `IOV_MAX` on Linux.
const MOST_BUFFERS: u32 = 1024;

/// The memory of a guest; every use fails until there is an instance that has one.
#[derive(Debug, Clone, Default)]
pub(crate) struct GuestBytes(Option<Arc<GuestMemory>>);

/// A buffer in guest memory, not checked yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Buffer {
    pub(crate) at: u32,
    pub(crate) len: u32,
}

impl Buffer {
    /// Reads an `iovec`: address and length, 4 bytes each.
    fn of(item: [u8; 8]) -> Self {
        let (at, len) = item.split_at(4);
        let field = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
        Self { at: field(at), len: field(len) }
    }
}

/// Of a memory that threads share, host functions copy at most this many bytes at once.
const MOST_COPIED_BYTES: u32 = 1 << 20;

impl GuestBytes {
    pub(crate) fn of(memory: &Arc<GuestMemory>) -> Self {
        Self(Some(Arc::clone(memory)))
    }

    pub(crate) fn memory(&self) -> Result<&GuestMemory> {
        self.0.as_deref().ok_or(Errno::Fault)
    }

    fn is_shared(&self) -> bool {
        self.0.as_ref().is_some_and(|memory| memory.is_shared())
    }

    /// Lends a buffer that `work` fills.
    pub(crate) fn with<T>(&self, buffer: Buffer, work: impl FnOnce(&mut [u8]) -> T) -> Result<T> {
        self.memory()?.with_bytes(buffer.at, buffer.len, work).ok_or(Errno::Fault)
    }

    /// Lends a buffer that `work` reads.
    pub(crate) fn look<T>(&self, buffer: Buffer, work: impl FnOnce(&[u8]) -> T) -> Result<T> {
        self.memory()?.look(buffer.at, buffer.len, work).ok_or(Errno::Fault)
    }

    pub(crate) fn read<const N: usize>(&self, at: u32) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.memory()?.read(at, &mut bytes).ok_or(Errno::Fault)?;
        Ok(bytes)
    }

    pub(crate) fn write(&self, at: u32, bytes: &[u8]) -> Result {
        self.memory()?.write(at, bytes).ok_or(Errno::Fault)
    }

    pub(crate) fn write_u32(&self, at: u32, value: u32) -> Result {
        self.write(at, &value.to_le_bytes())
    }

    pub(crate) fn write_u64(&self, at: u32, value: u64) -> Result {
        self.write(at, &value.to_le_bytes())
    }

    /// Reads a UTF-8 text of at most `most` bytes.
    pub(crate) fn text(&self, buffer: Buffer, most: usize) -> Result<String> {
        if buffer.len as usize > most {
            return Err(Errno::NameTooLong);
        }
        let bytes = self.look(buffer, <[u8]>::to_vec)?;
        String::from_utf8(bytes).map_err(|_| Errno::IllegalSequence)
    }

    /// Bounds what is copied, if threads share the memory.
    pub(crate) fn bounded(&self, len: u32) -> u32 {
        if self.is_shared() { len.min(MOST_COPIED_BYTES) } else { len }
    }

    /// Reads a buffer that must stay in one piece.
    pub(crate) fn buffer(&self, at: u32) -> Result<Buffer> {
        self.read(at).map(Buffer::of)
    }

    /// Reads the buffers of a scattered read or write.
    /// Those of a memory that threads share come in parts, since each is copied.
    pub(crate) fn buffers(&self, at: u32, count: u32) -> Result<Vec<Buffer>> {
        if count > MOST_BUFFERS {
            return Err(Errno::Invalid);
        }
        let buffers: Vec<Buffer> = self.look(Buffer { at, len: count * 8 }, |bytes| {
            bytes.as_chunks().0.iter().copied().map(Buffer::of).collect()
        })?;
        if !self.is_shared() || buffers.iter().all(|buffer| buffer.len <= MOST_COPIED_BYTES) {
            return Ok(buffers);
        }
        let total: u64 = buffers.iter().map(|buffer| u64::from(buffer.len)).sum();
        if total > u64::from(u32::MAX) {
            return Err(Errno::Invalid);
        }
        Ok(buffers.into_iter().flat_map(parts).collect())
    }
}

fn parts(buffer: Buffer) -> impl Iterator<Item = Buffer> {
    let starts = (0..buffer.len.max(1)).step_by(MOST_COPIED_BYTES as usize);
    starts.map(move |start| Buffer {
        // One that goes round is refused when it is used.
        at: buffer.at.saturating_add(start),
        len: (buffer.len - start).min(MOST_COPIED_BYTES),
    })
}
