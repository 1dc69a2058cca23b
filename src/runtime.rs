//! A running pool: takes jobs, tells its status, and shuts down.

use std::sync::Arc;
use std::time::Duration;

use engine::{Deterministic, ImageInfo, Interface, Limits, Network, Outcome, PackageInfo};
use pool::{BuildId, JobId, SessionId, WorkerId};
use scheduler::{Decisions, Explanation, Scheduler, SchedulerStatus, Ticket};

use crate::failure::Error;
use crate::functions::ExposedFunctions;
use crate::job::Job;
use crate::network::{self, PoolEgress};
use crate::pythons::Pythons;
use crate::record::recorders::Recorders;

/// A pool of sandboxed interpreters with its scheduler. Cheap to clone; clones are the same pool.
///
/// When the last clone, session and ticket are dropped, running jobs are cancelled.
/// [`Hatchery::drain`] shuts down in order.
///
/// A pool belongs to the process that started it. In a child process made by `fork(2)`, every call
/// that can fail returns [`Refusal::OtherProcess`](crate::Refusal::OtherProcess), and nothing
/// waits. Start another pool there, on another runtime, but fork only while no pool is running.
#[derive(Debug, Clone)]
pub struct Hatchery {
    pub(crate) scheduler: Scheduler,
    pub(crate) jobs: Arc<JobDefaults>,
    pub(crate) network: Network,
    pub(crate) egress: Option<PoolEgress>,
    /// What all jobs can call.
    pub(crate) functions: ExposedFunctions,
    pub(crate) pythons: Pythons,
    pub(crate) recorders: Recorders,
}

/// What jobs have that don't say otherwise.
#[derive(Debug, Clone, Default)]
pub(crate) struct JobDefaults {
    pub(crate) limits: Limits,
    pub(crate) interface: Interface,
    /// Of jobs that don't say themselves.
    pub(crate) deterministic: Option<Deterministic>,
}

impl Hatchery {
    /// Returns a handle of the same pool whose sessions are this tenant's, with their forks, and
    /// those of its jobs that [name none](Job::tenant). [`TenantConfig`](crate::TenantConfig) bounds
    /// a tenant's sessions. Without this they are those of
    /// [`DEFAULT_TENANT`](crate::DEFAULT_TENANT).
    ///
    /// ```no_run
    /// # async fn example(pool: hatchery::Hatchery) -> Result<(), hatchery::Error> {
    /// let session = pool.of_tenant("ada").session("ada/analysis").await?;
    /// # drop(session);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn of_tenant(&self, tenant: impl Into<Arc<str>>) -> Self {
        Self { scheduler: self.scheduler.of_tenant(tenant), ..self.clone() }
    }

    /// Returns the limits of jobs that have none of their own.
    pub fn limits(&self) -> &Limits {
        &self.jobs.limits
    }

    /// Runs a job in a fresh interpreter and waits for its outcome.
    ///
    /// ```no_run
    /// # async fn example(pool: hatchery::Hatchery) -> Result<(), hatchery::Error> {
    /// use hatchery::{Job, Verdict};
    ///
    /// let outcome = pool.run(Job::code("print('hello'); 6 * 7")).await?;
    /// assert_eq!(outcome.stdout_text(), "hello\n");
    /// match outcome.verdict {
    ///     Verdict::Completed { value: Some(value), .. } => assert_eq!(value, 42),
    ///     Verdict::Raised(exception) => eprintln!("{}", exception.message),
    ///     verdict => eprintln!("{}", verdict.name()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The job was refused.
    pub async fn run(&self, job: Job) -> Result<Outcome, Error> {
        Ok(self.submit(job).await?.await)
    }

    /// Submits a job for a fresh interpreter. The ticket can be awaited, streamed from, or dropped
    /// to cancel the job.
    ///
    /// ```no_run
    /// # async fn example(pool: hatchery::Hatchery) -> Result<(), hatchery::Error> {
    /// use hatchery::Job;
    ///
    /// let first = pool.submit(Job::code("1 + 1")).await?;
    /// let second = pool.submit(Job::code("2 + 2")).await?;
    /// for ticket in [first, second] {
    ///     println!("{:?}", ticket.await.verdict);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The job was refused.
    pub async fn submit(&self, job: Job) -> Result<Ticket, Error> {
        self.submit_to(None, job, &self.functions).await
    }

    /// Returns whether the pool has taken jobs before its Python was compiled
    /// ([`Builder::starts_early`](crate::Builder::starts_early)).
    ///
    /// ```no_run
    /// # fn example(pool: hatchery::Hatchery) {
    /// if pool.started_early() {
    ///     println!("this is the first start on this machine");
    /// }
    /// # }
    /// ```
    pub fn started_early(&self) -> bool {
        self.pythons.default_engine().started_early()
    }

    /// After an early start ([`Builder::starts_early`](crate::Builder::starts_early)), waits until
    /// Python is compiled and cached, and reports progress as the start does. Otherwise returns at
    /// once. Compiling continues if the caller stops waiting.
    ///
    /// ```no_run
    /// # async fn example(pool: hatchery::Hatchery) -> Result<(), hatchery::Error> {
    /// pool.finish_compiling().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The rest can't be compiled. Programs that need it fail, and the next start tries again.
    pub async fn finish_compiling(&self) -> Result<(), Error> {
        if !self.started_early() {
            return Ok(());
        }
        let engine = self.pythons.default_engine().clone();
        let (finished, finishing) = tokio::sync::oneshot::channel();
        // Not one of the runtime's threads: its end would wait for them.
        std::thread::spawn(move || finished.send(engine.finish_compiling()));
        let finished = finishing.await;
        finished.expect("it waits for a thread that catches panics").map_err(Error::from)
    }

    /// Returns the image that interpreters of the default build begin from; `None` if the host has
    /// no images.
    ///
    /// ```no_run
    /// # fn example(pool: hatchery::Hatchery) {
    /// if let Some(image) = pool.image() {
    ///     println!("{} with {:?}", image.key, image.preload);
    /// }
    /// # }
    /// ```
    pub fn image(&self) -> Option<&ImageInfo> {
        self.pythons.image_info(BuildId::default())
    }

    /// Returns whether jobs may connect to anything or make requests: see
    /// [`Builder::allow_connect`](crate::Builder::allow_connect) and
    /// [`Builder::egress`](crate::Builder::egress).
    ///
    /// ```no_run
    /// # fn example(pool: hatchery::Hatchery) {
    /// if !pool.allows_connections() {
    ///     println!("what a job does depends on nothing outside of the sandbox");
    /// }
    /// # }
    /// ```
    pub fn allows_connections(&self) -> bool {
        !self.network.is_empty() || self.egress.is_some()
    }

    /// Returns the names of the Python builds, that of the default one first.
    ///
    /// ```no_run
    /// # fn example(pool: hatchery::Hatchery) {
    /// for name in pool.pythons() {
    ///     println!("{name}");
    /// }
    /// # }
    /// ```
    pub fn pythons(&self) -> impl Iterator<Item = &str> {
        self.pythons.names()
    }

    /// Returns the image that interpreters of this Python build begin from; `None` if the host has
    /// no images.
    ///
    /// # Errors
    /// The pool has no build of this name.
    pub fn image_of(&self, python: &str) -> Result<Option<&ImageInfo>, Error> {
        Ok(self.pythons.image_info(self.pythons.find(python)?))
    }

    /// Returns what programs of a Python build can import beyond the standard library: packages of
    /// the image and the build. For a user's build, the first call starts an interpreter. Blocks
    /// the thread.
    ///
    /// ```no_run
    /// # fn example(pool: hatchery::Hatchery) -> Result<(), hatchery::Error> {
    /// for package in pool.packages(hatchery::DEFAULT_PYTHON)? {
    ///     println!("{} {}", package.name, package.version.unwrap_or_default());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The pool has no build of this name, or it doesn't say what it has.
    pub fn packages(&self, python: &str) -> Result<Vec<PackageInfo>, Error> {
        self.pythons.packages(self.pythons.find(python)?)
    }

    /// Reserves bytes of the pool's memory
    /// ([`Builder::memory_limit_bytes`](crate::Builder::memory_limit_bytes)) for the embedding
    /// program, while the pool lives. Jobs and sessions have that much less. Further calls can only
    /// raise the number.
    ///
    /// ```no_run
    /// # fn example(pool: hatchery::Hatchery) {
    /// // A server's requests and answers.
    /// pool.reserve_memory(256 << 20);
    /// # }
    /// ```
    pub fn reserve_memory(&self, bytes: u64) {
        let learner = self.pythons.learner.as_ref();
        let bytes = learner.map_or(bytes, |learner| learner.reserved_with(bytes));
        self.scheduler.reserve_memory(bytes);
    }

    /// Returns the pool's status: jobs by tenant and priority, workers, sessions, memory,
    /// latencies, the last errors and decisions, and totals. Never waits for a job, and includes
    /// everything that the caller has already received.
    ///
    /// ```no_run
    /// # fn example(pool: hatchery::Hatchery) {
    /// let status = pool.status();
    /// println!("{} jobs wait, {} run", status.queue_depth, status.running);
    /// # }
    /// ```
    pub fn status(&self) -> SchedulerStatus {
        let mut status = self.scheduler.status();
        status.hidden = match &self.pythons.learner {
            Some(learner) => learner.hidden(),
            None => self.pythons.hidden_by(BuildId::default()),
        };
        status
    }

    /// Explains why a job waits, what is ahead of it, and how long it will probably wait. `None` if
    /// the job has ended. `job_id` is that of [`Ticket::job_id`]. This examines every waiting job,
    /// so don't call it for each of many jobs.
    ///
    /// ```no_run
    /// # async fn example(pool: hatchery::Hatchery) -> Result<(), hatchery::Error> {
    /// use hatchery::Job;
    ///
    /// let ticket = pool.submit(Job::code("sum(range(1000))")).await?;
    /// if let Some(explanation) = pool.explain(ticket.job_id()).await {
    ///     println!("{explanation}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn explain(&self, job_id: JobId) -> Option<Explanation> {
        let mut explanation = self.scheduler.explain(job_id).await?;
        explanation.hidden = self.pythons.hidden_by(explanation.build);
        Some(explanation)
    }

    /// Follows the scheduler's decisions from now on: what was admitted, refused, started, retried,
    /// evicted or retired, and why. A reader that falls more than 1,024 decisions behind misses
    /// some, and learns how many. It never delays the scheduler.
    ///
    /// ```no_run
    /// # async fn example(pool: hatchery::Hatchery) {
    /// use hatchery::decision::NextDecision;
    ///
    /// let mut decisions = pool.decisions();
    /// while let Some(NextDecision::Decision(decision)) = decisions.next().await {
    ///     println!("{:?}: {:?}", decision.at, decision.kind);
    /// }
    /// # }
    /// ```
    pub fn decisions(&self) -> Decisions {
        self.scheduler.decisions()
    }

    /// Ends a worker after its present job, for example if its memory has grown. Its session is
    /// suspended first and continues elsewhere, and another worker replaces it if needed. Returns
    /// before the worker has ended; a [decision](Self::decisions) reports the end.
    ///
    /// ```no_run
    /// # async fn example(pool: hatchery::Hatchery) -> Result<(), hatchery::Error> {
    /// for worker in pool.status().workers {
    ///     if worker.memory_bytes > 1 << 30 {
    ///         pool.retire(worker.worker).await?;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// There is no such worker, or it has not started yet.
    pub async fn retire(&self, worker: WorkerId) -> Result<(), Error> {
        Ok(self.scheduler.retire(worker).await?)
    }

    /// Begins the statistics of the [status](Self::status) again: totals, measured times, the last
    /// errors. [Metrics](crate::metrics) go on.
    ///
    /// ```no_run
    /// # async fn example(pool: hatchery::Hatchery) {
    /// pool.reset_statistics().await;
    /// assert_eq!(pool.status().totals.succeeded, 0);
    /// # }
    /// ```
    pub async fn reset_statistics(&self) {
        self.scheduler.reset_statistics().await;
    }

    /// Accepts no more jobs, finishes those already admitted, and ends every worker.
    ///
    /// ```no_run
    /// # async fn example(pool: hatchery::Hatchery) -> Result<(), hatchery::Error> {
    /// use hatchery::Job;
    ///
    /// let ticket = pool.submit(Job::code("1 + 1")).await?;
    /// pool.drain().await;
    /// assert!(ticket.await.is_success());
    /// assert!(pool.run(Job::code("1 + 1")).await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn drain(&self) {
        self.scheduler.drain().await;
        self.recorders.finish().await;
    }

    /// Accepts no more jobs, finishes those that end within this time, cancels the others, and ends
    /// every worker. Shutdown continues if the caller stops waiting; a later call can only bring
    /// the end forward.
    ///
    /// ```no_run
    /// # async fn example(pool: hatchery::Hatchery) {
    /// use std::time::Duration;
    ///
    /// pool.drain_for(Duration::from_secs(10)).await;
    /// # }
    /// ```
    pub async fn drain_for(&self, time: Duration) {
        self.scheduler.drain_for(time).await;
        self.recorders.finish().await;
    }

    /// Accepts no more jobs, cancels those already admitted, and ends every worker.
    ///
    /// ```no_run
    /// # async fn example(pool: hatchery::Hatchery) -> Result<(), hatchery::Error> {
    /// use hatchery::{Job, Verdict};
    ///
    /// let ticket = pool.submit(Job::code("while True: pass")).await?;
    /// pool.abort().await;
    /// assert_eq!(ticket.await.verdict, Verdict::Cancelled);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn abort(&self) {
        self.scheduler.abort().await;
        self.recorders.finish().await;
    }

    /// Submits a job, to a session if there is one, which can call these functions and its own.
    pub(crate) async fn submit_to(
        &self,
        session: Option<(SessionId, BuildId)>,
        mut job: Job,
        exposed: &ExposedFunctions,
    ) -> Result<Ticket, Error> {
        let network = network::of_job(&self.network, job.network.take())?;
        let asked = job.egress.take();
        let own = std::mem::take(&mut job.functions);
        let functions = match own.is_empty() {
            true => exposed.functions.clone(),
            false => exposed.with(own)?.functions,
        };
        let session_build = session.map(|(_, build)| build);
        let build = self.pythons.of_job(job.python.as_deref(), session_build)?;
        let (turn, python) = (job.turn.take(), job.python.clone());
        let has_functions = job.has_functions;
        let mut request = job.into_request(&self.jobs.limits)?;
        let deterministic = &mut request.program.deterministic;
        *deterministic = deterministic.or(self.jobs.deterministic);
        if let Some(turn) = &turn {
            turn.prepare(&mut request.program);
        }
        request.session = session.map(|(session, _)| session);
        request.build = build;
        let is_alone = session.is_none() && turn.is_none() && !request.is_self_test;
        if let Some(learner) = &self.pythons.learner
            && is_alone
            && build == BuildId::default()
            && request.program.deterministic.is_none()
        {
            let (build, reserved) = learner.build_of(&request.program.source);
            request.build = build;
            reserved.into_iter().for_each(|bytes| self.scheduler.reserve_memory(bytes));
        }
        if !has_functions {
            request.program.functions = functions;
        }
        request.program.interface.get_or_insert(self.jobs.interface);
        request.program.network = network;
        // Its tenant has rules of its own.
        request.tenant = request.tenant.take().or_else(|| self.scheduler.tenant());
        network::serve_requests(self.egress.as_ref(), &mut request, asked)?;
        request.observer = turn.map(|turn| turn.observe(&request, python));
        Ok(self.scheduler.submit(request).await?)
    }
}
