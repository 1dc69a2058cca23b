//! What does a session cost? Measures forking, suspending and resuming one that holds a data frame of
//! 100,000 rows, the memory of a thousand suspended sessions, turns with and without the copy to which a
//! session rolls back when a turn is stopped by force, and what a large state costs turns that don't
//! touch it.
//!
//! Doesn't measure: the scheduler's part; `dispatch.rs` does.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use engine::{Image, Interpreter, Limits, Outcome, Program, StopHandle, Verdict};
use hatchery::{Hatchery, Job, Session};
use test_support::image::{PRELOAD, image};
use test_support::percentiles;
use tokio::runtime::Runtime;

/// 1.6 MB of numbers.
const FRAME: &str = "import numpy, pandas\n\
     df = pandas.DataFrame({'a': numpy.arange(100_000), 'b': numpy.arange(100_000) * 0.5})\n\
     assert df.b.sum() == 2_499_975_000";

fn run(slot: &mut Interpreter, source: &str) -> Outcome {
    let program = Program { source: source.to_owned(), ..Program::default() };
    let limits = Limits::default();
    slot.run(&program, &limits, &Arc::default(), &StopHandle::default(), false).0
}

/// Returns a slot with a session that holds the frame.
fn with_frame(image: &Image) -> Interpreter {
    let mut slot = image.start().expect("there is memory");
    let outcome = run(&mut slot, FRAME);
    assert!(outcome.is_success(), "{outcome:?}");
    slot
}

/// Forks and moves between turns that change a little, as between the cells of a notebook.
fn large_session(criterion: &mut Criterion) {
    let image = image();
    let mut group = criterion.benchmark_group("session_with_100000_rows");
    group.sample_size(50).measurement_time(Duration::from_secs(8));
    let mut slot = with_frame(&image);
    let suspended = slot.suspend().expect("it began from an image");
    println!("{} pages differ from the image, {} bytes", suspended.pages(), suspended.bytes());
    group.bench_function("fork_when_suspended", |bencher| bencher.iter(|| suspended.fork()));
    timed(&mut group, "fork_after_a_turn", &mut slot, |slot| {
        drop(slot.suspend().expect("it began from an image").fork());
    });
    // Resume on another slot, over its previous state.
    let mut other = image.start().expect("there is memory");
    timed(&mut group, "suspend_and_resume", &mut slot, |slot| {
        let suspended = slot.suspend().expect("it began from an image");
        other.resume(&suspended).expect("it is of this image");
    });
    group.finish();
}

type Group<'a> = criterion::BenchmarkGroup<'a, criterion::measurement::WallTime>;

/// Measures only `work`, each time after a turn; prints the median and the tail as well.
fn timed(
    group: &mut Group<'_>,
    name: &str,
    slot: &mut Interpreter,
    mut work: impl FnMut(&mut Interpreter),
) {
    let mut times = Vec::new();
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|rounds| {
            let mut total = Duration::ZERO;
            for _ in 0..rounds {
                let outcome = run(slot, "df.loc[7, 'b'] += 1");
                assert!(outcome.is_success(), "{outcome:?}");
                let started = Instant::now();
                work(slot);
                let elapsed = started.elapsed();
                total += elapsed;
                times.push(elapsed);
            }
            total
        });
    });
    if times.is_empty() {
        // Another bench was selected.
        return;
    }
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 100];
    println!("{name}: p50 {:?}, p99 {:?}", at(50), at(99));
}

/// A thousand sessions on two slots, each queried again in another order.
fn a_thousand_sessions(_criterion: &mut Criterion) {
    const SESSIONS: usize = 1_000;
    if !percentiles::is_wanted("a_thousand_sessions") {
        return;
    }
    let runtime = Runtime::new().expect("the runtime starts");
    runtime.block_on(async {
        let pool = Hatchery::builder().workers(2).preload(PRELOAD).start().await;
        let pool = pool.expect("the build is available");
        let before = resident_bytes();
        let started = Instant::now();
        let mut sessions = Vec::new();
        for number in 0..SESSIONS {
            let session =
                pool.session(&format!("session {number}")).await.expect("the session opens");
            let source = format!(
                "import pandas\n\
                 df = pandas.DataFrame({{'x': range({number}, {number} + 10)}})"
            );
            let outcome = session.run(Job::code(source)).await.expect("the job is admitted");
            assert!(outcome.is_success(), "{outcome:?}");
            sessions.push(session);
        }
        let made = started.elapsed();
        let after = resident_bytes();
        let started = Instant::now();
        // 617 and 1,000 are coprime, so each session is queried once.
        for number in (0..SESSIONS).map(|step| step * 617 % SESSIONS) {
            assert_eq!(sum_of(&sessions[number]).await, 10 * number as u64 + 45);
        }
        println!(
            "{SESSIONS} sessions: created in {made:?}, queried in {:?}; resident memory {} MiB, of \
             which {} MiB before them: {} KiB each",
            started.elapsed(),
            after >> 20,
            before >> 20,
            ((after - before) / SESSIONS as u64) >> 10,
        );
        assert!(after < 2 << 30, "{after} bytes");
        pool.abort().await;
    });
}

async fn sum_of(session: &Session) -> u64 {
    let outcome = session.run(Job::code("int(df.x.sum())")).await.expect("the job is admitted");
    let Verdict::Completed { value: Some(value), .. } = &outcome.verdict else {
        panic!("{outcome:?}");
    };
    value.as_u64().expect("it is a number")
}

/// Turns on a session with its frame, from submission to outcome: in immediate succession, so that
/// each waits for the copy after the previous one, and with a pause between.
#[expect(clippy::disallowed_methods, reason = "a bench reads the clock, and pauses")]
fn turns(_criterion: &mut Criterion) {
    const TURNS: usize = 1_000;
    if !percentiles::is_wanted("turns") {
        return;
    }
    let runtime = Runtime::new().expect("the runtime starts");
    runtime.block_on(async {
        for (name, bytes) in [("without_copies", 0), ("with_copies", 128 << 20)] {
            let pool = Hatchery::builder().workers(1).preload(PRELOAD).rollback_bytes(bytes);
            let pool = pool.start().await.expect("the build is available");
            let session = pool.session("bench").await.expect("the session opens");
            assert!(session.run(Job::code(FRAME)).await.expect("the job is admitted").is_success());
            for (pace, rest) in [("at_once", Duration::ZERO), ("rested", Duration::from_millis(3))]
            {
                let mut times = Vec::new();
                for _ in 0..TURNS {
                    tokio::time::sleep(rest).await;
                    let started = Instant::now();
                    let outcome = session.run(Job::code("df.loc[7, 'b'] += 1")).await;
                    times.push(started.elapsed());
                    assert!(outcome.expect("the job is admitted").is_success());
                }
                percentiles::print(&format!("turns_{pace}_{name}"), times);
            }
            pool.abort().await;
        }
    });
}

/// Short turns, back to back, of a session that has the frame and of one that has nothing else. They
/// take turns, so that both see the same moods of a shared machine.
fn turns_beside_a_frame(_criterion: &mut Criterion) {
    const ROUNDS: usize = 40;
    const EACH_ROUND: usize = 100;
    if !percentiles::is_wanted("turns_beside_a_frame") {
        return;
    }
    let runtime = Runtime::new().expect("the runtime starts");
    runtime.block_on(async {
        let pool = Hatchery::builder().workers(2).preload(PRELOAD).start().await;
        let pool = pool.expect("the build is available");
        let run = async |session: &Session, source: &str| {
            let outcome = session.run(Job::code(source)).await.expect("the job is admitted");
            assert!(outcome.is_success(), "{outcome:?}");
        };
        let mut subjects = Vec::new();
        for (name, setup) in [("turns_of_a_small_session", ""), ("turns_beside_a_frame", FRAME)] {
            let session = pool.session(name).await.expect("the session opens");
            run(&session, &format!("{setup}\nx = 0")).await;
            subjects.push((name, session, Vec::new()));
        }
        // The first round is for warming up.
        for round in 0..=ROUNDS {
            for (_, session, times) in &mut subjects {
                for _ in 0..EACH_ROUND {
                    let started = Instant::now();
                    run(session, "x += 1").await;
                    let took = started.elapsed();
                    times.extend((round > 0).then_some(took));
                }
            }
        }
        let medians: Vec<f64> = subjects
            .into_iter()
            .map(|(name, _session, times)| {
                percentiles::at(&percentiles::print(name, times), 500).as_secs_f64()
            })
            .collect();
        println!("beside a frame, a turn takes {:.2} times as long", medians[1] / medians[0]);
        pool.abort().await;
    });
}

fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux has this file");
    let line =
        status.lines().find(|line| line.starts_with("VmRSS:")).expect("the file has this line");
    let kib = line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok());
    kib.expect("it is a number") << 10
}

criterion_group!(benches, large_session, a_thousand_sessions, turns, turns_beside_a_frame);
criterion_main!(benches);
