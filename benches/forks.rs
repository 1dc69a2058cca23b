//! What do forks of a live session cost? Forks one that holds pandas and a frame of 100,000 rows 1,
//! 100, 5,000 and 50,000 times at once, runs a turn in each fork, and checks every result. Then it
//! forks the same session one by one, and beside that CPython with the same frame by `os.fork` and
//! by Sandlock.
//!
//! Doesn't measure: clients in other processes; `python/benches` does.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use hatchery::{Hatchery, Job, Session, SessionsConfig, Verdict};
use test_support::image::PRELOAD;
use test_support::percentiles;

/// 1.6 MB of numbers.
const FRAME: &str = "import numpy, pandas\n\
     df = pandas.DataFrame({'a': numpy.arange(100_000), 'b': numpy.arange(100_000) * 0.5})\n\
     base = 3";
const COUNTS: [usize; 4] = [1, 100, 5_000, 50_000];
/// Forks of one by one.
const SINGLE: usize = 5_000;

/// A turn that changes a little, and its result.
fn turn(number: usize) -> (String, u64) {
    let source = format!("x = int(df.a[{number}]) + base\ndf.loc[{number}, 'b'] = x\nx");
    (source, number as u64 + 3)
}

fn main() {
    if std::env::args().any(|argument| argument == "--list") {
        return;
    }
    // `cargo test` and `-- --test` run everything once, in small.
    let is_test = !std::env::args().any(|argument| argument == "--bench");
    let counts: &[usize] = if is_test { &COUNTS[..2] } else { &COUNTS };
    let runtime = tokio::runtime::Runtime::new().expect("the runtime starts");
    runtime.block_on(async {
        let sessions = SessionsConfig {
            open: 60_000,
            in_memory: 60_000,
            suspend_after: Duration::from_secs(3600),
            ..SessionsConfig::default()
        };
        let pool = Hatchery::builder().workers(2).preload(PRELOAD).sessions(sessions);
        let pool = pool.start().await.expect("the build is available");
        let parent = pool.session("parent").await.expect("the session opens");
        let outcome = parent.run(Job::code(FRAME)).await.expect("the job is admitted");
        assert!(outcome.is_success(), "{outcome:?}");
        println!(
            "{:>7} {:>12} {:>10} {:>10} {:>9} {:>12} {:>12} {:>12}",
            "forks",
            "forks/s",
            "turn p50",
            "turn p99",
            "turns/s",
            "ledger each",
            "RSS each",
            "RSS left",
        );
        for count in counts {
            println!("{}", many(&pool, &parent, *count).await);
        }
        one_by_one(&parent, if is_test { 10 } else { SINGLE }).await;
        pool.abort().await;
    });
    native(if is_test { 2 } else { 200 });
}

/// Forks the session so many times at once, and runs a turn in each fork. Returns a line.
async fn many(pool: &Hatchery, parent: &Session, count: usize) -> String {
    let (resident, ledger) = (resident_bytes(), pool.status().memory.session_bytes);
    let began = Instant::now();
    let forks = parent.fork_many(count).await.expect("there is room");
    let forked = began.elapsed();
    let began = Instant::now();
    let half = count.div_ceil(2);
    let (mut times, others) = tokio::join!(turns(&forks[..half], 0), turns(&forks[half..], half));
    let all = began.elapsed();
    times.extend(others);
    times.sort_unstable();
    let each = |now: u64, before: u64| (now.saturating_sub(before)) / count as u64;
    let held = pool.status().memory.session_bytes;
    let used = resident_bytes();
    forks.into_iter().for_each(Session::close);
    let left = settled_bytes().await.saturating_sub(resident);
    let mut line = String::new();
    let _ = write!(
        line,
        "{count:>7} {:>12.0} {:>10.1?} {:>10.1?} {:>9.0} {:>12} {:>12} {:>12}",
        count as f64 / forked.as_secs_f64(),
        percentiles::at(&times, 500),
        percentiles::at(&times, 990),
        count as f64 / all.as_secs_f64(),
        each(held, ledger),
        each(used, resident),
        left,
    );
    line
}

/// Runs a turn in each of the forks, one after another. Returns their times.
async fn turns(forks: &[Session], first: usize) -> Vec<Duration> {
    let mut times = Vec::with_capacity(forks.len());
    for (number, fork) in forks.iter().enumerate() {
        let (source, expected) = turn(first + number);
        let began = Instant::now();
        let outcome = fork.run(Job::code(source)).await.expect("the job is admitted");
        times.push(began.elapsed());
        let Verdict::Completed { value: Some(value), .. } = &outcome.verdict else {
            panic!("{outcome:?}");
        };
        assert_eq!(value.as_u64(), Some(expected));
    }
    times
}

async fn one_by_one(parent: &Session, count: usize) {
    let mut times = Vec::with_capacity(count);
    for number in 0..count {
        let began = Instant::now();
        let fork = parent.fork(&format!("one {number}")).await.expect("there is room");
        times.push(began.elapsed());
        fork.close();
    }
    percentiles::print("one_fork", times);
}

/// Forks CPython with the same frame by `os.fork` and in a sandbox of Sandlock, if the machine has
/// them with pandas.
fn native(count: usize) {
    let common = format!(
        "import os, time\n\
         def private():\n\
         \x20   with open('/proc/self/smaps_rollup') as file:\n\
         \x20       return sum(int(line.split()[1]) for line in file if line.startswith('Private_Dirty'))\n\
         def turn(number):\n\
         \x20   x = int(df.a[number]) + base\n\
         \x20   df.loc[number, 'b'] = x\n\
         \x20   return f'{{number}} {{x}} {{private()}} {{time.monotonic()}}'\n\
         def show(name, times, rows):\n\
         \x20   assert len(rows) == {count} and all(int(row[1]) == int(row[0]) + 3 for row in rows)\n\
         \x20   times.sort()\n\
         \x20   at = lambda part: times[(len(times) - 1) * part // 100] * 1e3\n\
         \x20   kib = sorted(int(row[2]) for row in rows)[len(rows) // 2]\n\
         \x20   print(f'{{name}}: p50 {{at(50):.2f}} ms, p99 {{at(99):.2f}} ms, {{kib}} KiB each')\n"
    );
    let fork = format!(
        "{FRAME}\n\
         times, rows = [], []\n\
         for number in range({count}):\n\
         \x20   began = time.monotonic()\n\
         \x20   reading, writing = os.pipe()\n\
         \x20   child = os.fork()\n\
         \x20   if child == 0:\n\
         \x20       os.write(writing, turn(number).encode())\n\
         \x20       os._exit(0)\n\
         \x20   os.close(writing)\n\
         \x20   rows.append(os.read(reading, 99).split())\n\
         \x20   times.append(time.monotonic() - began)\n\
         \x20   os.close(reading); os.waitpid(child, 0)\n\
         show('os.fork and the same turn', times, rows)\n"
    );
    // It forks all clones by one call, which run one after another: from end to end of two turns.
    let sandlock = format!(
        "from sandlock import Sandbox\n\
         def load(): exec({FRAME:?}, globals())\n\
         work = lambda number: print(turn(number), flush=True)\n\
         clones = Sandbox(fs_readable=['/'], init_fn=load, work_fn=work).fork({count})\n\
         lines = Sandbox(fs_readable=['/']).reduce(['cat'], clones).stdout.decode()\n\
         rows = [line.split() for line in lines.splitlines()]\n\
         ends = sorted(float(row[3]) for row in rows)\n\
         times = [end - before for before, end in zip(ends, ends[1:])]\n\
         show('a fork of Sandlock and the same turn', times, rows)\n"
    );
    let python = std::env::var("HATCHERY_NATIVE_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    for (name, script) in [("os.fork", fork), ("Sandlock", sandlock)] {
        match Command::new(&python).args(["-c", &format!("{common}{script}")]).output() {
            Ok(output) if output.status.success() => {
                print!("{}", String::from_utf8_lossy(&output.stdout));
            }
            Ok(output) => {
                let errors = String::from_utf8_lossy(&output.stderr);
                let last = errors.lines().last().unwrap_or_default();
                println!(
                    "{name} isn't measured: {last} (HATCHERY_NATIVE_PYTHON names a Python with both)"
                );
            }
            Err(error) => println!("{name} isn't measured: {python}: {error}"),
        }
    }
}

/// Returns the resident memory once threads have dropped what was closed.
#[expect(clippy::disallowed_methods, reason = "a bench pauses")]
async fn settled_bytes() -> u64 {
    let mut bytes = resident_bytes();
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = resident_bytes();
        if now >= bytes {
            return now;
        }
        bytes = now;
    }
}

fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux has this file");
    let line =
        status.lines().find(|line| line.starts_with("VmRSS:")).expect("the file has this line");
    let kib = line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok());
    kib.expect("it is a number") << 10
}
