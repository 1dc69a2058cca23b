//! Runs the jobs of a batch in a pool of this process.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hatchery::files::OutputFolder;
use hatchery::{Hatchery, Job};

use crate::attempts::Attempts;
use crate::line::INTAKE;
use crate::report::{Kept, Report};
use crate::runner::{Ahead, Line, Parsed, Prepared, Ran, RunError, Runner};
use crate::scripts::NoJob;
use crate::stragglers::Stragglers;

/// Jobs in the pool per worker, whatever their size: enough that no worker waits for the reader.
/// With an ordered batch, results that wait for an earlier one count as well, here and below.
const AHEAD: usize = 4;

/// Jobs in the pool per worker while all of them are small. Priorities and tenants' shares apply
/// among these, and their results fit in memory even if nobody reads them.
const SMALL_AHEAD: usize = 64;

/// Total bytes of lines, programs and files up to which the jobs in the pool count as small.
const SMALL_BYTES: usize = 64 << 20;

/// Runs the jobs of a batch in a pool of this process.
///
/// A job that the pool refuses for overload is submitted again when there is room. A script that a
/// line names brings the folder that it is in; a deadline runs from when the line was read. Results
/// are those of [`Outcome::to_tool_json`](hatchery::Outcome::to_tool_json).
///
/// The batch bounds what waits in the pool, at 64 jobs and 64 MiB per worker, so the pool itself needs
/// no bound in bytes: give its builder `queue_limit_bytes(usize::MAX)`, or the jobs of large lines
/// are refused.
pub struct PoolRunner {
    attempts: Attempts,
    workers: usize,
    give: Box<dyn Fn(Job) -> Job + Send + Sync>,
    has_contents: bool,
    kept: Kept,
}

/// The job of a line, for a pool of this process.
#[derive(Debug)]
#[doc(hidden)]
pub struct LineJob {
    /// Without its deadline, which already runs.
    pub(crate) job: Job,
    /// From when the line was read.
    pub(crate) deadline: Option<Duration>,
}

impl PoolRunner {
    /// Creates a runner for a pool that has at most this many workers.
    pub fn new(pool: Hatchery, workers: usize) -> Self {
        Self {
            attempts: Attempts::new(pool),
            workers: workers.max(1),
            give: Box::new(|job| job),
            has_contents: false,
            kept: Kept::default(),
        }
    }

    /// Gives something to the job of every line: limits, files, whatever a [`Job`] can have. What the
    /// line says itself goes over it.
    ///
    /// ```no_run
    /// use batch::PoolRunner;
    /// use hatchery::{Hatchery, Job};
    ///
    /// # fn example(pool: Hatchery) -> Result<(), hatchery::Error> {
    /// let shared = Job::default().input("rates.csv", "a,1\n")?;
    /// let runner = PoolRunner::new(pool, 4).give(move |job| job.with_files_of(&shared).read_only());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn give(mut self, give: impl Fn(Job) -> Job + Send + Sync + 'static) -> Self {
        self.give = Box::new(give);
        self
    }

    /// Includes the contents of files that programs made in the results, in base64.
    #[must_use]
    pub fn file_contents(mut self) -> Self {
        self.has_contents = true;
        self
    }

    /// Writes the files that programs created or changed into this folder, each line's into a folder
    /// of its own, which the result's `output_dir` names. A line whose files can't be written fails.
    #[must_use]
    pub fn keep_files(mut self, folder: OutputFolder) -> Self {
        self.kept.files = Some(Arc::new(folder));
        self
    }

    /// Writes what programs displayed into this folder, likewise; the result's field is
    /// `displays_dir`.
    #[must_use]
    pub fn keep_displays(mut self, folder: OutputFolder) -> Self {
        self.kept.displays = Some(Arc::new(folder));
        self
    }

    /// Cuts stragglers: once most of the jobs read so far have ended, interrupts any that has run for
    /// more than `factor` times their median, and for at least 100 ms. Its result is `cancelled`, and
    /// its error has the reason `straggler`.
    #[must_use]
    pub fn cut_stragglers(mut self, factor: f64) -> Self {
        self.attempts = self.attempts.cutting(Stragglers::new(factor));
        self
    }
}

impl Runner for PoolRunner {
    type Job = LineJob;

    fn prepare(&self, line: Parsed) -> Result<Prepared<LineJob>, NoJob> {
        prepare(line, &self.give)
    }

    fn workers(&self) -> usize {
        self.workers
    }

    fn has_room(&self, ahead: Ahead) -> bool {
        ahead.jobs < self.workers * AHEAD
            || ahead.jobs < self.workers * SMALL_AHEAD && ahead.bytes < SMALL_BYTES
    }

    fn names_folders(&self) -> bool {
        self.kept.is_any()
    }

    fn run(
        &self,
        line: Line<LineJob>,
    ) -> impl Future<Output = Result<Ran, RunError>> + Send + 'static + use<> {
        let outcome = self.attempts.outcome(line.job.job, line.job.deadline);
        let (has_contents, kept) = (self.has_contents, self.kept.clone());
        let report = Report { has_contents, kept, folder: line.folder.unwrap_or_default() };
        async move { Ok(report.of(outcome.await).await?) }
    }
}

/// Makes the job of a line, with what is given to every one.
pub(crate) fn prepare(line: Parsed, give: impl Fn(Job) -> Job) -> Result<Prepared<LineJob>, NoJob> {
    let Parsed { job: mut line, script, .. } = line;
    let deadline = line.deadline.take();
    let job = give(script.unwrap_or_default()).with_wire(line, &INTAKE)?;
    let bytes = job.source().len() + job.input_bytes();
    Ok(Prepared { job: LineJob { job, deadline }, bytes })
}

impl fmt::Debug for PoolRunner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut runner = formatter.debug_struct("PoolRunner");
        runner.field("workers", &self.workers).field("kept", &self.kept).finish_non_exhaustive()
    }
}
