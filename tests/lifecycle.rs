//! Starting, status, draining, and what is left afterwards. In its own process, since it counts the
//! process's threads.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hatchery::status::{Phase, WorkerActivity};
use hatchery::{Error, Hatchery, HostError, HostFunction, Job, Refusal};
use test_support::threads;
use tokio::sync::Notify;

/// The names of the spans that were created.
#[derive(Debug, Clone, Default)]
struct Spans(Arc<Mutex<BTreeSet<&'static str>>>);

impl tracing::Subscriber for Spans {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.is_span()
    }

    fn new_span(&self, attributes: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        self.0.lock().unwrap().insert(attributes.metadata().name());
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _span: &tracing::span::Id, _values: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _span: &tracing::span::Id, _follows: &tracing::span::Id) {}

    fn event(&self, _event: &tracing::Event<'_>) {}

    fn enter(&self, _span: &tracing::span::Id) {}

    fn exit(&self, _span: &tracing::span::Id) {}
}

/// Returns the resident memory of this process, in bytes, without memory that the allocator keeps
/// for later.
#[expect(unsafe_code, reason = "calls the C library")]
fn resident_bytes() -> u64 {
    // SAFETY: it may be called at any time, and touches only free memory.
    unsafe { libc::malloc_trim(0) };
    untrimmed_bytes()
}

/// Returns the resident memory of this process, in bytes.
fn untrimmed_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// One test, since its parts measure the whole process.
#[test]
fn a_pool_starts_shows_its_status_drains_and_leaves_nothing() {
    let spans = Spans::default();
    tracing::subscriber::set_global_default(spans.clone()).unwrap();
    shows_its_status_and_leaves_no_thread();
    for span in ["load_engine", "load_image", "start_interpreter", "job", "resume", "run_program"] {
        assert!(spans.0.lock().unwrap().contains(span), "{span} is missing: {spans:?}");
    }
    returns_its_memory();
    returns_the_memory_of_forks();
}

/// Forks are many small blocks, between which the allocator keeps free memory.
fn returns_the_memory_of_forks() {
    const FORKS: usize = 1_500;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let pool = Hatchery::builder().workers(2).start().await.unwrap();
        let session = pool.session("parent").await.unwrap();
        assert!(session.run(Job::code("import os")).await.unwrap().is_success());
        let before = resident_bytes();
        let forks = session.fork_many(FORKS).await.unwrap();
        for fork in &forks {
            let outcome = fork.run(Job::code("x = os.urandom(100_000)")).await.unwrap();
            assert!(outcome.is_success(), "{outcome:?}");
        }
        let meanwhile = untrimmed_bytes();
        assert!(meanwhile > before + (FORKS << 16) as u64, "{before} bytes, then {meanwhile}");
        // Those that stay keep the heap from shrinking at its end.
        let (stay, end): (Vec<_>, Vec<_>) =
            forks.into_iter().enumerate().partition(|(number, _)| number % 50 == 49);
        end.into_iter().for_each(|(_, fork)| fork.close());
        let most = before + (meanwhile - before) / 4;
        let gives_back = async {
            while untrimmed_bytes() > most {
                tokio::task::yield_now().await;
            }
        };
        let gave_back = tokio::time::timeout(Duration::from_secs(30), gives_back).await;
        let after = untrimmed_bytes();
        println!("resident: {before} bytes before forks, {meanwhile} with them, {after} after");
        assert!(gave_back.is_ok(), "{before} bytes before, {meanwhile} then, {after} after");
        drop(stay);
        pool.drain().await;
    });
}

fn returns_its_memory() {
    const ROOM: u64 = 16 << 20;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let before = resident_bytes();
        let after = resident_after_a_pool(before + ROOM).await;
        println!("resident: {before} bytes before, {after} after a pool");
    });
}

/// Returns the resident memory after a pool that used much of it has drained, waiting until it is
/// at most this.
async fn resident_after_a_pool(most: u64) -> u64 {
    let before = resident_bytes();
    let pool = Hatchery::builder().workers(2).preload(["numpy"]).start().await.unwrap();
    for name in ["a", "b", "c"] {
        let session = pool.session(name).await.unwrap();
        let fills = "import numpy; a = numpy.ones(4_000_000)";
        assert!(session.run(Job::code(fills)).await.unwrap().is_success());
    }
    let meanwhile = resident_bytes();
    assert!(meanwhile > before + (48 << 20), "{before} bytes before, {meanwhile} then");
    tokio::time::timeout(Duration::from_secs(30), pool.drain()).await.unwrap();
    drop(pool);
    // Its actors end slightly after they have reported it.
    let gives_back = async {
        while resident_bytes() > most {
            tokio::task::yield_now().await;
        }
    };
    let gave_back = tokio::time::timeout(Duration::from_secs(10), gives_back).await;
    let after = resident_bytes();
    assert!(gave_back.is_ok(), "{before} bytes before, {meanwhile} then, {after} after");
    after
}

fn shows_its_status_and_leaves_no_thread() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let refused = Hatchery::builder().workers(0).start().await.unwrap_err();
        assert!(refused.to_string().contains("at least 1"), "{refused}");

        let pool = Hatchery::builder().workers(1).start().await.unwrap();
        let (started, goes_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (tell, hold) = (Arc::clone(&started), Arc::clone(&goes_on));
        let held = HostFunction::future("held", move |()| {
            let (tell, hold) = (Arc::clone(&tell), Arc::clone(&hold));
            async move {
                tell.notify_one();
                hold.notified().await;
                Ok::<_, HostError>(())
            }
        });
        let holds = Job::code("from hatchery import host; host.held()");
        let running = pool.submit(holds.function(held.no_parameters())).await.unwrap();
        let waiting = pool.submit(Job::code("y = 2")).await.unwrap();
        started.notified().await;
        let status = pool.status();
        assert_eq!(status.phase, Phase::Open);
        assert_eq!(status.workers.len(), 1);
        assert_eq!((status.queue_depth, status.running), (1, 1), "{status:?}");
        goes_on.notify_one();
        assert!(running.await.is_success() && waiting.await.is_success());

        let before = threads::workers().unwrap();
        let session = pool.session("s").await.unwrap();
        assert!(session.run(Job::code("1")).await.unwrap().is_success());
        // Fewer are possible: a new thread has the name of its parent until it sets its own.
        let after = threads::workers().unwrap();
        assert!(after <= before, "a session has no thread of its own: {before}, then {after}");
        let status = pool.status();
        assert_eq!(status.sessions[0].name, "s");
        let worker = status.workers.last().unwrap();
        assert!(matches!(worker.activity, WorkerActivity::Ready | WorkerActivity::Resetting));
        assert_eq!(worker.session, Some(status.sessions[0].session));
        assert_eq!(worker.jobs_served, 3);
        assert!(worker.memory_bytes > 0);

        tokio::time::timeout(Duration::from_secs(30), pool.drain()).await.unwrap();
        assert!(threads::no_worker_is_left().unwrap());
        assert_eq!(pool.status().phase, Phase::Drained);
        assert!(pool.status().workers.is_empty());
        let refused = pool.run(Job::code("1")).await.unwrap_err();
        assert!(matches!(refused, Error::Refused(Refusal::ShuttingDown)), "{refused}");
    });
}
