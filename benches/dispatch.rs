//! What do the scheduler and the pool add to a job? Measures the time from submission to the
//! outcome and to the first instruction on scripted interpreters that do nothing, against a bare
//! channel to a thread and back, and the cost of a job while many others wait.
//!
//! Doesn't measure: Python, wasm, or starting interpreters (a scripted one starts instantly).

use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use engine::{Afterwards, Outcome, StartError};
use pool::{Builds, Interpreter, InterpreterSource, PackedBytes, PoolConfig, Suspended, Task};
use scheduler::{JobRequest, Priority, Scheduler, SchedulerConfig, Ticket, WorkersConfig};
use test_support::fake::FakeSource;
use test_support::percentiles::{at, is_wanted, print};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};

type Reply = oneshot::Sender<Instant>;

/// A bare thread: the least that passing work to a thread and getting a reply can cost. It replies
/// with the time at which it got the work.
fn bare_thread() -> crossbeam_channel::Sender<Reply> {
    let (sender, receiver) = crossbeam_channel::bounded::<Reply>(1024);
    std::thread::spawn(move || {
        for reply in receiver {
            let _ = reply.send(clock());
        }
    });
    sender
}

fn clock() -> Instant {
    Instant::now()
}

fn request() -> JobRequest {
    let program = engine::Program { source: "ok".to_owned(), ..engine::Program::default() };
    JobRequest { program, ..JobRequest::default() }
}

fn config(workers: usize) -> SchedulerConfig {
    SchedulerConfig {
        concurrent: workers,
        workers: WorkersConfig::fixed(workers),
        ..SchedulerConfig::default()
    }
}

async fn start(config: SchedulerConfig, source: Arc<dyn InterpreterSource>) -> Scheduler {
    let scheduler = Scheduler::start(config, PoolConfig::default(), Builds::new(source)).await;
    scheduler.expect("the configuration is valid")
}

/// Scripted interpreters that report when each run begins.
struct Watched {
    fake: FakeSource,
    begun: mpsc::Sender<Instant>,
}

struct WatchedInterpreter {
    fake: Box<dyn Interpreter>,
    begun: mpsc::Sender<Instant>,
}

impl InterpreterSource for Watched {
    fn start(&self) -> Result<Box<dyn Interpreter>, StartError> {
        let fake = self.fake.start()?;
        Ok(Box::new(WatchedInterpreter { fake, begun: self.begun.clone() }))
    }

    fn pack(&self, suspended: &Suspended) -> Result<PackedBytes, StartError> {
        self.fake.pack(suspended)
    }

    fn unpack(&self, packed: &PackedBytes) -> Result<Suspended, StartError> {
        self.fake.unpack(packed)
    }
}

impl Interpreter for WatchedInterpreter {
    fn run(&mut self, task: &Task, last: bool) -> (Outcome, Afterwards) {
        // Nobody listens once the bench is over.
        let _ = self.begun.blocking_send(clock());
        self.fake.run(task, last)
    }

    fn reset(&mut self) -> Result<(), StartError> {
        self.fake.reset()
    }

    fn suspend(&mut self) -> Result<Suspended, StartError> {
        self.fake.suspend()
    }

    fn resume(&mut self, suspended: &Suspended) -> Result<(), StartError> {
        self.fake.resume(suspended)
    }

    fn memory_bytes(&self) -> u64 {
        self.fake.memory_bytes()
    }
}

/// One job at a time: latency.
fn one_at_a_time(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("the runtime starts");
    let mut group = criterion.benchmark_group("submit_to_outcome");
    let channel = bare_thread();
    group.bench_function("bare_channel", |bencher| {
        bencher.iter(|| {
            runtime.block_on(async {
                let (reply, answer): (Reply, _) = oneshot::channel();
                channel.send(reply).expect("the thread is alive");
                assert!(answer.await.is_ok());
            });
        });
    });
    let scheduler = runtime.block_on(start(config(2), Arc::new(FakeSource::default())));
    group.bench_function("scheduler_and_pool", |bencher| {
        bencher.iter(|| {
            runtime.block_on(async {
                let outcome = scheduler.submit(request()).await.expect("the job is admitted").await;
                assert!(outcome.is_success());
            });
        });
    });
    group.finish();
    runtime.block_on(scheduler.abort());
}

/// From the call of `submit` to the run on a worker's thread, one job at a time. Prints medians and
/// tails, and those of a bare channel measured in the same minute.
fn submit_to_running(_criterion: &mut Criterion) {
    const JOBS: usize = 20_000;
    if !is_wanted("submit_to_running") {
        return;
    }
    let runtime = Runtime::new().expect("the runtime starts");
    let channel = bare_thread();
    let bare = runtime.block_on(async {
        let mut times = Vec::with_capacity(JOBS);
        for _ in 0..JOBS {
            let (reply, answer): (Reply, _) = oneshot::channel();
            let sent = clock();
            channel.send(reply).expect("the thread is alive");
            times.push(answer.await.expect("the thread is alive") - sent);
        }
        times
    });
    let (begun, mut runs) = mpsc::channel(1);
    let source = Arc::new(Watched { fake: FakeSource::default(), begun });
    let scheduler = runtime.block_on(start(config(2), source));
    let through = runtime.block_on(async {
        let mut times = Vec::with_capacity(JOBS);
        for _ in 0..JOBS {
            let request = request();
            let submitted = clock();
            let ticket = scheduler.submit(request).await.expect("the job is admitted");
            times.push(runs.recv().await.expect("a worker is alive") - submitted);
            assert!(ticket.await.is_success());
        }
        times
    });
    let bare = print("submit_to_running/bare_channel", bare);
    let through = print("submit_to_running/scheduler_and_pool", through);
    let more = at(&through, 500).saturating_sub(at(&bare, 500));
    println!("submit_to_running: {more:?} more than the channel by median; promised: p50 20µs");
    runtime.block_on(scheduler.abort());
}

/// A thousand jobs at once: throughput.
fn many_at_once(criterion: &mut Criterion) {
    const JOBS: u64 = 1_000;
    let runtime = Runtime::new().expect("the runtime starts");
    let mut group = criterion.benchmark_group("thousand_jobs");
    group.throughput(Throughput::Elements(JOBS));
    let channel = bare_thread();
    group.bench_function("bare_channel", |bencher| {
        bencher.iter(|| {
            runtime.block_on(async {
                let mut answers = Vec::with_capacity(JOBS as usize);
                for _ in 0..JOBS {
                    let (reply, answer): (Reply, _) = oneshot::channel();
                    channel.send(reply).expect("the thread is alive");
                    answers.push(answer);
                }
                for answer in answers {
                    assert!(answer.await.is_ok());
                }
            });
        });
    });
    for workers in [1, 2] {
        let scheduler = runtime.block_on(start(config(workers), Arc::new(FakeSource::default())));
        group.bench_function(BenchmarkId::new("workers", workers), |bencher| {
            bencher.iter(|| {
                runtime.block_on(async {
                    let mut tickets = Vec::with_capacity(JOBS as usize);
                    for _ in 0..JOBS {
                        tickets
                            .push(scheduler.submit(request()).await.expect("the job is admitted"));
                    }
                    for ticket in tickets {
                        assert!(ticket.await.is_success());
                    }
                });
            });
        });
        runtime.block_on(scheduler.abort());
    }
    group.finish();
}

/// The whole cost of a job, from submission through its run to its end, with a given number of jobs
/// waiting: each job that begins is followed by another submission. Prints the ratio.
fn backlog(_criterion: &mut Criterion) {
    const FEW: usize = 100;
    const MANY: usize = 100_000;
    if !is_wanted("backlog") {
        return;
    }
    let runtime = Runtime::new().expect("the runtime starts");
    let mut best = [Duration::MAX; 2];
    // Alternate, so that a busy minute of the machine affects both.
    for _ in 0..3 {
        for (place, waiting) in [FEW, MANY].into_iter().enumerate() {
            let each = runtime.block_on(job_with_backlog(waiting));
            println!("backlog/{waiting}: {each:?} per job");
            best[place] = best[place].min(each);
        }
    }
    let ratio = best[1].as_secs_f64() / best[0].as_secs_f64();
    println!("backlog: with {MANY} jobs {ratio:.2} times as long as with {FEW}; promised: 2");
}

/// Queues jobs of ten tenants and three priorities; then two workers run 5,000 of them.
async fn job_with_backlog(waiting: usize) -> Duration {
    const JOBS: usize = 5_000;
    let fake = FakeSource::default();
    fake.hold_starts(true);
    // Capacity 1, so that the workers never get far ahead of the submissions.
    let (begun, mut runs) = mpsc::channel(1);
    let source = Arc::new(Watched { fake: fake.clone(), begun });
    let config = SchedulerConfig { queued_count: 2 * waiting, ..config(2) };
    let scheduler = start(config, source).await;
    let tenants: Vec<Arc<str>> = (0..10).map(|number| format!("tenant-{number}").into()).collect();
    let mut tickets: Vec<Ticket> = Vec::with_capacity(waiting + JOBS);
    let of_place = |place: usize| JobRequest {
        tenant: Some(Arc::clone(&tenants[place % tenants.len()])),
        priority: Priority::ALL[place / tenants.len() % Priority::ALL.len()],
        ..request()
    };
    for place in 0..waiting {
        tickets.push(scheduler.submit(of_place(place)).await.expect("the job is admitted"));
    }
    assert_eq!(scheduler.status().queue_depth, waiting);
    fake.hold_starts(false);
    runs.recv().await.expect("a worker is alive");
    let started = clock();
    for place in 0..JOBS {
        tickets.push(scheduler.submit(of_place(place)).await.expect("the job is admitted"));
        runs.recv().await.expect("a worker is alive");
    }
    let each = started.elapsed() / JOBS as u32;
    let left = scheduler.status().queue_depth;
    assert!(left + 50 >= waiting, "only {left} of {waiting} jobs still waited at the end");
    // Otherwise workers would block reporting their runs.
    drop(runs);
    scheduler.abort().await;
    each
}

criterion_group! {
    name = benches;
    config = Criterion::default().measurement_time(Duration::from_secs(5)).sample_size(20);
    targets = one_at_a_time, submit_to_running, many_at_once, backlog
}
criterion_main!(benches);
