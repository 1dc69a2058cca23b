//! What is left when a scheduler has ended: no thread, no file. A test binary of its own, since it
//! counts the threads of the process.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::fs;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use engine::Program;
use pool::{BuildId, Builds, PoolConfig};
use scheduler::{
    JobRequest, Scheduler, SchedulerConfig, SchedulerStatus, SessionsConfig, WorkersConfig,
};
use test_support::fake::FakeSource;
use test_support::threads;

/// How a scheduler ends.
#[derive(Debug, Clone, Copy)]
enum End {
    Drain,
    DrainFor,
    Abort,
    LastHandleDropped,
}

/// Counts the open files in this folder, with and without names.
fn open_files(folder: &Path) -> usize {
    let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
    open.filter_map(|entry| fs::read_link(entry.path()).ok())
        .filter(|path| path.starts_with(folder))
        .count()
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn is_empty(folder: &Path) -> bool {
    !folder.exists() || fs::read_dir(folder).unwrap().next().is_none()
}

fn script(source: &str) -> JobRequest {
    let program = Program { source: source.to_owned(), ..Program::default() };
    JobRequest { program, ..JobRequest::default() }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("it happens in time")
}

async fn until(scheduler: &Scheduler, condition: impl Fn(&SchedulerStatus) -> bool) {
    within(async {
        while !condition(&scheduler.status()) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Starts sessions on workers, suspended and on disk, and jobs that run, wait and have died; then ends
/// everything.
async fn live_and_end(end: End) {
    let offload_dir = tempfile::tempdir().unwrap();
    let source = FakeSource::default();
    let sessions = SessionsConfig { in_memory: 3, ..SessionsConfig::default() };
    let workers = WorkersConfig { min: 1, max: 3, ..WorkersConfig::default() };
    let config = SchedulerConfig { concurrent: 3, workers, sessions, ..SchedulerConfig::default() };
    let pool =
        PoolConfig { offload_dir: Some(offload_dir.path().to_owned()), ..PoolConfig::default() };
    let scheduler =
        Scheduler::start(config, pool, Builds::new(Arc::new(source.clone()))).await.unwrap();
    for number in 0..8 {
        let session =
            scheduler.open_session(&number.to_string(), BuildId::default()).await.unwrap().0;
        let turn = JobRequest { session: Some(session), ..script("count") };
        let ticket = scheduler.submit(turn).await.unwrap();
        assert!(within(ticket.into_future()).await.is_success());
    }
    until(&scheduler, |status| status.places.on_disk >= 5).await;
    assert!(open_files(offload_dir.path()) > 0 && threads::workers().unwrap() > 0);
    drop(within(scheduler.submit(script("panic")).await.unwrap().into_future()).await);
    let mut tickets = Vec::new();
    for _ in 0..6 {
        tickets.push(scheduler.submit(script("wait")).await.unwrap());
    }
    until(&scheduler, |status| status.running == 3).await;
    match end {
        End::Drain => {
            source.open();
            within(scheduler.drain()).await;
        }
        End::DrainFor => within(scheduler.drain_for(Duration::from_millis(20))).await,
        End::Abort => within(scheduler.abort()).await,
        End::LastHandleDropped => drop(tickets.drain(..)),
    }
    for ticket in tickets {
        drop(within(ticket.into_future()).await);
    }
    if !matches!(end, End::LastHandleDropped) {
        assert!(threads::no_worker_is_left().unwrap(), "after {end:?}");
    }
    // The handle keeps the unnamed offload file open.
    drop(scheduler);
    within(async {
        while open_files(offload_dir.path()) > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(threads::no_worker_is_left().unwrap(), "after {end:?}");
    assert!(is_empty(offload_dir.path()), "after {end:?}");
}

#[test]
fn nothing_is_left_however_it_ends() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut open = Vec::new();
        for end in [End::Drain, End::DrainFor, End::Abort, End::LastHandleDropped] {
            for _ in 0..5 {
                live_and_end(end).await;
                open.push(descriptors());
            }
        }
        let first = open[0];
        assert!(open.iter().all(|count| *count <= first + 2), "{open:?}");
    });
}
