//! The two sides of one ring. Each has a private position, publishes it to the other, and checks
//! the other's position at each read.
//!
//! A position is published with release and read with acquire. So its reader also sees the bytes
//! before it, or that they have been taken. An honest pair needs no more; a lying process at most
//! corrupts its own bytes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::Lie;
use crate::layout::{ALIGN, HEADER, Places};
use crate::wait;
use crate::wait::SharedMapping;

/// Checks a position that the other process wrote: it has moved from `seen` by at most `most`.
fn check(position: u64, seen: u64, most: u64) -> Result<u64, Lie> {
    let is_true = position.is_multiple_of(ALIGN as u64) && position.wrapping_sub(seen) <= most;
    if is_true { Ok(position) } else { Err(Lie::Position) }
}

/// The parts of the ring from a position on: one, or two around its end.
fn parts(places: &Places, position: u64, length: usize) -> [Range<usize>; 2] {
    debug_assert!(length <= places.ring_bytes, "more than the ring holds");
    let start = (position % places.ring_bytes as u64) as usize;
    let first = length.min(places.ring_bytes - start);
    [places.ring + start..places.ring + start + first, places.ring..places.ring + length - first]
}

/// The side that writes.
#[derive(Debug)]
pub(crate) struct Producer {
    shared: Arc<SharedMapping>,
    pub(crate) places: Places,
    /// Where the next bytes go; up to `published` the other process may know of them.
    written: u64,
    published: u64,
    /// Invariant: `written - taken <= ring_bytes`.
    taken: u64,
}

impl Producer {
    pub(crate) fn new(shared: Arc<SharedMapping>, places: Places) -> Self {
        Self { shared, places, written: 0, published: 0, taken: 0 }
    }

    /// The bytes that may be written, as far as is known.
    pub(crate) fn known_free(&self) -> usize {
        self.places.ring_bytes - (self.written - self.taken) as usize
    }

    /// Looks at the other side's position, once, and returns the bytes that may be written.
    pub(crate) fn free(&mut self) -> Result<usize, Lie> {
        let taken = self.shared.memory.word(self.places.taken).load(Ordering::Acquire);
        // What was never published can't have been taken.
        self.taken = check(taken, self.taken, self.published - self.taken)?;
        Ok(self.known_free())
    }

    /// Writes bytes, and zeroes up to the next multiple of 8. The caller knows that they fit.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let length = bytes.len().next_multiple_of(ALIGN);
        assert!(length <= self.known_free(), "only into free space");
        let [first, second] = parts(&self.places, self.written, length);
        let (before, after) = bytes.split_at(first.len().min(bytes.len()));
        self.shared.memory.copy_in(first.start, before);
        self.shared.memory.copy_in(second.start, after);
        self.written += length as u64;
    }

    /// Lets the other side see what was written, and wakes it.
    pub(crate) fn publish(&mut self) {
        if self.published != self.written {
            self.published = self.written;
            self.shared.memory.word(self.places.written).store(self.written, Ordering::Release);
            wait::ring(self.shared.memory.bell(self.places.for_bytes));
        }
    }
}

/// The side that reads.
#[derive(Debug)]
pub(crate) struct Consumer {
    shared: Arc<SharedMapping>,
    pub(crate) places: Places,
    /// Where the next bytes are; up to `released` the other process knows that they were taken.
    taken: u64,
    released: u64,
    /// Invariant: `written - taken <= ring_bytes`.
    written: u64,
}

impl Consumer {
    pub(crate) fn new(shared: Arc<SharedMapping>, places: Places) -> Self {
        Self { shared, places, taken: 0, released: 0, written: 0 }
    }

    /// The bytes that were taken and whose space the other side may not use yet.
    pub(crate) fn unreleased(&self) -> usize {
        (self.taken - self.released) as usize
    }

    /// The bytes that are known to have arrived.
    pub(crate) fn known(&self) -> usize {
        (self.written - self.taken) as usize
    }

    /// Looks at the other side's position, once, and returns the bytes that have arrived.
    pub(crate) fn arrived(&mut self) -> Result<usize, Lie> {
        let written = self.shared.memory.word(self.places.written).load(Ordering::Acquire);
        // What wasn't released can't have been written over.
        let most = self.places.ring_bytes as u64 - (self.written - self.released);
        self.written = check(written, self.written, most)?;
        Ok(self.known())
    }

    /// Takes a frame's header. The caller knows that it has arrived.
    pub(crate) fn header(&mut self) -> [u64; HEADER / ALIGN] {
        let [first, second] = parts(&self.places, self.taken, HEADER);
        let mut offsets = first.chain(second).step_by(ALIGN);
        let words = std::array::from_fn(|_| {
            let offset = offsets.next().expect("as many offsets as words");
            self.shared.memory.word(offset).load(Ordering::Relaxed)
        });
        self.skip(HEADER);
        words
    }

    /// Takes `length` bytes with their padding and appends them to `to`, which has the capacity. The
    /// caller knows that they have arrived.
    pub(crate) fn read(&mut self, length: usize, to: &mut Vec<u8>) {
        let [first, second] = parts(&self.places, self.taken, length);
        self.shared.memory.copy_out(first.start, first.len(), to);
        self.shared.memory.copy_out(second.start, second.len(), to);
        self.skip(length.next_multiple_of(ALIGN));
    }

    /// Takes bytes, a multiple of 8, without looking at them.
    fn skip(&mut self, length: usize) {
        assert!(length <= self.known(), "only what has arrived");
        self.taken += length as u64;
    }

    /// Lets the other side use the space of what was taken, and wakes it.
    pub(crate) fn release(&mut self) {
        if self.released != self.taken {
            self.released = self.taken;
            self.shared.memory.word(self.places.taken).store(self.taken, Ordering::Release);
            wait::ring(self.shared.memory.bell(self.places.for_space));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout;
    use crate::layout::ChannelConfig;
    use crate::memory::Memory;
    use crate::wait::Gate;

    fn shared() -> (Arc<SharedMapping>, Places) {
        let config = ChannelConfig::default();
        let (memory, _) = Memory::create(layout::length(&config)).unwrap();
        (Arc::new(SharedMapping { memory, gate: Gate::default() }), Places::up(&config))
    }

    #[test]
    fn a_consumer_believes_positions_within_the_ring_alone() {
        let (shared, places) = shared();
        let word = shared.memory.word(places.written);
        let mut consumer = Consumer::new(Arc::clone(&shared), places);
        let ring = places.ring_bytes as u64;
        for (position, expected) in [
            (64, Ok(64)),
            (64, Ok(64)),
            (56, Err(Lie::Position)),
            (65, Err(Lie::Position)),
            (ring + 8, Err(Lie::Position)),
            (u64::MAX - 7, Err(Lie::Position)),
            (ring, Ok(places.ring_bytes)),
        ] {
            word.store(position, Ordering::Relaxed);
            assert_eq!(consumer.arrived(), expected, "{position}");
        }
        // What was taken isn't free before that is released.
        consumer.skip(64);
        word.store(ring + 8, Ordering::Relaxed);
        assert_eq!(consumer.arrived(), Err(Lie::Position));
        consumer.release();
        word.store(ring + 64, Ordering::Relaxed);
        assert_eq!(consumer.arrived(), Ok(places.ring_bytes));
    }

    #[test]
    fn a_producer_believes_no_more_than_it_has_published() {
        let (shared, places) = shared();
        let word = shared.memory.word(places.taken);
        let mut producer = Producer::new(Arc::clone(&shared), places);
        producer.write(&[1; 100]);
        word.store(8, Ordering::Relaxed);
        assert_eq!(producer.free(), Err(Lie::Position));
        producer.publish();
        for (position, expected) in [
            (8, Ok(places.ring_bytes - 96)),
            (0, Err(Lie::Position)),
            (9, Err(Lie::Position)),
            (112, Err(Lie::Position)),
            (104, Ok(places.ring_bytes)),
        ] {
            word.store(position, Ordering::Relaxed);
            assert_eq!(producer.free(), expected, "{position}");
        }
    }
}
