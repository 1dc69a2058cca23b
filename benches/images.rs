//! What does a fresh interpreter with numpy and pandas cost a job? Measures a turn of `x = 1` on a
//! slot and the reset after it, on the engine alone, against starting the machine's own Python with
//! nothing imported.
//!
//! Doesn't measure: building the image, or imports, which are in the image, or slots side by side
//! (`throughput.rs`).

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use engine::{Afterwards, Interpreter, Limits, Program, StopHandle};
use test_support::image::image;

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

criterion_group!(benches, one_slot);
criterion_main!(benches);
