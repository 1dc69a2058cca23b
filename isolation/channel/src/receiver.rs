//! Receives frames: checks headers, takes bytes as they arrive, and decodes messages.
//!
//! Bytes are copied out of the shared memory before anything looks at them, and each word of it is
//! read once. Buffers grow with what has arrived, never with what a header promises.

use std::mem;
use std::sync::Arc;
use std::time::Instant;

use serde::de::DeserializeOwned;

use crate::error::{Error, Lie};
use crate::layout::{self, HEADER, Header};
use crate::ring::Consumer;
use crate::wait::SharedMapping;
use crate::wait::{Waiter, has_passed};

/// A buffer for messages that is longer is freed after use.
const KEPT_BUFFER: usize = 64 << 10;

/// The bytes after which the other process may use the space again, so that it copies while this one
/// does; at most a quarter of the ring.
const PIECE: usize = 64 << 10;

/// What was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame<T> {
    /// The decoded message.
    pub message: T,
    /// The bytes that came along.
    pub bulk: Vec<u8>,
    /// The sender's generation.
    pub generation: u64,
}

/// What happens to frames of an older generation than the receiver's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Older {
    /// They are skipped: the sender may not know yet that there is a new one.
    Skip,
    /// They are a lie.
    Refuse,
}

/// What happens to frames of a newer generation than the receiver's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Newer {
    /// It becomes the receiver's: the other process leads.
    Adopt,
    /// They are a lie.
    Refuse,
}

/// Receives frames from the other process.
#[derive(Debug)]
pub struct Receiver {
    shared: Arc<SharedMapping>,
    consumer: Consumer,
    waiter: Waiter,
    longest_frame: u64,
    piece: usize,
    generation: u64,
    older: Older,
    newer: Newer,
    sequence: u64,
    /// A frame of which the header was taken, but not everything.
    partial: Option<Partial>,
    /// Of the last message, used again.
    buffer: Vec<u8>,
    /// For the next frame's bulk.
    recycled: Vec<u8>,
    lied: Option<Lie>,
}

/// What has arrived of a frame.
#[derive(Debug)]
struct Partial {
    header: Header,
    /// `None` for a frame that is skipped.
    kept: Option<FrameBuffers>,
    /// Bytes of the message and of the bulk that haven't been taken.
    missing: [u64; 2],
}

#[derive(Debug, Default)]
struct FrameBuffers {
    message: Vec<u8>,
    bulk: Vec<u8>,
}

impl Receiver {
    pub(crate) fn new(
        shared: Arc<SharedMapping>,
        consumer: Consumer,
        waiter: Waiter,
        longest_frame: u64,
        (older, newer): (Older, Newer),
    ) -> Self {
        let piece = PIECE.min(consumer.ring_bytes() / 4);
        Self {
            shared,
            consumer,
            waiter,
            longest_frame,
            piece,
            generation: 0,
            older,
            newer,
            sequence: 0,
            partial: None,
            buffer: Vec::new(),
            recycled: Vec::new(),
            lied: None,
        }
    }

    /// Sets the generation that frames must have, and what happens to older ones. It is 0 at first.
    pub fn set_generation(&mut self, generation: u64, older: Older) {
        self.generation = generation;
        self.older = older;
    }

    /// Takes a buffer for the bulk of the next frame that has one. Long frames arrive several times
    /// as fast in memory that is there already.
    pub fn recycle(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        self.recycled = buffer;
    }

    /// Returns the next frame. It waits for one until the deadline, or for ever without one; a
    /// deadline in the past takes what is there.
    ///
    /// A frame takes at most `longest_frame` bytes, and twice as many while it arrives. The decoded
    /// message may take more: an element of a sequence takes a byte or more of the message, and its
    /// size in memory; a hash map that announces many entries takes some 2 MiB. So elements of `T`
    /// shouldn't be much larger than their encoding, and never have an empty one, as `()` has, since a
    /// few bytes could then announce any number of them.
    ///
    /// # Errors
    /// - [`Error::TimedOut`]: a later call goes on where this one stopped.
    /// - [`Error::Closed`]: and no whole frame is left.
    /// - [`Error::Lied`] and [`Error::System`]: nothing more can be received.
    pub fn receive<T: DeserializeOwned>(
        &mut self,
        deadline: Option<Instant>,
    ) -> Result<Frame<T>, Error> {
        if let Some(what) = self.lied {
            return Err(what.into());
        }
        let received = self.receive_frame(deadline);
        if let Err(Error::Lied { what }) = &received {
            self.lied = Some(*what);
            self.partial = None;
        }
        received
    }

    fn receive_frame<T: DeserializeOwned>(
        &mut self,
        deadline: Option<Instant>,
    ) -> Result<Frame<T>, Error> {
        loop {
            let mut partial = match self.partial.take() {
                Some(partial) => partial,
                None => self.begin(deadline)?,
            };
            // Once more in `partial` if the rest doesn't come in time.
            if let Err(error) = self.complete(&mut partial, deadline) {
                self.partial = Some(partial);
                return Err(error);
            }
            // Not for each of many frames: the other process looks at its bell each time.
            if self.consumer.known() == 0 || self.consumer.unreleased() >= self.piece {
                self.consumer.release();
            }
            if let Some(kept) = partial.kept {
                return self.decode(kept, partial.header.generation);
            }
            // Whoever sends frames to skip without end must not keep this end from stopping.
            if self.shared.gate.is_closed() {
                return Err(Error::Closed);
            }
            if has_passed(deadline) {
                return Err(Error::TimedOut);
            }
        }
    }

    /// Waits for a header and checks it.
    fn begin(&mut self, deadline: Option<Instant>) -> Result<Partial, Error> {
        self.wait_for(HEADER, deadline)?;
        let header = Header::of(self.consumer.header());
        let length = header.message.checked_add(header.bulk);
        if length.is_none_or(|length| length > self.longest_frame) {
            return Err(Lie::Length.into());
        }
        if header.sequence != self.sequence {
            return Err(Lie::Sequence.into());
        }
        self.sequence += 1;
        if header.generation > self.generation && self.newer == Newer::Adopt {
            self.generation = header.generation;
        }
        let is_kept = header.generation == self.generation;
        if !is_kept && (header.generation > self.generation || self.older == Older::Refuse) {
            return Err(Lie::Generation.into());
        }
        let kept = is_kept.then(|| FrameBuffers {
            message: mem::take(&mut self.buffer),
            bulk: if header.bulk > 0 { mem::take(&mut self.recycled) } else { Vec::new() },
        });
        Ok(Partial { header, kept, missing: [header.message, header.bulk] })
    }

    /// Takes the rest of a frame, as it arrives.
    fn complete(&mut self, partial: &mut Partial, deadline: Option<Instant>) -> Result<(), Error> {
        let wholes = [partial.header.message, partial.header.bulk];
        for (index, whole) in wholes.into_iter().enumerate() {
            while partial.missing[index] > 0 {
                let missing = partial.missing[index];
                if self.consumer.known() == 0 {
                    self.wait_for(layout::ALIGN, deadline)?;
                }
                // A multiple of 8, unless it is the rest of this part, whose padding then goes along.
                let length = missing.min(self.consumer.known().min(self.piece) as u64);
                let length = usize::try_from(length).map_err(|_| Lie::Length)?;
                match &mut partial.kept {
                    Some(FrameBuffers { message, bulk }) => {
                        let to = if index == 0 { message } else { bulk };
                        make_room(to, length, whole)?;
                        self.consumer.read(length, to);
                    }
                    None => self.consumer.skip(length.next_multiple_of(layout::ALIGN)),
                }
                partial.missing[index] -= length as u64;
                if self.consumer.unreleased() >= self.piece {
                    self.consumer.release();
                    // Bytes that never stop coming must not keep this end from stopping.
                    if partial.missing[index] > 0 && has_passed(deadline) {
                        return Err(Error::TimedOut);
                    }
                }
            }
        }
        Ok(())
    }

    fn decode<T: DeserializeOwned>(
        &mut self,
        kept: FrameBuffers,
        generation: u64,
    ) -> Result<Frame<T>, Error> {
        let FrameBuffers { message: mut bytes, bulk } = kept;
        let (message, rest) = postcard::take_from_bytes(&bytes).map_err(|_| Lie::Message)?;
        if !rest.is_empty() {
            return Err(Lie::Trailing.into());
        }
        if bytes.capacity() <= KEPT_BUFFER {
            bytes.clear();
            self.buffer = bytes;
        }
        Ok(Frame { message, bulk, generation })
    }

    fn wait_for(&mut self, length: usize, deadline: Option<Instant>) -> Result<(), Error> {
        if self.consumer.known() >= length {
            return Ok(());
        }
        // The other process may be waiting for this space.
        self.consumer.release();
        let Self { shared, consumer, waiter, .. } = self;
        let bell = shared.memory.bell(consumer.bell());
        waiter.wait(bell, &shared.gate, deadline, length, || consumer.arrived())
    }
}

/// Makes room for `more` bytes in a buffer that will have `whole` ones if all arrive.
fn make_room(buffer: &mut Vec<u8>, more: usize, whole: u64) -> Result<(), Error> {
    let needed = buffer.len() + more;
    if needed > buffer.capacity() {
        let whole = usize::try_from(whole).map_err(|_| Lie::Length)?;
        let capacity = needed.max(buffer.capacity().saturating_mul(2)).min(whole);
        let reserved = buffer.try_reserve_exact(capacity - buffer.len());
        reserved.map_err(std::io::Error::from)?;
    }
    Ok(())
}
