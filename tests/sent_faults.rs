//! Fault signals sent from outside. In its own process, since signals affect all of it.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::process::Command;
use std::time::Duration;

use hatchery::{Hatchery, Job, LimitKind, Limits, Verdict};

fn send(signal: &str) {
    let process = std::process::id().to_string();
    assert!(Command::new("kill").args([signal, &process]).status().unwrap().success());
}

/// A regression test: the first such signal used to remove wasmer's handler, and the next hard stop
/// ended the process.
#[tokio::test(flavor = "multi_thread")]
async fn fault_signals_from_outside_change_nothing() {
    let pool = Hatchery::builder().workers(1).start().await.unwrap();
    let limits =
        Limits { wall_time: Duration::from_millis(50), grace: Duration::ZERO, ..Limits::default() };
    for signal in ["-SEGV", "-ILL", "-FPE", "-SEGV"] {
        let running = pool.submit(Job::code("while True: pass").limits(limits.clone()));
        let ticket = running.await.unwrap();
        send(signal);
        let outcome = ticket.await;
        let Verdict::Limit(hit) = &outcome.verdict else { panic!("{signal}: {outcome:?}") };
        assert_eq!(hit.limit, LimitKind::Wall, "{signal}");
        let answer = pool.run(Job::code("print(6 * 7)")).await.unwrap();
        assert_eq!(answer.stdout_text(), "42\n", "after {signal}");
    }
}
