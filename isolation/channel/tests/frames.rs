//! Frames between two ends in one process: lengths, deadlines, closing.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::fs::File;
use std::io::ErrorKind;
use std::thread;
use std::time::{Duration, Instant};

use channel::layout::{self, HEADER};
use channel::{ChannelConfig, Direction, Endpoint, Error};
use serde::ser::{Serialize, SerializeSeq, Serializer};

/// No wait of these tests takes as long unless something is broken.
const STUCK: Duration = Duration::from_secs(60);

const RING: usize = 4096;

/// How often each length is sent, each time at another place of the ring.
const ROUNDS: usize = 100;

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
                for round in 0..ROUNDS {
                    for &length in &lengths {
                        worker.sender.send(&bytes(length, round), stuck()).unwrap();
                    }
                }
            });
            for round in 0..ROUNDS {
                for &length in &lengths {
                    let message = parent.receiver.receive::<Vec<u8>>(stuck()).unwrap();
                    assert!(message == bytes(length, round), "message of {length}, {round}");
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
                let message = worker.receiver.receive::<Vec<u8>>(stuck()).unwrap();
                assert!(message == bytes(length(index), index));
                delay(index, 7919);
                worker.sender.send(&message, stuck()).unwrap();
            }
        });
        for index in 0..40_000 {
            delay(index, 104_729);
            parent.sender.send(&bytes(length(index), index), stuck()).unwrap();
            let message = parent.receiver.receive::<Vec<u8>>(stuck()).unwrap();
            assert!(message == bytes(length(index), index));
        }
    });
}

#[test]
fn a_receiver_goes_on_with_a_frame_after_its_deadline() {
    let (mut parent, mut worker) = ends(&config());
    let long = bytes(50 * RING, 5);
    thread::scope(|scope| {
        let late = scope.spawn(|| {
            let mut deadlines = 0;
            loop {
                match parent.receiver.receive::<Vec<u8>>(Some(now())) {
                    Ok(message) => return (message, deadlines),
                    Err(Error::TimedOut) => deadlines += 1,
                    Err(error) => panic!("{error:?}"),
                }
                thread::yield_now();
            }
        });
        worker.sender.send(&long, stuck()).unwrap();
        let (message, deadlines) = late.join().unwrap();
        assert!(message == long);
        assert!(deadlines > 0, "the frame can't have fitted into the ring");
    });
}

/// Returns a message whose encoding has this length, more than 130 bytes.
fn encoded(length: usize, seed: usize) -> Vec<u8> {
    bytes(length - 2, seed)
}

#[test]
fn a_frame_that_fits_is_sent_whole_or_not_at_all() {
    let (mut parent, mut worker) = ends(&config());
    let mut sent = 0;
    while !worker.sender.would_block(500).unwrap() {
        worker.sender.send(&encoded(500, sent), soon()).unwrap();
        sent += 1;
    }
    assert_eq!(sent, RING / (HEADER + 504));
    for length in [500, RING - HEADER] {
        let refused = worker.sender.send(&encoded(length, 0), soon());
        assert!(matches!(refused, Err(Error::TimedOut)), "{refused:?}");
    }
    for index in 0..sent {
        assert!(parent.receiver.receive::<Vec<u8>>(soon()).unwrap() == encoded(500, index));
    }
    assert!(!worker.sender.would_block(RING - HEADER).unwrap());
    assert!(worker.sender.would_block(RING - HEADER + 1).unwrap());
    let longest = encoded(RING - HEADER, 3);
    worker.sender.send(&longest, soon()).unwrap();
    assert!(parent.receiver.receive::<Vec<u8>>(soon()).unwrap() == longest);
}

#[test]
fn nothing_follows_a_frame_that_was_cut_off() {
    let (_parent, mut worker) = ends(&config());
    let cut = worker.sender.send(&[0u8; 2 * RING][..], soon());
    assert!(matches!(cut, Err(Error::TimedOut)), "{cut:?}");
    let next = worker.sender.send(&0u8, soon());
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
    let refused = worker.sender.send(&vec![0u8; 1 << 20], soon());
    assert!(matches!(refused, Err(Error::TooLong { length: 1_048_579, .. })), "{refused:?}");
    let refused = worker.sender.send(&Endless, soon());
    assert!(matches!(refused, Err(Error::Encode(_))), "{refused:?}");
    worker.sender.send("text", soon()).unwrap();
    assert_eq!(parent.receiver.receive::<String>(soon()).unwrap(), "text");
}

#[test]
fn closing_ends_the_waits_of_both_halves_and_leaves_what_had_arrived() {
    for is_creator in [true, false] {
        let (parent, worker) = ends(&config());
        let (mut end, mut other) = if is_creator { (parent, worker) } else { (worker, parent) };
        other.sender.send(&1u8, soon()).unwrap();
        other.sender.send(&2u8, soon()).unwrap();
        assert_eq!(end.receiver.receive::<u8>(soon()).unwrap(), 1);
        thread::scope(|scope| {
            let Endpoint { sender, receiver, closer } = &mut end;
            let writer = scope.spawn(|| {
                loop {
                    if let Err(error) = sender.send(&[0u8; 1000][..], stuck()) {
                        return error;
                    }
                }
            });
            let reader = scope.spawn(|| {
                assert_eq!(receiver.receive::<u8>(stuck()).unwrap(), 2);
                receiver.receive::<u8>(stuck())
            });
            thread::park_timeout(Duration::from_millis(50));
            assert!(!writer.is_finished() && !reader.is_finished());
            closer.close();
            assert!(matches!(writer.join().unwrap(), Error::Closed));
            assert!(matches!(reader.join().unwrap(), Err(Error::Closed)));
        });
        other.sender.send(&3u8, soon()).unwrap();
        assert_eq!(end.receiver.receive::<u8>(None).unwrap(), 3);
        assert!(matches!(end.receiver.receive::<u8>(None), Err(Error::Closed)));
        assert!(matches!(end.sender.send(&0u8, None), Err(Error::Closed)));
        assert!(matches!(end.sender.would_block(0), Err(Error::Closed)));
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
