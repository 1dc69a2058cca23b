//! What the measurement needs: settings, errors, clocks, and other processes.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tokio::task::JoinError;

pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Returns the CPU time that all threads of this process have taken so far.
pub(crate) fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Returns a time in milliseconds.
pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A machine can't be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Error {
    /// A pool can't be started, or refuses a job.
    #[error(transparent)]
    Pool(#[from] hatchery::Error),
    /// A job failed. A figure of failed jobs would mean nothing.
    #[error("a job of the benchmark ended as `{ending}`: {said}")]
    Job {
        /// The name of its verdict.
        ending: &'static str,
        /// What it wrote to standard error.
        said: String,
    },
    /// A program that times itself is wrong, or its clock stands still.
    #[error("a program of the benchmark printed {printed:?}, not {expected} and its time")]
    Printed {
        /// What it printed.
        printed: String,
        /// The result that it should have.
        expected: &'static str,
    },
    /// A child process can't be started.
    #[error("can't run `{}`", program.display())]
    Start {
        /// Its program.
        program: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A child process has failed.
    #[error("`{}` failed ({status}): {said}", program.display())]
    Child {
        /// Its program.
        program: PathBuf,
        /// How it ended.
        status: ExitStatus,
        /// What it wrote to standard error.
        said: String,
    },
    /// There is no folder for saved sessions.
    #[error("can't create a folder for saved sessions")]
    Folder(#[source] io::Error),
    /// A thread of the measurement has panicked.
    #[error("a thread of the benchmark died")]
    Thread(#[from] JoinError),
}

/// How long rounds go on, once there are enough of them.
const ROUNDS: Duration = Duration::from_secs(60);
const QUICK_ROUNDS: Duration = Duration::from_secs(15);

/// How to measure.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub(crate) struct BenchSettings {
    /// Measure for 15 s instead of 60, with a quarter of the samples.
    pub(crate) is_quick: bool,
    /// The command line `hatchery`, whose `run -c` is timed from its start to its first outcome; `None`
    /// leaves that figure out.
    pub(crate) program: Option<PathBuf>,
}

impl BenchSettings {
    /// Measures for 15 s.
    pub(crate) fn quick() -> Self {
        Self { is_quick: true, ..Self::default() }
    }

    /// Returns how long rounds go on.
    pub(crate) fn time(&self) -> Duration {
        if self.is_quick { QUICK_ROUNDS } else { ROUNDS }
    }
}

/// Runs a program to its end. Returns what it printed, and how long it took.
///
/// It doesn't hear the terminal's Ctrl-C: that ends the benchmark, not a sample.
pub(crate) async fn run(program: &Path, arguments: &[&str]) -> Result<(String, Duration), Error> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).process_group(0);
    let running = tokio::task::spawn_blocking(move || {
        let began = now();
        command.output().map(|output| (output, began.elapsed()))
    });
    let unstarted = |source| Error::Start { program: program.to_owned(), source };
    let (output, took) = running.await?.map_err(unstarted)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
        return Err(Error::Child { program: program.to_owned(), status: output.status, said });
    }
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), took))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_child_that_fails_says_why() {
        let shell = Path::new("sh");
        let (printed, took) = run(shell, &["-c", "echo a"]).await.unwrap();
        assert_eq!(printed, "a\n");
        assert!(took > Duration::ZERO);
        let error = run(shell, &["-c", "echo b >&2; exit 3"]).await.unwrap_err();
        assert!(error.to_string().ends_with("3): b"), "{error}");
        assert!(run(Path::new("/nonexistent"), &[]).await.is_err());
    }
}
