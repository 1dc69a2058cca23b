//! A worker that lies: random words and bytes in all shared places, most of them nearly right, at
//! rest and while this end reads. Nothing panics, hangs, or allocates more than the frames may have.
//!
//! `HATCHERY_FUZZ_FRAMES` says how many frames each of the two fuzzers sends.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use channel::layout::HEADER;
use channel::{ChannelConfig, Direction, Endpoint, Error, Lie};
use rustix::thread::futex;

use counting::peak;
use liar::{Liar, Message, Random, Raw};

mod counting;
mod liar;

/// The most that a message may take in memory for a byte of its encoding: an element of a `Vec`, in
/// one that has grown to twice that, beside the old one.
const AMPLIFIED: usize = 4 * size_of::<Message>();

/// What serde gives a hash map that announces many entries, before there is one.
const HASHED: usize = 5 << 19;

const LONGEST: u64 = 8 << 10;

fn config(longest_frame: u64) -> ChannelConfig {
    let direction = Direction { ring_bytes: 4096, longest_frame };
    ChannelConfig { down: direction, up: direction, spin: Duration::from_micros(5) }
}

fn now() -> Instant {
    Instant::now()
}

/// What became of the frames.
#[derive(Debug, Default)]
struct Tally {
    received: AtomicUsize,
    lied: Mutex<BTreeMap<String, usize>>,
    channels: AtomicUsize,
    peak: AtomicUsize,
}

impl Tally {
    /// Receives once and checks what that allocated. `false` once the channel is of no more use.
    fn receive(&self, end: &mut Endpoint, deadline: Instant) -> bool {
        let bound = LONGEST as usize * (2 + AMPLIFIED) + HASHED;
        let (received, peak) = peak(|| end.receiver.receive::<Message>(Some(deadline)));
        assert!(peak <= bound, "{peak} bytes for {received:?}");
        self.peak.fetch_max(peak, Ordering::Relaxed);
        match received {
            Ok(_) => {
                self.received.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(Error::TimedOut) => true,
            Err(Error::Lied { what }) => {
                *self.lied.lock().unwrap().entry(format!("{what:?}")).or_default() += 1;
                let again = end.receiver.receive::<Message>(None);
                assert!(matches!(again, Err(Error::Lied { what: same }) if same == what));
                false
            }
            Err(error) => panic!("{error:?}"),
        }
    }

    fn send(&self, end: &mut Endpoint, deadline: Instant) -> bool {
        match end.sender.send(&Message::Bytes(vec![3; 1500]), Some(deadline)) {
            Ok(()) | Err(Error::TimedOut) => true,
            Err(Error::Lied { what }) => {
                *self.lied.lock().unwrap().entry(format!("{what:?} sending")).or_default() += 1;
                false
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

fn make(tally: &Tally) -> (Endpoint, Arc<Raw>) {
    let config = config(LONGEST);
    let (end, file) = channel::create(&config).unwrap();
    tally.channels.fetch_add(1, Ordering::Relaxed);
    (end, Arc::new(Raw::new(&file, &config)))
}

fn frames() -> u64 {
    let frames = std::env::var("HATCHERY_FUZZ_FRAMES").ok();
    frames.map_or(100_000, |frames| frames.parse().unwrap())
}

/// Every kind of lie was told and seen, and much was true.
fn check(tally: &Tally, frames: u64) {
    let lied = tally.lied.lock().unwrap();
    println!(
        "{frames} frames: {} received, {} channels, at most {} bytes, {lied:?}",
        tally.received.load(Ordering::Relaxed),
        tally.channels.load(Ordering::Relaxed),
        tally.peak.load(Ordering::Relaxed),
    );
    for lie in [Lie::Position, Lie::Length, Lie::Sequence, Lie::Message] {
        assert!(lied.contains_key(&format!("{lie:?}")), "{lie:?}: {lied:?}");
    }
    assert!(lied.contains_key("Trailing") && lied.contains_key("Position sending"), "{lied:?}");
    assert!(tally.received.load(Ordering::Relaxed) as u64 > frames / 50);
}

#[test]
fn frames_of_a_liar_cost_an_error_at_most() {
    let frames = frames();
    let tally = Tally::default();
    let (mut end, raw) = make(&tally);
    let mut liar = Liar::new(raw, Random(0x9e37_79b9_7f4a_7c15));
    let past = now();
    for _ in 0..frames {
        liar.frame();
        let mut is_good = tally.send(&mut end, past);
        // What it says that it has taken; a position that is right would let it be sent more.
        let taken = liar.raw.word(liar.raw.down.written).load(Ordering::Relaxed);
        let taken = if liar.random.below(50) == 0 { liar.random.near(taken) } else { taken };
        liar.raw.word(liar.raw.down.taken).store(taken, Ordering::Release);
        // Some may be left over from before.
        for _ in 0..2 {
            is_good = is_good && tally.receive(&mut end, past);
        }
        if !is_good || liar.sequence > 1000 {
            let (next, raw) = make(&tally);
            end = next;
            liar = Liar::new(raw, liar.random);
        }
    }
    check(&tally, frames);
}

#[test]
fn a_liar_that_writes_while_frames_are_read_costs_an_error_at_most() {
    let frames = frames();
    let tally = Tally::default();
    let (mut end, raw) = make(&tally);
    let shared = Mutex::new(raw);
    let (sent, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    // How often the channel was read. Each lie waits for a read: on a machine with few free cores the
    // writers would otherwise spoil every channel before one frame of it was received.
    let reads = AtomicU64::new(0);
    let current = || Arc::clone(&shared.lock().unwrap());
    thread::scope(|scope| {
        // Writes frames where there is space.
        scope.spawn(|| {
            let mut liar = Liar::new(current(), Random(0xdead_beef_1234_5677));
            let mut overwritten_at = 0;
            while !is_over.load(Ordering::Relaxed) {
                let raw = current();
                if !Arc::ptr_eq(&raw, &liar.raw) {
                    liar = Liar::new(raw, liar.random);
                }
                let taken = liar.raw.word(liar.raw.up.taken).load(Ordering::Acquire);
                if liar.position.wrapping_sub(taken) > 2048 {
                    let read = reads.load(Ordering::Relaxed);
                    if read < overwritten_at + 64 {
                        thread::yield_now();
                        continue;
                    }
                    overwritten_at = read;
                }
                liar.frame();
                let _ = futex::wake(liar.raw.bell(liar.raw.up.for_bytes), futex::Flags::empty(), 1);
                sent.fetch_add(1, Ordering::Relaxed);
            }
        });
        // Writes anything anywhere.
        scope.spawn(|| {
            let mut random = Random(0x0123_4567_89ab_cdef);
            let mut scribbled_at = u64::MAX;
            while !is_over.load(Ordering::Relaxed) {
                let read = reads.load(Ordering::Relaxed);
                if read == scribbled_at {
                    thread::yield_now();
                    continue;
                }
                scribbled_at = read;
                let raw = current();
                for _ in 0..20 {
                    let position = raw.word(raw.up.taken).load(Ordering::Relaxed) + 256;
                    raw.scribble(&mut random, position);
                    for _ in 0..random.below(2000) {
                        std::hint::spin_loop();
                    }
                }
            }
        });
        while sent.load(Ordering::Relaxed) < frames {
            let soon = now() + Duration::from_micros(300);
            let is_good = tally.receive(&mut end, soon) && tally.send(&mut end, now());
            reads.fetch_add(1, Ordering::Relaxed);
            if !is_good {
                let (next, raw) = make(&tally);
                end = next;
                *shared.lock().unwrap() = raw;
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    check(&tally, frames);
}

#[test]
fn nothing_is_allocated_for_what_a_header_only_promises() {
    let longest = 1 << 40;
    let config = config(longest);
    let (mut end, file) = channel::create(&config).unwrap();
    let raw = Raw::new(&file, &config);
    let header = [longest, 0].map(u64::to_ne_bytes).concat();
    raw.put(0, &header);
    for arrived in (HEADER as u64 + 8..4096).step_by(8) {
        raw.word(raw.up.written).store(arrived, Ordering::Release);
        let (received, peak) = peak(|| end.receiver.receive::<u64>(Some(now())));
        assert!(matches!(received, Err(Error::TimedOut)), "{received:?}");
        assert!(peak as u64 <= 4 * arrived, "{peak} bytes for {arrived}");
    }
}

#[test]
fn a_liar_cant_keep_an_end_from_closing() {
    let (end, file) = channel::create(&config(LONGEST)).unwrap();
    let raw = Raw::new(&file, &config(LONGEST));
    let Endpoint { mut sender, mut receiver, closer } = end;
    thread::scope(|scope| {
        let reader = scope.spawn(|| receiver.receive::<u64>(None));
        let writer = scope.spawn(|| {
            loop {
                if let Err(error) = sender.send(&[0u8; 500][..], None) {
                    return error;
                }
            }
        });
        let bells = [raw.up.for_bytes, raw.down.for_space].map(|bell| raw.bell(bell));
        let both_are = |value| bells.iter().all(|bell| bell.load(Ordering::Relaxed) == value);
        while !both_are(1) {
            thread::yield_now();
        }
        let asleep = now() + Duration::from_millis(50);
        while now() < asleep {
            thread::park_timeout(Duration::from_millis(10));
        }
        // As if nobody slept, so that nobody is woken through the bells.
        bells.iter().for_each(|bell| bell.store(0, Ordering::Relaxed));
        let start = now();
        closer.close();
        assert!(matches!(reader.join().unwrap(), Err(Error::Closed)));
        assert!(matches!(writer.join().unwrap(), Error::Closed));
        let waited = start.elapsed();
        assert!(waited < Duration::from_secs(2), "{waited:?}");
    });
}

#[test]
fn wake_ups_without_bytes_are_a_lie() {
    let config = ChannelConfig { spin: Duration::ZERO, ..config(LONGEST) };
    let (mut end, file) = channel::create(&config).unwrap();
    let raw = Raw::new(&file, &config);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let _ = futex::wake(raw.bell(raw.up.for_bytes), futex::Flags::empty(), 1);
            }
        });
        let received = end.receiver.receive::<u64>(Some(now() + Duration::from_secs(60)));
        is_over.store(true, Ordering::Relaxed);
        assert!(matches!(received, Err(Error::Lied { what: Lie::Wakes })), "{received:?}");
    });
}
