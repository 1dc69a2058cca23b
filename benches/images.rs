//! What does a fresh interpreter with numpy and pandas cost a job? Measures a turn of `x = 1` on a
//! slot and the reset after it, on the engine alone, and jobs through the whole pool, against
//! starting the machine's own Python with nothing imported.
//!
//! Doesn't measure: building the image, or imports, which are in the image.

use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use engine::{Afterwards, Image, Interpreter, Limits, Program, StopHandle};
use hatchery::{Hatchery, Job};
use support::{PRELOAD, image};
use tokio::runtime::Runtime;

#[path = "support/image.rs"]
mod support;

fn turn(slot: &mut Interpreter, program: &Program) {
    let limits = Limits::default();
    let (outcome, afterwards) =
        slot.run(program, &limits, &Arc::default(), &StopHandle::default(), true);
    assert!(outcome.is_success() && afterwards == Afterwards::Usable, "{outcome:?}");
}

fn program(source: &str) -> Program {
    Program { source: source.to_owned(), ..Program::default() }
}

/// One slot: the turn and the reset, separately and together.
#[expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
fn one_slot(criterion: &mut Criterion) {
    let image = image();
    let mut slot = image.start().expect("there is memory");
    turn(&mut slot, &program("import sys; assert {'numpy', 'pandas'} <= sys.modules.keys()"));
    slot.reset().expect("there is memory");
    let program = program("x = 1");
    let mut group = criterion.benchmark_group("fresh_x_is_1_with_numpy_and_pandas");
    group.sample_size(50).measurement_time(Duration::from_secs(10));
    group.bench_function("native_python_with_nothing", |bencher| {
        bencher.iter(start_native_python);
    });
    for (name, counts_turn, counts_reset) in
        [("turn", true, false), ("reset", false, true), ("both", true, true)]
    {
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|rounds| {
                let mut total = Duration::ZERO;
                for _ in 0..rounds {
                    let started = Instant::now();
                    turn(&mut slot, &program);
                    let turned = Instant::now();
                    slot.reset().expect("there is memory");
                    let reset = turned.elapsed();
                    total += if counts_turn { turned - started } else { Duration::ZERO };
                    total += if counts_reset { reset } else { Duration::ZERO };
                }
                total
            });
        });
    }
    group.finish();
    percentiles(&mut slot, &program);
}

fn start_native_python() {
    let status = Command::new("python3").args(["-c", "pass"]).status();
    assert!(status.expect("python3 is installed").success());
}

/// Prints what criterion doesn't: medians and tails of single turns and resets, and how many of
/// them fit into one start of the machine's own Python.
#[expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
fn percentiles(slot: &mut Interpreter, program: &Program) {
    let (mut turns, mut resets) = (Vec::new(), Vec::new());
    for _ in 0..10_000 {
        let started = Instant::now();
        turn(slot, program);
        turns.push(started.elapsed());
        let started = Instant::now();
        slot.reset().expect("there is memory");
        resets.push(started.elapsed());
    }
    let mut starts = Vec::new();
    for _ in 0..50 {
        let started = Instant::now();
        start_native_python();
        starts.push(started.elapsed());
    }
    let mut medians = [Duration::ZERO; 3];
    let measured = [("turn", turns), ("reset", resets), ("python3 -c pass", starts)];
    for ((name, mut times), median) in measured.into_iter().zip(&mut medians) {
        times.sort_unstable();
        let at = |part: usize| times[(times.len() - 1) * part / 1000];
        println!("{name}: p50 {:?}, p99 {:?}, p99.9 {:?}", at(500), at(990), at(999));
        *median = at(500);
    }
    let [turn, reset, start] = medians.map(|median| median.as_secs_f64());
    println!("one start takes {:.0} times as long as a turn and a reset", start / (turn + reset));
}

/// Concurrent slots, each on its own thread: copying pages on one doesn't slow the others. Each run
/// compiles its program, unless the slots compile ahead, as the pool's workers do.
fn slots_side_by_side(criterion: &mut Criterion) {
    const JOBS: u64 = 1_000;
    let image = image();
    for (name, compiles_ahead) in [
        ("thousand_fresh_jobs_on_slots", false),
        ("thousand_fresh_jobs_on_slots_that_compile_ahead", true),
    ] {
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(JOBS)).sample_size(10);
        for slots in [1, 2] {
            group.bench_function(BenchmarkId::from_parameter(slots), |bencher| {
                bencher.iter_custom(|rounds| {
                    run_on_slots(&image, slots, compiles_ahead, JOBS * rounds)
                });
            });
        }
        group.finish();
    }
}

#[expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
fn run_on_slots(image: &Image, slots: u64, compiles_ahead: bool, jobs: u64) -> Duration {
    let ready = std::sync::Barrier::new(slots as usize + 1);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..slots)
            .map(|_| {
                scope.spawn(|| {
                    let mut slot = image.start().expect("there is memory");
                    let program = program("x = 1");
                    ready.wait();
                    for _ in 0..jobs / slots {
                        turn(&mut slot, &program);
                        slot.reset().expect("there is memory");
                        if compiles_ahead {
                            slot.compile_ahead().expect("there is memory");
                        }
                    }
                })
            })
            .collect();
        ready.wait();
        let started = Instant::now();
        threads.into_iter().for_each(|thread| thread.join().expect("no slot fails"));
        started.elapsed()
    })
}

/// Jobs through the scheduler and the pool.
fn through_the_pool(criterion: &mut Criterion) {
    const JOBS: u64 = 1_000;
    let runtime = Runtime::new().expect("the runtime starts");
    let mut group = criterion.benchmark_group("thousand_fresh_jobs_through_the_pool");
    group.throughput(Throughput::Elements(JOBS)).sample_size(10);
    for workers in [1, 2] {
        let pool = runtime
            .block_on(Hatchery::builder().workers(workers).preload(PRELOAD).start())
            .expect("the build is available");
        group.bench_function(BenchmarkId::new("workers", workers), |bencher| {
            bencher.iter(|| {
                runtime.block_on(async {
                    let mut tickets = Vec::with_capacity(JOBS as usize);
                    for _ in 0..JOBS {
                        tickets.push(
                            pool.submit(Job::code("x = 1")).await.expect("the job is admitted"),
                        );
                    }
                    for ticket in tickets {
                        assert!(ticket.await.is_success());
                    }
                });
            });
        });
        runtime.block_on(pool.abort());
    }
    group.finish();
}

criterion_group!(benches, one_slot, slots_side_by_side, through_the_pool);
criterion_main!(benches);
