//! Starting, showing itself, draining and what is left afterwards. A process of its own, since it
//! counts the threads of the process.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::fs;
use std::time::Duration;

use hatchery::{Error, Hatchery, Job, Phase, Refusal, WorkerActivity};

/// Names of this process's threads that belong to workers.
fn worker_threads() -> usize {
    fs::read_dir("/proc/self/task")
        .unwrap()
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("comm")).ok())
        .filter(|name| name.starts_with("hatchery-worker"))
        .count()
}

#[test]
fn a_pool_starts_shows_itself_drains_and_leaves_nothing() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let refused = Hatchery::builder().workers(0).start().await.unwrap_err();
        assert!(refused.to_string().contains("at least 1"), "{refused}");

        let pool = Hatchery::builder().workers(1).start().await.unwrap();
        let running = pool.submit(Job::code("x = 1")).await.unwrap();
        let waiting = pool.submit(Job::code("y = 2")).await.unwrap();
        let status = pool.status();
        assert_eq!(status.phase, Phase::Open);
        assert_eq!(status.workers.len(), 1);
        assert_eq!(status.queue_depth + status.running, 2, "{status:?}");
        assert!(running.await.is_success() && waiting.await.is_success());

        let before = worker_threads();
        let session = pool.session("s").await.unwrap();
        assert!(session.run(Job::code("1")).await.unwrap().is_success());
        assert_eq!(worker_threads(), before, "a session has no thread of its own");
        let status = pool.status();
        assert_eq!(status.sessions[0].name, "s");
        let worker = status.workers.last().unwrap();
        assert!(matches!(worker.activity, WorkerActivity::Ready | WorkerActivity::Resetting));
        assert_eq!(worker.session, Some(status.sessions[0].session));
        assert_eq!(worker.jobs_served, 3);
        assert!(worker.memory_bytes > 0);

        tokio::time::timeout(Duration::from_secs(30), pool.drain()).await.unwrap();
        assert_eq!(worker_threads(), before - 1);
        assert_eq!(pool.status().phase, Phase::Drained);
        assert!(pool.status().workers.is_empty());
        let refused = pool.run(Job::code("1")).await.unwrap_err();
        assert!(matches!(refused, Error::Refused(Refusal::ShuttingDown)), "{refused}");
    });
}
