//! Receives frames: checks headers, takes bytes as they arrive, and decodes messages.
//!
//! Bytes are copied out of the shared memory before anything reads them, and each word of it is
//! read once. Buffers grow with what has arrived, never with what a header promises.

use std::mem;
use std::sync::Arc;
use std::time::Instant;

use serde::de::DeserializeOwned;

use crate::error::{Error, Lie};
use crate::layout::{ALIGN, HEADER, KEPT_BUFFER, PIECE};
use crate::ring::Consumer;
use crate::wait::{SharedMapping, Waiter, has_passed};

/// Receives frames from the other process.
#[derive(Debug)]
pub struct Receiver {
    shared: Arc<SharedMapping>,
    consumer: Consumer,
    waiter: Waiter,
    longest_frame: u64,
    piece: usize,
    sequence: u64,
    /// A frame of which the header was taken, but not everything.
    partial: Option<PartialFrame>,
    /// Of the last message, used again.
    buffer: Vec<u8>,
    lied: Option<Lie>,
}

/// What has arrived of a frame.
#[derive(Debug)]
struct PartialFrame {
    message: Vec<u8>,
    /// The length that the message will have.
    length: usize,
}

impl Receiver {
    pub(crate) fn new(
        shared: Arc<SharedMapping>,
        consumer: Consumer,
        waiter: Waiter,
        longest_frame: u64,
    ) -> Self {
        let piece = PIECE.min(consumer.places.ring_bytes / 4);
        Self {
            shared,
            consumer,
            waiter,
            longest_frame,
            piece,
            sequence: 0,
            partial: None,
            buffer: Vec::new(),
            lied: None,
        }
    }

    /// Returns the next message. It waits for one until the deadline, if there is one; a deadline in
    /// the past takes what is there.
    ///
    /// A frame takes at most `longest_frame` bytes, and twice as many while it arrives. The decoded
    /// message may take more. An element of a sequence takes a byte or more of the message, and its
    /// size in memory. A hash map that announces many entries takes 2 MiB. So elements of `T`
    /// shouldn't be much larger than their encoding. They never have an empty one, as `()` has: a
    /// few bytes could announce any number of them.
    ///
    /// # Errors
    /// - [`Error::TimedOut`]: a later call continues where this one stopped.
    /// - [`Error::Closed`]: and no whole frame is left.
    /// - [`Error::Lied`] and [`Error::System`]: nothing more can be received.
    pub fn receive<T: DeserializeOwned>(&mut self, deadline: Option<Instant>) -> Result<T, Error> {
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
    ) -> Result<T, Error> {
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
        let mut bytes = partial.message;
        let (message, rest) = postcard::take_from_bytes(&bytes).map_err(|_| Lie::Message)?;
        if !rest.is_empty() {
            return Err(Lie::Trailing.into());
        }
        if bytes.capacity() <= KEPT_BUFFER {
            bytes.clear();
            self.buffer = bytes;
        }
        Ok(message)
    }

    /// Waits for a header and checks it.
    fn begin(&mut self, deadline: Option<Instant>) -> Result<PartialFrame, Error> {
        self.wait_for(HEADER, deadline)?;
        let [length, sequence] = self.consumer.header();
        let length = usize::try_from(length).ok().filter(|_| length <= self.longest_frame);
        let length = length.ok_or(Lie::Length)?;
        if sequence != self.sequence {
            return Err(Lie::Sequence.into());
        }
        self.sequence += 1;
        Ok(PartialFrame { message: mem::take(&mut self.buffer), length })
    }

    /// Takes the rest of a frame, as it arrives.
    fn complete(
        &mut self,
        partial: &mut PartialFrame,
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        let PartialFrame { message, length: whole } = partial;
        while message.len() < *whole {
            if self.consumer.known() == 0 {
                self.wait_for(ALIGN, deadline)?;
            }
            // A multiple of 8, unless it is the rest of the message, whose padding then goes along.
            let length = (*whole - message.len()).min(self.consumer.known()).min(self.piece);
            make_room(message, length, *whole)?;
            self.consumer.read(length, message);
            if self.consumer.unreleased() >= self.piece {
                self.consumer.release();
                // Bytes that never stop coming must not keep this end from stopping.
                if message.len() < *whole && has_passed(deadline) {
                    return Err(Error::TimedOut);
                }
            }
        }
        Ok(())
    }

    fn wait_for(&mut self, length: usize, deadline: Option<Instant>) -> Result<(), Error> {
        if self.consumer.known() >= length {
            return Ok(());
        }
        // The other process may be waiting for this space.
        self.consumer.release();
        let Self { shared, consumer, waiter, .. } = self;
        let bell = shared.memory.bell(consumer.places.for_bytes);
        waiter.wait(bell, &shared.gate, deadline, length, || consumer.arrived())
    }
}

/// Makes room for `more` bytes in a buffer that will have `whole` ones if all arrive.
fn make_room(buffer: &mut Vec<u8>, more: usize, whole: usize) -> Result<(), Error> {
    let needed = buffer.len() + more;
    if needed > buffer.capacity() {
        let capacity = needed.max(buffer.capacity().saturating_mul(2)).min(whole);
        let reserved = buffer.try_reserve_exact(capacity - buffer.len());
        reserved.map_err(std::io::Error::from)?;
    }
    Ok(())
}
