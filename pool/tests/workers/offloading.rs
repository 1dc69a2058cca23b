//! States that are being offloaded when the pool is closed.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn closing_waits_for_the_present_offload_and_refuses_the_rest() {
    let mut rig = rig().await;
    rig.source.gate(Step::Pack, [Gate::Never]);
    for _ in 0..2 {
        let cell = Arc::new(SessionCell::new(SessionId(1), Some(rig.source.suspended(1))));
        rig.pool.offload(cell, Tier::Compressed);
        while rig.source.reached(Step::Pack) < 1 {
            tokio::task::yield_now().await;
        }
    }
    let closing = tokio::spawn({
        let pool = rig.pool.clone();
        async move { pool.close().await }
    });
    assert!(rig.offloaded().await.unwrap_err().to_string().contains("closing"));
    assert!(!closing.is_finished());
    rig.source.release();
    assert!(closing.await.unwrap());
    rig.offloaded().await.unwrap();
    rig.pool.offload(session(), Tier::Disk);
    assert!(rig.offloaded().await.unwrap_err().to_string().contains("closed"));
}
