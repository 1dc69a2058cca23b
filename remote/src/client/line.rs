//! The line of a session's turns: each is sent when the one before it is on the server.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use crate::sessions::SessionKey;

use super::shared::Inner;

/// A place in the line of a session's turns. The next one waits until this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    inner: Arc<Inner>,
    session: SessionKey,
    after: Option<oneshot::Receiver<()>>,
    done: Option<oneshot::Sender<()>>,
}

impl Place {
    /// Takes the last place.
    pub(super) fn take(inner: &Arc<Inner>, session: SessionKey) -> Self {
        let (done, waiting) = oneshot::channel();
        let after = inner.state.lock().lines.insert(session.clone(), waiting);
        Self { inner: Arc::clone(inner), session, after, done: Some(done) }
    }

    /// Waits until it is this one's turn.
    pub(crate) async fn come(&mut self) {
        if let Some(after) = self.after.take() {
            // It ends with an error: nothing is ever sent.
            let _ = after.await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.done.take());
        let mut state = self.inner.state.lock();
        let Entry::Occupied(mut last) = state.lines.entry(self.session.clone()) else { return };
        // Nobody has come after.
        if let Err(TryRecvError::Closed) = last.get_mut().try_recv() {
            last.remove();
        }
    }
}
