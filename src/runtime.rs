//! The runtime: wires engine, pool and scheduler together and owns their end.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use engine::{
    CacheDir, Engine, EngineConfig, HostFunctions, HostKind, Image, ImageError, ImageInfo,
    ImageSpec, Limits, Outcome, Package, Progress, ProgressSink, SessionError, Setup, Silent,
};
use pool::{InterpreterSource, PoolConfig, SessionId};
use scheduler::{
    Decisions, Explanation, JobRequest, Scheduler, SchedulerConfig, SchedulerStatus,
    SessionsConfig, TenantConfig, Ticket, WorkersConfig,
};

use crate::error::Error;
use crate::functions::{self, HostFunction};
use crate::job::Job;

/// A pool of sandboxed interpreters with its scheduler. Cheap to clone; clones are the same pool.
///
/// When the last clone, session and ticket are dropped, jobs that still run are cancelled.
/// [`Hatchery::drain`] ends in good order.
#[derive(Debug, Clone)]
pub struct Hatchery {
    scheduler: Scheduler,
    limits: Arc<Limits>,
    functions: HostFunctions,
    /// `None` under a host that has no images.
    image: Option<Image>,
}

impl Hatchery {
    /// Says how a pool is to be, before it is started.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Runs a job in a fresh interpreter and waits for its outcome.
    ///
    /// # Errors
    /// The job was refused.
    pub async fn run(&self, job: Job) -> Result<Outcome, Error> {
        Ok(self.submit(job).await?.await)
    }

    /// Submits a job for a fresh interpreter. The ticket can be awaited, streamed from, or dropped
    /// to cancel the job.
    ///
    /// # Errors
    /// The job was refused.
    pub async fn submit(&self, job: Job) -> Result<Ticket, Error> {
        self.submit_to(job, None).await
    }

    /// What interpreters begin from; `None` under a host that has no images.
    pub fn image(&self) -> Option<&ImageInfo> {
        self.image.as_ref().map(Image::info)
    }

    /// What waits and runs, by tenant and priority; every worker and session; memory, latencies,
    /// the last errors and decisions, and what became of the jobs so far. It waits for no job, and
    /// is never older than what its caller has been told.
    pub fn status(&self) -> SchedulerStatus {
        self.scheduler.status()
    }

    /// Why a job waits, what goes before it, and how long that will probably take, as a value that
    /// can be printed; `None` if it has ended. [`Ticket::job_id`] is its number. It looks at every
    /// job that waits, so it isn't for every job of many.
    pub async fn explain(&self, job_id: u64) -> Option<Explanation> {
        self.scheduler.explain(job_id).await
    }

    /// Follows the scheduler's decisions from here on: what was taken, refused, started, tried
    /// again, evicted, retired, and why. A reader that is more than 1,024 behind misses some, and
    /// is told how many; it holds nobody up.
    pub fn decisions(&self) -> Decisions {
        self.scheduler.decisions()
    }

    /// Takes no more jobs, finishes those it has, and ends every worker.
    pub async fn drain(&self) {
        self.scheduler.drain().await;
    }

    /// Takes no more jobs, finishes those that end within this time, cancels the others, and ends
    /// every worker. It goes on if its caller stops waiting; an earlier end that is asked for later
    /// holds.
    pub async fn drain_for(&self, time: Duration) {
        self.scheduler.drain_for(time).await;
    }

    /// Takes no more jobs, cancels those it has, and ends every worker.
    pub async fn abort(&self) {
        self.scheduler.abort().await;
    }

    /// Returns the image that sessions begin from.
    pub(crate) fn session_image(&self) -> Result<&Image, SessionError> {
        self.image.as_ref().ok_or(SessionError::NotParkable)
    }

    pub(crate) fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    pub(crate) async fn submit_to(
        &self,
        job: Job,
        session: Option<SessionId>,
    ) -> Result<Ticket, Error> {
        let mut request = job.into_request(&self.limits)?;
        request.program.functions = self.functions.clone();
        Ok(self.scheduler.submit(JobRequest { session, ..request }).await?)
    }
}

/// Tells the recorder that the program around has installed for the crate `metrics` what each
/// metric means. Without one, metrics cost next to nothing.
pub fn describe_metrics() {
    pool::describe_metrics();
    scheduler::describe_metrics();
}

/// How a pool is to be. Every value has a default that suits the machine.
#[derive(Clone)]
#[must_use = "a builder does nothing until it is started"]
pub struct Builder {
    engine: EngineConfig,
    pool: PoolConfig,
    scheduler: SchedulerConfig,
    limits: Limits,
    image: ImageSpec,
    packages: Vec<PackageSource>,
    functions: Vec<HostFunction>,
    progress: Arc<dyn ProgressSink>,
}

/// Where packages of an image are to be had, read when the image is.
#[derive(Debug, Clone)]
enum PackageSource {
    /// A wheel or a folder.
    Path(PathBuf),
    /// A file that names wheels.
    Requirements(PathBuf),
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Builder")
            .field("engine", &self.engine)
            .field("pool", &self.pool)
            .field("scheduler", &self.scheduler)
            .field("limits", &self.limits)
            .field("preload", &self.image.preload)
            .field("packages", &self.packages)
            .field("functions", &self.functions)
            .finish_non_exhaustive()
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            engine: EngineConfig::from_env(),
            pool: PoolConfig::default(),
            scheduler: SchedulerConfig::default(),
            limits: Limits::default(),
            image: ImageSpec::default(),
            packages: Vec::new(),
            functions: Vec::new(),
            progress: Arc::new(Silent),
        }
    }
}

impl Builder {
    /// Jobs that run at once, and interpreters kept warm for them: at least 1, or the start fails.
    /// Default: the number of CPUs.
    pub fn workers(mut self, count: usize) -> Self {
        self.scheduler.workers = WorkersConfig { spares: 0, ..WorkersConfig::fixed(count) };
        self.scheduler.concurrent = count;
        self
    }

    /// Workers that follow the load: the first number at least, the second at most, which is also
    /// how many jobs run at once. One beyond what is wanted that was idle for a minute ends. With 0
    /// at least, the first job after a rest waits for an interpreter to start. Default: as many as
    /// CPUs, always. If the most is 0 or below the least, the start fails.
    pub fn workers_between(mut self, counts: RangeInclusive<usize>) -> Self {
        let (min, max) = counts.into_inner();
        self.scheduler.workers = WorkersConfig { min, max, ..self.scheduler.workers };
        self.scheduler.concurrent = max;
        self
    }

    /// Idle workers that are kept beyond those that run, up to the most that may be; with more than
    /// these the start fails. [`Self::workers`] sets it back to 0. Default: 0.
    pub fn warm_spares(mut self, count: usize) -> Self {
        self.scheduler.workers.spares = count;
        self
    }

    /// What the tenant with this name may have: its weight, and bounds on its jobs that run and
    /// wait. Default: that of [`TenantConfig`], weight 1 and no bounds of its own. With a weight
    /// of 0, or none that may run, the start fails.
    pub fn tenant(mut self, name: impl Into<String>, config: TenantConfig) -> Self {
        self.scheduler.tenants.insert(name.into(), config);
        self
    }

    /// What every tenant may have that has no values of its own. Default: weight 1, no bounds.
    pub fn default_tenant(mut self, config: TenantConfig) -> Self {
        self.scheduler.tenant = config;
        self
    }

    /// How much later than it came a job counts for each step of priority below high. Default:
    /// 30 s.
    pub fn priority_step(mut self, time: Duration) -> Self {
        self.scheduler.priority_step = time;
        self
    }

    /// How often a job is tried again that the sandbox failed or whose worker died, if it is
    /// idempotent ([`Job::idempotent`]). Default: 2.
    pub fn retries(mut self, count: u32) -> Self {
        self.scheduler.retries = count;
        self
    }

    /// Memory for everything: image, interpreters, parked sessions, jobs that wait, and what those
    /// that run hold and may take.
    /// Near its end sessions are compressed and spilled to disk, at its end nothing is taken that
    /// needs more. Default: four fifths of what the control group or the machine has.
    pub fn memory_limit_bytes(mut self, bytes: u64) -> Self {
        self.scheduler.memory_bytes = bytes;
        self
    }

    /// A worker gets a new interpreter after a job with more guest memory than this, once it holds
    /// no session. Default: 512 MiB.
    pub fn retire_above_bytes(mut self, bytes: u64) -> Self {
        self.scheduler.retire_above_bytes = bytes;
        self
    }

    /// What becomes of sessions that rest, and how many there may be: the whole of it, with what
    /// [`Self::session_limit`] sets. Default: that of [`SessionsConfig`].
    pub fn sessions(mut self, config: SessionsConfig) -> Self {
        self.scheduler.sessions = config;
        self
    }

    /// Where sessions are spilled to when memory is short or they rest for long: a directory on a
    /// disk, one in memory gains nothing. Nothing has a name there, so nothing is left, however the
    /// process ends. Default: the cache directory.
    pub fn spill_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.pool.spill_dir = Some(path.into());
        self
    }

    /// The state of a session that rests on a worker is copied between its turns if its interpreter
    /// has at most so many bytes of memory of its own. A turn that is ended by force, or dies with
    /// its worker, then takes the session back to where it was before that turn, which
    /// `Outcome::session_restored` says, instead of with it. Default: 128 MiB. At 0 such sessions
    /// are lost, and turns that follow one another at once needn't wait for the copy, half a
    /// millisecond.
    pub fn rollback_bytes(mut self, bytes: u64) -> Self {
        self.pool.rollback_bytes = bytes;
        self
    }

    /// Jobs that may wait; further ones are refused. At 0 a job is taken only if a worker is ready
    /// for it, or another one is started for it. Default: 10,000.
    pub fn queue_limit(mut self, count: usize) -> Self {
        self.scheduler.queued_count = count;
        self
    }

    /// Bytes of source, variables, arguments, environment, standard input and input files that may
    /// wait; further jobs are refused. Default: 256 MiB.
    pub fn queue_limit_bytes(mut self, bytes: usize) -> Self {
        self.scheduler.queued_bytes = bytes;
        self
    }

    /// Modules that every interpreter has imported already: importing them in a job then takes no
    /// time. The first start with another set makes an image of it, which takes as long as the
    /// imports do; later ones find that in the cache. Default: none.
    pub fn preload(mut self, modules: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.image.preload.extend(modules.into_iter().map(Into::into));
        self
    }

    /// Code that has run in every interpreter as its main module: what it left is there in each
    /// job, in `__main__`, in modules and in files. Like the modules of [`Self::preload`], it is
    /// part of the image.
    pub fn setup(mut self, source: impl Into<String>, filename: impl Into<String>) -> Self {
        self.image.setup = Some(Setup { source: source.into(), filename: filename.into() });
        self
    }

    /// A package that every interpreter can import: a pure-Python wheel, or a folder, which is a
    /// package if it has an `__init__.py` and else holds modules and packages. Its files are part
    /// of the image, and read when it is loaded. They come last on `sys.path`: the standard library
    /// and the build's own packages can't be replaced. Default: none.
    pub fn package(mut self, path: impl Into<PathBuf>) -> Self {
        self.packages.push(PackageSource::Path(path.into()));
        self
    }

    /// The packages that a file of requirements names, as [`Self::package`] takes wheels. Each line
    /// has a name, a version and SHA-256 hashes, as `pip-compile --generate-hashes` writes them;
    /// dependencies have lines of their own, but for those that the build has. pip fetches them
    /// once; after that they are in the cache. Default: none.
    pub fn requirements(mut self, path: impl Into<PathBuf>) -> Self {
        self.packages.push(PackageSource::Requirements(path.into()));
        self
    }

    /// Whether interpreters map their image copy-on-write where the system can; without it they
    /// copy it, which is slower. Default: yes, unless `$HATCHERY_COPY_ON_WRITE` is `off`.
    pub fn copy_on_write(mut self, is_wanted: bool) -> Self {
        self.engine.copy_on_write = is_wanted;
        self
    }

    /// Jobs after which a worker gets a new instance of its interpreter, which takes 5 ms.
    /// Default: 10,000.
    pub fn runs_per_instance(mut self, count: u32) -> Self {
        self.engine.runs_per_instance = count;
        self
    }

    /// Sessions that may be open, wherever their states are; further ones are refused.
    /// Default: 10,000.
    pub fn session_limit(mut self, count: usize) -> Self {
        self.scheduler.sessions.open = count;
        self
    }

    /// What a job may use that sets no limits of its own.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Lends every job a function of the host: `from hatchery import host` has it in Python.
    pub fn function(mut self, function: HostFunction) -> Self {
        self.functions.push(function);
        self
    }

    /// The directory for the Python build, compiled modules, images of about 50 MiB each, fetched
    /// packages and, unless [`Self::spill_dir`] says otherwise, spilled sessions. Default:
    /// `$HATCHERY_CACHE_DIR`, else `hatchery` in the user's cache directory.
    pub fn cache_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.engine.cache_dir = Some(path.into());
        self
    }

    /// Bytes in the cache beyond which the start says that it has grown
    /// ([`Progress::LargeCache`]); [`prune_cache`](crate::prune_cache) makes it smaller. Default:
    /// `$HATCHERY_CACHE_BOUND`, else 5 GiB.
    pub fn cache_bound_bytes(mut self, bytes: u64) -> Self {
        self.engine.cache_bound_bytes = bytes;
        self
    }

    /// A wheel file of the Python build. Default: `$HATCHERY_PYTHON_WHEEL`, else pip fetches it.
    pub fn python_wheel(mut self, path: impl Into<PathBuf>) -> Self {
        self.engine.wheel = Some(path.into());
        self
    }

    /// What serves the guests. Default: our own host.
    pub fn host(mut self, host: HostKind) -> Self {
        self.engine.host = host;
        self
    }

    /// Hears of the steps of the slow first start. Default: nobody.
    pub fn progress(mut self, sink: impl ProgressSink + 'static) -> Self {
        self.progress = Arc::new(sink);
        self
    }

    /// Gets and loads the Python build and the image, and starts the pool. The first start on a
    /// machine fetches 98 MB and compiles for a minute or two; later ones take half a second.
    /// Workers then become ready in the background; jobs can be submitted at once.
    ///
    /// # Errors
    /// The configuration makes no sense, the build or a package can't be had, or the image can't be
    /// made: a module can't be imported, or the setup failed. A host function has a name that
    /// Python can't have.
    pub async fn start(self) -> Result<Hatchery, Error> {
        self.scheduler.validate().map_err(scheduler::SchedulerStartError::from)?;
        let Self { mut pool, scheduler, limits, .. } = self.clone();
        if pool.spill_dir.is_none() {
            pool.spill_dir =
                Some(CacheDir::open(self.engine.cache_dir.as_deref())?.root().to_owned());
        }
        let functions = functions::bind(self.functions.clone())?;
        let (engine, image) = self.load().await?;
        let source: Arc<dyn InterpreterSource> = match &image {
            Some(image) => Arc::new(image.clone()),
            None => Arc::new(engine),
        };
        let scheduler = Scheduler::start(scheduler, pool, source).await?;
        Ok(Hatchery { scheduler, limits: Arc::new(limits), functions, image })
    }

    /// Finds or makes the image, and starts no pool.
    ///
    /// # Errors
    /// As [`Self::start`], or the host has no images.
    pub async fn load_image(self) -> Result<ImageInfo, Error> {
        let (_, image) = self.load().await?;
        let image = image.ok_or(ImageError::Host)?;
        Ok(image.info().clone())
    }

    async fn load(self) -> Result<(Engine, Option<Image>), Error> {
        let Self { engine, mut image, packages, progress, .. } = self;
        let loading = tokio::task::spawn_blocking(move || -> Result<_, Error> {
            for source in &packages {
                match source {
                    PackageSource::Path(path) => image.packages.push(Package::open(path)?),
                    PackageSource::Requirements(path) => {
                        let cache = CacheDir::open(engine.cache_dir.as_deref())?;
                        let named = Package::from_requirements(&cache, path, progress.as_ref())?;
                        image.packages.extend(named);
                    }
                }
            }
            image.check()?;
            let engine = Engine::load(&engine, &progress)?;
            let image = match engine.takes_images() {
                true => Some(Image::load_or_build(&engine, &image, &progress)?),
                false if image == ImageSpec::default() => None,
                false => return Err(ImageError::Host.into()),
            };
            progress.report(Progress::Ready);
            Ok((engine, image))
        });
        loading.await.map_err(|error| Error::Load(error.to_string()))?
    }
}
