//! The configuration of a pool, and its start.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use egress::Egress;
use engine::{
    CacheDir, Destination, Deterministic, EngineConfig, HostKind, ImageError, ImageInfo, ImageSpec,
    Interface, Limits, Network, PinnedModule, ProgressSink, Setup, Silent,
};
use pool::{BuildId, PoolConfig};
use scheduler::{Scheduler, SchedulerConfig, SessionsConfig, TenantConfig, WorkersConfig};
use tokio::runtime::Handle;

use crate::failure::Error;
use crate::functions::{ExposedFunctions, HostFunction};
use crate::imports::ProgramImports;
use crate::network::PoolEgress;
use crate::record::recorders::Recorders;
use crate::runtime::{Hatchery, JobDefaults};
use loading::PackageSource;

pub use loading::{Isolation, be_helper};

mod loading;

/// The configuration of a pool. Every value has a default that suits the machine.
#[derive(Clone, derive_more::Debug)]
#[must_use = "a builder does nothing until it is started"]
pub struct Builder {
    engine: EngineConfig,
    pool: PoolConfig,
    scheduler: SchedulerConfig,
    jobs: JobDefaults,
    image: ImageSpec,
    /// What the programs import, for the image to have it.
    imports: Option<ProgramImports>,
    /// Whether it learns that from the jobs.
    learns: bool,
    packages: Vec<PackageSource>,
    /// Builds beside the default one, by name.
    pythons: Vec<(String, PathBuf)>,
    functions: Vec<HostFunction>,
    isolation: Option<Isolation>,
    /// What jobs may connect to.
    network: Network,
    /// Which requests they may make.
    egress: Option<Arc<Egress>>,
    #[debug(skip)]
    progress: Arc<dyn ProgressSink>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            engine: EngineConfig::from_env(),
            pool: PoolConfig::default(),
            scheduler: SchedulerConfig::default(),
            jobs: JobDefaults::default(),
            image: ImageSpec::default(),
            imports: None,
            learns: false,
            packages: Vec::new(),
            pythons: Vec::new(),
            functions: Vec::new(),
            isolation: None,
            network: Network::default(),
            egress: None,
            progress: Arc::new(Silent),
        }
    }
}

impl Hatchery {
    /// Returns a builder that configures a pool.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), hatchery::Error> {
    /// use hatchery::Hatchery;
    ///
    /// let pool = Hatchery::builder().workers(2).preload(["numpy"]).start().await?;
    /// # drop(pool);
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Builder {
    /// Sets how many jobs run at once, and how many interpreters are kept warm for them. With 0 the
    /// start fails. Default: the number of CPUs.
    ///
    /// ```
    /// use hatchery::Hatchery;
    ///
    /// let builder = Hatchery::builder().workers(4);
    /// ```
    pub fn workers(mut self, count: usize) -> Self {
        self.scheduler.workers = WorkersConfig { spares: 0, ..WorkersConfig::fixed(count) };
        self.scheduler.concurrent = count;
        self
    }

    /// Makes the number of workers follow the load, between this minimum and maximum. The maximum
    /// is also how many jobs run at once. A surplus worker that is idle for a minute ends. With a
    /// minimum of 0, the first job after an idle time waits for an interpreter to start. Default:
    /// always the number of CPUs. If the maximum is 0 or below the minimum, the start fails.
    ///
    /// ```
    /// use hatchery::Hatchery;
    ///
    /// let builder = Hatchery::builder().workers_between(1..=8);
    /// ```
    pub fn workers_between(mut self, counts: RangeInclusive<usize>) -> Self {
        let (min, max) = counts.into_inner();
        self.scheduler.workers = WorkersConfig { min, max, ..self.scheduler.workers };
        self.scheduler.concurrent = max;
        self
    }

    /// Sets where interpreters run. Default: `$HATCHERY_ISOLATION`, else on threads.
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = Some(isolation);
        self
    }

    /// Makes jobs [reproducible](crate::Job::deterministic) that don't say so themselves. Default:
    /// they have the machine's clock and random numbers.
    ///
    /// ```
    /// use hatchery::{Deterministic, Hatchery};
    ///
    /// let builder = Hatchery::builder().deterministic(Deterministic::new(7));
    /// ```
    pub fn deterministic(mut self, deterministic: Deterministic) -> Self {
        self.jobs.deterministic = Some(deterministic);
        self
    }

    /// Sets how many idle workers are kept beyond the running ones. The start fails if this exceeds
    /// the maximum number of workers. [`Self::workers`] sets it back to 0. Default: 0.
    ///
    /// ```
    /// use hatchery::Hatchery;
    ///
    /// let builder = Hatchery::builder().workers_between(1..=8).warm_spares(1);
    /// ```
    pub fn warm_spares(mut self, count: usize) -> Self {
        self.scheduler.workers.spares = count;
        self
    }

    /// Configures the tenant with this name: its weight, and bounds on its running and waiting
    /// jobs. Default: that of [`TenantConfig`], weight 1 and no bounds of its own. If the weight or
    /// the number of running jobs is 0, the start fails.
    ///
    /// ```
    /// use hatchery::{Hatchery, TenantConfig};
    ///
    /// // Twice the CPU time of a tenant with weight 1.
    /// let web = TenantConfig { weight: 2, ..TenantConfig::default() };
    /// let builder = Hatchery::builder().tenant("web", web);
    /// ```
    pub fn tenant(mut self, name: impl Into<String>, config: TenantConfig) -> Self {
        self.scheduler.tenants.insert(name.into(), config);
        self
    }

    /// Configures every tenant that has no configuration of its own. Default: weight 1, no bounds.
    pub fn default_tenant(mut self, config: TenantConfig) -> Self {
        self.scheduler.tenant = config;
        self
    }

    /// Sets how much later a job counts as submitted, for each step of priority below high.
    /// Default: 30 s.
    pub fn priority_step(mut self, time: Duration) -> Self {
        self.scheduler.priority_step = time;
        self
    }

    /// Sets how often an idempotent job ([`Job::idempotent`](crate::Job::idempotent)) is retried if
    /// the sandbox failed or its worker died. Default: 2.
    pub fn retries(mut self, count: u32) -> Self {
        self.scheduler.retries = count;
        self
    }

    /// Sets the memory for everything: the image, interpreters, suspended sessions, waiting jobs, and
    /// what running jobs hold and may take. Near the limit sessions are compressed and offloaded to
    /// disk; at the limit nothing that needs more memory is admitted. Default: four fifths of the
    /// memory of the control group or the machine.
    ///
    /// ```
    /// use hatchery::Hatchery;
    ///
    /// let builder = Hatchery::builder().memory_limit_bytes(4 << 30);
    /// ```
    pub fn memory_limit_bytes(mut self, bytes: u64) -> Self {
        self.scheduler.memory_bytes = bytes;
        self
    }

    /// Sets the guest memory of a job, in bytes, above which its worker gets a new interpreter.
    /// This waits until the worker holds no session. Default: 512 MiB.
    pub fn retire_above_bytes(mut self, bytes: u64) -> Self {
        self.scheduler.retire_above_bytes = bytes;
        self
    }

    /// Configures when idle sessions are suspended, offloaded and closed, and how many there may be.
    /// Default: that of [`SessionsConfig`].
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use hatchery::{Hatchery, SessionsConfig};
    ///
    /// let close_after = Some(Duration::from_secs(3_600));
    /// let sessions = SessionsConfig { close_after, ..SessionsConfig::default() };
    /// let builder = Hatchery::builder().sessions(sessions);
    /// ```
    pub fn sessions(mut self, config: SessionsConfig) -> Self {
        self.scheduler.sessions = config;
        self
    }

    /// Sets the directory to which sessions are offloaded when memory is short or they are idle for
    /// long. It should be on a disk; one in memory gains nothing. The offload file has no name, so
    /// nothing is left, however the process ends. Default: the cache directory.
    pub fn offload_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.pool.offload_dir = Some(path.into());
        self
    }

    /// Sets the largest private memory of an interpreter, in bytes, at which its session's state is
    /// copied between turns. If a turn is stopped by force or its worker dies, the session then
    /// rolls back to its state before that turn, and `Outcome::session_restored` is true. Default:
    /// 128 MiB. At 0 such sessions are lost, and quick turns don't wait half a millisecond for the
    /// copy.
    pub fn rollback_bytes(mut self, bytes: u64) -> Self {
        self.pool.rollback_bytes = bytes;
        self
    }

    /// Sets how many jobs may wait; further ones are refused. At 0 a job is admitted only if a
    /// worker is ready, or another one starts. Default: 10,000.
    ///
    /// ```
    /// use hatchery::Hatchery;
    ///
    /// let builder = Hatchery::builder().queue_limit(500);
    /// ```
    pub fn queue_limit(mut self, count: usize) -> Self {
        self.scheduler.queued_count = count;
        self
    }

    /// Sets how many bytes of source, variables, arguments, environment, standard input and input
    /// files may wait; further jobs are refused. Default: 256 MiB.
    pub fn queue_limit_bytes(mut self, bytes: usize) -> Self {
        self.scheduler.queued_bytes = bytes;
        self
    }

    /// Adds modules that every interpreter has already imported, so that importing them in a job
    /// takes no time. The first start with a new set builds an image, which takes as long as the
    /// imports. Later starts find it in the cache. Default: none.
    ///
    /// ```
    /// use hatchery::Hatchery;
    ///
    /// let builder = Hatchery::builder().preload(["numpy", "pandas"]);
    /// ```
    pub fn preload(mut self, modules: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.image.preload.extend(modules.into_iter().map(Into::into));
        self
    }

    /// Lets interpreters of the default build start with the modules imported that these programs
    /// import, where that saves more time than it takes to build an image. This covers the standard
    /// library, packages of the build and many common packages. Programs see the same as without: a
    /// module isn't in `sys.modules` before they import it. Its import then takes little of a job's
    /// CPU time, and its memory isn't charged to jobs. Default: none.
    pub fn preload_for(mut self, imports: ProgramImports) -> Self {
        self.imports = Some(imports);
        self
    }

    /// Does what [`Self::preload_for`] does while the pool runs, for jobs of the default build that
    /// have no session and aren't deterministic. The pool counts what they import. When an image pays,
    /// it is made beside them, and further jobs start from it. There are at most three, one at a time,
    /// which together take at most a quarter of the pool's memory.
    /// [`Status::hidden`](crate::status::Status::hidden) shows what the present one has. Default: no.
    ///
    /// ```
    /// use hatchery::Hatchery;
    ///
    /// let builder = Hatchery::builder().preload_auto();
    /// ```
    pub fn preload_auto(mut self) -> Self {
        self.learns = true;
        self
    }

    /// Sets code that every interpreter has already run as its main module. Jobs find its effects
    /// in `__main__`, in modules and in files. Like the modules of [`Self::preload`], it is part of
    /// the image.
    ///
    /// ```
    /// use hatchery::Hatchery;
    ///
    /// let builder = Hatchery::builder().setup("rates = {'EUR': 1.0}", "setup.py");
    /// ```
    pub fn setup(mut self, source: impl Into<String>, filename: impl Into<String>) -> Self {
        self.image.setup = Some(Setup { source: source.into(), filename: filename.into() });
        self
    }

    /// Makes interpreters start from an image of another machine, which
    /// [`image::add`](crate::image::add) put into the cache under this key. The builder must still
    /// describe the image. If it has another build, modules, setup or packages, or is damaged or
    /// missing, a warning is logged, and the image is built here. Default: none.
    ///
    /// ```
    /// use hatchery::Hatchery;
    ///
    /// let key = "5b5bc384142cae0583e7245b3531330a";
    /// let builder = Hatchery::builder().preload(["json"]).added_image(key);
    /// ```
    pub fn added_image(mut self, key: impl Into<String>) -> Self {
        self.image.added = Some(key.into());
        self
    }

    /// Adds a package that every interpreter can import: a pure-Python wheel, or a folder. A folder
    /// with an `__init__.py` is a package; otherwise it holds modules and packages. Its files are
    /// part of the image, and are read when the image is loaded. Packages come last on `sys.path`:
    /// they can't replace the standard library or the build's own packages. Default: none.
    ///
    /// ```
    /// use hatchery::Hatchery;
    ///
    /// let builder = Hatchery::builder()
    ///     .package("wheels/idna-3.10-py3-none-any.whl")
    ///     .package("shapes");
    /// ```
    pub fn package(mut self, path: impl Into<PathBuf>) -> Self {
        self.packages.push(PackageSource::Path(path.into()));
        self
    }

    /// Adds the packages of a requirements file, as [`Self::package`] adds wheels. Each line has a
    /// name, a version and SHA-256 hashes, as `pip-compile --generate-hashes` writes them.
    /// Dependencies need separate lines, except those that the build has. pip fetches them once;
    /// after that they are in the cache. Default: none.
    ///
    /// ```
    /// use hatchery::Hatchery;
    ///
    /// let builder = Hatchery::builder().requirements("requirements.txt");
    /// ```
    pub fn requirements(mut self, path: impl Into<PathBuf>) -> Self {
        self.packages.push(PackageSource::Requirements(path.into()));
        self
    }

    /// Lets requirements files name packages that are in a folder: wheels, or Pyodide's packages with
    /// their `pyodide-lock.json`. Those in a lock file need no version and no hash, and bring what they
    /// depend on, such as shared libraries. Default: none.
    ///
    /// ```
    /// use hatchery::Hatchery;
    ///
    /// let builder = Hatchery::builder().requirements("requirements.txt").package_index("pyodide");
    /// ```
    pub fn package_index(mut self, path: impl Into<PathBuf>) -> Self {
        self.packages.push(PackageSource::Index(path.into()));
        self
    }

    /// Adds the common packages: pure-Python ones that programs often import, such as requests,
    /// Flask, Faker, pytest, Plotly and xarray, in versions that belong to this version of Hatchery.
    /// pip fetches them once; after that they are in the cache, where they take 250 MB. Default:
    /// none.
    ///
    /// ```
    /// use hatchery::Hatchery;
    ///
    /// let builder = Hatchery::builder().packages_common().preload(["requests"]);
    /// ```
    pub fn packages_common(mut self) -> Self {
        self.packages.push(PackageSource::Common);
        self
    }

    /// Sets whether interpreters map their image copy-on-write where the system supports it.
    /// Otherwise they copy it, which is slower. Default: yes, unless `$HATCHERY_COPY_ON_WRITE` is
    /// `off`.
    pub fn copy_on_write(mut self, is_wanted: bool) -> Self {
        self.engine.copy_on_write = is_wanted;
        self
    }

    /// Sets whether the host computes products of matrices and sorts for NumPy, with the same
    /// results bit for bit. Default: yes, unless `$HATCHERY_HOST_KERNELS` is `off`.
    pub fn host_kernels(mut self, is_wanted: bool) -> Self {
        self.engine.host_kernels = is_wanted;
        self
    }

    /// Sets after how many jobs a worker gets a new instance of its interpreter, which takes 5 ms.
    /// Default: 10,000.
    pub fn runs_per_instance(mut self, count: u32) -> Self {
        self.engine.runs_per_instance = count;
        self
    }

    /// Sets the memory of the bytecode cache, so that programs that run repeatedly aren't compiled
    /// each time. It counts towards the memory limit from the start. At 0 every run compiles its
    /// program. Default: 16 MiB, thousands of programs of 100 lines.
    ///
    /// ```
    /// use hatchery::Hatchery;
    ///
    /// let builder = Hatchery::builder().code_cache_bytes(0);
    /// ```
    pub fn code_cache_bytes(mut self, bytes: usize) -> Self {
        self.engine.code_cache_bytes = bytes;
        self
    }

    /// Sets the limits of jobs that have none of their own.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use hatchery::{Hatchery, Limits};
    ///
    /// let limits = Limits { wall_time: Duration::from_secs(5), ..Limits::default() };
    /// let builder = Hatchery::builder().limits(limits);
    /// ```
    pub fn limits(mut self, limits: Limits) -> Self {
        self.jobs.limits = limits;
        self
    }

    /// Sets the interface whose words messages about jobs use, for example for what raises a limit.
    /// [`Job::interface`](crate::Job::interface) takes precedence.
    pub fn interface(mut self, interface: Interface) -> Self {
        self.jobs.interface = interface;
        self
    }

    /// Adds a host function that every job can call, by `from hatchery import host` in Python. One
    /// for a session or a job alone is given to [`Session::function`](crate::Session::function) or
    /// [`Job::function`](crate::Job::function). If two have the same name, the start fails.
    ///
    /// ```
    /// use hatchery::{Hatchery, HostError, HostFunction};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Given {
    ///     number: i64,
    /// }
    ///
    /// let double = HostFunction::sync("double", |Given { number }| {
    ///     Ok::<_, HostError>(2 * number)
    /// });
    /// let builder = Hatchery::builder().function(double);
    /// ```
    pub fn function(mut self, function: HostFunction) -> Self {
        self.functions.push(function);
        self
    }

    /// Sets the directory for the Python build, compiled modules, images of about 50 MiB each, and
    /// fetched packages. It also gets offloaded sessions, unless [`Self::offload_dir`] is set. Default:
    /// `$HATCHERY_CACHE_DIR`, else `hatchery` in the user's cache directory.
    ///
    /// ```
    /// use hatchery::Hatchery;
    ///
    /// let builder = Hatchery::builder().cache_dir("/var/cache/hatchery");
    /// ```
    pub fn cache_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.engine.cache_dir = Some(path.into());
        self
    }

    /// Sets the size of the cache, in bytes, above which the start reports
    /// [`Progress::LargeCache`](crate::progress::Progress::LargeCache).
    /// [`cache::prune`](crate::cache::prune) makes the cache smaller. Default:
    /// `$HATCHERY_CACHE_BOUND`, else 5 GiB.
    pub fn cache_bound_bytes(mut self, bytes: u64) -> Self {
        self.engine.cache_bound_bytes = bytes;
        self
    }

    /// Sets a sink for the progress of the slow first start. Default: none.
    pub fn progress(mut self, sink: impl ProgressSink + 'static) -> Self {
        self.progress = Arc::new(sink);
        self
    }

    /// Installs and loads the Python build and the image, and starts the pool. The first start on a
    /// machine fetches 98 MB and compiles for one or two minutes; later ones take half a second.
    /// Workers become ready in the background; jobs can be submitted at once.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), hatchery::Error> {
    /// use hatchery::Hatchery;
    ///
    /// let pool = Hatchery::builder().workers(2).start().await?;
    /// pool.drain().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The configuration is invalid, the build or a package can't be installed, or the image can't
    /// be built. An image fails if a module can't be imported or the setup raises. A host function
    /// has a name that Python doesn't allow, or two have the same.
    pub async fn start(self) -> Result<Hatchery, Error> {
        self.scheduler.validate().map_err(scheduler::SchedulerStartError::from)?;
        let Self { mut pool, scheduler, jobs, network, egress, .. } = self.clone();
        let egress = egress.map(|egress| PoolEgress { egress, runtime: Handle::current() });
        if pool.offload_dir.is_none() {
            pool.offload_dir =
                Some(CacheDir::open(self.engine.cache_dir.as_deref())?.root().to_owned());
        }
        let functions = ExposedFunctions::by_pool(self.functions.clone())?;
        let pythons = self.load().await?;
        let scheduler = Scheduler::start(scheduler, pool, pythons.builds.clone()).await?;
        let (jobs, recorders) = (Arc::new(jobs), Recorders::default());
        Ok(Hatchery { scheduler, jobs, network, egress, functions, pythons, recorders })
    }

    /// Finds or builds the image of the default build, and starts no pool.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), hatchery::Error> {
    /// use hatchery::Hatchery;
    ///
    /// let image = Hatchery::builder().preload(["numpy"]).load_image().await?;
    /// println!("{}: {} bytes", image.key, image.file_bytes);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Self::start`], or the host has no images.
    pub async fn load_image(self) -> Result<ImageInfo, Error> {
        let (isolation, network) = (Some(Isolation::Threads), Network::default());
        let alone = Self { pythons: Vec::new(), isolation, network, ..self };
        let pythons = alone.load().await?;
        let image = pythons.image(BuildId::default()).ok_or(ImageError::Host)?;
        Ok(image.info().clone())
    }

    /// Lets every job open TCP connections to exactly these destinations, on builds that have
    /// sockets: those for WASIX. It can be repeated. A job can request fewer
    /// ([`Job::allow_connect`](crate::Job::allow_connect)), but not more; jobs as JSON can't
    /// request any. Default: none.
    ///
    /// A name resolves to the public addresses that this machine finds for it. Loopback and private
    /// addresses must be listed as addresses. The start fails if no build of the pool has sockets,
    /// or if its interpreters are in processes.
    ///
    /// ```
    /// use hatchery::{Destination, Hatchery};
    ///
    /// let destinations = ["api.example.com:443", "127.0.0.1:5432"];
    /// let destinations: Result<Vec<Destination>, _> =
    ///     destinations.into_iter().map(str::parse).collect();
    /// let builder = Hatchery::builder().allow_connect(destinations?);
    /// # Ok::<(), hatchery::error::InvalidDestination>(())
    /// ```
    pub fn allow_connect(mut self, destinations: impl IntoIterator<Item = Destination>) -> Self {
        let before = self.network.destinations().cloned();
        self.network = before.chain(destinations).collect();
        self
    }

    /// Lets every job make the HTTP requests that these rules allow, on every build and isolation,
    /// with secrets that programs never see. Their clients (`requests`, `httpx`, `urllib`, `aiohttp`
    /// and others) work unchanged. A tenant can have rules of its own
    /// ([`Egress::with_tenant`](crate::egress::Egress::with_tenant)), and a job can ask for a part
    /// ([`Job::egress`](crate::Job::egress)). Default: no requests.
    ///
    /// This process looks up names, connects, does TLS and sends the requests. What no rule allows
    /// raises `PermissionError`, which names the rule that would allow it.
    ///
    /// ```
    /// use hatchery::Hatchery;
    /// use hatchery::egress::EgressFile;
    ///
    /// let mut file = EgressFile::default();
    /// file.allow.push("GET,POST https://api.example.com/v1/*".parse()?);
    /// let builder = Hatchery::builder().egress(file.load()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn egress(mut self, egress: Egress) -> Self {
        self.egress = Some(Arc::new(egress));
        self
    }

    /// Sets the default Python build: a WebAssembly file with its library beside it, their folder,
    /// or a wheel or `.webc` package. Default: `$HATCHERY_PYTHON`, else the build that is fetched
    /// by name.
    pub fn python(mut self, path: impl Into<PathBuf>) -> Self {
        self.engine.python = Some(path.into());
        self
    }

    /// Adds another Python build under a name, by which jobs ([`Job::python`](crate::Job::python))
    /// and sessions ([`Hatchery::session_on`](crate::Hatchery::session_on)) select it. A name has
    /// letters, digits, `.`, `_` and `-`, and isn't `default`. Preloads, the setup and packages go
    /// into the image of each build. If a build can't have them, the start fails and says which.
    ///
    /// ```
    /// use hatchery::Hatchery;
    ///
    /// let builder = Hatchery::builder().python_named("3.12", "builds/python-3.12");
    /// ```
    pub fn python_named(mut self, name: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        self.pythons.push((name.into(), path.into()));
        self
    }

    /// Sets a file with the compiled Python build and its SHA-256 in hexadecimal. The first start
    /// on a machine then needn't compile ([`EngineConfig::module`](crate::config::EngineConfig)).
    /// Default: `$HATCHERY_PYTHON_MODULE` with its `_SHA256`, else one installed with this program.
    pub fn python_module(mut self, path: impl Into<PathBuf>, sha256: impl Into<String>) -> Self {
        self.engine.module = Some(PinnedModule { path: path.into(), sha256: sha256.into() });
        self
    }

    /// Sets the host that serves the guests. Default: [`HostKind::Own`].
    pub fn host(mut self, host: HostKind) -> Self {
        self.engine.host = host;
        self
    }

    /// Sets whether a first start on a machine takes jobs before all of Python is compiled. It then
    /// compiles CPython and what NumPy and pandas use most, a seventh of the code. It takes jobs
    /// while the rest is compiled in the background
    /// ([`Progress::StartedEarly`](crate::progress::Progress::StartedEarly)). A program that calls
    /// other code waits for it, and the wait doesn't count as its time. An interrupt also waits,
    /// and after its grace period the run is stopped.
    /// [`finish_compiling`](crate::Hatchery::finish_compiling) waits until everything is compiled
    /// and cached; if the process ends before, the next start begins again. With the default build
    /// on Linux and x86-64, and with workers on threads; else this changes nothing. Default: no.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), hatchery::Error> {
    /// use hatchery::{Hatchery, Job};
    ///
    /// let pool = Hatchery::builder().starts_early(true).start().await?;
    /// println!("{}", pool.run(Job::code("print('first')")).await?.stdout_text());
    /// pool.finish_compiling().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn starts_early(mut self, early: bool) -> Self {
        self.engine.starts_early = early;
        self
    }
}
