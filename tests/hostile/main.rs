//! Hostile programs, most of them one line, each with the exact verdict that it must get.
//!
//! Every attempt runs in a fresh interpreter under tight limits, on one shared pool: damage done by
//! one would show in later ones. After each attempt a harmless program checks its surroundings.
//!
//! All of it runs on every Python build that is here. An expectation that is [`Since`](Expect::Since)
//! a later CPython, or [`OfDefault`](Expect::OfDefault), isn't compared on others, but the
//! attempt must end there by itself or by a limit, whatever it does.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use hatchery::{Builder, Hatchery, Job, LimitKind, Limits, Outcome, Verdict};

use test_support::calm::calm;
use test_support::found;
use test_support::needs::{Build, Need};

mod door;
mod files;
mod imports;
mod memory;
mod registers;
mod results;
mod stack;
mod state;
mod time;

/// The expected verdict of an attempt.
#[derive(Debug, Clone, Copy)]
enum Expect {
    /// It ends with an exception of this type.
    Raises(&'static str),
    /// It ends with an exception of this type on a build without sockets, and on others with a
    /// `PermissionError`, since it was granted no connection.
    Offline(&'static str),
    /// It runs to its end and prints this.
    Prints(&'static str),
    /// This limit ends it.
    Limit(LimitKind),
    /// It ends in any way, and was refused something by this limit.
    Meets(LimitKind),
    /// It exits with this code.
    Exits(u8),
    /// Its reply breaks the protocol, by its own doing.
    Forged,
    /// This, from CPython 3.N on.
    Since(u64, &'static Self),
    /// This, on the default build: what it says of folders, or of how that build was configured.
    OfDefault(&'static Self),
    /// This, on a build without threads.
    OneThread(&'static Self),
    /// The first, and the second where Emscripten's own library says something else.
    Emscripten(&'static Self, &'static Self),
}

impl Expect {
    /// Returns what is expected where its needs are met, and these.
    fn bare(self, is_emscripten: bool) -> (Self, Option<Need>) {
        match self {
            Self::Since(minor, &expected) => (expected, Some(Need::Since(minor))),
            Self::OfDefault(&expected) => (expected, Some(Need::Default)),
            Self::OneThread(&expected) => (expected, Some(Need::OneThread)),
            Self::Emscripten(_, &expected) if is_emscripten => expected.bare(true),
            Self::Emscripten(&expected, _) => expected.bare(false),
            expected => (expected, None),
        }
    }
}

/// One attempt: its source, and the expected verdict.
type Attempt = (&'static str, Expect);

/// What one job leaves behind, what a later job looks for, and what that must print.
type Leftover = (&'static str, &'static str, &'static str);

/// What later jobs could see of earlier ones.
const SURROUNDINGS: &str = "
import builtins, gc, os, signal, sys
def is_open(descriptor):
    try: return bool(os.fstat(descriptor))
    except OSError: return False
names = [sorted(vars(builtins)), sorted(map(str, sys.modules)), sorted(globals())]
files = [os.listdir(), os.listdir('/tmp'), os.getcwd(), list(filter(is_open, range(64)))]
settings = [sys.path, sys.argv, sys.getrecursionlimit(), gc.isenabled(), sorted(os.environ.items())]
handlers = [str(signal.getsignal(number)) for number in (2, 15)]
[names, files, settings, handlers, sum([6, 7]), len('ab'), sys.gettrace()]
";

/// A pool on one build, for all classes, with two workers.
struct Suite {
    name: &'static str,
    runtime: tokio::runtime::Runtime,
    pool: Hatchery,
    build: Build,
    /// What a job saw before there was any other.
    surroundings: serde_json::Value,
}

impl Suite {
    fn start(name: &'static str, builder: Builder, default: Option<&Build>) -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let pool = runtime.block_on(builder.workers(2).limits(calm()).start()).unwrap();
        let question = Job::code(Build::question(&sources()));
        let build = runtime.block_on(pool.run(question)).unwrap();
        let build = Build::new(&build.verdict, default);
        let outcome = runtime.block_on(pool.run(Job::code(SURROUNDINGS))).unwrap();
        let surroundings = seen(&outcome).unwrap_or_else(|| panic!("{outcome:?}"));
        Self { name, runtime, pool, build, surroundings }
    }
}

/// Suites on all builds that are here. The first is on the default one.
static SUITES: LazyLock<Vec<Suite>> = LazyLock::new(|| {
    let default = Suite::start("the default build", Hatchery::builder(), None);
    let start = |(name, path): (_, PathBuf)| {
        Suite::start(name, Hatchery::builder().python(path), Some(&default.build))
    };
    let others: Vec<Suite> = found::others().into_iter().map(start).collect();
    [default].into_iter().chain(others).collect()
});

/// The time of what must be ended.
const SHORT: Duration = Duration::from_millis(250);

fn limits() -> Limits {
    Limits {
        grace: Duration::from_millis(50),
        memory_bytes: 256 << 20,
        output_bytes: 64 << 10,
        file_bytes: 16 << 20,
        file_count: 1000,
        open_files: 64,
        ..calm()
    }
}

/// Runs the attempts on every build.
fn hold(class: &str, attempts: &[Attempt], limits: &Limits) {
    let failures = SUITES.iter().flat_map(|suite| failures(suite, class, attempts, limits));
    let failures = Vec::from_iter(failures);
    assert!(failures.is_empty(), "{class}: {} failures\n{}", failures.len(), failures.join("\n"));
}

/// Runs the attempts concurrently and returns those that ended otherwise, or after which a job saw
/// something; then checks that the pool still works.
fn failures(suite: &Suite, class: &str, attempts: &[Attempt], limits: &Limits) -> Vec<String> {
    let Suite { name, runtime, pool, build, surroundings } = suite;
    let is_compared = |(source, expected): &Attempt| {
        let (_, need) = expected.bare(build.is_emscripten());
        build.has(source, need.as_slice())
    };
    let jobs = attempts.iter().flat_map(|attempt| {
        // What only has to end may wait for what never comes on this build.
        let wall_time = if is_compared(attempt) { limits.wall_time } else { SHORT };
        let limits = Limits { wall_time: wall_time.min(limits.wall_time), ..limits.clone() };
        [Job::code(attempt.0).limits(limits), Job::code(SURROUNDINGS)]
    });
    let outcomes = runtime.block_on(run_all(pool, jobs));
    let mut failures = Vec::new();
    let mut compared = 0;
    for (attempt, ended) in attempts.iter().zip(outcomes.chunks_exact(2)) {
        let (source, (expected, _)) = (attempt.0, attempt.1.bare(build.is_emscripten()));
        let is_compared = is_compared(attempt);
        compared += usize::from(is_compared);
        let is_held = if is_compared { is_met } else { is_contained };
        if !is_held(expected, &ended[0]) {
            failures.push(format!(
                "{name}: {source}\n  expected {expected:?}\n  found {:?}, stdout {:?}, limits met {:?}",
                ended[0].verdict,
                ended[0].stdout_text().chars().take(200).collect::<String>(),
                ended[0].limits_met,
            ));
        }
        if seen(&ended[1]).as_ref() != Some(surroundings) {
            failures.push(format!("{name}: {source}\n  a job after it saw {:?}", ended[1]));
        }
    }
    println!("{name}, {class}: {compared} of {} verdicts compared", attempts.len());
    let walls = outcomes.iter().step_by(2).map(|outcome| outcome.usage.wall);
    let mut walls: Vec<_> = walls.zip(attempts).map(|(wall, (source, _))| (wall, source)).collect();
    walls.sort_unstable_by(|one, other| other.cmp(one));
    println!("{name}, {class}: the longest {:#?}", &walls[..walls.len().min(3)]);
    assert!(compared * 3 > attempts.len(), "{name}, {class}: {compared} verdicts compared");
    let outcome = runtime.block_on(pool.run(Job::code("print(6 * 7)"))).unwrap();
    assert_eq!(outcome.stdout_text(), "42\n", "{name}, after {class}");
    failures
}

/// Runs jobs concurrently.
async fn run_all(pool: &Hatchery, jobs: impl Iterator<Item = Job>) -> Vec<Outcome> {
    let mut tickets = Vec::new();
    for job in jobs {
        tickets.push(pool.submit(job).await.unwrap());
    }
    let mut outcomes = Vec::new();
    for ticket in tickets {
        outcomes.push(ticket.await);
    }
    outcomes
}

fn seen(outcome: &Outcome) -> Option<serde_json::Value> {
    match &outcome.verdict {
        Verdict::Completed { value, .. } => value.clone(),
        _ => None,
    }
}

/// Returns whether an attempt ended by itself or by a limit, or by a reply that it forged. A
/// sandbox that fails is never what a program may do.
fn is_contained(expected: Expect, outcome: &Outcome) -> bool {
    match &outcome.verdict {
        Verdict::Completed { .. }
        | Verdict::Raised(_)
        | Verdict::Exited { .. }
        | Verdict::Limit(_) => true,
        Verdict::Tampered(_) => is_met(expected, outcome),
        _ => false,
    }
}

fn is_met(expected: Expect, outcome: &Outcome) -> bool {
    match (expected, &outcome.verdict) {
        (Expect::Raises(name), Verdict::Raised(exception)) => exception.type_name == name,
        (Expect::Offline(name), Verdict::Raised(exception)) => {
            [name, "PermissionError"].contains(&exception.type_name.as_str())
        }
        (Expect::Prints(text), Verdict::Completed { .. }) => outcome.stdout_text().trim() == text,
        (Expect::Limit(kind), Verdict::Limit(hit)) => hit.limit == kind,
        (
            Expect::Meets(kind),
            Verdict::Completed { .. } | Verdict::Raised(_) | Verdict::Exited { .. },
        ) => outcome.limits_met.iter().any(|hit| hit.limit == kind),
        (Expect::Exits(code), Verdict::Exited { code: left_with, .. }) => code == *left_with,
        (
            Expect::Since(..)
            | Expect::OfDefault(_)
            | Expect::OneThread(_)
            | Expect::Emscripten(..),
            _,
        ) => unreachable!("it is bare"),
        (Expect::Forged, Verdict::Tampered(what)) => what.to_string().contains("reply"),
        _ => false,
    }
}

fn sources() -> Vec<&'static str> {
    let classes = [
        files::ATTEMPTS,
        imports::ATTEMPTS,
        time::ATTEMPTS,
        memory::ATTEMPTS,
        stack::ATTEMPTS,
        door::ATTEMPTS,
        results::ATTEMPTS,
    ];
    classes.into_iter().flatten().map(|(source, _)| *source).collect()
}

#[test]
fn files_and_paths() {
    hold("files", files::ATTEMPTS, &limits());
}

#[test]
fn imports_and_processes() {
    hold("imports", imports::ATTEMPTS, &limits());
}

#[test]
fn time() {
    let is_endless = |attempt: &&Attempt| matches!(attempt.1.bare(false).0, Expect::Limit(_));
    let (endless, others): (Vec<Attempt>, Vec<Attempt>) =
        time::ATTEMPTS.iter().partition(is_endless);
    let short = Limits { wall_time: SHORT, ..limits() };
    hold("endless", &endless, &short);
    hold("time", &others, &limits());
}

#[test]
fn memory() {
    let limits = Limits { memory_bytes: 160 << 20, ..limits() };
    hold("memory", memory::ATTEMPTS, &limits);
}

/// On CPython before 3.14, one program in a hundred of these looped or lost its exception.
#[test]
fn a_full_memory_is_a_memory_error_however_little_is_left() {
    let limits = Limits { memory_bytes: 48 << 20, ..limits() };
    for Suite { name, runtime, pool, .. } in &*SUITES {
        let sizes = (8_000..12_000).step_by(32);
        let jobs = sizes.clone().map(|size| {
            let source = format!("x = {{}}\nwhile True: x[len(x)] = bytes({size})");
            Job::code(source).limits(limits.clone())
        });
        let outcomes = runtime.block_on(run_all(pool, jobs));
        for (size, outcome) in sizes.zip(outcomes) {
            assert!(is_met(Expect::Raises("MemoryError"), &outcome), "{name}, {size}: {outcome:?}");
        }
    }
}

#[test]
fn stack() {
    hold("stack", stack::ATTEMPTS, &limits());
}

#[test]
fn the_door_to_the_host() {
    hold("door", door::ATTEMPTS, &limits());
}

#[test]
fn results_and_displays() {
    hold("results", results::ATTEMPTS, &limits());
}

/// Each leaves something behind; the next fresh interpreter must not see it. On the default build
/// it must see exactly this, and on others what it saw before.
#[test]
fn state_left_behind() {
    for Suite { name, runtime, pool, build, .. } in &*SUITES {
        // What is left may be something that waits for what never comes.
        let limits = Limits { wall_time: Duration::from_secs(60), ..limits() };
        let run = |source: &str| {
            runtime.block_on(pool.run(Job::code(source).limits(limits.clone()))).unwrap()
        };
        for (leave, look, expected) in state::LEFTOVERS {
            let expected = match build.has("", &[Need::Default]) {
                true => (*expected).to_owned(),
                false => run(look).stdout_text().trim().to_owned(),
            };
            let left = run(leave);
            let outcome = run(look);
            let found = outcome.stdout_text();
            assert_eq!(found.trim(), expected, "{name}, {leave}\nended as {:?}", left.verdict);
            let is_contained = is_contained(Expect::Forged, &left);
            assert!(is_contained, "{name}, {leave}\nended as {:?}", left.verdict);
        }
    }
}

#[test]
fn there_are_enough_attempts_and_no_duplicates() {
    let sources = sources().into_iter();
    let mut sources: Vec<&str> =
        sources.chain(state::LEFTOVERS.iter().map(|(leave, ..)| *leave)).collect();
    let count = sources.len();
    sources.sort_unstable();
    sources.dedup();
    assert_eq!(sources.len(), count, "an attempt is listed twice");
    assert!(count > 1_200, "{count}");
}
