//! What the queue costs beside a local pool, in the same run: CPU time of each process and time of the
//! whole, for many short programs, and the time that it adds to a single one.
//!
//! The figures are printed, not judged: other loads on the machine change them.
//! `HATCHERY_CLUSTER_LINES=20000` is the size for the record, with `--nocapture` and alone.

use std::time::{Duration, Instant};

use cluster::{Connection, PoolName, Worker, WorkerConfig};
use hatchery::{Hatchery, Job};
use serde_json::json;

use crate::commands::{Files, Running, without_times};
use crate::library::{client, runtime};
use crate::server::Server;

/// Lines of a batch, unless the environment says how many.
const LINES: usize = 200;
/// Jobs of which each waits for the one before.
const SINGLE: usize = 41;
/// Rounds of a loop that take some 1 ms on the machine of the record.
const MILLISECOND: usize = 10_000;

fn lines() -> usize {
    std::env::var("HATCHERY_CLUSTER_LINES").ok().map_or(LINES, |text| text.parse().unwrap())
}

/// Runs lines with this code here and over a queue, and prints what both cost.
fn compare(what: &str, count: usize, code: impl Fn(usize) -> String) {
    let Some(server) = Server::start() else { return };
    let line = |id| json!({ "id": id, "code": code(id) }).to_string();
    let files = Files::new(&(0..count).map(line).collect::<Vec<_>>());
    let worker = Running::ready_worker(&server, "one", &[]);
    // The first programs of a pool are slower.
    let warm = Files::new(&(0..20).map(line).collect::<Vec<_>>());
    let submit = Running::submit(&server, &warm.jobs(), &warm.out("out"), &[]);
    assert!(submit.end().0.success());
    let per_job = |time: Duration| time.as_secs_f64() * 1e6 / count as f64;

    let begin = Instant::now();
    let local = Running::batch(&files).end_with_cpu();
    let locally = begin.elapsed();
    let before = (worker.cpu(), server.cpu());
    let begin = Instant::now();
    let submit = Running::submit(&server, &files.jobs(), &files.out("out"), &[]).end_with_cpu();
    let remotely = begin.elapsed();
    let after = (worker.cpu(), server.cpu());
    println!(
        "{count} of {what}: {:.2} s here with {:.0} us of CPU each; {:.2} s over the queue with \
         {:.0} us of the worker, {:.0} us of the server, {:.0} us of the submitter; {:.2} times \
         the local rate",
        locally.as_secs_f64(),
        per_job(local),
        remotely.as_secs_f64(),
        per_job(after.0 - before.0),
        per_job(after.1 - before.1),
        per_job(submit),
        locally.as_secs_f64() / remotely.as_secs_f64(),
    );
    let (local, remote) = (files.results("local"), files.results("out"));
    assert_eq!(without_times(&remote), without_times(&local));
    assert_eq!(remote.len(), count);
}

#[test]
fn many_short_programs_over_the_queue_and_locally() {
    compare("`n * 2`", lines(), |id| format!("{id} * 2"));
    for (what, rounds, count) in [
        ("a loop of 1 ms", MILLISECOND, lines() / 2),
        ("a loop of 6 ms", 6 * MILLISECOND, lines() / 5),
    ] {
        compare(what, count, |id| format!("x = 0\nfor i in range({rounds}): x += i\n{id}"));
    }
}

#[test]
fn a_single_program_over_the_queue_and_locally() {
    let Some(server) = Server::start() else { return };
    runtime().block_on(async {
        let pool = Hatchery::builder().workers(1).start().await.unwrap();
        let name = PoolName::new("default").unwrap();
        let connection = Connection::new(server.url());
        let worker = Worker::connect(&connection, name, pool.clone(), WorkerConfig::new(1));
        let worker = tokio::spawn(worker.await.unwrap().run(std::future::pending()));
        let client = client(&server.url()).await;
        let mut local = Vec::new();
        let mut remote = Vec::new();
        for number in 0..SINGLE {
            let code = format!("{number} * 2");
            let begin = Instant::now();
            let mut ticket = pool.submit(Job::code(code.as_str())).await.unwrap();
            let outcome = ticket.outcome().await;
            local.push(begin.elapsed());
            let begin = Instant::now();
            let ticket = client.submit(&wire::Job::code(code)).await.unwrap();
            let result = ticket.await.unwrap();
            remote.push(begin.elapsed());
            assert_eq!(result.json()["value"], 2 * number);
            assert_eq!(outcome.to_tool_json()["value"], result.json()["value"]);
        }
        local.sort();
        remote.sort();
        let (local, remote) = (local[SINGLE / 2], remote[SINGLE / 2]);
        println!(
            "a single job, p50: {:.2} ms here, {:.2} ms over the queue",
            local.as_secs_f64() * 1e3,
            remote.as_secs_f64() * 1e3
        );
        worker.abort();
    });
}
