//! How long does the first result take, and what does a fresh interpreter cost? Measures loading
//! the cached build, a fresh isolated job and a job of a session, against starting the machine's
//! own Python for each job.
//!
//! Doesn't measure: fetching and compiling the build, which happens once on a machine.

use std::process::Command;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use hatchery::{Hatchery, Job};
use tokio::runtime::Runtime;

const PRELOAD: [&str; 2] = ["numpy", "pandas"];

/// From an empty process to a pool that accepts jobs, with warm caches.
fn load(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("the runtime starts");
    runtime.block_on(async {
        for preload in [&PRELOAD[..], &[]] {
            let pool =
                Hatchery::builder().workers(1).preload(preload.iter().copied()).start().await;
            pool.expect("the build is available").abort().await;
        }
    });
    let mut group = criterion.benchmark_group("load");
    group.sample_size(10).measurement_time(Duration::from_secs(15));
    for (name, preload) in [("with_nothing", &[][..]), ("with_numpy_and_pandas", &PRELOAD[..])] {
        group.bench_function(BenchmarkId::new("to_first_outcome", name), |bencher| {
            bencher.iter_custom(|rounds| {
                let mut total = Duration::ZERO;
                for _ in 0..rounds {
                    total += runtime.block_on(first_outcome(preload));
                }
                total
            });
        });
    }
    group.finish();
}

async fn first_outcome(preload: &[&str]) -> Duration {
    let started = Instant::now();
    let pool = Hatchery::builder().workers(1).preload(preload.iter().copied()).start().await;
    let pool = pool.expect("the image is cached");
    let outcome = pool.run(Job::code("x = 1")).await.expect("the job is admitted");
    assert!(outcome.is_success());
    let elapsed = started.elapsed();
    pool.abort().await;
    elapsed
}

/// One small job after another.
fn job(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("the runtime starts");
    let pool =
        runtime.block_on(Hatchery::builder().workers(1).start()).expect("the build is available");
    let session = runtime.block_on(pool.session("bench")).expect("the session opens");
    let mut group = criterion.benchmark_group("job");
    group.sample_size(20).measurement_time(Duration::from_secs(10));
    group.bench_function("native_python", |bencher| {
        bencher.iter(|| {
            let status = Command::new("python3").args(["-c", "x = 1"]).status();
            assert!(status.expect("python3 is installed").success());
        });
    });
    group.bench_function("isolated", |bencher| {
        bencher.iter(|| {
            let outcome =
                runtime.block_on(pool.run(Job::code("x = 1"))).expect("the job is admitted");
            assert!(outcome.is_success());
        });
    });
    group.bench_function("in_session", |bencher| {
        bencher.iter(|| {
            let outcome =
                runtime.block_on(session.run(Job::code("x = 1"))).expect("the job is admitted");
            assert!(outcome.is_success());
        });
    });
    group.finish();
    runtime.block_on(pool.abort());
}

criterion_group!(benches, load, job);
criterion_main!(benches);
