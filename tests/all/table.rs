//! Programs of every kind, each with its complete expected outcome.
//!
//! `table/dsl.rs` defines a row; the other files are the rows, by subject.

use std::collections::BTreeSet;

use hatchery::{Hatchery, Job};

use crate::needs::Build;
use crate::support::{
    next_output, other_builds, run, run_job, value, with_hiding_pool, with_preloaded_pool,
};
use dsl::Row;

mod builtins;
mod chains;
mod dates;
mod dsl;
mod error;
mod exits;
mod flow;
mod numbers;
mod objects;
mod output;
mod science;
mod surroundings;
mod syntax;
mod text;
mod texts;

fn rows() -> Vec<Row> {
    let subjects = [
        numbers::rows(),
        texts::rows(),
        objects::rows(),
        dates::rows(),
        flow::rows(),
        exits::rows(),
        output::rows(),
        builtins::rows(),
        chains::rows(),
        surroundings::rows(),
        syntax::rows(),
        science::rows(),
    ];
    subjects.into_iter().flatten().collect()
}

/// Runs these rows, and returns those that ended otherwise, with the differences.
async fn failures_of(pool: &Hatchery, rows: &[Row]) -> Vec<String> {
    let mut tickets = Vec::new();
    for row in rows {
        tickets.push(pool.submit(Job::code(&row.source)).await.expect("the queue isn't full"));
    }
    let mut failures = Vec::new();
    for (row, mut ticket) in rows.iter().zip(tickets) {
        let (mut interleaved, mut events) = (Vec::new(), ticket.events());
        while let Some(bytes) = next_output(&mut events).await {
            interleaved.extend(bytes);
        }
        let differences = row.differences(&interleaved, &ticket.outcome().await);
        if !differences.is_empty() {
            failures.push(format!("{}\n{}\n", row.source, differences.join("\n")));
        }
    }
    failures
}

#[track_caller]
fn assert_none(failures: &[String], of: usize) {
    let count = failures.len();
    assert!(count == 0, "{count} of {of} programs:\n\n{}", failures.join("\n"));
}

#[test]
fn programs_end_the_same_where_their_imports_are_hidden() {
    let rows = rows();
    let failures = with_hiding_pool(|pool| failures_of(pool, &rows));
    assert_none(&failures, rows.len());
}

#[test]
fn programs_end_exactly_as_expected() {
    let rows = rows();
    let failures = with_preloaded_pool(|pool| failures_of(pool, &rows));
    assert_none(&failures, rows.len());
}

#[test]
fn programs_end_as_expected_on_other_builds() {
    let all = rows();
    let sources: Vec<&str> = all.iter().map(|row| row.source.as_str()).collect();
    let question = || Job::code(Build::question(&sources));
    let default = Build::new(&run_job(question()).verdict, None);
    let mut failures = Vec::new();
    for (name, shared) in other_builds() {
        let build = shared.with(|pool| pool.run(question())).expect("the queue isn't full");
        let build = Build::new(&build.verdict, Some(&default));
        let rows: Vec<Row> = rows().into_iter().filter(|row| row.holds_on(&build)).collect();
        println!("{name}: {} of {} programs", rows.len(), all.len());
        assert!(rows.len() > 250, "{name}: {} rows", rows.len());
        let found = shared.with(|pool| failures_of(pool, &rows));
        failures.extend(found.into_iter().map(|failure| format!("{name}: {failure}")));
    }
    assert_none(&failures, all.len());
}

#[test]
fn the_table_is_long_and_has_no_duplicates() {
    let rows = rows();
    let sources: BTreeSet<&str> = rows.iter().map(|row| row.source.as_str()).collect();
    assert!(sources.len() >= 150, "{} rows", sources.len());
    let mut seen = BTreeSet::new();
    let twice: Vec<_> = rows.iter().filter(|row| !seen.insert(&row.source)).collect();
    assert!(twice.is_empty(), "twice: {}", twice[0].source);
}

#[test]
fn every_exception_of_the_builtins_is_expected_somewhere() {
    let expected: BTreeSet<&str> = rows().iter().flat_map(Row::exceptions).collect();
    let source = "import builtins\n\
                  kinds = [kind for kind in vars(builtins).values() if isinstance(kind, type)]\n\
                  sorted({kind.__name__ for kind in kinds if issubclass(kind, BaseException)})";
    let all = value(&run(source));
    let names = || all.as_array().into_iter().flatten().filter_map(|name| name.as_str());
    assert!(names().count() >= 60, "{all}");
    // Names that begin with an underscore are CPython's own.
    let missing: Vec<_> =
        names().filter(|name| !name.starts_with('_') && !expected.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
