//! The knobs of a channel. Both processes need the same ones.

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::layout::PAGE;

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
