//! Looks after jobs without a result while none come: results that weren't received are looked up,
//! and jobs that the server has lost are sent again.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::sleep;
use crate::names::JobKey;

use super::shared::Inner;

/// How long no result may come before jobs are looked after.
const QUIET: Duration = Duration::from_secs(10);
/// Jobs that are looked after in one go.
const MOST_CHECKED: usize = 256;

/// Checks for ever.
pub(super) async fn check(inner: Arc<Inner>) {
    let mut results = 0;
    loop {
        sleep(QUIET).await;
        let (now, keys) = {
            let state = inner.state.lock();
            let stored = state.pending.iter().filter(|(_, pending)| pending.is_stored);
            let keys: Vec<JobKey> = stored.map(|(key, _)| key.clone()).take(MOST_CHECKED).collect();
            (state.results, keys)
        };
        if std::mem::replace(&mut results, now) != now {
            continue;
        }
        for key in keys {
            look_after(&inner, &key).await;
        }
    }
}

async fn look_after(inner: &Inner, key: &JobKey) {
    let subject = match inner.state.lock().pending.get(key) {
        Some(pending) => pending.subject.clone(),
        None => return,
    };
    // In this order: whoever takes a job out of the queue has stored its result before.
    let queued = inner.streams.queue(&subject).direct_get_last_for_subject(subject.clone()).await;
    let is_missing = queued.is_err_and(|error| {
        error.kind() == async_nats::jetstream::stream::DirectGetErrorKind::NotFound
    });
    if inner.look_up(key).await || !is_missing {
        return;
    }
    let message = {
        let mut state = inner.state.lock();
        let Some(pending) = state.pending.get_mut(key) else { return };
        pending.sent += 1;
        // The server remembers the id of the lost one.
        pending.message.clone().message_id(format!("{key}.{}", pending.sent))
    };
    tracing::warn!("the NATS server has lost the job `{key}`, which is sent again");
    if let Err(error) = inner.streams.store(&subject, &message).await {
        tracing::warn!("{error}");
    }
}
