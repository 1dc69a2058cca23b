//! Many jobs on real interpreters, some of them hostile, some cancelled, some killing their worker:
//! each ends exactly once and as it must, and nothing grows. In its own process, since it measures
//! the process.
//!
//! `HATCHERY_SOAK_JOBS=100000 cargo test --release --locked --test soak -- --nocapture` prints the
//! numbers for the record; by default there are 3,000 jobs.
//!
//! Neither a program nor a host function can kill a worker's thread. So the source of interpreters
//! is the image with one addition: the thread panics after marked runs.
//!
//! With `HATCHERY_ISOLATION=process` and a helper in `HATCHERY_HELPER`, interpreters are processes,
//! and theirs is measured, too.
//!
//! `HATCHERY_PYTHON` names another build. `HATCHERY_SOAK_REQUIREMENTS` names a requirements file with
//! pydantic, which the image then has imported, and which half of the jobs use.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use engine::{
    Afterwards, CacheDir, Engine, EngineConfig, EngineError, Image, ImageSpec, LimitKind, Limits,
    Outcome, Package, Program, ProgressSink, SandboxFailure, Setup, Silent, StartError, Verdict,
};
use pool::{
    BuildId, Builds, Interpreter, InterpreterSource, JobId, PackedBytes, PoolConfig, SessionId,
    Suspended, Task, WorkerActivity,
};
use process::ProcessSource;
use scheduler::{
    DecisionKind, JobRequest, NextDecision, Scheduler, SchedulerConfig, SessionsConfig, Ticket,
    Totals, WorkersConfig,
};
use tokio::task::JoinSet;

use test_support::dice::Dice;
use test_support::footprint::Footprint;

/// How many jobs are in flight at once.
const AT_ONCE: usize = 64;
const SESSIONS: usize = 8;
/// The thread panics after each run of the job.
const DIES: &str = "# dies\nx = 1";
/// The thread panics after the first run of the job.
const DIES_ONCE: &str = "# dies once\n'alive'";
/// Its first model imports most of pydantic.
const WITH_PYDANTIC: &str =
    "from pydantic import BaseModel\nclass First(BaseModel):\n    x: int\ndel First";
const DEATH: &str = "the soak test ends this worker";

/// An image whose interpreters kill their thread when told to.
struct Mortal {
    source: Box<dyn InterpreterSource>,
    /// Jobs that have killed a worker.
    died: Arc<Mutex<HashSet<JobId>>>,
    deaths: Arc<AtomicU64>,
}

struct MortalInterpreter {
    real: Box<dyn Interpreter>,
    died: Arc<Mutex<HashSet<JobId>>>,
    deaths: Arc<AtomicU64>,
}

impl InterpreterSource for Mortal {
    fn start(&self) -> Result<Box<dyn Interpreter>, StartError> {
        let real = self.source.start()?;
        let (died, deaths) = (Arc::clone(&self.died), Arc::clone(&self.deaths));
        Ok(Box::new(MortalInterpreter { real, died, deaths }))
    }

    fn shared_bytes(&self) -> u64 {
        self.source.shared_bytes()
    }

    fn pack(&self, suspended: &Suspended) -> Result<PackedBytes, StartError> {
        self.source.pack(suspended)
    }

    fn unpack(&self, packed: &PackedBytes) -> Result<Suspended, StartError> {
        self.source.unpack(packed)
    }
}

impl Interpreter for MortalInterpreter {
    fn run(&mut self, task: &Task, last: bool) -> (Outcome, Afterwards) {
        let ran = self.real.run(task, last);
        let is_first = || self.died.lock().unwrap().insert(task.job);
        let source = &task.program.source;
        if source == DIES || (source == DIES_ONCE && is_first()) {
            self.deaths.fetch_add(1, Ordering::SeqCst);
            panic!("{DEATH}");
        }
        ran
    }

    fn reset(&mut self) -> Result<(), StartError> {
        self.real.reset()
    }

    fn suspend(&mut self) -> Result<Suspended, StartError> {
        self.real.suspend()
    }

    fn resume(&mut self, suspended: &Suspended) -> Result<(), StartError> {
        self.real.resume(suspended)
    }

    fn memory_bytes(&self) -> u64 {
        self.real.memory_bytes()
    }
}

/// What a job does, and how it must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// Returns a value that no other job returns.
    Plain(u64),
    /// The same, validated by pydantic.
    Validated(u64),
    /// A turn of a session: the value is the number of its turns.
    Turn {
        session: usize,
        turn: u64,
    },
    /// Its caller cancels it while it runs or waits.
    Cancelled,
    /// Its caller drops the ticket.
    Dropped(u64),
    Loops,
    Exits,
    FillsMemory,
    Recurses,
    FloodsOutput,
    StormsExceptions,
    Dies,
    DiesOnce,
}

impl Kind {
    /// Five in a hundred are hostile.
    fn by_chance(
        dice: &mut Dice,
        number: u64,
        turns: &mut [u64; SESSIONS],
        has_pydantic: bool,
    ) -> Self {
        match dice.below(1_000) {
            0..8 => Self::Loops,
            8..15 => Self::Exits,
            15..20 => Self::FillsMemory,
            20..26 => Self::Recurses,
            26..33 => Self::FloodsOutput,
            33..40 => Self::StormsExceptions,
            40..45 => Self::Dies,
            45..50 => Self::DiesOnce,
            50..100 => Self::Cancelled,
            100..130 => Self::Dropped(number),
            130..230 => {
                let session = dice.below(SESSIONS as u64) as usize;
                turns[session] += 1;
                Self::Turn { session, turn: turns[session] }
            }
            230..650 if has_pydantic => Self::Validated(number),
            _ => Self::Plain(number),
        }
    }

    fn request(self, sessions: &[SessionId; SESSIONS]) -> JobRequest {
        let quick = Limits { grace: Duration::from_millis(10), ..Limits::default() };
        let (source, limits) = match self {
            Self::Plain(number) | Self::Dropped(number) => {
                (format!("x = {number}\nx * 2"), Limits::default())
            }
            Self::Validated(number) => {
                let source = format!(
                    "from pydantic import BaseModel, ValidationError\n\
                     class Model(BaseModel):\n    x: int\n    names: list[str] = []\n\
                     try: Model(x='no')\n\
                     except ValidationError as error: count = error.error_count()\n\
                     model = Model(x='{number}', names=['a'] * 100)\n\
                     again = Model.model_validate_json(model.model_dump_json())\n\
                     (model.x + again.x) * count * (model == again)"
                );
                (source, Limits::default())
            }
            Self::Turn { .. } => {
                let turn = "turns = globals().get('turns', 0) + 1\nturns";
                (turn.to_owned(), Limits::default())
            }
            Self::Cancelled => ("while True: pass".to_owned(), quick),
            Self::Loops => {
                let wall_time = Duration::from_millis(20);
                ("while True: pass".to_owned(), Limits { wall_time, ..quick })
            }
            Self::Exits => ("import os\nos._exit(3)".to_owned(), quick),
            Self::FillsMemory => {
                let source = "x = []\nwhile True: x.append(bytes(1 << 20))".to_owned();
                (source, Limits { memory_bytes: 96 << 20, ..quick })
            }
            Self::Recurses => {
                let source = "x = ()\nfor _ in range(2 * 10**5): x = (x,)\nhash(x)";
                (source.to_owned(), quick)
            }
            Self::FloodsOutput => {
                let limits = Limits { output_bytes: 64 << 10, stop_at_output_limit: true, ..quick };
                ("while True: print('x' * 4096)".to_owned(), limits)
            }
            Self::StormsExceptions => {
                let source = "for number in range(3000):\n    try: raise ValueError(number)\n    \
                              except ValueError: pass\n1 / 0";
                (source.to_owned(), quick)
            }
            Self::Dies => (DIES.to_owned(), quick),
            Self::DiesOnce => (DIES_ONCE.to_owned(), quick),
        };
        let session = match self {
            Self::Turn { session, .. } => Some(sessions[session]),
            _ => None,
        };
        // Otherwise each of them would kill three workers.
        let idempotent = (self == Self::Dies).then_some(false);
        let program = Program { source, ..Program::default() };
        let tenant = Some(Arc::from(if self.is_hostile() { "hostile" } else { "harmless" }));
        JobRequest { program, limits, session, tenant, idempotent, ..JobRequest::default() }
    }

    fn is_hostile(self) -> bool {
        !matches!(
            self,
            Self::Plain(_)
                | Self::Validated(_)
                | Self::Turn { .. }
                | Self::Cancelled
                | Self::Dropped(_)
        )
    }

    fn check(self, outcome: &Outcome) {
        let raised = |name: &str| match &outcome.verdict {
            Verdict::Raised(exception) => exception.type_name == name,
            _ => false,
        };
        let limited = |kind: LimitKind| match &outcome.verdict {
            Verdict::Limit(hit) => hit.limit == kind,
            _ => false,
        };
        let gives = |number: u64| match &outcome.verdict {
            Verdict::Completed { value: Some(value), .. } => value.as_u64() == Some(number),
            _ => false,
        };
        let is_right = match self {
            Self::Plain(number) | Self::Validated(number) => gives(2 * number),
            Self::Turn { turn, .. } => gives(turn),
            Self::Cancelled => outcome.verdict == Verdict::Cancelled,
            Self::Dropped(_) => unreachable!("nobody has its outcome"),
            Self::Loops => limited(LimitKind::Wall),
            Self::Exits => matches!(outcome.verdict, Verdict::Exited { code: 3, .. }),
            Self::FillsMemory => raised("MemoryError"),
            Self::Recurses => limited(LimitKind::Stack),
            Self::FloodsOutput => limited(LimitKind::Output),
            Self::StormsExceptions => raised("ZeroDivisionError"),
            Self::Dies => {
                matches!(outcome.verdict, Verdict::SandboxFailed(SandboxFailure::WorkerDied(_)))
            }
            Self::DiesOnce => outcome.is_success(),
        };
        assert!(is_right, "{self:?}: {:?}\n{}", outcome.verdict, outcome.stderr_text());
    }
}

/// Returns the image, or processes on it if the environment asks for them.
fn isolated(image: Image, spec: &ImageSpec) -> Box<dyn InterpreterSource> {
    if std::env::var_os("HATCHERY_ISOLATION").is_none_or(|isolation| isolation != "process") {
        return Box::new(image);
    }
    let packages = requirements().map(|path| serde_json::json!({ "Requirements": path }));
    // What `hatchery::be_helper` takes.
    let load = serde_json::json!({
        "config": EngineConfig::from_env(),
        "image": spec,
        "packages": Vec::from_iter(packages),
    });
    let helper = process::Helper::from_env();
    let load = load.to_string().into_bytes();
    let memory_bytes = SchedulerConfig::default().memory_bytes;
    Box::new(ProcessSource::start(&image, &helper, load, false, memory_bytes).unwrap())
}

/// Returns the file with packages, if there is one.
fn requirements() -> Option<PathBuf> {
    std::env::var_os("HATCHERY_SOAK_REQUIREMENTS").map(PathBuf::from)
}

async fn start(deaths: &Arc<AtomicU64>) -> Scheduler {
    let loading = tokio::task::spawn_blocking(|| {
        let progress: Arc<dyn ProgressSink> = Arc::new(Silent);
        let setup = requirements()
            .map(|_| Setup { source: WITH_PYDANTIC.to_owned(), filename: "setup.py".to_owned() });
        let mut spec = ImageSpec { setup, ..ImageSpec::default() };
        let engine = Engine::load_with(&EngineConfig::from_env(), &progress, |target| {
            if let Some(path) = requirements() {
                let cache = CacheDir::open(None)?;
                let packages = Package::from_requirements(&cache, &path, None, target, &Silent);
                spec.packages = packages.expect("pip fetches them");
            }
            Ok::<_, EngineError>(spec.packages.clone())
        });
        isolated(Image::load_or_build(&engine.unwrap(), &spec, &progress).unwrap(), &spec)
    });
    let source = loading.await.unwrap();
    let source = Mortal { source, died: Arc::default(), deaths: Arc::clone(deaths) };
    let config = SchedulerConfig {
        concurrent: 2,
        workers: WorkersConfig::fixed(2),
        // Half of the sessions are on disk at any time.
        sessions: SessionsConfig { in_memory: SESSIONS / 2, ..SessionsConfig::default() },
        ..SchedulerConfig::default()
    };
    let offload_dir = Some(std::env::temp_dir());
    let pool = PoolConfig { offload_dir, ..PoolConfig::default() };
    Scheduler::start(config, pool, Builds::new(Arc::new(source))).await.unwrap()
}

/// Returns how often each job ended, and how many decisions were missed.
async fn count_ends(mut decisions: scheduler::Decisions) -> (HashMap<pool::JobId, u32>, u64) {
    let (mut ends, mut missed) = (HashMap::new(), 0);
    while let Some(next) = decisions.next().await {
        match next {
            NextDecision::Missed(count) => missed += count,
            NextDecision::Decision(decision) => {
                if let DecisionKind::Ended { job, .. } = decision.kind {
                    *ends.entry(job).or_default() += 1;
                }
            }
        }
    }
    (ends, missed)
}

/// Waits for the outcome as the caller of this kind of job does.
async fn follow(kind: Kind, ticket: Ticket, patience: u64) {
    if matches!(kind, Kind::Cancelled | Kind::Dropped(_)) {
        for _ in 0..patience {
            tokio::task::yield_now().await;
        }
        if kind != Kind::Cancelled {
            return;
        }
        ticket.cancel();
    }
    let ended = tokio::time::timeout(Duration::from_secs(120), ticket.into_future()).await;
    kind.check(&ended.unwrap_or_else(|_| panic!("{kind:?} is lost")));
}

async fn wait_until_idle(scheduler: &Scheduler) {
    let resting = async {
        loop {
            let status = scheduler.status();
            let is_ready = |activity| activity == WorkerActivity::Ready;
            if status.queue_depth == 0
                && status.running == 0
                && status.workers.iter().all(|worker| is_ready(worker.activity))
            {
                break;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), resting)
        .await
        .expect("all workers become ready");
}

fn sum(totals: &Totals) -> u64 {
    let Totals { succeeded, failed, limited, cancelled, sandbox_failed, refused, .. } = totals;
    succeeded + failed + limited + cancelled + sandbox_failed + refused
}

/// Suppresses the output of intended panics; others are reported as usual.
fn silence_deaths() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !panic.to_string().contains(DEATH) {
            tell(panic);
        }
    }));
}

async fn soak(jobs: u64) {
    let deaths = Arc::<AtomicU64>::default();
    let scheduler = start(&deaths).await;
    let counting = tokio::spawn(count_ends(scheduler.decisions()));
    let mut sessions = Vec::new();
    for number in 0..SESSIONS {
        sessions
            .push(scheduler.open_session(&number.to_string(), BuildId::default()).await.unwrap().0);
    }
    let sessions: [SessionId; SESSIONS] = sessions.try_into().unwrap();
    let mut dice = Dice(0x5eed);
    let has_pydantic = requirements().is_some();
    let mut turns = [0; SESSIONS];
    let mut ids = HashSet::new();
    let mut followers = JoinSet::new();
    let mut footprints = Vec::new();
    let mut hostile = 0;
    let started = Instant::now();
    for number in 0..jobs {
        let kind = Kind::by_chance(&mut dice, number, &mut turns, has_pydantic);
        hostile += u64::from(kind.is_hostile());
        let ticket = scheduler.submit(kind.request(&sessions)).await.unwrap();
        assert!(ids.insert(ticket.job_id()), "no id is used twice");
        followers.spawn(follow(kind, ticket, dice.below(200)));
        while followers.len() >= AT_ONCE {
            followers.join_next().await.unwrap().unwrap();
        }
        if (number + 1) % (jobs / 5).max(1) == 0 {
            while let Some(followed) = followers.join_next().await {
                followed.unwrap();
            }
            wait_until_idle(&scheduler).await;
            footprints.push(Footprint::now());
        }
    }
    while let Some(followed) = followers.join_next().await {
        followed.unwrap();
    }
    wait_until_idle(&scheduler).await;
    let elapsed = started.elapsed();
    let status = scheduler.status();
    scheduler.drain().await;
    let (ends, missed) = counting.await.unwrap();

    let totals = status.totals;
    println!("{jobs} jobs in {elapsed:.1?}, {hostile} of them hostile, {turns:?} turns");
    println!("{} worker deaths; {totals:?}", deaths.load(Ordering::SeqCst));
    for footprint in &footprints {
        println!(
            "{} MiB resident, {} threads, {} descriptors; {} processes with {} MiB and {} descriptors",
            footprint.resident_bytes >> 20,
            footprint.threads,
            footprint.descriptors,
            footprint.processes,
            footprint.private_bytes >> 20,
            footprint.their_descriptors
        );
    }
    println!("queue {:?}\nattach {:?}", status.latency.queue, status.latency.resume);
    println!("run {:?}\nreset {:?}", status.latency.run, status.latency.reset);

    assert_eq!(ids.len() as u64, jobs);
    assert_eq!(sum(&totals), jobs, "each job counts once");
    assert_eq!(totals.refused, 0);
    assert!(ends.values().all(|count| *count == 1), "a job ended twice");
    assert!(ends.keys().all(|job| ids.contains(job)), "a job ended that nobody submitted");
    assert!(missed > 0 || ends.len() as u64 == jobs, "{} of {jobs} ended", ends.len());
    // The first fifth is the warm-up.
    let (first, last) = (footprints[0], footprints[footprints.len() - 1]);
    assert!(last.is_flat_since(first), "{footprints:?}");
}

#[test]
fn a_mixed_load_loses_no_job_runs_none_twice_and_leaks_nothing() {
    silence_deaths();
    let jobs = std::env::var("HATCHERY_SOAK_JOBS").ok().and_then(|jobs| jobs.parse().ok());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(4)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(soak(jobs.unwrap_or(3_000)));
    assert!(test_support::threads::no_worker_is_left().unwrap());
}
