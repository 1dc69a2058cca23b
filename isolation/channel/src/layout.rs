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

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A page of memory.
pub const PAGE: usize = 4096;

/// Everything in a ring begins at a multiple of this.
pub const ALIGN: usize = 8;

/// The length of a frame's header.
pub const HEADER: usize = 16;

/// The bytes after which the other process hears of a frame's progress, so that both copy at once.
/// At most a quarter of the ring.
pub(crate) const PIECE: usize = 64 << 10;

/// A buffer for messages that is longer is freed after use.
pub(crate) const KEPT_BUFFER: usize = 64 << 10;

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

const SMALLEST_RING: usize = PAGE;

const LARGEST_RING: usize = 1 << 30;

/// How frames pass one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Direction {
    /// The length of the ring, a power of two from 4 KiB to 1 GiB. A longer frame passes in pieces;
    /// a small ring makes more of them, a large one costs memory. Default: 256 KiB.
    pub ring_bytes: usize,
    /// The most bytes that the message of one frame may have. A receiver allocates no more than this
    /// for a frame. Default: 64 MiB.
    pub longest_frame: u64,
}

impl Default for Direction {
    fn default() -> Self {
        Self { ring_bytes: 256 << 10, longest_frame: 64 << 20 }
    }
}

/// What both processes know about their channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelConfig {
    /// From the process that created the channel to its worker.
    pub down: Direction,
    /// From the worker up.
    pub up: Direction,
    /// How long a wait spins at most before it sleeps, while replies come within that time. 0 always
    /// sleeps. Default: 100 µs, which is longer than a short program runs.
    pub spin: Duration,
}

impl Default for ChannelConfig {
    fn default() -> Self {
        Self {
            down: Direction::default(),
            up: Direction::default(),
            spin: Duration::from_micros(100),
        }
    }
}

impl ChannelConfig {
    /// Checks the lengths of the rings.
    pub(crate) fn check(&self) -> io::Result<()> {
        for ring in [self.down.ring_bytes, self.up.ring_bytes] {
            if !ring.is_power_of_two() || !(SMALLEST_RING..=LARGEST_RING).contains(&ring) {
                let message = format!(
                    "`ring_bytes` is {ring}, not a power of two from {SMALLEST_RING} to {LARGEST_RING}"
                );
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }
        }
        Ok(())
    }
}
