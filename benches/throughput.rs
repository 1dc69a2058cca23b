//! How many fresh jobs `x = 1` a second do one worker and two run, with numpy and pandas imported,
//! and how many slots of the engine alone? They take turns in one process, so that a busy minute of
//! the machine meets all of them.
//!
//! Doesn't measure: starting workers and slots, and programs that take long.

use std::collections::VecDeque;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use engine::{Afterwards, Image, Interpreter, Limits, Program, StopHandle};
use hatchery::{Hatchery, Job, Ticket};
use support::{PRELOAD, image};
use tokio::runtime::Runtime;

#[path = "support/image.rs"]
mod support;

/// How often everything is measured, after one time that doesn't count.
const ROUNDS: usize = 15;

/// The jobs of a sample.
const JOBS: usize = 8_000;

/// The jobs that each slot runs before those that count.
const WARM_UP: usize = 100;

/// Jobs per worker that are submitted and haven't ended.
const AT_ONCE: usize = 64;

/// What runs jobs.
enum Runner<'a> {
    /// Slots of the engine alone, each on its own thread.
    Slots { image: &'a Image, kind: Kind, count: usize },
    /// The workers of a pool, behind its scheduler.
    Workers { pool: Hatchery, count: usize },
}

/// What a slot does besides running programs.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Nothing, so each run compiles its program.
    Plain,
    /// It compiles them ahead, as workers do.
    CompilesAhead,
}

impl Runner<'_> {
    /// Returns how many jobs a second it runs.
    fn throughput(&self, runtime: &Runtime) -> f64 {
        let took = match self {
            Self::Slots { image, kind, count } => on_slots(image, *kind, *count),
            Self::Workers { pool, count } => runtime.block_on(through_pool(pool, *count)),
        };
        JOBS as f64 / took.as_secs_f64()
    }
}

#[expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
fn clock() -> Instant {
    Instant::now()
}

fn on_slots(image: &Image, kind: Kind, count: usize) -> Duration {
    let program = Program { source: "x = 1".to_owned(), ..Program::default() };
    let ready = Barrier::new(count + 1);
    let run = |slot: &mut Interpreter, jobs: usize| {
        for _ in 0..jobs {
            turn(slot, &program);
            slot.reset().expect("there is memory");
            if kind == Kind::CompilesAhead {
                slot.compile_ahead().expect("there is memory");
            }
        }
    };
    thread::scope(|scope| {
        let slot = || {
            let mut slot = image.start().expect("there is memory");
            run(&mut slot, WARM_UP);
            ready.wait();
            run(&mut slot, JOBS / count);
        };
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(slot)).collect();
        ready.wait();
        let began = clock();
        threads.into_iter().for_each(|thread| thread.join().expect("no slot fails"));
        began.elapsed()
    })
}

fn turn(slot: &mut Interpreter, program: &Program) {
    let limits = Limits::default();
    let (outcome, afterwards) =
        slot.run(program, &limits, &Arc::default(), &StopHandle::default(), true);
    assert!(outcome.is_success() && afterwards == Afterwards::Usable, "{outcome:?}");
}

async fn through_pool(pool: &Hatchery, workers: usize) -> Duration {
    let began = clock();
    let mut tickets = VecDeque::new();
    for _ in 0..JOBS {
        if tickets.len() == AT_ONCE * workers
            && let Some(first) = tickets.pop_front()
        {
            succeeds(first).await;
        }
        tickets.push_back(pool.submit(Job::code("x = 1")).await.expect("the job is admitted"));
    }
    for ticket in tickets {
        succeeds(ticket).await;
    }
    began.elapsed()
}

async fn succeeds(ticket: Ticket) {
    let outcome = ticket.await;
    assert!(outcome.is_success(), "{outcome:?}");
}

async fn pool(workers: usize) -> Hatchery {
    let builder = Hatchery::builder().workers(workers).preload(PRELOAD);
    builder.start().await.expect("the build is available")
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// The throughput of one runner of a sort and of two, in each round.
type Rounds = Vec<[f64; 2]>;

/// Prints the medians of one and two, and returns them.
fn print(name: &str, rounds: &Rounds) -> [f64; 2] {
    let median = |count: usize| {
        let values = sorted(rounds.iter().map(|round| round[count]).collect());
        values[values.len() / 2]
    };
    let (one, two) = (median(0), median(1));
    let ratios = sorted(rounds.iter().map(|[one, two]| two / one).collect());
    let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
    println!(
        "{name}: one {one:.0}/s, two {two:.0}/s, {:.2} times as many ({least:.2} to {most:.2})",
        two / one,
    );
    [one, two]
}

fn main() {
    let runtime = Runtime::new().expect("the runtime starts");
    // Slots of one image share what was compiled ahead.
    let images = [image(), image()];
    let slots = |kind| {
        let image = &images[kind as usize];
        [1, 2].map(|count| Runner::Slots { image, kind, count })
    };
    let workers = [1, 2].map(|count| {
        let pool = runtime.block_on(pool(count));
        Runner::Workers { pool, count }
    });
    let names = ["slots", "slots that compile ahead", "workers"];
    let runners = [slots(Kind::Plain), slots(Kind::CompilesAhead), workers];
    let mut rounds: [Rounds; 3] = Default::default();
    for round in 0..=ROUNDS {
        for (runners, rounds) in runners.iter().zip(&mut rounds) {
            let throughputs = runners.each_ref().map(|runner| runner.throughput(&runtime));
            if round > 0 {
                rounds.push(throughputs);
            }
        }
    }
    let [plain, ahead, workers] = [0, 1, 2].map(|sort| print(names[sort], &rounds[sort]));
    for (name, slots) in [(names[0], plain), (names[1], ahead)] {
        let [one, two] = [0, 1].map(|count| workers[count] / slots[count]);
        println!("workers against {name}: one {one:.2}, two {two:.2} times");
    }
}
