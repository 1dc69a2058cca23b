//! Reproducible runs.

use std::time::{Duration, Instant};

use hatchery::{Deterministic, Job, SandboxFailure, Verdict};
use serde_json::json;

use crate::support::{run_job, value, with_pool};

const EVERYTHING: &str = "import datetime, os, random, secrets, tempfile, time, uuid\n\
     import numpy\n\
     print(time.time(), time.monotonic(), time.perf_counter(), datetime.datetime.now())\n\
     print(random.random(), secrets.token_hex(), os.urandom(4), uuid.uuid1(), uuid.uuid4())\n\
     print({'a', 'b', 'c', 'd'}, hash('text'), id(object()))\n\
     print(numpy.random.rand(), numpy.random.default_rng().random())\n\
     print(tempfile.mkstemp(), tempfile.mkdtemp())\n\
     time.sleep(0.5); print(time.time())";

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_different_ones() {
    let output = |seed| {
        let job = Job::code(EVERYTHING).deterministic(Deterministic::new(seed));
        let outcome = run_job(job);
        assert!(outcome.is_success(), "{outcome:?}");
        outcome.stdout_text()
    };
    let first = output(7);
    assert_eq!(first, output(7));
    let other = output(8);
    // What depends only on hashes, in the third line, is the image's.
    for (index, (line, other)) in first.lines().zip(other.lines()).enumerate().take(5) {
        assert_eq!(line == other, index == 0 || index == 2, "{line}\n{other}");
    }
    let plain = |job| run_job(job).stdout_text();
    assert_ne!(plain(Job::code(EVERYTHING)), plain(Job::code(EVERYTHING)));
}

#[test]
fn sleeping_advances_the_clock_and_takes_no_time() {
    let start = 1_000_000_000 * 86_400;
    let job = Job::code("import time\ntime.sleep(10 * 365 * 86400)\ntime.gmtime().tm_year")
        .deterministic(Deterministic::new(0).starting_at(start));
    let begun = Instant::now();
    assert_eq!(value(&run_job(job)), json!(1979));
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_session_is_deterministic_from_its_first_job_on() {
    with_pool(|pool| async {
        let mut runs = Vec::new();
        for name in ["first", "second"] {
            let session = pool.session(name).await.unwrap();
            let job = Job::code("import random, time").deterministic(Deterministic::new(3));
            assert!(session.run(job).await.unwrap().is_success());
            let next = Job::code("[random.random(), time.time(), hash('x')]");
            runs.push(value(&session.run(next).await.unwrap()));
            let other = Job::code("1").deterministic(Deterministic::new(4));
            let outcome = session.run(other).await.unwrap();
            let refused = Verdict::SandboxFailed(SandboxFailure::NotDeterministic);
            assert_eq!(outcome.verdict, refused);
            assert_eq!(value(&session.run(Job::code("2")).await.unwrap()), json!(2));
            session.close();
        }
        assert_eq!(runs[0], runs[1]);
    });
}
