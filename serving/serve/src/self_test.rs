//! What a pool must show before it is called ready.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hatchery::{Job, Verdict};
use wire::{Problem, ProblemKind};

use crate::service::Service;

/// Tries the walls: a file of the host, its environment, a socket, a process. Ends in the time.
const WALLS: &str = r#"
import os, socket, subprocess, time
reached = []
for path in ("/etc/passwd", "/proc/self/environ"):
    try:
        reached.append(open(path).read(1))
    except OSError:
        pass
for attempt in (
    lambda: socket.create_connection(("127.0.0.1", 9), 1),
    lambda: subprocess.run(["/bin/true"]),
):
    try:
        reached.append(attempt())
    except OSError:
        pass
assert not reached, reached
assert "PATH" not in os.environ
time.time()
"#;
/// A limit on time that an endless program must meet, and what it may take until it is stopped.
const LIMIT: Duration = Duration::from_millis(50);
/// How far the clocks of guest and host may be apart, on a machine that is busy.
const MOST_DRIFT: f64 = 60.0;

impl Service {
    /// Runs a job that tries the walls and the clock, and one that doesn't end.
    ///
    /// # Errors
    /// Something was reached that must not be, the guest's clock is wrong, a limit didn't hold, or
    /// the pool runs nothing.
    pub async fn test_itself(&self) -> Result<(), Problem> {
        let outcome =
            self.pool().run(Job::code(WALLS).self_test()).await.map_err(|error| error.problem())?;
        let time = match &outcome.verdict {
            Verdict::Completed { value: Some(value), .. } => value.as_f64(),
            verdict => return Err(failed(&format!("a test of the walls ended as {verdict:?}"))),
        };
        let now = now();
        if time.is_none_or(|time| (time - now).abs() > MOST_DRIFT) {
            return Err(failed(&format!("the guest's clock says {time:?}, the host's {now}")));
        }
        let endless = Job::code("while True: pass").timeout(LIMIT).self_test();
        let outcome = self.pool().run(endless).await.map_err(|error| error.problem())?;
        match outcome.is_timeout() {
            true => Ok(()),
            false => Err(failed(&format!("an endless program ended as {:?}", outcome.verdict))),
        }
    }
}

fn failed(text: &str) -> Problem {
    Problem::new(ProblemKind::Sandbox, format!("the pool failed its self-test: {text}"))
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}
