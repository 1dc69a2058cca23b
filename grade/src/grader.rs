//! Grades one sample at a time: finds out how a task's tests can run, runs them, and tries again where
//! the sandbox failed.

use std::time::Duration;

use hatchery::{Builder, Hatchery};
use tokio::sync::OnceCell;

use crate::digest;
use crate::error::GradeError;
use crate::sample::Sample;
use crate::settings::Settings;
use crate::task::{Suite, Task};
use crate::verdict::{Graded, Verdict};

use self::trial::Trial;

mod guarded;
mod shared;
mod stdio;
pub(crate) mod trial;

/// How often a sample is tried while the sandbox fails.
const TRIES: u32 = 3;

/// How the tests of a task can run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Mode {
    /// Away from the candidate. Whether what it does to its arguments is copied back.
    Guarded {
        /// See above.
        in_place: bool,
    },
    /// Beside the candidate.
    Shared,
    /// Not at all, for the reason of this trial.
    Broken(Box<Trial>),
}

/// Grades samples on a pool of its own.
#[derive(Debug)]
pub struct Grader {
    pool: Hatchery,
    settings: Settings,
}

impl Grader {
    /// Starts a pool for grading: with two workers for each sample that is graded at once, since its
    /// judge waits in one while the candidate runs in the other. The builder's own number of workers
    /// doesn't count.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use grade::{Grader, Settings};
    /// use hatchery::Hatchery;
    ///
    /// let grader = Grader::start(Hatchery::builder(), Settings::default()).await?;
    /// # drop(grader);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The pool can't be started.
    pub async fn start(builder: Builder, settings: Settings) -> Result<Self, GradeError> {
        let settings = Settings { at_once: settings.at_once.max(1), ..settings };
        let builder = builder.workers(settings.at_once * 2).queue_limit_bytes(usize::MAX);
        Ok(Self { pool: builder.start().await?, settings })
    }

    /// Returns the pool.
    pub fn pool(&self) -> &Hatchery {
        &self.pool
    }

    /// Returns what samples may use.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Grades a sample of a task. `known` keeps what was found out about the task for the next one.
    ///
    /// # Errors
    /// The pool refuses a job.
    pub async fn grade(
        &self,
        task: &Task,
        sample: &Sample,
        known: &KnownTask,
    ) -> Result<Graded, GradeError> {
        let mode = known.0.get_or_try_init(|| self.mode_of(task)).await?;
        let trial = match mode {
            Mode::Broken(trial) => Trial::clone(trial),
            Mode::Shared if !self.settings.allow_shared => Trial::error(
                "its tests need the candidate's own interpreter, where they can't be guarded; \
                 `--allow-shared` (`Settings::allow_shared`) runs them there"
                    .to_owned(),
            ),
            mode => self.tried(task, &sample.code, mode, self.settings.cpu_time).await?,
        };
        // Tests that aren't allowed to run beside a candidate haven't run.
        let guarded = *mode != Mode::Shared || !self.settings.allow_shared;
        let digest = self.digest(task, &sample.code);
        Ok(trial.graded(&task.id, sample.number, guarded, digest))
    }

    /// Returns the digest of a sample: of its task, its code, the settings and the image.
    pub(crate) fn digest(&self, task: &Task, code: &str) -> String {
        let image = self.pool.image().map_or("", |image| image.key.as_str());
        digest::of(task, code, &self.settings, image)
    }

    /// Finds out how the tests of a task can run, by its solution.
    async fn mode_of(&self, task: &Task) -> Result<Mode, GradeError> {
        let given = Mode::Guarded { in_place: task.in_place };
        let Some(solution) = task.solution.as_ref().filter(|_| self.settings.check_solutions)
        else {
            return Ok(given);
        };
        let cpu_time = self.settings.cpu_time * 3;
        let mut modes = vec![given, Mode::Guarded { in_place: true }, Mode::Shared];
        modes.dedup();
        if !matches!(task.suite, Suite::Code { .. }) {
            modes.truncate(1);
        }
        let mut problem = None;
        for mode in modes {
            let trial = self.tried(task, solution, &mode, cpu_time).await?;
            if trial.verdict == Verdict::Passed {
                return Ok(mode);
            }
            if trial.verdict == Verdict::Sandbox {
                return Ok(Mode::Broken(Box::new(trial)));
            }
            problem.get_or_insert(trial);
        }
        let problem = problem.map(|trial| trial.told()).unwrap_or_default();
        let told = format!("the task's own solution doesn't pass its tests: {problem}");
        Ok(Mode::Broken(Box::new(Trial::error(told))))
    }

    /// Runs the tests of a task with a program, again if the sandbox fails.
    async fn tried(
        &self,
        task: &Task,
        code: &str,
        mode: &Mode,
        cpu_time: Duration,
    ) -> Result<Trial, GradeError> {
        let mut tries = 0;
        loop {
            let limits = self.settings.limits(cpu_time);
            let trial = match (&task.suite, mode) {
                (Suite::Stdio { cases, checker }, _) => {
                    stdio::run(&self.pool, code, cases, checker, limits).await?
                }
                (_, Mode::Shared) => shared::run(&self.pool, task, code, limits).await?,
                (_, mode) => {
                    let in_place = *mode == Mode::Guarded { in_place: true };
                    guarded::run(&self.pool, task, code, in_place, limits).await?
                }
            };
            tries += 1;
            if trial.verdict != Verdict::Sandbox || tries == TRIES {
                return Ok(trial);
            }
        }
    }
}

/// What a grader has found out about one task.
#[derive(Debug, Default)]
pub struct KnownTask(OnceCell<Mode>);
