//! Runs the jobs of a batch in a pool of this process.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hatchery::event::EventKind;
use hatchery::files::OutputFolder;
use hatchery::record::Recorder;
use hatchery::wire::Intake;
use hatchery::{Error, Hatchery, Job, Outcome, Refusal, Ticket, Verdict};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::report::{OutputFolders, Report};
use crate::runner::{Ahead, Line, Parsed, Prepared, Ran, RunError, Runner};
use crate::scripts::NoJob;

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
/// line names brings the folder that it is in. A deadline runs from when the line was read. Results
/// are those of [`Outcome::to_tool_json`](hatchery::Outcome::to_tool_json).
///
/// The batch bounds what waits in the pool, at 64 jobs and 64 MiB per worker. So the pool itself
/// needs no bound in bytes. Give its builder `queue_limit_bytes(usize::MAX)`, or it refuses jobs of
/// large lines.
#[derive(derive_more::Debug)]
#[debug("PoolRunner({workers} workers)")]
pub struct PoolRunner {
    pool: Hatchery,
    in_pool: Arc<InPool>,
    stragglers: Option<Arc<Stragglers>>,
    workers: usize,
    give: Box<dyn Fn(Job) -> Job + Send + Sync>,
    has_contents: bool,
    kept: OutputFolders,
    recorder: Option<Arc<Recorder>>,
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
            pool,
            in_pool: Arc::default(),
            stragglers: None,
            workers: workers.max(1),
            give: Box::new(|job| job),
            has_contents: false,
            kept: OutputFolders::default(),
            recorder: None,
        }
    }

    /// Records every job. Finish the recorder once the batch has ended.
    #[must_use]
    pub fn record(mut self, recorder: Arc<Recorder>) -> Self {
        self.recorder = Some(recorder);
        self
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

    /// Writes the files that programs created or changed into this folder, in a subfolder for each
    /// line. The result's `output_dir` names it. A line whose files can't be written fails.
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

    /// Cuts stragglers, once most of the jobs read so far have ended: jobs that run longer than
    /// `factor` times the median, and 100 ms. Its result is `cancelled`, and its error has the
    /// reason `straggler`.
    #[must_use]
    pub fn cut_stragglers(mut self, factor: f64) -> Self {
        self.stragglers = Some(Arc::new(Stragglers::new(factor)));
        self
    }

    /// Runs a job. Its deadline starts now.
    fn outcome(&self, job: LineJob) -> impl Future<Output = Result<Ended, Error>> + use<> {
        let LineJob { job, deadline } = job;
        let (pool, in_pool) = (self.pool.clone(), Arc::clone(&self.in_pool));
        let (stragglers, recorder) = (self.stragglers.clone(), self.recorder.clone());
        stragglers.iter().for_each(|stragglers| stragglers.begin());
        let due = deadline.and_then(|deadline| Instant::now().checked_add(deadline));
        async move {
            // Releases its copy of the job as soon as the pool has accepted it.
            let submit = move |left: Option<Duration>| {
                let (pool, job) = (pool.clone(), left.into_iter().fold(job.clone(), Job::deadline));
                let recorder = recorder.clone();
                async move {
                    match recorder {
                        Some(recorder) => recorder.submit(job).await,
                        None => pool.submit(job).await,
                    }
                }
            };
            let ended = match until_accepted(due, &in_pool, submit).await {
                Ok(ticket) => {
                    let _counted = Counted::new(&in_pool);
                    Ok(match &stragglers {
                        Some(stragglers) => stragglers.outcome(ticket).await,
                        None => (ticket.await, None),
                    })
                }
                Err(error) => Err(error),
            };
            let ran = ended.as_ref().ok().and_then(|(outcome, _)| run_time(outcome));
            stragglers.iter().for_each(|stragglers| stragglers.end(ran));
            ended
        }
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
        let outcome = self.outcome(line.job);
        let (has_contents, kept) = (self.has_contents, self.kept.clone());
        let report = Report { has_contents, kept, folder: line.folder.unwrap_or_default() };
        async move { Ok(report.of(outcome.await).await?) }
    }
}

/// Makes the job of a line, with what is given to every one.
pub(crate) fn prepare(line: Parsed, give: impl Fn(Job) -> Job) -> Result<Prepared<LineJob>, NoJob> {
    let Parsed { job: mut line, script, .. } = line;
    let deadline = line.deadline.take();
    let job = give(script.unwrap_or_default()).with_wire(line, &Intake::BATCH)?;
    let bytes = job.source().len() + job.input_bytes();
    Ok(Prepared { job: LineJob { job, deadline }, bytes })
}

#[expect(clippy::disallowed_methods, reason = "until the next attempt, or until a job is cut")]
pub(crate) async fn sleep(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Pause between two attempts if the pool gives no estimate.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
/// Estimates can be wrong, so no pause is longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Attempts while no other job of the batch is in the pool. A refusal then doesn't depend on a job
/// of this batch, and would be repeated forever.
pub(crate) const TRIES_ALONE: u32 = 20;

/// The outcome of a job, and why it was cut if it was a straggler.
pub(crate) type Ended = (Outcome, Option<Cut>);

/// Jobs of the batch that are queued or running in the pool.
#[derive(Default)]
struct InPool {
    count: AtomicUsize,
    /// Notifies one refused job when one of them ends, since that makes room for one.
    ended: Notify,
}

/// Returns how long the program ran; `None` if it didn't, or if the sandbox failed.
fn run_time(outcome: &Outcome) -> Option<Duration> {
    let is_failure = matches!(outcome.verdict, Verdict::SandboxFailed(_));
    Some(outcome.usage.wall).filter(|wall| !is_failure && !wall.is_zero())
}

/// Counts one job in the pool until it is dropped.
struct Counted<'a>(&'a InPool);

impl<'a> Counted<'a> {
    fn new(in_pool: &'a InPool) -> Self {
        in_pool.count.fetch_add(1, Ordering::Relaxed);
        Self(in_pool)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
        self.0.ended.notify_one();
    }
}

/// Calls `submit` with the remaining time until it no longer refuses because of overload.
async fn until_accepted<T, F: Future<Output = Result<T, Error>>>(
    due: Option<Instant>,
    in_pool: &InPool,
    mut submit: impl FnMut(Option<Duration>) -> F,
) -> Result<T, Error> {
    let mut alone = 0;
    loop {
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        let refusal = match submit(left).await {
            Err(Error::Refused(refusal)) => refusal,
            result => return result,
        };
        alone = if in_pool.count.load(Ordering::Relaxed) == 0 { alone + 1 } else { 0 };
        let Some(pause) = pause(&refusal, left).filter(|_| alone < TRIES_ALONE) else {
            return Err(reason(refusal, left).into());
        };
        tokio::select! {
            () = sleep(pause) => {}
            // The worker of the job that ended has to reset first.
            () = in_pool.ended.notified() => sleep(pause.min(SHORTEST_PAUSE)).await,
        }
    }
}

/// Returns why a job is given up: one that waited for room until its deadline is late, however full
/// the pool is.
fn reason(refusal: Refusal, left: Option<Duration>) -> Refusal {
    let has_time = left.is_none_or(|left| !left.is_zero());
    if has_time || !refusal.is_overload() {
        return refusal;
    }
    let none = Duration::ZERO;
    Refusal::DeadlineTooSoon { due_in: none, estimate: none, retry_after: None }
}

/// Returns how long to wait before the next attempt; `None` if there is none.
fn pause(refusal: &Refusal, left: Option<Duration>) -> Option<Duration> {
    // A deadline that can't be met is the job's result.
    let is_over = left.is_some_and(|left| left.is_zero());
    if is_over || !refusal.is_overload() || matches!(refusal, Refusal::DeadlineTooSoon { .. }) {
        return None;
    }
    let pause = refusal.retry_after().unwrap_or(PAUSE).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
    Some(left.map_or(pause, |left| pause.min(left)))
}

/// The median covers this many of the latest run times: enough to be steady, few enough to keep.
const MOST_TIMES: usize = 1000;
/// Run times that a median needs.
const FEWEST_TIMES: usize = 3;
/// No job is cut before it has run this long, however short the others are: run times of short jobs
/// vary by whole factors.
const SHORTEST_CUT: Duration = Duration::from_millis(100);

/// Cuts jobs that run for more than `factor` times the median.
#[derive(Debug)]
struct Stragglers {
    factor: f64,
    times: Mutex<Times>,
    allowed: watch::Sender<Option<Allowed>>,
}

/// How long a job may run at present.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Allowed {
    time: Duration,
    median: Duration,
}

/// Why a job was cut.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Cut {
    factor: f64,
    allowed: Allowed,
    ran: Duration,
}

/// What is known about the jobs of the lines read so far.
#[derive(Debug, Default)]
struct Times {
    begun: usize,
    ended: usize,
    last: VecDeque<Duration>,
}

impl Stragglers {
    fn new(factor: f64) -> Self {
        Self { factor, times: Mutex::default(), allowed: watch::Sender::new(None) }
    }

    /// Counts a line that was read.
    fn begin(&self) {
        self.change(|times| times.begun += 1);
    }

    /// Counts its job as ended, with its run time if it ran.
    fn end(&self, ran: Option<Duration>) {
        self.change(|times| times.end(ran));
    }

    fn change(&self, change: impl FnOnce(&mut Times)) {
        let mut times = self.times.lock().expect("nothing panics while it is held");
        change(&mut times);
        let allowed = times.allowed(self.factor);
        self.allowed.send_if_modified(|before| std::mem::replace(before, allowed) != allowed);
    }

    /// Waits for the outcome of a job, and interrupts the job if it is a straggler.
    async fn outcome(&self, mut ticket: Ticket) -> (Outcome, Option<Cut>) {
        let mut events = ticket.events();
        let mut allowed = self.allowed.subscribe();
        let mut has_events = true;
        let mut started: Option<Instant> = None;
        let mut cut = None;
        let outcome = loop {
            let present = *allowed.borrow_and_update();
            let due = started.zip(present).filter(|_| cut.is_none());
            tokio::select! {
                outcome = ticket.outcome() => break outcome,
                event = events.next(), if has_events => match event.map(|event| event.kind) {
                    Some(EventKind::Started) => started = Some(Instant::now()),
                    Some(EventKind::Retried) => started = None,
                    Some(_) => {}
                    None => has_events = false,
                },
                changed = allowed.changed() => changed.expect("the sender is in `self`"),
                (allowed, ran) = over(due) => {
                    ticket.interrupt();
                    cut = Some(Cut { factor: self.factor, allowed, ran });
                }
            }
        };
        settled(outcome, cut)
    }
}

/// Waits until a job has run for longer than allowed; forever if it has no limit yet.
async fn over(due: Option<(Instant, Allowed)>) -> (Allowed, Duration) {
    let Some((started, allowed)) = due else { return std::future::pending().await };
    sleep(allowed.time.saturating_sub(Instant::now() - started)).await;
    (allowed, Instant::now() - started)
}

/// Turns the outcome of a cut job into a cancelled one. A program that handles the interrupt, or
/// ends by itself at that moment, keeps its own outcome.
fn settled(mut outcome: Outcome, cut: Option<Cut>) -> (Outcome, Option<Cut>) {
    let cut = match &outcome.verdict {
        Verdict::Cancelled => cut,
        Verdict::Raised(exception) if exception.type_name == "KeyboardInterrupt" => cut,
        _ => None,
    };
    if cut.is_some()
        && let Verdict::Raised(exception) =
            std::mem::replace(&mut outcome.verdict, Verdict::Cancelled)
    {
        outcome.interrupted_at = Some(*exception);
    }
    (outcome, cut)
}

impl Times {
    fn end(&mut self, ran: Option<Duration>) {
        self.ended += 1;
        if self.last.len() == MOST_TIMES && ran.is_some() {
            self.last.pop_front();
        }
        self.last.extend(ran);
    }

    /// Returns how long a job may run: `None` before most jobs have ended.
    fn allowed(&self, factor: f64) -> Option<Allowed> {
        if self.ended * 2 <= self.begun || self.last.len() < FEWEST_TIMES {
            return None;
        }
        let mut times: Vec<Duration> = self.last.iter().copied().collect();
        let middle = times.len() / 2;
        let median = *times.select_nth_unstable(middle).1;
        Some(Allowed { time: median.mul_f64(factor).max(SHORTEST_CUT), median })
    }
}

impl std::fmt::Display for Cut {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { factor, allowed, ran } = self;
        let [allowed, median, ran] =
            [allowed.time, allowed.median, *ran].map(|time| time.as_millis());
        write!(
            formatter,
            "cut as a straggler after {ran} ms: --cut-stragglers {factor} allows {allowed} ms, as \
             the median of the ended jobs was {median} ms"
        )
    }
}

#[cfg(test)]
mod tests {
    use hatchery::Exception;

    use super::*;

    fn full(retry_after: Option<Duration>) -> Refusal {
        Refusal::QueueFull { tenant: None, queued: 1, limit: 1, retry_after }
    }

    /// Submits something that is refused `refusals` times, with other jobs in the pool or not.
    /// Returns whether it was accepted, after what time, and after how many attempts.
    async fn tried(
        refusals: u32,
        refusal: Refusal,
        deadline: Option<Duration>,
        others: usize,
    ) -> (bool, Duration, u32) {
        let start = Instant::now();
        let mut tries = 0;
        let submit = |_left| {
            tries += 1;
            let is_taken = tries > refusals;
            std::future::ready(if is_taken { Ok(()) } else { Err(refusal.clone().into()) })
        };
        let due = deadline.map(|deadline| start + deadline);
        let in_pool = InPool { count: AtomicUsize::new(others), ended: Notify::new() };
        let result = until_accepted(due, &in_pool, submit).await;
        (result.is_ok(), Instant::now() - start, tries)
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_job_is_tried_again_when_the_pool_says() {
        let second = Duration::from_secs(1);
        assert_eq!(tried(3, full(Some(second)), None, 1).await, (true, 3 * second, 4));
        assert_eq!(tried(2, full(None), None, 1).await, (true, 2 * PAUSE, 3));
        assert_eq!(tried(1, full(Some(Duration::MAX)), None, 1).await, (true, LONGEST_PAUSE, 2));
        assert_eq!(tried(1, full(Some(Duration::ZERO)), None, 1).await, (true, SHORTEST_PAUSE, 2));
    }

    /// Otherwise workers would idle for as long as estimates are wrong.
    #[tokio::test(start_paused = true)]
    async fn a_refused_job_is_tried_again_when_another_one_has_ended() {
        let in_pool = InPool::default();
        let second = Duration::from_secs(1);
        let start = Instant::now();
        let mut tries = 0;
        let tried = until_accepted(None, &in_pool, |_left| {
            tries += 1;
            let has_room = Instant::now() - start > second;
            let refusal = full(Some(LONGEST_PAUSE));
            std::future::ready(if has_room { Ok(()) } else { Err(refusal.into()) })
        });
        let other = async {
            let _counted = Counted::new(&in_pool);
            sleep(second).await;
        };
        assert!(tokio::join!(other, tried).1.is_ok());
        assert_eq!((Instant::now() - start, tries), (second + SHORTEST_PAUSE, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn other_refusals_are_returned_at_once() {
        let (is_accepted, time, tries) = tried(1, Refusal::ShuttingDown, None, 1).await;
        assert_eq!((is_accepted, time, tries), (false, Duration::ZERO, 1));
        let too_soon = Refusal::DeadlineTooSoon {
            due_in: Duration::from_secs(1),
            estimate: Duration::from_secs(2),
            retry_after: Some(Duration::from_secs(1)),
        };
        let (is_accepted, time, tries) = tried(1, too_soon, Some(Duration::from_secs(1)), 1).await;
        assert_eq!((is_accepted, time, tries), (false, Duration::ZERO, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_ends_the_tries() {
        let deadline = Duration::from_millis(250);
        let (is_accepted, time, tries) = tried(u32::MAX, full(None), Some(deadline), 1).await;
        assert_eq!((is_accepted, time, tries), (false, deadline, 4));
        assert_eq!(reason(full(None), Some(Duration::ZERO)).name(), "deadline");
        assert_eq!(reason(full(None), Some(deadline)).name(), "queue_full");
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_an_empty_pool_refuses_is_given_up() {
        let (is_accepted, _, tries) = tried(u32::MAX, full(None), None, 0).await;
        assert_eq!((is_accepted, tries), (false, TRIES_ALONE));
        let (is_accepted, _, tries) = tried(10 * TRIES_ALONE, full(None), None, 1).await;
        assert_eq!((is_accepted, tries), (true, 10 * TRIES_ALONE + 1));
    }

    const SECOND: Duration = Duration::from_secs(1);

    fn times(begun: usize, ended: &[u32]) -> Times {
        let mut times = Times { begun, ..Times::default() };
        ended.iter().for_each(|seconds| times.end(Some(*seconds * SECOND)));
        times
    }

    fn allowed(begun: usize, ended: &[u32]) -> Option<u64> {
        times(begun, ended).allowed(3.0).map(|allowed| allowed.time.as_secs())
    }

    #[test]
    fn nothing_is_cut_before_most_jobs_have_ended() {
        assert_eq!(allowed(6, &[1, 1, 1]), None);
        assert_eq!(allowed(5, &[1, 1, 1]), Some(3));
        assert_eq!(allowed(2, &[1, 1]), None, "two are no measure");
    }

    #[test]
    fn the_median_counts_and_not_the_extremes() {
        assert_eq!(allowed(5, &[2, 1000, 1, 2, 0]), Some(6));
        let mut many = times(0, &[9; 5]);
        (0..MOST_TIMES).for_each(|_| many.end(Some(SECOND)));
        assert_eq!(many.last.len(), MOST_TIMES);
        assert_eq!(many.allowed(2.0).unwrap().time, 2 * SECOND);
    }

    #[test]
    fn jobs_that_never_ran_have_no_time() {
        let mut some = times(6, &[4, 4, 4]);
        some.end(None);
        assert_eq!(some.allowed(2.0).unwrap().time, 8 * SECOND);
    }

    #[test]
    fn short_jobs_are_not_cut_by_their_jitter() {
        let mut short = times(4, &[]);
        (0..4).for_each(|_| short.end(Some(Duration::from_millis(1))));
        assert_eq!(short.allowed(3.0).unwrap().time, SHORTEST_CUT);
    }

    #[test]
    fn a_program_that_handles_the_interrupt_has_its_own_end() {
        let allowed = Allowed { time: 3 * SECOND, median: SECOND };
        let cut = Some(Cut { factor: 3.0, allowed, ran: 4 * SECOND });
        let of = |verdict| settled(Outcome::not_run(verdict), cut);
        assert_eq!(of(Verdict::Exited { code: 3, message: None }).1, None);
        assert_eq!(of(Verdict::Raised(Exception::default().into())).1, None);
        assert_eq!(of(Verdict::Cancelled).1, cut);
        let exception = Exception::new("KeyboardInterrupt", "", "");
        let (outcome, told) = of(Verdict::Raised(exception.clone().into()));
        assert_eq!((outcome.verdict, told), (Verdict::Cancelled, cut));
        assert_eq!(outcome.interrupted_at, Some(exception));
    }

    #[test]
    fn a_cut_says_why() {
        let allowed = Allowed { time: 5 * SECOND / 2, median: SECOND };
        let cut = Cut { factor: 2.5, allowed, ran: 3 * SECOND };
        let text = cut.to_string();
        assert!(text.contains("after 3000 ms") && text.contains("--cut-stragglers 2.5"), "{text}");
    }
}
