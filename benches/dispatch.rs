//! What do scheduler and pool add to a job? Measures submission to outcome on scripted interpreters
//! that do nothing, against a bare channel to a thread and back.
//!
//! Doesn't measure: Python, wasm, the start of interpreters (the scripted one starts in no time).

use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use pool::PoolConfig;
use pool::interpreter::fake::FakeSource;
use scheduler::{JobRequest, Scheduler, SchedulerConfig};
use tokio::runtime::Runtime;

type Reply = tokio::sync::oneshot::Sender<u64>;

/// The least that handing work to a thread and hearing back can cost.
fn bare_thread() -> crossbeam_channel::Sender<(u64, Reply)> {
    let (sender, receiver) = crossbeam_channel::bounded::<(u64, Reply)>(1024);
    std::thread::spawn(move || {
        for (number, reply) in receiver {
            let _ = reply.send(number);
        }
    });
    sender
}

fn request() -> JobRequest {
    let program = hatchery::Program { source: "ok".to_owned(), ..hatchery::Program::default() };
    JobRequest { program, limits: hatchery::Limits::default(), session: None }
}

async fn start(workers: usize) -> Scheduler {
    let config = SchedulerConfig { concurrent: workers, ..SchedulerConfig::default() };
    let pool = PoolConfig { workers, ..PoolConfig::default() };
    let scheduler = Scheduler::start(config, pool, Arc::new(FakeSource::default())).await;
    scheduler.expect("the configuration makes sense")
}

/// One job at a time: latency.
fn one_at_a_time(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("threads can be had");
    let mut group = criterion.benchmark_group("submit_to_outcome");
    let channel = bare_thread();
    group.bench_function("bare_channel", |bencher| {
        bencher.iter(|| {
            runtime.block_on(async {
                let (reply, answer): (Reply, _) = tokio::sync::oneshot::channel();
                channel.send((7, reply)).expect("the thread lives");
                assert_eq!(answer.await, Ok(7));
            });
        });
    });
    let scheduler = runtime.block_on(start(2));
    group.bench_function("scheduler_and_pool", |bencher| {
        bencher.iter(|| {
            runtime.block_on(async {
                let outcome = scheduler.submit(request()).await.expect("it is taken").await;
                assert!(outcome.is_success());
            });
        });
    });
    group.finish();
    runtime.block_on(scheduler.abort());
}

/// A thousand jobs at once: throughput.
fn many_at_once(criterion: &mut Criterion) {
    const JOBS: u64 = 1_000;
    let runtime = Runtime::new().expect("threads can be had");
    let mut group = criterion.benchmark_group("thousand_jobs");
    group.throughput(Throughput::Elements(JOBS));
    for workers in [1, 2] {
        let scheduler = runtime.block_on(start(workers));
        group.bench_function(BenchmarkId::new("workers", workers), |bencher| {
            bencher.iter(|| {
                runtime.block_on(async {
                    let mut tickets = Vec::with_capacity(JOBS as usize);
                    for _ in 0..JOBS {
                        tickets.push(scheduler.submit(request()).await.expect("it is taken"));
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

criterion_group! {
    name = benches;
    config = Criterion::default().measurement_time(Duration::from_secs(5)).sample_size(20);
    targets = one_at_a_time, many_at_once
}
criterion_main!(benches);
