//! A packed state, compressed, in memory or on disk.
//!
//! Its bytes are compressed in pieces, so that no step needs memory for both forms of the whole
//! state:
//!
//! ```text
//! for each 4 MiB of the bytes:
//!  0   4  length of what follows, little-endian
//!  4   4  length of the piece, little-endian
//!  8   …  the piece, as an LZ4 block
//! ```
//!
//! Data on disk may be damaged. Lengths are bounded before anything is allocated, the total length
//! is kept in memory, and the source's checksum covers the rest.

use std::any::Any;
use std::io;
use std::sync::Arc;

use crate::interpreter::suspended::PackedBytes;
use crate::offload::{Extent, OffloadFile};

const PIECE_BYTES: usize = 4 << 20;
const LENGTH_BYTES: usize = size_of::<u32>();

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
        let plain = match &self.storage {
            PackedStorage::InMemory(bytes) => decompress(bytes, self.plain_bytes),
            PackedStorage::OnDisk(extent) => decompress(&extent.read()?, self.plain_bytes),
        };
        let bytes = plain.ok_or_else(|| io::Error::other("the packed state is damaged"))?;
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
    let mut compressed = Vec::new();
    for piece in plain.chunks(PIECE_BYTES) {
        let piece = lz4_flex::block::compress_prepend_size(piece);
        let length = u32::try_from(piece.len()).expect("pieces are short");
        compressed.extend_from_slice(&length.to_le_bytes());
        compressed.extend_from_slice(&piece);
    }
    compressed.shrink_to_fit();
    compressed
}

/// Returns the `plain_bytes` bytes that `compress` was given; `None` if `compressed` is damaged.
fn decompress(mut compressed: &[u8], plain_bytes: usize) -> Option<Vec<u8>> {
    let mut plain = Vec::with_capacity(plain_bytes);
    while plain.len() < plain_bytes {
        let (length, rest) = compressed.split_first_chunk::<LENGTH_BYTES>()?;
        let (piece, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        let (length, block) = lz4_flex::block::uncompressed_size(piece).ok()?;
        if length != PIECE_BYTES.min(plain_bytes - plain.len()) {
            return None;
        }
        let piece = lz4_flex::block::decompress(block, length).ok()?;
        if piece.len() != length {
            return None;
        }
        plain.extend_from_slice(&piece);
        compressed = rest;
    }
    compressed.is_empty().then_some(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn long_states_are_several_pieces() {
        let plain: Vec<u8> = (0..2 * PIECE_BYTES + 7).map(|at| (at / 1000) as u8).collect();
        let compressed = compress(&plain);
        assert!(compressed.len() < plain.len() / 4, "{} bytes", compressed.len());
        assert!(decompress(&compressed, plain.len()) == Some(plain));
    }

    proptest! {
        #[test]
        fn compression_is_reversible(plain: Vec<u8>) {
            let compressed = compress(&plain);
            prop_assert_eq!(decompress(&compressed, plain.len()), Some(plain));
        }

        #[test]
        fn damaged_bytes_are_refused_or_keep_their_length(
            plain: Vec<u8>, at: proptest::sample::Index, bit in 0..8, cut: proptest::sample::Index,
        ) {
            prop_assume!(!plain.is_empty());
            let mut damaged = compress(&plain);
            let at = at.index(damaged.len());
            damaged[at] ^= 1_u8 << bit;
            if let Some(wrong) = decompress(&damaged, plain.len()) {
                prop_assert_eq!(wrong.len(), plain.len());
            }
            damaged.truncate(cut.index(damaged.len()));
            prop_assert_eq!(decompress(&damaged, plain.len()), None);
        }
    }
}
