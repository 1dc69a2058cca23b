//! The liar: it has the shared memory as any worker does, and writes frames to it by itself.
#![expect(unsafe_code, reason = "maps the channel's memory as a worker may")]

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use channel::ChannelConfig;
use channel::layout::{self, HEADER, Places};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::futex;
use serde::{Deserialize, Serialize};

use crate::LONGEST;

/// As an interpreter's events are: texts, bytes, numbers, options, lists and maps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Message {
    Ready,
    Output { stream: u8, text: String },
    Values(Vec<Option<u64>>),
    Bytes(Vec<u8>),
    Table(BTreeMap<String, i32>),
    Hashed(HashMap<u16, String>),
    Nested(Vec<Vec<Message>>),
}

/// Xorshift, as good as a fuzzer needs it.
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound
    }

    /// A number near this one, or near a border, or any.
    pub(crate) fn near(&mut self, number: u64) -> u64 {
        let step = [1, 7, 8, 16, 32, 4096, LONGEST][self.below(7) as usize];
        match self.below(9) {
            0..4 => number.wrapping_add(step),
            4..7 => number.wrapping_sub(step),
            7 => [0, u64::MAX, 1 << 32, 1 << 63, LONGEST, LONGEST + 1][self.below(6) as usize],
            _ => self.next() >> self.below(64),
        }
    }

    fn text(&mut self) -> String {
        "äbc-".repeat(self.below(6) as usize)
    }

    fn message(&mut self, depth: u32) -> Message {
        let few = |random: &mut Self| 0..random.below(5);
        match self.below(if depth < 2 { 7 } else { 6 }) {
            0 => Message::Ready,
            1 => Message::Output { stream: self.next() as u8, text: self.text() },
            2 => Message::Values(
                few(self).map(|_| Some(self.next()).filter(|it| it % 3 > 0)).collect(),
            ),
            3 => Message::Bytes(vec![self.next() as u8; self.below(600) as usize]),
            4 => Message::Table(few(self).map(|_| (self.text(), self.next() as i32)).collect()),
            5 => Message::Hashed(few(self).map(|_| (self.next() as u16, self.text())).collect()),
            _ => Message::Nested(
                few(self).map(|_| few(self).map(|_| self.message(depth + 1)).collect()).collect(),
            ),
        }
    }
}

/// The shared memory, as a worker that does what it likes has it.
pub(crate) struct Raw {
    start: *mut u8,
    length: usize,
    pub(crate) up: Places,
    pub(crate) down: Places,
}

// SAFETY: every access is atomic.
unsafe impl Send for Raw {}
// SAFETY: as above.
unsafe impl Sync for Raw {}

impl Raw {
    pub(crate) fn new(file: &OwnedFd, config: &ChannelConfig) -> Self {
        let length = layout::length(config);
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let start = unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            mmap(ptr::null_mut(), length, access, MapFlags::SHARED, file.as_fd(), 0)
        };
        let start = start.unwrap().cast();
        Self { start, length, up: Places::up(config), down: Places::down(config) }
    }

    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset < self.length);
        // SAFETY: inside the mapping and aligned.
        unsafe { AtomicU64::from_ptr(self.start.add(offset).cast()) }
    }

    pub(crate) fn bell(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset < self.length);
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(self.start.add(offset).cast()) }
    }

    /// Writes whole words to the ring that leads to the parent.
    pub(crate) fn put(&self, position: u64, bytes: &[u8]) {
        for (index, word) in bytes.chunks(8).enumerate() {
            let mut padded = [0; 8];
            padded[..word.len()].copy_from_slice(word);
            let at = (position as usize + 8 * index) % self.up.ring_bytes / 8 * 8;
            self.word(self.up.ring + at).store(u64::from_ne_bytes(padded), Ordering::Relaxed);
        }
    }

    /// Writes something to any word, most often to one that matters.
    pub(crate) fn scribble(&self, random: &mut Random, position: u64) {
        let words = [self.up.written, self.up.taken, self.down.written, self.down.taken];
        match random.below(12) {
            0 => {
                let word = self.word(words[random.below(4) as usize]);
                word.store(random.near(word.load(Ordering::Relaxed)), Ordering::Release);
            }
            1 => {
                let bells = [self.up.for_bytes, self.down.for_space];
                let bell = self.bell(bells[random.below(2) as usize]);
                bell.store(random.below(3) as u32, Ordering::Relaxed);
                let _ = futex::wake(bell, futex::Flags::empty(), 1);
            }
            2 => {
                let any = random.below(self.length as u64 / 8) as usize * 8;
                self.word(any).store(random.next(), Ordering::Relaxed);
            }
            _ => {
                let at = position.wrapping_sub(random.below(64) * 8) as usize % self.up.ring_bytes;
                let word = self.word(self.up.ring + at / 8 * 8);
                let number = word.load(Ordering::Relaxed) ^ (0xff << (8 * random.below(8)));
                word.store(number, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: our own mapping, whole, which nothing uses any more.
        unsafe { munmap(self.start.cast(), self.length) }.unwrap();
    }
}

/// A worker that writes frames by itself, most of them right and some wrong.
pub(crate) struct Liar {
    pub(crate) raw: Arc<Raw>,
    pub(crate) random: Random,
    pub(crate) position: u64,
    pub(crate) sequence: u64,
}

impl Liar {
    pub(crate) fn new(raw: Arc<Raw>, random: Random) -> Self {
        Self { raw, random, position: 0, sequence: 0 }
    }

    /// Writes a frame, whether or not there is space.
    pub(crate) fn frame(&mut self) {
        let random = &mut self.random;
        let mut message = postcard::to_stdvec(&random.message(0)).unwrap();
        let is_honest = random.below(4) > 0;
        let kind = if is_honest { 99 } else { random.below(12) };
        match kind {
            0 if !message.is_empty() => {
                let at = random.below(message.len() as u64) as usize;
                message[at] = random.next() as u8;
            }
            1 => message.truncate(random.below(1 + message.len() as u64) as usize),
            2 => message.extend_from_slice(&random.next().to_ne_bytes()[..1]),
            3 => message = (0..random.below(900)).map(|_| random.next() as u8).collect(),
            // A list, a map or a text of many or very many elements.
            4 => {
                message = vec![random.below(8) as u8, 0xff, 0xff, 0xff, random.below(128) as u8];
                message.extend((0..random.below(500)).map(|_| random.below(3) as u8));
            }
            // Longer than the ring, and cut off.
            5 => message = vec![1; 4096],
            _ => {}
        }
        let mut header = [message.len() as u64, self.sequence];
        if (6..8).contains(&kind) {
            let word = &mut header[kind as usize - 6];
            *word = random.near(*word);
        }
        message.resize(message.len().next_multiple_of(8), 0);
        let frame = [&header.map(u64::to_ne_bytes).concat()[..], &message].concat();
        assert_eq!(frame.len(), HEADER + message.len());
        self.raw.put(self.position, &frame[..frame.len().min(4096)]);
        self.position += frame.len() as u64;
        self.sequence += 1;
        let mut written = self.position;
        match kind {
            8 => written = random.near(written),
            9 => written -= 8 * random.below(1 + frame.len() as u64 / 8),
            10 | 11 => self.raw.scribble(random, self.position),
            _ => {}
        }
        self.raw.word(self.raw.up.written).store(written, Ordering::Release);
    }
}
