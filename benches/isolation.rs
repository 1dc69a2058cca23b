//! What do workers in processes cost, against workers in threads? Takes turns between two pools of
//! one process: fresh isolated jobs one after another, turns of a session, jobs through two workers,
//! and the first job after a program has ended its interpreter.
//!
//! Doesn't measure: the start of the helper, which happens once in a pool.

use std::time::{Duration, Instant};

use hatchery::{Hatchery, Helper, Isolation, Job, Outcome};
use test_support::percentiles::{at, is_wanted, print};
use tokio::runtime::Runtime;

/// How often the pools take turns.
const ROUNDS: usize = 20;

/// The jobs of a round that come one after another.
const JOBS: usize = 500;

/// The jobs of a round that two workers share.
const CROWD: usize = 4_000;

/// The workers that end in a round.
const ENDS: usize = 10;

/// The jobs of a crowd that are in the pool at once.
const WAITING: usize = 256;

fn clock() -> Instant {
    Instant::now()
}

async fn pool(isolation: Isolation, workers: usize) -> Hatchery {
    let builder = Hatchery::builder().workers(workers).preload(["numpy", "pandas"]);
    builder.isolation(isolation).start().await.expect("the build is available")
}

async fn succeeds(pool: &Hatchery, source: &str) {
    let outcome = pool.run(Job::code(source)).await.expect("the job is admitted");
    assert!(outcome.is_success(), "{outcome:?}");
}

/// Fresh isolated jobs.
async fn fresh(pool: &Hatchery) -> Vec<Duration> {
    let mut times = Vec::with_capacity(JOBS);
    for _ in 0..JOBS {
        let begun = clock();
        succeeds(pool, "x = 1").await;
        times.push(begun.elapsed());
    }
    times
}

/// Turns of one session.
async fn turns(pool: &Hatchery) -> Vec<Duration> {
    let session = pool.session("bench").await.expect("the session opens");
    let mut times = Vec::with_capacity(JOBS);
    for _ in 0..JOBS {
        let begun = clock();
        let outcome = session.run(Job::code("x = 1")).await.expect("the job is admitted");
        times.push(begun.elapsed());
        assert!(outcome.is_success(), "{outcome:?}");
    }
    session.close();
    times
}

/// The time of each job of a crowd on the average.
async fn crowd(pool: &Hatchery) -> Vec<Duration> {
    let begun = clock();
    let mut waiting = std::collections::VecDeque::with_capacity(WAITING);
    for _ in 0..CROWD {
        if waiting.len() == WAITING {
            let outcome: Outcome = waiting.pop_front().expect("it isn't empty").await;
            assert!(outcome.is_success());
        }
        waiting.push_back(pool.submit(Job::code("x = 1")).await.expect("the job is admitted"));
    }
    for ticket in waiting {
        assert!(ticket.await.is_success());
    }
    vec![begun.elapsed() / CROWD as u32]
}

/// The first job after a program has ended the only interpreter: it waits for the next one.
async fn replaced(pool: &Hatchery) -> Vec<Duration> {
    let mut times = Vec::with_capacity(ENDS);
    for _ in 0..ENDS {
        let ended = pool.run(Job::code("import os; os._exit(0)")).await;
        ended.expect("the job is admitted");
        let begun = clock();
        succeeds(pool, "x = 1").await;
        times.push(begun.elapsed());
    }
    times
}

async fn compare(name: &str, workers: usize, measure: impl AsyncFn(&Hatchery) -> Vec<Duration>) {
    if !is_wanted(name) {
        return;
    }
    let pools = [
        pool(Isolation::Threads, workers).await,
        pool(Isolation::Process { helper: Helper::Itself }, workers).await,
    ];
    let mut times = [Vec::new(), Vec::new()];
    for pool in &pools {
        measure(pool).await;
    }
    for _ in 0..ROUNDS {
        for (pool, times) in pools.iter().zip(&mut times) {
            times.extend(measure(pool).await);
        }
    }
    let [threads, processes] = times;
    let threads = print(&format!("{name}/threads"), threads);
    let processes = print(&format!("{name}/processes"), processes);
    let ratio = |part| at(&processes, part).as_secs_f64() / at(&threads, part).as_secs_f64();
    println!("{name}: processes to threads {:.2} (p50), {:.2} (p99)", ratio(500), ratio(990));
    for pool in pools {
        pool.abort().await;
    }
}

fn main() {
    hatchery::be_helper();
    Runtime::new().expect("the runtime starts").block_on(async {
        compare("fresh", 1, fresh).await;
        compare("turn", 1, turns).await;
        compare("crowd", 2, crowd).await;
        compare("replaced", 1, replaced).await;
    });
}
