//! A packed state, compressed, in memory or on disk.
//!
//! Its bytes are compressed as a frame of LZ4, in blocks of at most 4 MiB. Data on disk may be damaged.
//! The length of the state is kept in memory, and the source's checksum covers its bytes.

use std::any::Any;
use std::io::{self, Read, Write};
use std::sync::Arc;

use lz4_flex::frame::{FrameDecoder, FrameEncoder};

use crate::interpreter::suspended::PackedBytes;
use crate::offload::{Extent, OffloadFile};

/// An offloaded state.
#[derive(derive_more::Debug)]
#[debug("Packed({} bytes, on disk: {})", self.bytes(), self.is_on_disk())]
pub(crate) struct Packed {
    storage: PackedStorage,
    /// Length of the bytes before compression.
    plain_bytes: usize,
    rest: Option<Arc<dyn Any + Send + Sync>>,
}

enum PackedStorage {
    InMemory(Vec<u8>),
    OnDisk(Extent),
}

impl Packed {
    /// Compresses a packed state, in memory.
    pub(crate) fn of(packed: PackedBytes) -> Self {
        let PackedBytes { bytes, rest } = packed;
        let storage = PackedStorage::InMemory(compress(&bytes));
        Self { storage, plain_bytes: bytes.len(), rest }
    }

    /// Returns the same state on disk; `None` if it is there already.
    ///
    /// # Errors
    /// It can't be written.
    pub(crate) fn offloaded(&self, disk: &OffloadFile) -> io::Result<Option<Self>> {
        let PackedStorage::InMemory(bytes) = &self.storage else { return Ok(None) };
        let storage = PackedStorage::OnDisk(disk.put(bytes)?);
        Ok(Some(Self { storage, plain_bytes: self.plain_bytes, rest: self.rest.clone() }))
    }

    /// Returns the packed state again.
    ///
    /// # Errors
    /// The disk fails, or the bytes are damaged.
    pub(crate) fn packed(&self) -> io::Result<PackedBytes> {
        let bytes = match &self.storage {
            PackedStorage::InMemory(bytes) => decompress(bytes, self.plain_bytes)?,
            PackedStorage::OnDisk(extent) => decompress(&extent.read()?, self.plain_bytes)?,
        };
        Ok(PackedBytes { bytes, rest: self.rest.clone() })
    }

    /// Returns its size where it is kept, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        match &self.storage {
            PackedStorage::InMemory(bytes) => bytes.len() as u64,
            PackedStorage::OnDisk(extent) => extent.len(),
        }
    }

    pub(crate) fn is_on_disk(&self) -> bool {
        matches!(self.storage, PackedStorage::OnDisk(_))
    }
}

fn compress(plain: &[u8]) -> Vec<u8> {
    let mut encoder = FrameEncoder::new(Vec::new());
    let written = encoder.write_all(plain).and_then(|()| Ok(encoder.finish()?));
    let mut compressed = written.expect("memory takes all that is written to it");
    compressed.shrink_to_fit();
    compressed
}

/// Returns the `plain_bytes` bytes that `compress` was given. Fails if `compressed` is damaged.
fn decompress(compressed: &[u8], plain_bytes: usize) -> io::Result<Vec<u8>> {
    let mut plain = Vec::with_capacity(plain_bytes);
    // One more, so that a longer state is damaged, too.
    FrameDecoder::new(compressed).take(plain_bytes as u64 + 1).read_to_end(&mut plain)?;
    match plain.len() == plain_bytes {
        true => Ok(plain),
        false => Err(io::Error::other("the packed state is damaged")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn long_states_are_several_blocks() {
        let plain: Vec<u8> = (0..(8 << 20) + 7).map(|at| (at / 1000) as u8).collect();
        let compressed = compress(&plain);
        assert!(compressed.len() < plain.len() / 4, "{} bytes", compressed.len());
        assert!(decompress(&compressed, plain.len()).unwrap() == plain);
        assert!(decompress(&compressed, plain.len() - 1).is_err());
        assert!(decompress(&compressed, plain.len() + 1).is_err());
    }

    proptest! {
        #[test]
        fn compression_is_reversible(plain: Vec<u8>) {
            let compressed = compress(&plain);
            prop_assert_eq!(decompress(&compressed, plain.len()).unwrap(), plain);
        }

        #[test]
        fn damaged_bytes_are_refused_or_keep_their_length(
            plain: Vec<u8>, at: proptest::sample::Index, bit in 0..8, cut: proptest::sample::Index,
        ) {
            prop_assume!(!plain.is_empty());
            let mut damaged = compress(&plain);
            let at = at.index(damaged.len());
            damaged[at] ^= 1_u8 << bit;
            if let Ok(wrong) = decompress(&damaged, plain.len()) {
                prop_assert_eq!(wrong.len(), plain.len());
            }
            damaged[at] ^= 1_u8 << bit;
            // Without the mark of its end, the state is still there.
            damaged.truncate(cut.index(damaged.len() - 4));
            prop_assert!(decompress(&damaged, plain.len()).is_err());
        }
    }
}
