//! Where the jobs of a batch run: the seam between the loop of a batch and what executes its lines.

use hatchery::wire::{Problem, ProblemKind};
use hatchery::{Job, wire};
use serde_json::{Map, Value, json};

use crate::scripts::NoJob;
use crate::tally::Ending;

/// Runs the jobs of a batch: in a pool of this process, as [`PoolRunner`](crate::PoolRunner) does, or
/// anywhere else.
///
/// A line's job has exactly one result. What is wrong with one job is in its result; an error ends
/// the whole batch.
///
/// ```no_run
/// use batch::{Ahead, Ending, Line, NoJob, Parsed, Prepared, Ran, RunError, Runner};
/// use hatchery::wire::Intake;
/// use hatchery::{Job, Session};
///
/// /// Runs the lines in one session, so that programs share variables.
/// struct InSession(Session);
///
/// impl Runner for InSession {
///     type Job = Job;
///
///     fn prepare(&self, line: Parsed) -> Result<Prepared<Job>, NoJob> {
///         let job = line.script.unwrap_or_default().with_wire(line.job, &Intake::BATCH)?;
///         Ok(Prepared { bytes: job.source().len(), job })
///     }
///
///     fn workers(&self) -> usize {
///         1
///     }
///
///     fn has_room(&self, ahead: Ahead) -> bool {
///         ahead.jobs < 4
///     }
///
///     fn run(
///         &self,
///         line: Line<Job>,
///     ) -> impl Future<Output = Result<Ran, RunError>> + Send + 'static + use<> {
///         let session = self.0.clone();
///         async move {
///             let outcome = session.run(line.job).await?;
///             Ok(Ran::new(outcome.to_tool_json(), Ending::of(&outcome)))
///         }
///     }
/// }
/// ```
pub trait Runner: Send + Sync + 'static {
    /// What is made of a line, and kept until the job has ended.
    type Job: Send + 'static;

    /// Fields that a line may have beside those of a [`wire::Job`].
    const FIELDS: &'static [&'static str] = &[];

    /// Makes a job of a line.
    ///
    /// Called for one line after the other, on a thread that may block. It is called again for a
    /// line if file descriptors ran out.
    ///
    /// # Errors
    /// The line can't become a job. Its result says so, and the batch goes on.
    fn prepare(&self, line: Parsed) -> Result<Prepared<Self::Job>, NoJob>;

    /// Returns how many jobs run at once. Lines beyond these leave file descriptors to them.
    fn workers(&self) -> usize;

    /// Returns whether a further line may be read.
    fn has_room(&self, ahead: Ahead) -> bool;

    /// Returns whether [`Line::folder`] is wanted.
    fn names_folders(&self) -> bool {
        false
    }

    /// Runs a line's job to its result. Called for one line after the other, in their order; the
    /// futures run at once. Deadlines run from this call, whenever the future is polled. Dropping the
    /// future cancels the job.
    fn run(
        &self,
        line: Line<Self::Job>,
    ) -> impl Future<Output = Result<Ran, RunError>> + Send + 'static + use<Self>;
}

/// Why a runner can't go on.
pub type RunError = Box<dyn std::error::Error + Send + Sync>;

/// A line whose JSON is that of a job.
#[derive(Debug)]
#[non_exhaustive]
pub struct Parsed {
    /// What the line says, but for its `id`, and for the `file` that it may name.
    pub job: wire::Job,
    /// The job of the program in that file.
    pub script: Option<Job>,
    /// Those of [`Runner::FIELDS`] that it has.
    pub fields: Map<String, Value>,
}

/// A line's job before it runs.
#[derive(Debug)]
pub struct Prepared<J> {
    /// The job.
    pub job: J,
    /// How many bytes it keeps in memory, beside those of its line.
    pub bytes: usize,
}

/// What of a batch is ahead of its results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ahead {
    /// Jobs that haven't ended, and results that wait for those of earlier lines.
    pub jobs: usize,
    /// Bytes of the lines of the jobs that haven't ended, and of what is kept beside these.
    pub bytes: usize,
}

/// A line whose job is to run.
#[derive(Debug)]
#[non_exhaustive]
pub struct Line<J> {
    /// Its number in the input, from 1.
    pub number: usize,
    /// Its own id, or its number.
    pub id: Value,
    /// A plain file name that no other line has, made of its id; `None` unless the runner
    /// [wants](Runner::names_folders) one.
    pub folder: Option<String>,
    /// Its job.
    pub job: J,
}

/// What became of a line's job.
#[derive(Debug)]
pub struct Ran {
    pub(crate) result: Map<String, Value>,
    pub(crate) ending: Ending,
    pub(crate) not_kept: Option<String>,
}

impl Ran {
    /// Takes a result as it is written, but for the `id`, `digest` and `shard` of its line.
    ///
    /// ```
    /// use batch::{Ending, Ran};
    /// use hatchery::{Outcome, Verdict};
    ///
    /// let outcome = Outcome::not_run(Verdict::Cancelled);
    /// let ran = Ran::new(outcome.to_tool_json(), Ending::of(&outcome));
    /// ```
    ///
    /// Something other than an object becomes the `value` of one.
    pub fn new(result: Value, ending: Ending) -> Self {
        let result = match result {
            Value::Object(result) => result,
            value => Map::from_iter([("value".to_owned(), value)]),
        };
        Self { result, ending, not_kept: None }
    }

    /// Takes the result of a job that another pool has run or refused.
    pub fn from_elsewhere(result: Value) -> Self {
        let ran = Self::new(result, Ending::Refused);
        Self { ending: Ending::of_result(&ran.result), ..ran }
    }

    /// Makes the result of a line, by its number, whose job can't be run for this reason.
    pub fn invalid(number: usize, problem: &str) -> Self {
        Self::new(invalid(number, problem), Ending::Refused)
    }

    /// Says what of the job's files or displays couldn't be written where they are kept.
    #[must_use]
    pub fn not_kept(mut self, problem: String) -> Self {
        self.not_kept = Some(problem);
        self
    }
}

/// Returns the result of a line that is no valid job.
pub(crate) fn invalid(number: usize, problem: &str) -> Value {
    let message = format!("line {number}: {problem}");
    let error = Problem::new(ProblemKind::Usage, message);
    json!({ "success": false, "passed": false, "error": error })
}
