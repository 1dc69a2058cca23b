//! What does a frame cost between two processes? Prints the round trip of a 64-byte frame with its
//! CPU time in both, on cores that are shared, apart, left to the kernel and busy, for several times
//! of spinning, against a byte through two pipes and back; then the throughput of long frames.
//!
//! Doesn't measure: what a job does, and the start of a worker.
#![expect(clippy::unwrap_used, reason = "a benchmark that can't go on fails")]

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use channel::{ChannelConfig, Direction, Endpoint};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_setaffinity};

const ROLE: &str = "CHANNEL_BENCH_ROLE";
const SPIN: &str = "CHANNEL_BENCH_SPIN";
const CORE: &str = "CHANNEL_BENCH_CORE";

/// The length of the small messages.
const SMALL: usize = 64;

/// How long one line of the table is measured.
const TIME: Duration = Duration::from_millis(700);

fn config(spin: Duration) -> ChannelConfig {
    let direction = Direction { longest_frame: 128 << 20, ..Direction::default() };
    ChannelConfig { down: direction, up: direction, spin }
}

fn pin(core: Option<usize>) {
    let mut cores = CpuSet::new();
    match core {
        Some(core) => cores.set(core),
        None => (0..CpuSet::MAX_CPU).for_each(|core| cores.set(core)),
    }
    sched_setaffinity(None, &cores).unwrap();
}

/// A process that echoes, or burns a core; killed when this is dropped.
struct Other(Child);

impl Other {
    fn start(role: &str, spin: Duration, core: Option<usize>, stdin: Stdio, stdout: Stdio) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .env(ROLE, role)
            .env(SPIN, spin.as_nanos().to_string())
            .env(CORE, core.map(|core| core.to_string()).unwrap_or_default())
            .stdin(stdin)
            .stdout(stdout)
            .spawn()
            .unwrap();
        Self(child)
    }

    /// The CPU time of its only thread.
    fn cpu(&self) -> Duration {
        cpu(&self.0.id().to_string())
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn cpu(process: &str) -> Duration {
    let text = fs::read_to_string(format!("/proc/{process}/schedstat")).unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// The other process of a line.
fn other(role: &str) {
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    pin(std::env::var(CORE).unwrap().parse().ok());
    let spin = Duration::from_nanos(std::env::var(SPIN).unwrap().parse().unwrap());
    match role {
        "busy" => loop {
            std::hint::spin_loop();
        },
        "pipe" => {
            let (mut from, mut to) = (io::stdin().lock(), io::stdout());
            let mut byte = [0];
            loop {
                from.read_exact(&mut byte).unwrap();
                to.write_all(&byte).unwrap();
                to.flush().unwrap();
            }
        }
        "echo" => {
            let mut end = channel::attach(io::stdin(), &config(spin)).unwrap();
            loop {
                let message = end.receiver.receive::<Vec<u8>>(None).unwrap();
                end.sender.send(&message, None).unwrap();
            }
        }
        "flood" => {
            let mut end = channel::attach(io::stdin(), &config(spin)).unwrap();
            let text = "3".repeat(end.receiver.receive::<usize>(None).unwrap());
            loop {
                end.sender.send(&text, None).unwrap();
            }
        }
        role => panic!("no role {role}"),
    }
}

/// Goes around until the time is over; the median, the 99th percentile, and the CPU time of both.
fn measure(name: &str, other: &Other, mut around: impl FnMut()) {
    for _ in 0..200 {
        around();
    }
    let mut times = Vec::with_capacity(1 << 20);
    let before = cpu("self") + other.cpu();
    let start = Instant::now();
    while start.elapsed() < TIME {
        let begun = Instant::now();
        around();
        times.push(begun.elapsed());
    }
    let used = (cpu("self") + other.cpu()).saturating_sub(before);
    times.sort_unstable();
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    println!(
        "{name:34} {:8} round trips, p50 {:8.2} µs, p99 {:9.2} µs, CPU {:7.2} µs",
        times.len(),
        micros(times[times.len() / 2]),
        micros(times[times.len() * 99 / 100]),
        micros(used) / times.len() as f64,
    );
}

fn frames(name: &str, spin: Duration, core: Option<usize>) {
    let (mut end, file) = channel::create(&config(spin)).unwrap();
    let other = Other::start("echo", spin, core, Stdio::from(file), Stdio::null());
    let message = [7u8; SMALL - 2].to_vec();
    measure(name, &other, || {
        end.sender.send(&message, None).unwrap();
        assert_eq!(end.receiver.receive::<Vec<u8>>(None).unwrap().len(), message.len());
    });
}

fn pipes(name: &str, core: Option<usize>) {
    let (from, mut ours) = io::pipe().unwrap();
    let (mut back, to) = io::pipe().unwrap();
    let [from, to] = [OwnedFd::from(from), OwnedFd::from(to)].map(Stdio::from);
    let other = Other::start("pipe", Duration::ZERO, core, from, to);
    let mut byte = [1];
    measure(name, &other, || {
        ours.write_all(&byte).unwrap();
        back.read_exact(&mut byte).unwrap();
    });
}

/// Receives long frames that the other process sends as fast as it can.
fn throughput(length: usize) {
    let spin = ChannelConfig::default().spin;
    let (end, file) = channel::create(&config(spin)).unwrap();
    let other = Other::start("flood", spin, None, Stdio::from(file), Stdio::null());
    let Endpoint { mut sender, mut receiver, .. } = end;
    sender.send(&length, None).unwrap();
    receiver.receive::<String>(None).unwrap();
    let frames = ((2usize << 30) / length).max(8);
    let start = Instant::now();
    for _ in 0..frames {
        assert_eq!(receiver.receive::<String>(None).unwrap().len(), length);
    }
    let rate = (frames * length) as f64 / start.elapsed().as_secs_f64() / 1e9;
    drop(other);
    println!("{length:9} bytes a frame: {rate:6.2} GB/s");
}

fn main() {
    if let Ok(role) = std::env::var(ROLE) {
        return other(&role);
    }
    let spins = [0, 5, 20, 50].map(Duration::from_micros);
    for is_busy in [false, true] {
        let busy: Vec<Other> = (0..if is_busy { 2 } else { 0 })
            .map(|core| {
                let core = Some(core);
                Other::start("busy", Duration::ZERO, core, Stdio::null(), Stdio::null())
            })
            .collect();
        println!("{}", if is_busy { "\nwith a busy process on each core" } else { "idle cores" });
        for (place, here, there) in
            [("apart", Some(0), Some(1)), ("one core", Some(0), Some(0)), ("unpinned", None, None)]
        {
            pin(here);
            pipes(&format!("{place}, pipes"), there);
            for spin in spins {
                frames(&format!("{place}, frames, spin {spin:?}"), spin, there);
            }
        }
        drop(busy);
    }
    pin(None);
    println!("\nlong frames, one way");
    for length in [4 << 10, 64 << 10, 1 << 20, 64 << 20] {
        throughput(length);
    }
}
