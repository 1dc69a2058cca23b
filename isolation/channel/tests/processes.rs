//! Two processes: the tests start this program again as the worker, with the channel's file as its
//! standard input.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use channel::{ChannelConfig, Closer, Direction, Endpoint, Error, Receiver, Sender};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

/// What the worker does; without it `the_worker` does nothing.
const ROLE: &str = "CHANNEL_TEST_ROLE";

/// No wait of these tests takes as long unless something is broken.
const STUCK: Duration = Duration::from_secs(120);

/// Small frames each way.
const FRAMES: u64 = 1_000_000;

/// One frame in so many has a text of `LONG` bytes.
const LONG_EACH: u64 = 250_000;
const LONG: usize = 64 << 20;

fn config() -> ChannelConfig {
    let direction = Direction { longest_frame: LONG as u64 + 1024, ..Direction::default() };
    ChannelConfig { down: direction, up: direction, ..ChannelConfig::default() }
}

fn now() -> Instant {
    Instant::now()
}

fn within(time: Duration) -> Option<Instant> {
    Some(now() + time)
}

/// Lets the other threads run for a while. A parked thread may wake early, as after a scope has ended.
fn pause() {
    let end = now() + Duration::from_millis(200);
    while now() < end {
        thread::park_timeout(end - now());
    }
}

/// A process with the other end, killed at the latest when this is dropped.
struct Worker {
    child: Child,
}

impl Worker {
    fn start(role: &str, file: OwnedFd) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["the_worker", "--exact", "--nocapture"])
            .env(ROLE, role)
            .stdin(Stdio::from(file))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { child }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the end of the process on a thread, and then closes this end.
    fn watch(mut self, closer: Closer) -> thread::JoinHandle<Instant> {
        thread::spawn(move || {
            self.child.wait().unwrap();
            let ended = now();
            closer.close();
            ended
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The text of a frame: most have a few bytes.
fn text(index: u64, long: &str) -> &str {
    match index % LONG_EACH {
        0 => long,
        rest => &long[..(rest % 200) as usize],
    }
}

fn long() -> String {
    (0..LONG).map(|index| char::from((index * 7 + index / 4096) as u8 & 0x7f)).collect()
}

fn send_all(sender: &mut Sender, long: &str) {
    for index in 0..FRAMES {
        sender.send(&(index, text(index, long)), within(STUCK)).unwrap();
    }
}

fn receive_all(receiver: &mut Receiver, long: &str) {
    for index in 0..FRAMES {
        let (number, received) = receiver.receive::<(u64, String)>(within(STUCK)).unwrap();
        assert_eq!(number, index);
        assert!(received == text(index, long), "the text of frame {index}");
    }
}

fn both_ways(end: Endpoint) {
    let long = long();
    let Endpoint { mut sender, mut receiver, .. } = end;
    thread::scope(|scope| {
        scope.spawn(|| send_all(&mut sender, &long));
        receive_all(&mut receiver, &long);
    });
}

/// The other process of these tests; nothing if it isn't started by one of them.
#[test]
fn the_worker() {
    let Ok(role) = std::env::var(ROLE) else { return };
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let mut end = channel::attach(std::io::stdin(), &config()).unwrap();
    match role.as_str() {
        "both ways" => both_ways(end),
        "flood" => loop {
            end.sender.send(&(0u64, "7".repeat(100_000)), None).unwrap();
        },
        "echo" => loop {
            let message = end.receiver.receive::<(u64, String)>(None).unwrap();
            end.sender.send(&message, None).unwrap();
        },
        "silent" => loop {
            thread::park();
        },
        role => panic!("no role {role}"),
    }
}

#[test]
fn a_million_frames_and_some_long_ones_pass_both_ways_at_once() {
    let (end, file) = channel::create(&config()).unwrap();
    let mut worker = Worker::start("both ways", file);
    let start = now();
    both_ways(end);
    assert!(worker.child.wait().unwrap().success());
    println!("{FRAMES} frames each way: {:?}", start.elapsed());
}

#[test]
fn a_killed_worker_ends_a_wait_for_its_next_frame() {
    for role in ["silent", "flood", "echo"] {
        let (mut end, file) = channel::create(&config()).unwrap();
        let worker = Worker::start(role, file);
        if role == "echo" {
            end.sender.send(&(1u64, ""), None).unwrap();
            assert_eq!(end.receiver.receive::<(u64, String)>(within(STUCK)).unwrap().0, 1);
        }
        let pid = Pid::from_child(&worker.child);
        let watcher = worker.watch(end.closer.clone());
        let receiver = &mut end.receiver;
        let received = thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let mut frames = 0u64;
                loop {
                    match receiver.receive::<(u64, String)>(within(STUCK)) {
                        Ok(_) => frames += 1,
                        Err(error) => return (frames, error, now()),
                    }
                }
            });
            // Asleep or in the middle of a frame: neither is awaited, both are right.
            pause();
            kill_process(pid, Signal::KILL).unwrap();
            reader.join().unwrap()
        });
        let (frames, error, woken) = received;
        let ended = watcher.join().unwrap();
        println!("{role}: after {frames} frames, woken {:?} after the end", woken - ended);
        assert!(matches!(error, Error::Closed), "{role}: {error:?}");
        assert!(woken - ended < Duration::from_secs(2), "{role}: {:?}", woken - ended);
        assert!(role != "flood" || frames > 0);
    }
}

#[test]
fn a_killed_worker_ends_a_wait_for_space() {
    let (mut end, file) = channel::create(&config()).unwrap();
    let worker = Worker::start("silent", file);
    let pid = Pid::from_child(&worker.child);
    let watcher = worker.watch(end.closer.clone());
    let sender = &mut end.sender;
    let error = thread::scope(|scope| {
        let writer = scope.spawn(move || {
            loop {
                if let Err(error) = sender.send(&(0u64, "1".repeat(1000)), within(STUCK)) {
                    return error;
                }
            }
        });
        pause();
        kill_process(pid, Signal::KILL).unwrap();
        writer.join().unwrap()
    });
    watcher.join().unwrap();
    assert!(matches!(error, Error::Closed), "{error:?}");
    let again = end.sender.send(&0u64, None);
    assert!(matches!(again, Err(Error::Closed)), "{again:?}");
}

#[test]
fn a_stopped_worker_runs_into_deadlines_and_goes_on_afterwards() {
    let (mut end, file) = channel::create(&config()).unwrap();
    let worker = Worker::start("echo", file);
    let (first, long) = (0u64, "9".repeat(300_000));
    end.sender.send(&(first, &long), within(STUCK)).unwrap();
    let echo = end.receiver.receive::<(u64, String)>(within(STUCK)).unwrap();
    assert!(echo == (first, long));
    worker.signal(Signal::STOP);
    let mut sent = 0u64;
    let refused = loop {
        let start = now();
        match end.sender.send(&(sent + 1, "1".repeat(1000)), within(Duration::from_millis(100))) {
            Ok(()) => sent += 1,
            Err(error) => break (error, start.elapsed()),
        }
    };
    assert!(matches!(refused.0, Error::TimedOut), "{refused:?}");
    assert!(end.sender.would_block(1010).unwrap());
    // It may have been stopped after some of them.
    let mut received = 0;
    let waited = loop {
        let start = now();
        match end.receiver.receive::<(u64, String)>(within(Duration::from_millis(100))) {
            Ok(_) => received += 1,
            Err(error) => break (error, start.elapsed()),
        }
    };
    assert!(matches!(waited.0, Error::TimedOut), "{waited:?}");
    for time in [refused.1, waited.1] {
        assert!((100..2000).contains(&time.as_millis()), "waited {time:?}");
    }
    worker.signal(Signal::CONT);
    for index in received + 1..=sent {
        assert_eq!(end.receiver.receive::<(u64, String)>(within(STUCK)).unwrap().0, index);
    }
    end.sender.send(&(77u64, ""), within(STUCK)).unwrap();
    assert_eq!(end.receiver.receive::<(u64, String)>(within(STUCK)).unwrap().0, 77);
}
