//! Grades one sample at a time: decides how a task's tests can run, runs them, and retries after
//! sandbox failures.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hatchery::{Builder, Hatchery, HostError, HostFunction};
use serde::Deserialize;
use tokio::sync::{OnceCell, Semaphore, mpsc, oneshot, watch};

use crate::error::GradeError;
use crate::guest;
use crate::settings::Settings;
use crate::task::{Sample, Suite, Task};
use crate::verdict::{Graded, Verdict, of};

mod guarded;
mod shared;
mod stdio;
pub(crate) mod trial;

/// How often a sample is tried while the sandbox fails.
const TRIES: u32 = 3;

/// Tasks of which a grader knows how their tests can run, before it forgets them all.
const MOST_KNOWN: usize = 10_000;

/// How the tests of a task can run.
#[derive(Debug)]
pub(crate) enum Mode {
    /// Away from the candidate.
    Guarded {
        /// The result of the task's own solution, if it passes so. It names the kinds of objects whose
        /// attributes the tests use.
        solved: Option<Box<Graded>>,
    },
    /// Beside the candidate, for this reason.
    Shared(String),
    /// Not at all, for the reason of this result.
    Broken(Box<Graded>),
}

/// Where the tests run for one try: beside the candidate, or apart from it. Apart, they may use
/// attributes of these kinds of its objects; of all kinds, if that isn't known.
#[derive(Clone, Copy)]
enum How<'task> {
    Guarded(Option<&'task [String]>),
    Shared,
}

/// Grades samples on a pool of its own. Cheap to clone; clones are the same grader.
#[derive(Debug, Clone)]
pub struct Grader {
    pool: Hatchery,
    settings: Settings,
    /// One for each sample that is graded at once: more would take each other's second worker.
    permits: Arc<Semaphore>,
    /// How the tests of tasks can run, by the tasks' digests.
    known: Arc<Mutex<HashMap<String, KnownMode>>>,
}

/// How the tests of a task can run, once that has been found out.
type KnownMode = Arc<OnceCell<Mode>>;

impl Grader {
    /// Starts a pool for grading, with two workers for each concurrent sample: one for its judge,
    /// one for the candidate. The builder's number of workers is ignored.
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
        let builder = match settings.is_deterministic {
            true => builder.deterministic(Settings::deterministic()),
            false => builder,
        };
        let folder = tempfile::tempdir().map_err(GradeError::Modules)?;
        let builder = guest::preload(builder, folder.path()).map_err(GradeError::Modules)?;
        let permits = Arc::new(Semaphore::new(settings.at_once));
        Ok(Self { pool: builder.start().await?, settings, permits, known: Arc::default() })
    }

    /// Returns the same grader with other settings, but for `at_once` and `is_deterministic`.
    pub fn with_settings(&self, settings: Settings) -> Self {
        let Settings { at_once, is_deterministic, .. } = self.settings;
        Self { settings: Settings { at_once, is_deterministic, ..settings }, ..self.clone() }
    }

    /// Returns the pool.
    pub fn pool(&self) -> &Hatchery {
        &self.pool
    }

    /// Returns what samples may use.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Grades a sample of a task, once fewer than [`Settings::at_once`] others are being graded.
    ///
    /// # Errors
    /// The pool refuses a job.
    pub async fn grade(&self, task: &Task, sample: &Sample) -> Result<Graded, GradeError> {
        let _permit = self.permits.acquire().await.expect("nothing closes the semaphore");
        let known = self.known(task);
        let mode = known.get_or_try_init(|| self.mode_of(task)).await?;
        let (code, cpu_time) = (sample.code.as_str(), self.settings.cpu_time);
        let mut graded = match mode {
            Mode::Broken(graded) => Graded::clone(graded),
            Mode::Shared(reason) => Graded::new(Verdict::Undecided, reason.clone()),
            Mode::Guarded { solved } => {
                let is_solution = task.solution.as_deref() == Some(code);
                let graded = match solved {
                    // The same program with the same tests has the same result.
                    Some(solved) if is_solution && self.is_within(solved) => Graded::clone(solved),
                    _ => {
                        let kinds = solved.as_ref().map(|solved| solved.kinds.as_slice());
                        self.tried(task, code, How::Guarded(kinds), cpu_time).await?
                    }
                };
                self.confirmed(task, code, graded).await?
            }
        };
        // A sample has no say in this where the task's own solution shows that it needn't be.
        let may_be_shared =
            !matches!(mode, Mode::Guarded { solved: Some(_) }) && !graded.is_of_sandbox;
        if graded.verdict == Verdict::Undecided && may_be_shared {
            if self.settings.allow_shared {
                graded = self.tried(task, code, How::Shared, cpu_time).await?;
                graded.guarded = false;
            } else {
                graded.message.push_str(
                    "; `--allow-shared` (`Settings::allow_shared`) decides it in the candidate's own \
                     interpreter, where its tests can't be guarded",
                );
            }
        }
        let is_fenced = || code.lines().any(|line| line.starts_with("```"));
        if graded.message.contains("SyntaxError") && is_fenced() {
            graded.message.push_str("; its text has ``` of Markdown: give the code alone");
        }
        let (task_id, digest) = (task.id.clone(), self.digest(task, &sample.code));
        let (sample, kinds, is_of_sandbox) = (sample.number, Vec::new(), false);
        Ok(Graded { task_id, sample, digest, kinds, is_of_sandbox, is_sure: false, ..graded })
    }

    /// Returns the result of tests apart from their candidate. It is undecided if the verdict may come from
    /// what they have in place of its objects, and is the opposite beside them; also if a failure is undecided
    /// there.
    async fn confirmed(
        &self,
        task: &Task,
        code: &str,
        graded: Graded,
    ) -> Result<Graded, GradeError> {
        let is_decided = matches!(graded.verdict, Verdict::Passed | Verdict::Failed);
        if graded.is_sure || !is_decided || !matches!(task.suite, Suite::Code { .. }) {
            return Ok(graded);
        }
        let beside = self.tried(task, code, How::Shared, self.settings.cpu_time).await?;
        let failed = match (graded.verdict, beside.verdict) {
            (Verdict::Failed, Verdict::Undecided) => return Ok(beside),
            (Verdict::Passed, Verdict::Failed) => beside.told(),
            (Verdict::Failed, Verdict::Passed) => graded.told(),
            _ => return Ok(graded),
        };
        let message =
            format!("it passes either apart from its tests or beside them, not both: {failed}");
        Ok(Graded { verdict: Verdict::Undecided, message, ..graded })
    }

    /// Returns whether a program took no more CPU time than a sample may: a task's own solution has more.
    fn is_within(&self, graded: &Graded) -> bool {
        graded.cpu_ms <= self.settings.cpu_time.as_secs_f64() * 1000.0
    }

    /// Returns the digest of a sample: of its task, its code, the settings and the image.
    pub(crate) fn digest(&self, task: &Task, code: &str) -> String {
        let image = self.pool.image().map_or("", |image| image.visible_key.as_str());
        of(task, code, &self.settings, image)
    }

    /// Returns how the tests of a task can run, as far as that is known. A failure of the sandbox is
    /// found out again.
    fn known(&self, task: &Task) -> KnownMode {
        let digest = self.digest(task, "");
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        let mode = known.entry(digest).or_default();
        if let Some(Mode::Broken(graded)) = mode.get()
            && graded.verdict == Verdict::Sandbox
        {
            *mode = KnownMode::default();
        }
        Arc::clone(mode)
    }

    /// Finds out how the tests of a task can run, by its solution.
    async fn mode_of(&self, task: &Task) -> Result<Mode, GradeError> {
        let cpu_time = self.settings.cpu_time * 3;
        let problem = match &task.suite {
            Suite::Unusable(problem) => Some(problem.clone()),
            Suite::Code { .. } => {
                guarded::problem(&self.pool, task, self.settings.limits(cpu_time)).await?
            }
            _ => None,
        };
        if let Some(problem) = problem {
            return Ok(Mode::Broken(Box::new(Graded::of_task(problem))));
        }
        let Some(solution) = task.solution.as_ref().filter(|_| self.settings.check_solutions)
        else {
            return Ok(Mode::Guarded { solved: None });
        };
        let guarded = self.tried(task, solution, How::Guarded(None), cpu_time).await?;
        if guarded.verdict == Verdict::Passed {
            return Ok(Mode::Guarded { solved: Some(Box::new(guarded)) });
        }
        let mut problem = guarded.told();
        if guarded.verdict == Verdict::Undecided && guarded.is_of_sandbox {
            let message = format!("its task's own solution is undecided: {problem}");
            return Ok(Mode::Broken(Box::new(Graded { message, ..guarded })));
        }
        if matches!(guarded.verdict, Verdict::Sandbox | Verdict::TaskError) {
            return Ok(Mode::Broken(Box::new(guarded)));
        }
        if matches!(task.suite, Suite::Code { .. }) {
            let shared = self.tried(task, solution, How::Shared, cpu_time).await?;
            if shared.verdict == Verdict::Undecided {
                return Ok(Mode::Broken(Box::new(shared)));
            }
            if shared.verdict == Verdict::Passed {
                let told = format!("its tests need the candidate's own interpreter ({problem})");
                return Ok(Mode::Shared(told));
            }
            // Where its tests can run, the reason is the task's own.
            problem = shared.told();
        }
        let told = format!("its own solution doesn't pass its tests: {problem}");
        Ok(Mode::Broken(Box::new(Graded::of_task(told))))
    }

    /// Runs the tests of a task with a program, beside it or apart from it; again if the sandbox fails.
    async fn tried(
        &self,
        task: &Task,
        code: &str,
        how: How<'_>,
        cpu_time: Duration,
    ) -> Result<Graded, GradeError> {
        let mut tries = 0;
        loop {
            let limits = self.settings.limits(cpu_time);
            let graded = match (&task.suite, how) {
                (Suite::Stdio { cases, checker }, _) => {
                    stdio::run(&self.pool, code, cases, checker, limits).await?
                }
                (_, How::Shared) => shared::run(&self.pool, task, code, limits).await?,
                (_, How::Guarded(kinds)) => {
                    guarded::run(&self.pool, task, code, kinds, limits).await?
                }
            };
            tries += 1;
            if graded.verdict != Verdict::Sandbox || tries == TRIES {
                return Ok(graded);
            }
        }
    }
}

// The exchange between a judge and a candidate: one request at a time, each with one answer. Answers
// are text that only the judge reads.
//
// Both ends are host functions. The candidate may call its own with anything: that is an answer like
// any other. It can't be asked twice, answer when nothing was asked, or learn anything but requests.

/// The exchange of one candidate with its judge.
pub(crate) struct Link {
    /// Where the answer to the open request goes.
    open: Mutex<Option<oneshot::Sender<String>>>,
    /// Requests, of which there is at most one; `None` once the judge has ended.
    requests: Mutex<Option<mpsc::Sender<String>>>,
    taken: tokio::sync::Mutex<mpsc::Receiver<String>>,
    /// Whether the candidate has ended.
    is_over: watch::Sender<bool>,
    /// How often the judge has asked.
    asked: AtomicU64,
}

#[derive(Deserialize)]
struct Request {
    request: String,
}

#[derive(Deserialize)]
struct Answer {
    answer: Option<String>,
}

impl Link {
    pub(crate) fn new() -> Arc<Self> {
        let (requests, taken) = mpsc::channel(1);
        Arc::new(Self {
            open: Mutex::new(None),
            requests: Mutex::new(Some(requests)),
            taken: tokio::sync::Mutex::new(taken),
            is_over: watch::Sender::new(false),
            asked: AtomicU64::new(0),
        })
    }

    /// Returns the judge's function, which sends a request and returns its answer.
    pub(crate) fn judges_function(self: &Arc<Self>) -> HostFunction {
        let link = Arc::clone(self);
        HostFunction::future("hatchery_grade_ask", move |Request { request }| {
            let link = Arc::clone(&link);
            async move { link.ask(request).await }
        })
        .parameter("request", "str")
    }

    /// Returns the candidate's function. It answers the open request, if there is an answer. Then it
    /// returns the next request; `None` if there will be none.
    pub(crate) fn candidates_function(self: &Arc<Self>) -> HostFunction {
        let link = Arc::clone(self);
        HostFunction::future("hatchery_grade_next", move |Answer { answer }| {
            let link = Arc::clone(&link);
            async move { link.next(answer).await }
        })
        .parameter("answer", "str | None")
    }

    /// Says that the candidate has ended, so that nothing waits for it.
    pub(crate) fn candidate_ended(&self) {
        self.is_over.send_replace(true);
    }

    /// Says that the judge has ended, so that the candidate gets no more requests.
    pub(crate) fn judge_ended(&self) {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Returns how often the judge has asked.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    async fn ask(&self, request: String) -> Result<String, HostError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let gone = || HostError::new("CandidateGone", "the candidate's interpreter has ended");
        let mut is_over = self.is_over.subscribe();
        let (sender, answer) = oneshot::channel();
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let exchange = async {
            requests?.send(request).await.ok()?;
            answer.await.ok()
        };
        tokio::select! {
            biased;
            answer = exchange => answer.ok_or_else(gone),
            _ = is_over.wait_for(|is_over| *is_over) => Err(gone()),
        }
    }

    async fn next(&self, answer: Option<String>) -> Result<Option<String>, HostError> {
        if let Some(answer) = answer {
            let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
            let open = open.ok_or_else(|| HostError::new("RuntimeError", "nothing was asked"))?;
            // The judge may have ended meanwhile.
            let _ = open.send(answer);
        }
        Ok(self.taken.lock().await.recv().await)
    }
}
