//! Where everything is in the shared memory, and what a frame looks like in a ring.
//!
//! ```text
//! page 0     words of the way down, then of the way up; each on a cache line pair of its own
//!   +0       written    u64   bytes that the producer has ever written   (producer writes it)
//!   +128     taken      u64   bytes that the consumer has ever taken     (consumer writes it)
//!   +256     for bytes  u32   the bell on which the consumer sleeps      (both write it)
//!   +384     for space  u32   the bell on which the producer sleeps      (both write it)
//! page 1     the ring of the way down; position `n` is at `n % ring_bytes`
//! after it   the ring of the way up
//!
//! frame      header, message, padding; each begins at a multiple of 8
//!   +0       length of the message   u64
//!   +8       number of the frame     u64   from 0, one more for each
//!   +16      the message in postcard
//! ```
//!
//! Positions are multiples of 8 and never wrap: at 100 GB/s 64 bits last for five years.

use crate::config::ChannelConfig;

/// A page of memory.
pub const PAGE: usize = 4096;

/// Everything in a ring begins at a multiple of this.
pub const ALIGN: usize = 8;

/// The length of a frame's header.
pub const HEADER: usize = 16;

/// The words of one direction.
const WORDS: usize = 512;

/// Where one direction's words and ring are, from the start of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Places {
    /// The producer's position.
    pub written: usize,
    /// The consumer's position.
    pub taken: usize,
    /// The bell on which the consumer sleeps.
    pub for_bytes: usize,
    /// The bell on which the producer sleeps.
    pub for_space: usize,
    /// The ring.
    pub ring: usize,
    /// The length of the ring, a power of two.
    pub ring_bytes: usize,
}

impl Places {
    const fn new(words: usize, ring: usize, ring_bytes: usize) -> Self {
        Self {
            written: words,
            taken: words + 128,
            for_bytes: words + 256,
            for_space: words + 384,
            ring,
            ring_bytes,
        }
    }

    /// The places of the way down.
    pub const fn down(config: &ChannelConfig) -> Self {
        Self::new(0, PAGE, config.down.ring_bytes)
    }

    /// The places of the way up.
    pub const fn up(config: &ChannelConfig) -> Self {
        Self::new(WORDS, PAGE + config.down.ring_bytes, config.up.ring_bytes)
    }
}

/// The length of the whole memory.
pub const fn length(config: &ChannelConfig) -> usize {
    PAGE + config.down.ring_bytes + config.up.ring_bytes
}

/// The first bytes of a frame, as they are in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) length: u64,
    pub(crate) sequence: u64,
}

impl Header {
    pub(crate) fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let words = [self.length, self.sequence];
        for (to, word) in bytes.as_chunks_mut::<ALIGN>().0.iter_mut().zip(words) {
            *to = word.to_ne_bytes();
        }
        bytes
    }

    pub(crate) fn of([length, sequence]: [u64; HEADER / ALIGN]) -> Self {
        Self { length, sequence }
    }
}
