//! An image that later jobs start from, put in while others run.

use std::sync::Arc;

use engine::{Outcome, Verdict};
use pool::{BuildId, Builds, PoolConfig};
use scheduler::{JobRequest, Scheduler};
use test_support::fake::FakeSource;

use crate::{Rig, config, script, script_in, until, within};

/// Returns how many programs have run in the state of this one.
fn count(outcome: &Outcome) -> Option<u64> {
    match &outcome.verdict {
        Verdict::Completed { value, .. } => value.as_ref()?.as_u64(),
        _ => None,
    }
}

#[tokio::test]
async fn later_jobs_start_from_it_without_a_pause() {
    let (source, later_source) = (FakeSource::default(), FakeSource::default());
    let (builds, later) = Builds::new(Arc::new(source.clone())).with_later();
    let folder = tempfile::tempdir().unwrap();
    let pool = PoolConfig { offload_dir: Some(folder.path().to_owned()), ..PoolConfig::default() };
    let scheduler = Scheduler::start(config(2), pool, builds.clone()).await.unwrap();
    let rig = Rig { scheduler, source, _offload_dir: folder };
    let session = rig.scheduler.open_session("a", BuildId::default()).await.unwrap().0;
    assert_eq!(count(&rig.run(script_in("count", session)).await), Some(1));

    let running = rig.submit(script("wait")).await;
    until(&rig.scheduler, |_| rig.source.running() == [running.job_id()]).await;
    let before = rig.status().memory.shared_bytes;
    builds.provide(later, Arc::new(later_source.clone()));
    rig.scheduler.reserve_memory(1 << 20);
    for _ in 0..3 {
        let job = JobRequest { build: later, ..script("count") };
        assert_eq!(count(&rig.run(job).await), Some(1));
    }
    assert_eq!(rig.source.running(), [running.job_id()], "nothing has waited for it");
    assert_eq!(later_source.starts(), 1, "one worker changed to it, and stays");
    assert_eq!(rig.status().memory.shared_bytes, before + (1 << 20));
    rig.source.open();
    assert!(within(running.into_future()).await.is_success());
    assert_eq!(count(&rig.run(script_in("count", session)).await), Some(2));
    assert_eq!(rig.status().pythons, ["default"]);
}
