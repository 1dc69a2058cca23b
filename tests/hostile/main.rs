//! Hostile programs, most of them one line, each with the exact verdict that it must get.
//!
//! Every attempt runs in a fresh interpreter under tight limits, on one shared pool: damage done by
//! one would show in later ones. After each class a harmless program runs.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::sync::LazyLock;
use std::time::Duration;

use hatchery::{Hatchery, Job, LimitKind, Limits, Outcome, Verdict};

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
}

/// One attempt: its source, and the expected verdict.
type Attempt = (&'static str, Expect);

/// What one job leaves behind, what a later job looks for, and what that must print.
type Leftover = (&'static str, &'static str, &'static str);

struct Suite {
    runtime: tokio::runtime::Runtime,
    pool: Hatchery,
}

/// One pool for all classes, with two workers.
static SUITE: LazyLock<Suite> = LazyLock::new(|| {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let pool = runtime.block_on(Hatchery::builder().workers(2).start()).unwrap();
    Suite { runtime, pool }
});

fn limits() -> Limits {
    Limits {
        wall_time: Duration::from_secs(20),
        grace: Duration::from_millis(50),
        memory_bytes: 256 << 20,
        output_bytes: 64 << 10,
        file_bytes: 16 << 20,
        file_count: 1000,
        open_files: 64,
        ..Limits::default()
    }
}

/// Runs the attempts concurrently and checks each; then checks that the pool still works.
fn hold(class: &str, attempts: &[Attempt], limits: &Limits) {
    let Suite { runtime, pool } = &*SUITE;
    let outcomes = runtime.block_on(async {
        let mut tickets = Vec::new();
        for (source, _) in attempts {
            tickets.push(pool.submit(Job::code(*source).limits(limits.clone())).await.unwrap());
        }
        let mut outcomes = Vec::new();
        for ticket in tickets {
            outcomes.push(ticket.await);
        }
        outcomes
    });
    let mut failures = Vec::new();
    for ((source, expected), outcome) in attempts.iter().zip(&outcomes) {
        if !is_met(*expected, outcome) {
            failures.push(format!(
                "{source}\n  expected {expected:?}\n  found {:?}, stdout {:?}, limits met {:?}",
                outcome.verdict,
                outcome.stdout_text().chars().take(200).collect::<String>(),
                outcome.limits_met,
            ));
        }
    }
    assert!(failures.is_empty(), "{class}: {} failures\n{}", failures.len(), failures.join("\n"));
    let outcome = runtime.block_on(pool.run(Job::code("print(6 * 7)"))).unwrap();
    assert_eq!(outcome.stdout_text(), "42\n", "after {class}");
}

fn is_met(expected: Expect, outcome: &Outcome) -> bool {
    match (expected, &outcome.verdict) {
        (Expect::Raises(name), Verdict::Raised(exception)) => exception.type_name == name,
        (Expect::Prints(text), Verdict::Completed { .. }) => outcome.stdout_text().trim() == text,
        (Expect::Limit(kind), Verdict::Limit(hit)) => hit.limit == kind,
        (
            Expect::Meets(kind),
            Verdict::Completed { .. } | Verdict::Raised(_) | Verdict::Exited { .. },
        ) => outcome.limits_met.iter().any(|hit| hit.limit == kind),
        (Expect::Exits(code), Verdict::Exited { code: left_with, .. }) => code == *left_with,
        (Expect::Forged, Verdict::Tampered(what)) => what.to_string().contains("reply"),
        _ => false,
    }
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
    let is_endless = |attempt: &&Attempt| matches!(attempt.1, Expect::Limit(_));
    let (endless, others): (Vec<Attempt>, Vec<Attempt>) =
        time::ATTEMPTS.iter().partition(is_endless);
    let short = Limits { wall_time: Duration::from_millis(250), ..limits() };
    hold("endless", &endless, &short);
    hold("time", &others, &limits());
}

#[test]
fn memory() {
    let limits = Limits { memory_bytes: 160 << 20, ..limits() };
    hold("memory", memory::ATTEMPTS, &limits);
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

/// Each leaves something behind; the next fresh interpreter must not see it.
#[test]
fn state_left_behind() {
    let Suite { runtime, pool } = &*SUITE;
    runtime.block_on(async {
        for (leave, look, expected) in state::LEFTOVERS {
            let left = pool.run(Job::code(*leave).limits(limits())).await.unwrap();
            let outcome = pool.run(Job::code(*look).limits(limits())).await.unwrap();
            let verdict = &outcome.verdict;
            assert!(matches!(verdict, Verdict::Completed { .. }), "{look}: {verdict:?}");
            let found = outcome.stdout_text();
            assert_eq!(found.trim(), *expected, "{leave}\nended as {:?}", left.verdict);
        }
    });
}

#[test]
fn there_are_enough_attempts_and_no_duplicates() {
    let classes = [
        files::ATTEMPTS,
        imports::ATTEMPTS,
        time::ATTEMPTS,
        memory::ATTEMPTS,
        stack::ATTEMPTS,
        door::ATTEMPTS,
        results::ATTEMPTS,
    ];
    let sources = classes.iter().flat_map(|class| class.iter().map(|(source, _)| *source));
    let mut sources: Vec<&str> =
        sources.chain(state::LEFTOVERS.iter().map(|(leave, ..)| *leave)).collect();
    let count = sources.len();
    sources.sort_unstable();
    sources.dedup();
    assert_eq!(sources.len(), count, "an attempt is listed twice");
    assert!(count > 1_200, "{count}");
}
