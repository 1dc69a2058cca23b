//! Frames between two ends in one process: lengths, generations, deadlines, closing.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::fs::File;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use channel::layout::{self, HEADER};
use channel::{ChannelConfig, Direction, Endpoint, Error, Lie, Older};
use serde::ser::{Serialize, SerializeSeq, Serializer};

/// No wait of these tests takes as long unless something is broken.
const STUCK: Duration = Duration::from_secs(60);

const RING: usize = 4096;

/// Small rings, so that frames go around their ends all the time.
fn config() -> ChannelConfig {
    let direction = Direction { ring_bytes: RING, longest_frame: 1 << 20 };
    ChannelConfig { down: direction, up: direction, ..ChannelConfig::default() }
}

fn ends(config: &ChannelConfig) -> (Endpoint, Endpoint) {
    let (end, file) = channel::create(config).unwrap();
    let other = channel::attach(&file, config).unwrap();
    (end, other)
}

fn now() -> Instant {
    Instant::now()
}

fn soon() -> Option<Instant> {
    Some(now() + Duration::from_millis(20))
}

fn stuck() -> Option<Instant> {
    Some(now() + STUCK)
}

fn bytes(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 31 + seed + index / 256) as u8).collect()
}

#[test]
fn frames_of_every_length_arrive_as_they_were_sent() {
    let near = [8, 16, 100, RING / 4, RING / 2, RING - HEADER, RING, 3 * RING];
    let lengths: Vec<usize> =
        (0..40).chain(near.into_iter().flat_map(|near| near - 8..near + 9)).collect();
    for spin in [Duration::ZERO, Duration::from_micros(50)] {
        let (mut parent, mut worker) = ends(&ChannelConfig { spin, ..config() });
        thread::scope(|scope| {
            scope.spawn(|| {
                for &message in &lengths {
                    for &bulk in &lengths {
                        let text = bytes(message, bulk);
                        worker.sender.send(&text, &bytes(bulk, message), stuck()).unwrap();
                    }
                }
            });
            for &message in &lengths {
                for &bulk in &lengths {
                    let frame = parent.receiver.receive::<Vec<u8>>(stuck()).unwrap();
                    assert!(frame.message == bytes(message, bulk), "message of {message}, {bulk}");
                    assert!(frame.bulk == bytes(bulk, message), "bulk of {message}, {bulk}");
                }
            }
        });
        let empty = parent.receiver.receive::<Vec<u8>>(soon());
        assert!(matches!(empty, Err(Error::TimedOut)), "{empty:?}");
    }
}

/// Both ends sleep most of the time, and wake one another at all kinds of moments.
#[test]
fn no_wake_up_is_lost() {
    let (mut parent, mut worker) = ends(&ChannelConfig { spin: Duration::ZERO, ..config() });
    let delay = |index: usize, seed: usize| {
        (0..(index * seed) % 1999).for_each(|_| std::hint::spin_loop());
    };
    let length = |index: usize| if index.is_multiple_of(7) { 3 * RING } else { index % 900 };
    thread::scope(|scope| {
        scope.spawn(|| {
            for index in 0..40_000 {
                let frame = worker.receiver.receive::<usize>(stuck()).unwrap();
                assert_eq!((frame.message, frame.bulk.len()), (index, length(index)));
                delay(index, 7919);
                worker.sender.send(&frame.message, &frame.bulk, stuck()).unwrap();
            }
        });
        for index in 0..40_000 {
            delay(index, 104_729);
            parent.sender.send(&index, &bytes(length(index), 0), stuck()).unwrap();
            let frame = parent.receiver.receive::<usize>(stuck()).unwrap();
            assert_eq!((frame.message, frame.bulk.len()), (index, length(index)));
        }
    });
}

#[test]
fn a_receiver_goes_on_with_a_frame_after_its_deadline() {
    let (mut parent, mut worker) = ends(&config());
    let bulk = bytes(50 * RING, 5);
    thread::scope(|scope| {
        let late = scope.spawn(|| {
            let mut deadlines = 0;
            loop {
                match parent.receiver.receive::<u8>(Some(now())) {
                    Ok(frame) => return (frame, deadlines),
                    Err(Error::TimedOut) => deadlines += 1,
                    Err(error) => panic!("{error:?}"),
                }
                thread::yield_now();
            }
        });
        worker.sender.send(&7u8, &bulk, stuck()).unwrap();
        let (frame, deadlines) = late.join().unwrap();
        assert!(frame.message == 7 && frame.bulk == bulk);
        assert!(deadlines > 0, "the frame can't have fitted into the ring");
    });
}

#[test]
fn a_frame_that_fits_is_sent_whole_or_not_at_all() {
    let (mut parent, mut worker) = ends(&config());
    let mut sent = 0u64;
    while !worker.sender.would_block(1, 500).unwrap() {
        worker.sender.send(&sent, &[1; 500], soon()).unwrap();
        sent += 1;
    }
    assert_eq!(sent, RING as u64 / (32 + 8 + 504));
    for length in [500, RING - HEADER - 8] {
        let refused = worker.sender.send(&sent, &vec![1; length], soon());
        assert!(matches!(refused, Err(Error::TimedOut)), "{refused:?}");
    }
    for index in 0..sent {
        assert_eq!(parent.receiver.receive::<u64>(soon()).unwrap().message, index);
    }
    assert!(!worker.sender.would_block(1, (RING - HEADER - 8) as u64).unwrap());
    assert!(worker.sender.would_block(1, (RING - HEADER - 7) as u64).unwrap());
    worker.sender.send(&sent, &vec![1; RING - HEADER - 8], soon()).unwrap();
    assert_eq!(parent.receiver.receive::<u64>(soon()).unwrap().message, sent);
}

#[test]
fn nothing_follows_a_frame_that_was_cut_off() {
    let (_parent, mut worker) = ends(&config());
    let cut = worker.sender.send(&0u8, &[0; 2 * RING], soon());
    assert!(matches!(cut, Err(Error::TimedOut)), "{cut:?}");
    let next = worker.sender.send(&0u8, &[], soon());
    assert!(matches!(next, Err(Error::CutOff)), "{next:?}");
}

/// It has no length before it is written, which postcard needs.
struct Endless;

impl Serialize for Endless {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_seq(None)?.end()
    }
}

#[test]
fn what_cant_be_sent_leaves_the_channel_as_it_was() {
    let (mut parent, mut worker) = ends(&config());
    let long = vec![0; 1 << 20];
    let refused = worker.sender.send(&0u8, &long, soon());
    assert!(matches!(refused, Err(Error::TooLong { length: 1_048_577, .. })), "{refused:?}");
    let refused = worker.sender.send(&Endless, &[], soon());
    assert!(matches!(refused, Err(Error::Encode(_))), "{refused:?}");
    worker.sender.send("text", b"bytes", soon()).unwrap();
    let frame = parent.receiver.receive::<String>(soon()).unwrap();
    assert_eq!((frame.message.as_str(), &frame.bulk[..]), ("text", &b"bytes"[..]));
}

#[test]
fn generations_are_skipped_refused_or_adopted() {
    let (mut parent, mut worker) = ends(&config());
    parent.sender.set_generation(3);
    parent.receiver.set_generation(3, Older::Skip);
    worker.sender.send(&1u8, &bytes(3 * RING / 4, 1), soon()).unwrap();
    worker.sender.send(&2u8, b"", soon()).unwrap();
    parent.sender.send(&0u8, b"", soon()).unwrap();
    assert_eq!(worker.receiver.receive::<u8>(soon()).unwrap().generation, 3);
    worker.sender.set_generation(3);
    worker.sender.send(&3u8, b"", soon()).unwrap();
    let frame = parent.receiver.receive::<u8>(soon()).unwrap();
    assert_eq!((frame.message, frame.generation), (3, 3));

    parent.sender.set_generation(2);
    parent.sender.send(&0u8, b"", soon()).unwrap();
    let older = worker.receiver.receive::<u8>(soon());
    assert!(matches!(older, Err(Error::Lied { what: Lie::Generation })), "{older:?}");

    parent.receiver.set_generation(4, Older::Refuse);
    worker.sender.send(&4u8, b"", soon()).unwrap();
    let older = parent.receiver.receive::<u8>(soon());
    assert!(matches!(older, Err(Error::Lied { what: Lie::Generation })), "{older:?}");

    let (mut parent, mut worker) = ends(&config());
    worker.sender.set_generation(1);
    worker.sender.send(&4u8, b"", soon()).unwrap();
    let newer = parent.receiver.receive::<u8>(soon());
    assert!(matches!(newer, Err(Error::Lied { what: Lie::Generation })), "{newer:?}");
}

#[test]
fn frames_to_skip_without_end_stop_at_the_deadline_and_when_closed() {
    let (mut parent, mut worker) = ends(&config());
    parent.receiver.set_generation(1, Older::Skip);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let _ = worker.sender.send(&0u8, b"old", soon());
            }
        });
        let timed_out = parent.receiver.receive::<u8>(soon());
        assert!(matches!(timed_out, Err(Error::TimedOut)), "{timed_out:?}");
        let closer = parent.closer.clone();
        let reader = scope.spawn(|| parent.receiver.receive::<u8>(stuck()));
        closer.close();
        let closed = reader.join().unwrap();
        assert!(matches!(closed, Err(Error::Closed)), "{closed:?}");
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn closing_ends_the_waits_of_both_halves_and_leaves_what_had_arrived() {
    for is_creator in [true, false] {
        let (parent, worker) = ends(&config());
        let (mut end, mut other) = if is_creator { (parent, worker) } else { (worker, parent) };
        other.sender.send(&1u8, b"", soon()).unwrap();
        other.sender.send(&2u8, b"", soon()).unwrap();
        assert_eq!(end.receiver.receive::<u8>(soon()).unwrap().message, 1);
        thread::scope(|scope| {
            let Endpoint { sender, receiver, closer } = &mut end;
            let writer = scope.spawn(|| {
                loop {
                    if let Err(error) = sender.send(&0u8, &[0; 1000], stuck()) {
                        return error;
                    }
                }
            });
            let reader = scope.spawn(|| {
                assert_eq!(receiver.receive::<u8>(stuck()).unwrap().message, 2);
                receiver.receive::<u8>(stuck())
            });
            thread::park_timeout(Duration::from_millis(50));
            assert!(!closer.is_closed());
            closer.close();
            assert!(closer.is_closed());
            assert!(matches!(writer.join().unwrap(), Error::Closed));
            assert!(matches!(reader.join().unwrap(), Err(Error::Closed)));
        });
        other.sender.send(&3u8, b"", soon()).unwrap();
        assert_eq!(end.receiver.receive::<u8>(None).unwrap().message, 3);
        assert!(matches!(end.receiver.receive::<u8>(None), Err(Error::Closed)));
        assert!(matches!(end.sender.send(&0u8, b"", None), Err(Error::Closed)));
        assert!(matches!(end.sender.would_block(0, 0), Err(Error::Closed)));
    }
}

#[test]
fn only_the_file_of_a_channel_with_the_same_rings_is_attached_to() {
    let (_parent, file) = channel::create(&config()).unwrap();
    let other = ChannelConfig::default();
    assert_eq!(channel::attach(&file, &other).unwrap_err().kind(), ErrorKind::InvalidData);
    let file = File::from(file);
    for length in [0, RING as u64, 1 << 20] {
        assert_eq!(file.set_len(length).unwrap_err().kind(), ErrorKind::PermissionDenied);
    }
    let unsealed = rustix::fs::memfd_create(
        "unsealed",
        rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING,
    );
    let unsealed = File::from(unsealed.unwrap());
    unsealed.set_len(layout::length(&config()) as u64).unwrap();
    assert_eq!(channel::attach(&unsealed, &config()).unwrap_err().kind(), ErrorKind::InvalidData);
    for ring_bytes in [0, 2048, 5000, 1 << 31] {
        let direction = Direction { ring_bytes, ..Direction::default() };
        let config = ChannelConfig { up: direction, ..ChannelConfig::default() };
        assert_eq!(channel::create(&config).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
