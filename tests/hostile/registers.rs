//! Programs in loops that touch no memory, which is what a hard stop takes away. Each would
//! continue for seconds or forever.

use std::time::Duration;

use hatchery::{Hatchery, Job, LimitKind, Limits, Outcome, Verdict};

/// CPython doubles the number until it is zero, which it never is.
const ENDLESS: &str =
    "def f(): pass\nf.__code__ = f.__code__.replace(co_stacksize=300_000_000)\nf()";

/// Loops over floating point in registers, of 5 to 23 s.
const LONG: &[&str] = &[
    "yn(2**31 - 1, 1e10)",
    "eval_jacobi(2**31 - 1, 1.0, 1.0, 0.5)",
    "eval_legendre(2**31 - 1, 0.5)",
    "eval_hermite(2**31 - 1, 0.5)",
];

/// The CPU time that a stopped program may have used.
const SOON: Duration = Duration::from_secs(4);

/// How long a stop may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn limits(wall: Duration) -> Limits {
    Limits { wall_time: wall, grace: Duration::from_millis(20), ..Limits::default() }
}

#[track_caller]
fn assert_stopped(source: &str, outcome: &Outcome) {
    let Verdict::Limit(hit) = &outcome.verdict else { panic!("{source}: {:?}", outcome.verdict) };
    assert_eq!(hit.limit, LimitKind::Wall, "{source}");
    assert!(outcome.usage.cpu < SOON, "{source} took {:?}", outcome.usage.cpu);
}

async fn pool() -> Hatchery {
    let builder = Hatchery::builder().workers(2).preload(["scipy.special"]);
    builder.start().await.expect("the build is available")
}

#[tokio::test(flavor = "multi_thread")]
async fn loops_in_registers_end_in_jobs_and_sessions_and_when_a_pool_drains() {
    let pool = pool().await;
    let session = pool.session("registers").await.unwrap();
    session.run(Job::code("from scipy.special import *; kept = 1")).await.unwrap();
    let calls = LONG.iter().map(|call| format!("from scipy.special import *\n{call}"));
    for source in calls.chain([ENDLESS.to_owned()]) {
        let job = || Job::code(&source).limits(limits(Duration::from_millis(300)));
        assert_stopped(&source, &pool.run(job()).await.unwrap());
        let outcome = session.run(job()).await.unwrap();
        assert_stopped(&source, &outcome);
        assert!(outcome.session_restored, "{source}");
    }
    let kept = session.run(Job::code("print(kept)")).await.unwrap();
    assert_eq!(kept.stdout_text(), "1\n");
    let job = Job::code(ENDLESS).limits(limits(Duration::from_secs(600)));
    let ticket = pool.submit(job).await.unwrap();
    let drained = pool.drain_for(Duration::from_millis(100));
    tokio::time::timeout(PATIENCE, drained).await.expect("the pool drains in time");
    assert_eq!(ticket.await.verdict, Verdict::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_loops_in_registers_are_stopped_in_time() {
    let pool = pool().await;
    let limits = Limits { grace: Duration::ZERO, ..limits(Duration::from_millis(5)) };
    for round in 0..50 {
        let mut tickets = Vec::new();
        for _ in 0..20 {
            tickets.push(pool.submit(Job::code(ENDLESS).limits(limits.clone())).await.unwrap());
        }
        for ticket in tickets {
            assert_stopped(&format!("round {round}"), &ticket.await);
        }
    }
    let status = pool.status();
    assert_eq!((status.totals.limited, status.totals.sandbox_failed), (1_000, 0));
    let answer = pool.run(Job::code("print(6 * 7)")).await.unwrap();
    assert_eq!(answer.stdout_text(), "42\n");
}
