//! Where does each microsecond of a job go? Prints a table of a job's phases, from submission to
//! the caller with the outcome, for fresh jobs and for turns of a session, at once after the last
//! one and after a rest, at one and at two workers; then the first turns of new sessions, the
//! throughput, and the CPU time and the sleeps of a job by kind of thread.
//!
//! The phases lie between edges of spans that the library itself records. Jobs run one at a time
//! for the phases, and many at a time for the throughput, with no spans recorded.
//!
//! `HATCHERY_PYTHON` chooses the build, `HATCHERY_BENCH_REQUIREMENTS` a file with packages, and
//! `HATCHERY_BENCH_PRELOAD` a module that the image has imported.
//!
//! Doesn't measure: the command line, nor what the spans cost, which is about 1 µs a phase.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{env, fs};

use hatchery::{Hatchery, Job, Session};
use test_support::percentiles::{at, is_wanted};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tracing::Subscriber;
use tracing::span::Id;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

/// The program of every job: the shortest that does something.
const PROGRAM: &str = "x = 1";
/// Jobs that are measured, after as many that aren't.
const JOBS: usize = 1_000;
/// Jobs whose throughput is measured.
const MANY: usize = 20_000;
/// Jobs that are submitted and haven't ended, for the throughput.
const AT_ONCE: usize = 64;
/// Turns of a new session.
const TURNS: usize = 10;
/// How long a caller rests between two jobs, so that every thread sleeps.
const REST: Duration = Duration::from_millis(3);

/// The phases on a job's way: each ends at this edge of a span and begins where the last one ended.
const PHASES: [(&str, Edge); 8] = [
    ("submission, until the scheduler decides", Edge::begin("decide")),
    ("decision, hand-over to the worker's thread", Edge::begin("job")),
    ("resume", Edge::end("resume")),
    ("request, opening the turn", Edge::begin("guest")),
    ("guest: fetch, compile, run, reply", Edge::end("guest")),
    ("closing the turn, outcome", Edge::end("run")),
    ("hand-over to the scheduler", Edge::begin("decide")),
    ("decision, waking the caller", Edge::CALLER),
];
/// What a worker does after a job, when its caller has the outcome or is about to have it.
const AFTERWARDS: [&str; 3] = ["reset", "snapshot_session", "suspend_session"];

/// The beginning or the end of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Edge {
    span: &'static str,
    is_begin: bool,
}

impl Edge {
    /// The caller has the outcome.
    const CALLER: Self = Self::end("caller");

    const fn begin(span: &'static str) -> Self {
        Self { span, is_begin: true }
    }

    const fn end(span: &'static str) -> Self {
        Self { span, is_begin: false }
    }
}

/// The edges since they were last taken, in order.
#[derive(Default)]
struct Log {
    is_on: AtomicBool,
    edges: Mutex<Vec<(Edge, Instant)>>,
}

impl Log {
    fn push(&self, edge: Edge) {
        let now = clock();
        self.edges.lock().expect("nobody panics with it").push((edge, now));
    }

    fn take(&self) -> Vec<(Edge, Instant)> {
        std::mem::take(&mut self.edges.lock().expect("nobody panics with it"))
    }
}

/// Notes the edges of all spans.
struct Recorder(Arc<Log>);

impl Recorder {
    fn note<S: Subscriber + for<'a> LookupSpan<'a>>(
        &self,
        id: &Id,
        context: &Context<'_, S>,
        is_begin: bool,
    ) {
        if self.0.is_on.load(Ordering::Relaxed)
            && let Some(span) = context.span(id)
        {
            self.0.push(Edge { span: span.name(), is_begin });
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Recorder {
    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        self.note(id, &context, true);
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        self.note(id, &context, false);
    }
}

fn clock() -> Instant {
    Instant::now()
}

/// Who runs the jobs.
enum Target {
    Fresh(Hatchery),
    Turns(Session),
}

impl Target {
    async fn run(&self) {
        let job = Job::code(PROGRAM);
        let outcome = match self {
            Self::Fresh(pool) => pool.run(job).await,
            Self::Turns(session) => session.run(job).await,
        };
        assert!(outcome.expect("the job is admitted").is_success());
    }
}

/// One column of the table.
#[derive(Default)]
struct Column {
    name: String,
    phases: BTreeMap<&'static str, Duration>,
    afterwards: Duration,
    /// Without recording spans.
    half: Duration,
    tail: Duration,
}

fn main() {
    let log = Arc::new(Log::default());
    let recorder = Recorder(Arc::clone(&log)).with_filter(LevelFilter::DEBUG);
    tracing::subscriber::set_global_default(Registry::default().with(recorder))
        .expect("it is the only one");
    let runtime = Runtime::new().expect("the runtime starts");
    runtime.block_on(async {
        let mut columns = Vec::new();
        for workers in [1, 2] {
            let mut builder = Hatchery::builder().workers(workers);
            if let Some(file) = env::var_os("HATCHERY_BENCH_REQUIREMENTS") {
                builder = builder.requirements(file);
            }
            let pool = builder.preload(env::var("HATCHERY_BENCH_PRELOAD")).start().await;
            let pool = pool.expect("the build is available");
            let session = pool.session("profile").await.expect("the session opens");
            let fresh = Target::Fresh(pool.clone());
            let turns = Target::Turns(session);
            for (name, target, rest) in [
                ("fresh", &fresh, Duration::ZERO),
                ("fresh, rested", &fresh, REST),
                ("turn", &turns, Duration::ZERO),
                ("turn, rested", &turns, REST),
            ] {
                let name = format!("{name}, {workers}");
                if is_wanted(&name) {
                    columns.push(one_at_a_time(name, target, rest, &log).await);
                }
            }
            if is_wanted("new session") {
                new_sessions(workers, &pool).await;
            }
            if is_wanted("throughput") {
                throughput(workers, &pool).await;
            }
            pool.abort().await;
        }
        print_table(&columns);
    });
}

#[expect(clippy::disallowed_methods, reason = "the caller rests, so that every thread sleeps")]
async fn one_at_a_time(name: String, target: &Target, rest: Duration, log: &Log) -> Column {
    let mut times = Vec::new();
    for round in 0..2 * JOBS {
        tokio::time::sleep(rest).await;
        let begun = clock();
        target.run().await;
        if round >= JOBS {
            times.push(begun.elapsed());
        }
    }
    times.sort_unstable();
    let mut phases: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
    let mut afterwards = Vec::new();
    log.is_on.store(true, Ordering::Relaxed);
    for _ in 0..JOBS {
        tokio::time::sleep(rest).await;
        let begun = clock();
        target.run().await;
        log.push(Edge::CALLER);
        let edges = log.take();
        // What the worker did after the job before this one.
        let mut before = None;
        for (edge, time) in &edges {
            if AFTERWARDS.contains(&edge.span) {
                match before {
                    None if edge.is_begin => before = Some(*time),
                    Some(since) if !edge.is_begin => {
                        afterwards.push(*time - since);
                        before = None;
                    }
                    _ => {}
                }
            }
        }
        let mut rest = edges.iter().filter(|(_, time)| *time >= begun);
        let mut last = begun;
        for (phase, wanted) in PHASES {
            let Some((_, time)) = rest.find(|(edge, _)| *edge == wanted) else { break };
            phases.entry(phase).or_default().push(*time - last);
            last = *time;
        }
    }
    log.is_on.store(false, Ordering::Relaxed);
    log.take();
    let median = |mut times: Vec<Duration>| {
        times.sort_unstable();
        at(&times, 500)
    };
    Column {
        name,
        phases: phases.into_iter().map(|(phase, times)| (phase, median(times))).collect(),
        afterwards: median(afterwards),
        half: at(&times, 500),
        tail: at(&times, 990),
    }
}

/// Prints what each turn of a new session takes, and all of them together, while new sessions follow
/// each other.
async fn new_sessions(workers: usize, pool: &Hatchery) {
    let mut turns = vec![Vec::new(); TURNS];
    let mut whole = Vec::new();
    for _ in 0..JOBS {
        let begun = clock();
        let session = pool.session("new").await.expect("the session opens");
        for times in &mut turns {
            let begun = clock();
            let outcome = session.run(Job::code(PROGRAM)).await;
            assert!(outcome.expect("the turn is admitted").is_success());
            times.push(begun.elapsed());
        }
        whole.push(begun.elapsed());
        session.close();
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        micros(at(times, 500))
    };
    let turns: Vec<String> = turns.iter_mut().map(median).collect();
    println!(
        "new session, {workers}: {} µs with its turns {}",
        median(&mut whole),
        turns.join(", ")
    );
}

/// Prints the table in Markdown; all times are medians in microseconds.
fn print_table(columns: &[Column]) {
    let print = |name: &str, time: &dyn Fn(&Column) -> Option<Duration>| {
        let cell = |column| time(column).map_or("–".to_owned(), micros);
        let cells: Vec<String> = columns.iter().map(cell).collect();
        println!("| {name} | {} |", cells.join(" | "));
    };
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    println!("\n| µs | {} |", names.join(" | "));
    println!("|---|{}", "---:|".repeat(columns.len()));
    for (phase, _) in PHASES {
        print(phase, &|column| column.phases.get(phase).copied());
    }
    print("afterwards: reset, or copy for undo", &|column| Some(column.afterwards));
    print("**submission to outcome, p50**", &|column| Some(column.half));
    print("p99", &|column| Some(column.tail));
}

fn micros(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e6)
}

async fn throughput(workers: usize, pool: &Hatchery) {
    let before = Threads::read();
    let begun = clock();
    let mut jobs = JoinSet::new();
    for _ in 0..MANY {
        if jobs.len() >= AT_ONCE {
            jobs.join_next().await.expect("there are some").expect("it ran");
        }
        let target = Target::Fresh(pool.clone());
        jobs.spawn(async move { target.run().await });
    }
    while let Some(job) = jobs.join_next().await {
        job.expect("it ran");
    }
    let took = begun.elapsed().as_secs_f64();
    println!("throughput, {workers}: {:.0} jobs a second", MANY as f64 / took);
    before.print_since(MANY);
}

/// CPU time in microseconds and sleeps, by kind of thread.
struct Threads(BTreeMap<&'static str, (f64, f64)>);

impl Threads {
    fn read() -> Self {
        let mut kinds = BTreeMap::new();
        for task in fs::read_dir("/proc/self/task").expect("Linux has it").flatten() {
            let text = |file| fs::read_to_string(task.path().join(file)).unwrap_or_default();
            let kind = match text("comm") {
                name if name.starts_with("hatchery") => "workers",
                name if name.starts_with("tokio") => "runtime",
                _ => "main and others",
            };
            let first = |text: &str| {
                text.split_whitespace().next().and_then(|number| number.parse::<f64>().ok())
            };
            let sleeps = text("status");
            let sleeps =
                sleeps.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            let kind: &mut (f64, f64) = kinds.entry(kind).or_default();
            kind.0 += first(&text("schedstat")).unwrap_or_default() / 1e3;
            kind.1 += sleeps.and_then(first).unwrap_or_default();
        }
        Self(kinds)
    }

    fn print_since(&self, jobs: usize) {
        let jobs = jobs as f64;
        for (kind, (cpu, sleeps)) in Self::read().0 {
            let (cpu_before, sleeps_before) = self.0.get(kind).copied().unwrap_or_default();
            let (cpu, sleeps) = ((cpu - cpu_before) / jobs, (sleeps - sleeps_before) / jobs);
            println!("  {kind}: {cpu:.1} µs of CPU time and {sleeps:.2} sleeps a job");
        }
    }
}
