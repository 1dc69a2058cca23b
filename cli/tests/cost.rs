//! What one more worker process costs: memory that no other process shares, as the kernel counts it,
//! idle, after jobs and after many turns of a session, and the time of a start. In its own process, and alone, since others would take
//! time from it.
//!
//! `cargo test --release --locked --workspace --test cost -- --nocapture` prints the numbers.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]
#![expect(clippy::disallowed_methods, reason = "it measures time, and waits for fresh numbers")]

use std::process::Command;
use std::time::{Duration, Instant};

use hatchery::{Hatchery, Helper, Isolation, Job};

/// The memory that one more worker may take.
const MEMORY_BYTES: u64 = 12_000_000;

/// The time that the quickest of all starts may take. A slow one may have waited for other processes.
const START: Duration = Duration::from_millis(10);

/// The same on a slow machine, as a multiple of the time that the program takes to start and print its
/// version.
const START_OF_PROGRAM: u32 = 3;

const STARTS: usize = 40;

/// The jobs of each worker between two looks.
const JOBS: usize = 100;

/// A turn of which the worker keeps a copy of some 300 kB, other than that of the turn before.
const TURN: &str = "import os\nx = os.urandom(300_000)";

/// What the copies of a session may take: those of a few turns, and 8 MiB that wait to be dropped.
const COPIES_BYTES: u64 = 12_000_000;

async fn start(workers: usize, modules: &[&str]) -> Hatchery {
    let helper = Helper::Program(env!("CARGO_BIN_EXE_hatchery").into());
    let builder = Hatchery::builder().isolation(Isolation::Process { helper });
    builder.workers(workers).preload(modules.iter().copied()).start().await.unwrap()
}

/// Runs jobs on all workers at once.
async fn run(pool: &Hatchery, workers: usize, source: &'static str) {
    for _ in 0..JOBS {
        let mut running = tokio::task::JoinSet::new();
        for _ in 0..workers {
            let pool = pool.clone();
            running.spawn(async move { pool.run(Job::code(source)).await.unwrap() });
        }
        for outcome in running.join_all().await {
            assert!(outcome.is_success(), "{outcome:?}");
        }
    }
}

/// Returns what each worker has for itself. The status is at most a second old, so that this waits.
async fn private(pool: &Hatchery, workers: usize) -> Vec<u64> {
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let status = pool.status();
    let bytes = status.workers.iter().map(|worker| worker.process_private_bytes.unwrap());
    let bytes: Vec<u64> = bytes.collect();
    assert_eq!(bytes.len(), workers);
    bytes
}

fn kilobytes(bytes: &[u64]) -> Vec<u64> {
    bytes.iter().map(|bytes| bytes / 1_000).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_processes_take_little_memory_and_little_time() {
    memory(&[], "x = 1").await;
    let frame = "import pandas\npandas.DataFrame({'a': range(1000)}).groupby('a').sum()\nNone";
    memory(&["numpy", "pandas"], frame).await;
    copies().await;
    time(&["numpy", "pandas"]).await;
}

/// Compares pools of 1, 2, 4 and 8 workers.
async fn memory(modules: &[&str], source: &'static str) {
    let mut totals = Vec::new();
    for workers in [1, 2, 4, 8] {
        let pool = start(workers, modules).await;
        let idle = private(&pool, workers).await;
        run(&pool, workers, source).await;
        let used = private(&pool, workers).await;
        let (shown, after) = (kilobytes(&idle), kilobytes(&used));
        println!("{workers} workers with {modules:?}: {shown:?} kB idle, {after:?} kB after jobs");
        totals.push((workers as u64, idle.iter().sum::<u64>(), used.iter().sum::<u64>()));
        pool.drain().await;
    }
    let (first, last) = (totals[0], totals[totals.len() - 1]);
    let more = last.0 - first.0;
    for (when, first, last) in [("idle", first.1, last.1), ("after jobs", first.2, last.2)] {
        let one = last.saturating_sub(first) / more;
        println!("one more worker with {modules:?}, {when}: {} kB", one / 1_000);
        assert!(one <= MEMORY_BYTES, "{one} bytes {when}");
    }
}

/// Runs turns, after each of which the copy of the turn before is dropped.
async fn copies() {
    let pool = start(1, &[]).await;
    let session = pool.session("copied").await.unwrap();
    let mut looks = Vec::new();
    for _ in 0..2 {
        for _ in 0..JOBS {
            let outcome = session.run(Job::code(TURN)).await.unwrap();
            assert!(outcome.is_success(), "{outcome:?}");
        }
        looks.push(private(&pool, 1).await[0]);
    }
    println!("a session after {JOBS} turns and twice as many: {:?} kB", kilobytes(&looks));
    assert!(looks[1] <= looks[0] + COPIES_BYTES, "{looks:?}");
    session.close();
    pool.drain().await;
}

/// Measures the first job after a program has ended its interpreter: it waits for the next one.
async fn time(modules: &[&str]) {
    let pool = start(1, modules).await;
    let mut times = Vec::new();
    for _ in 0..STARTS {
        pool.run(Job::code("import os; os._exit(0)")).await.unwrap();
        let began = Instant::now();
        let outcome = pool.run(Job::code("x = 1")).await.unwrap();
        times.push(began.elapsed());
        assert!(outcome.is_success(), "{outcome:?}");
    }
    times.sort_unstable();
    let (median, most) = (times[STARTS / 2], times[STARTS - 1]);
    println!("a start and a job: at least {:.1?}, p50 {median:.1?}, at most {most:.1?}", times[0]);
    pool.drain().await;
    let program = (0..STARTS).map(|_| start_of_program()).min().unwrap();
    println!("a start of the program: at least {program:.1?}");
    assert!(times[0] <= START.max(START_OF_PROGRAM * program), "{times:?}");
}

fn start_of_program() -> Duration {
    let began = Instant::now();
    let printed = Command::new(env!("CARGO_BIN_EXE_hatchery")).arg("--version").output().unwrap();
    assert!(printed.status.success(), "{printed:?}");
    began.elapsed()
}
