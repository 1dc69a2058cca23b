//! Sends frames: encodes messages, numbers frames, and waits for space.

use std::mem;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;

use crate::error::{Error, Lie};
use crate::layout::{ALIGN, HEADER, KEPT_BUFFER, PIECE};
use crate::ring::Producer;
use crate::wait::{SharedMapping, Waiter};

/// Sends frames to the other process.
#[derive(Debug)]
pub struct Sender {
    shared: Arc<SharedMapping>,
    producer: Producer,
    waiter: Waiter,
    longest_frame: u64,
    sequence: u64,
    /// Of the last message, used again.
    buffer: Vec<u8>,
    lied: Option<Lie>,
    is_cut_off: bool,
}

impl Sender {
    pub(crate) fn new(
        shared: Arc<SharedMapping>,
        producer: Producer,
        waiter: Waiter,
        longest_frame: u64,
    ) -> Self {
        Self {
            shared,
            producer,
            waiter,
            longest_frame,
            sequence: 0,
            buffer: Vec::new(),
            lied: None,
            is_cut_off: false,
        }
    }

    /// Returns whether a frame with a message of so many bytes would wait for space now.
    ///
    /// # Errors
    /// [`Error::Closed`] and [`Error::Lied`].
    pub fn would_block(&mut self, length: usize) -> Result<bool, Error> {
        self.check_open()?;
        let total = HEADER.saturating_add(length.next_multiple_of(ALIGN));
        let free = self.producer.free().inspect_err(|lie| self.lied = Some(*lie))?;
        Ok(total > free)
    }

    /// Sends a message. While the ring is full it waits, until the deadline if there is one.
    ///
    /// A frame that fits into the ring is sent as a whole or not at all. A longer one passes in
    /// pieces; if its deadline passes after the first of them, nothing more can be sent.
    ///
    /// # Errors
    /// - [`Error::TooLong`], [`Error::Encode`] and [`Error::TimedOut`]: this frame wasn't sent, or, if
    ///   later ones are [`Error::CutOff`], not all of it.
    /// - [`Error::Closed`], [`Error::Lied`] and [`Error::System`]: nothing more can be sent.
    pub fn send<T: Serialize + ?Sized>(
        &mut self,
        message: &T,
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        self.check_open()?;
        if self.is_cut_off {
            return Err(Error::CutOff);
        }
        self.buffer.clear();
        let encoded = postcard::to_extend(message, mem::take(&mut self.buffer));
        let message = encoded.map_err(Error::Encode)?;
        let sent = self.send_encoded(&message, deadline);
        if message.capacity() <= KEPT_BUFFER {
            self.buffer = message;
        }
        sent
    }

    fn send_encoded(&mut self, message: &[u8], deadline: Option<Instant>) -> Result<(), Error> {
        let length = message.len() as u64;
        if length > self.longest_frame {
            return Err(Error::TooLong { length, longest: self.longest_frame });
        }
        let header = [length, self.sequence].map(u64::to_ne_bytes);
        let total = HEADER + message.len().next_multiple_of(ALIGN);
        // Afterwards the pieces of a frame that fits need not wait.
        self.wait_for(total.min(self.producer.places.ring_bytes), deadline)?;
        let sent = self.send_parts([header.as_flattened(), message], deadline);
        match sent {
            Ok(()) => self.sequence += 1,
            Err(_) => self.is_cut_off = true,
        }
        sent
    }

    fn send_parts(&mut self, parts: [&[u8]; 2], deadline: Option<Instant>) -> Result<(), Error> {
        let mut unseen = 0;
        for mut part in parts {
            while !part.is_empty() {
                let (piece, rest) = part.split_at(part.len().min(self.piece()));
                if unseen >= self.piece() {
                    self.producer.publish();
                    unseen = 0;
                }
                let length = piece.len().next_multiple_of(ALIGN);
                if self.producer.known_free() < length {
                    self.producer.publish();
                    unseen = 0;
                    self.wait_for(length, deadline)?;
                }
                self.producer.write(piece);
                unseen += length;
                part = rest;
            }
        }
        self.producer.publish();
        Ok(())
    }

    /// The most bytes that are written at once. They are worth a wake-up, and so few that both
    /// processes copy at the same time.
    fn piece(&self) -> usize {
        PIECE.min(self.producer.places.ring_bytes / 4)
    }

    fn wait_for(&mut self, length: usize, deadline: Option<Instant>) -> Result<(), Error> {
        if self.producer.known_free() >= length {
            return Ok(());
        }
        let Self { shared, producer, waiter, .. } = self;
        let bell = shared.memory.bell(producer.places.for_space);
        let waited = waiter.wait(bell, &shared.gate, deadline, length, || producer.free());
        waited.inspect_err(|error| {
            if let Error::Lied { what } = error {
                self.lied = Some(*what);
            }
        })
    }

    fn check_open(&self) -> Result<(), Error> {
        if let Some(what) = self.lied {
            return Err(what.into());
        }
        if self.shared.gate.is_closed() { Err(Error::Closed) } else { Ok(()) }
    }
}
