//! How many fresh jobs `x = 1` a second do one worker and two run, with numpy and pandas imported,
//! and how many slots of the engine alone? And how much more do two loops on two threads count than
//! one does? What is a second CPU worth? They take turns in one process, so that a busy minute
//! of the machine meets all of them. Each runs for as long as the others, and the jobs of all its
//! turns are counted: virtual CPUs may change their speed from one turn to the next, and medians of
//! such turns depend on which speed is more frequent.
//!
//! Doesn't measure: starting workers and slots, and programs that take long.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use engine::{Afterwards, Image, Interpreter, Limits, Program, StopHandle};
use hatchery::{Hatchery, Job, Ticket};
use test_support::image::{PRELOAD, image};
use tokio::runtime::Runtime;

/// How often everything is measured, after one time that doesn't count.
const ROUNDS: usize = 15;

/// How long each of them runs in a round. Jobs that it began before the end count, with their time.
const TURN: Duration = Duration::from_millis(300);

/// What a loop counts up to.
const COUNTED: u32 = 60_000;

/// The jobs that each slot runs before those that count.
const WARM_UP: usize = 100;

/// Jobs per worker that are submitted and haven't ended.
const AT_ONCE: usize = 64;

/// The jobs of some time.
#[derive(Clone, Copy)]
struct Ran {
    jobs: u32,
    took: Duration,
}

impl Ran {
    /// Jobs a second.
    fn throughput(self) -> f64 {
        f64::from(self.jobs) / self.took.as_secs_f64()
    }

    /// Both, if the other ran afterwards.
    fn then(self, other: Self) -> Self {
        Self { jobs: self.jobs + other.jobs, took: self.took + other.took }
    }

    /// Both, if the other ran at the same time.
    fn beside(self, other: Self) -> Self {
        Self { jobs: self.jobs + other.jobs, took: self.took.max(other.took) }
    }
}

/// What runs jobs.
enum Runner<'a> {
    /// Threads that only count, which shows what the CPUs are worth.
    Loops { count: usize },
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
    /// Runs jobs for a turn.
    fn turn(&self, runtime: &Runtime) -> Ran {
        match self {
            Self::Loops { count } => on_threads(*count, || (), |()| count_up()),
            Self::Slots { image, kind, count } => on_slots(image, *kind, *count),
            Self::Workers { pool, count } => runtime.block_on(through_pool(pool, *count)),
        }
    }
}

fn clock() -> Instant {
    Instant::now()
}

fn on_slots(image: &Image, kind: Kind, count: usize) -> Ran {
    let program = Program { source: "x = 1".to_owned(), ..Program::default() };
    let run_one = |slot: &mut Interpreter| {
        run(slot, &program);
        slot.reset().expect("there is memory");
        if kind == Kind::CompilesAhead {
            slot.compile_ahead().expect("there is memory");
        }
    };
    let start = || {
        let mut slot = image.start().expect("there is memory");
        (0..WARM_UP).for_each(|_| run_one(&mut slot));
        slot
    };
    on_threads(count, start, run_one)
}

/// Runs jobs on each of `count` threads, which begin together when each has what it `start`s.
fn on_threads<T>(count: usize, start: impl Fn() -> T + Sync, run: impl Fn(&mut T) + Sync) -> Ran {
    let ready = Barrier::new(count);
    let work = || {
        let mut state = start();
        ready.wait();
        let began = clock();
        let mut jobs = 0;
        while began.elapsed() < TURN {
            run(&mut state);
            jobs += 1;
        }
        Ran { jobs, took: began.elapsed() }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(work)).collect();
        let ran = threads.into_iter().map(|thread| thread.join().expect("no thread fails"));
        ran.reduce(Ran::beside).expect("there is a thread")
    })
}

/// Takes about as long as a job, about 20 µs, and needs no memory.
fn count_up() {
    (0..COUNTED).for_each(|number| {
        black_box(number);
    });
}

fn run(slot: &mut Interpreter, program: &Program) {
    let limits = Limits::default();
    let (outcome, afterwards) =
        slot.run(program, &limits, &Arc::default(), &StopHandle::default(), true);
    assert!(outcome.is_success() && afterwards == Afterwards::Usable, "{outcome:?}");
}

async fn through_pool(pool: &Hatchery, workers: usize) -> Ran {
    let began = clock();
    let (mut tickets, mut jobs) = (VecDeque::new(), 0);
    while began.elapsed() < TURN {
        if tickets.len() == AT_ONCE * workers
            && let Some(first) = tickets.pop_front()
        {
            succeeds(first).await;
        }
        tickets.push_back(pool.submit(Job::code("x = 1")).await.expect("the job is admitted"));
        jobs += 1;
    }
    for ticket in tickets {
        succeeds(ticket).await;
    }
    Ran { jobs, took: began.elapsed() }
}

async fn succeeds(ticket: Ticket) {
    let outcome = ticket.await;
    assert!(outcome.is_success(), "{outcome:?}");
}

async fn pool(workers: usize) -> Hatchery {
    let builder = Hatchery::builder().workers(workers).preload(PRELOAD);
    builder.start().await.expect("the build is available")
}

/// What one of them and two have run, in each round.
type Rounds = Vec<[Ran; 2]>;

/// Prints how many jobs a second one and two have run, and returns that.
fn print(name: &str, rounds: &Rounds) -> [f64; 2] {
    let all = |count: usize| {
        let turns = rounds.iter().map(|round| round[count]);
        turns.reduce(Ran::then).expect("there are rounds").throughput()
    };
    let (one, two) = (all(0), all(1));
    let mut ratios: Vec<_> =
        rounds.iter().map(|[one, two]| two.throughput() / one.throughput()).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let (least, median, most) = (ratios[0], ratios[ratios.len() / 2], ratios[ratios.len() - 1]);
    println!(
        "{name}: one {one:.0}/s, two {two:.0}/s, {:.2} times as many (rounds: median {median:.2}, \
         {least:.2} to {most:.2})",
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
    let loops = [1, 2].map(|count| Runner::Loops { count });
    let names = ["loops", "slots", "slots that compile ahead", "workers"];
    let runners = [loops, slots(Kind::Plain), slots(Kind::CompilesAhead), workers];
    let mut rounds: [Rounds; 4] = Default::default();
    for round in 0..=ROUNDS {
        for (runners, rounds) in runners.iter().zip(&mut rounds) {
            let ran = runners.each_ref().map(|runner| runner.turn(&runtime));
            if round > 0 {
                rounds.push(ran);
            }
        }
    }
    let [_, plain, ahead, workers] = [0, 1, 2, 3].map(|sort| print(names[sort], &rounds[sort]));
    for (name, slots) in [(names[1], plain), (names[2], ahead)] {
        let [one, two] = [0, 1].map(|count| workers[count] / slots[count]);
        println!("workers against {name}: one {one:.2}, two {two:.2} times");
    }
}
