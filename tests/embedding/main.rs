//! What the embedding program does to its process: handlers of signals, and forks. Each test runs
//! in a process of its own, since handlers are global and crashes end it.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
#![expect(unsafe_code, reason = "installs signal handlers, crashes and forks, as programs do")]

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::time::Duration;

use hatchery::{Hatchery, Job, LimitKind, Limits, Verdict};
use test_support::output::next_output;

/// The child of a fork, in which a pool of the parent is of no use.
mod forks;
/// Handlers of SIGSEGV and its like, installed before and after ours, and removed again.
mod handlers;

/// Names the test whose scenario the process is to act out.
const SCENARIO: &str = "HATCHERY_TEST_SCENARIO";

/// How the process of a scenario has ended, and what its handlers said.
struct Ended {
    output: Output,
}

impl Ended {
    #[track_caller]
    fn assert_exit(&self, code: i32) {
        assert_eq!(self.output.status.code(), Some(code), "{self}");
    }

    #[track_caller]
    fn assert_signal(&self, signal: libc::c_int) {
        assert_eq!(self.output.status.signal(), Some(signal), "{self}");
    }

    /// Returns how often a handler said this.
    fn said(&self, words: &str) -> usize {
        String::from_utf8_lossy(&self.output.stderr).matches(words).count()
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [out, err] =
            [&self.output.stdout, &self.output.stderr].map(|it| String::from_utf8_lossy(it));
        write!(formatter, "{:?}\n{out}\n{err}", self.output.status)
    }
}

/// Acts out a scenario in a new process, which exits with 0 if it gets to its end. `test` is the
/// path of the calling test.
fn in_a_process(test: &str, scenario: impl FnOnce()) -> Ended {
    if std::env::var(SCENARIO).is_ok_and(|name| name == test) {
        // SAFETY: only sets a timer, which ends a process that hangs.
        unsafe { libc::alarm(100) };
        scenario();
        std::process::exit(0);
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(SCENARIO, test);
    let output = command.output().unwrap();
    Ended { output }
}

/// A pool with one worker, and its runtime.
struct Host {
    runtime: tokio::runtime::Runtime,
    pool: Hatchery,
}

impl Host {
    fn start() -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let pool = runtime.block_on(Hatchery::builder().workers(1).start()).unwrap();
        let host = Self { runtime, pool };
        // The first interpreter installs the engine's handlers.
        host.answers();
        host
    }

    #[track_caller]
    fn answers(&self) {
        let outcome = self.runtime.block_on(self.pool.run(Job::code("print(6 * 7)"))).unwrap();
        assert_eq!(outcome.stdout_text(), "42\n", "{outcome:?}");
    }

    /// Ends a loop in C by force, doing something meanwhile.
    #[track_caller]
    fn stops_hard_after(&self, meanwhile: impl FnOnce()) {
        let limits = Limits {
            wall_time: Duration::from_millis(100),
            grace: Duration::from_millis(30),
            ..Limits::default()
        };
        let outcome = self.runtime.block_on(async {
            let source = "print('begun', flush=True)\nsum(range(10**18))";
            let ticket = self.pool.submit(Job::code(source).limits(limits)).await.unwrap();
            assert!(next_output(&mut ticket.events()).await.is_some());
            meanwhile();
            ticket.await
        });
        let Verdict::Limit(hit) = &outcome.verdict else { panic!("{outcome:?}") };
        assert_eq!(hit.limit, LimitKind::Wall);
        self.answers();
    }

    #[track_caller]
    fn stops_hard(&self) {
        self.stops_hard_after(|| ());
    }

    /// Runs programs whose own code faults: too deep a recursion, and `unreachable`.
    #[track_caller]
    fn survives_faults_of_programs(&self) {
        let deep = Job::code("x = ()\nfor _ in range(2 * 10**5): x = (x,)\nhash(x)");
        let outcome = self.runtime.block_on(self.pool.run(deep)).unwrap();
        let Verdict::Limit(hit) = &outcome.verdict else { panic!("{outcome:?}") };
        assert_eq!(hit.limit, LimitKind::Stack);
        let aborts = Job::code("import os; os.abort()");
        let outcome = self.runtime.block_on(self.pool.run(aborts)).unwrap();
        assert!(!outcome.is_success(), "{outcome:?}");
        self.answers();
    }
}
