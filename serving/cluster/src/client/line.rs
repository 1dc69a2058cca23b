//! The line of a session's turns: each is sent when the one before it is on the server.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use crate::sessions::SessionKey;

use super::shared::Inner;

/// Ends when a turn is on the server, or never will be. A turn that has given up while it waited says
/// what it waited for.
#[derive(Debug)]
pub(super) struct Waiting(oneshot::Receiver<Waiting>);

/// A place in the line of a session's turns. The next one waits until this is dropped, and until those
/// before are.
#[derive(Debug)]
pub(crate) struct Place {
    inner: Arc<Inner>,
    session: SessionKey,
    after: Option<Waiting>,
    done: Option<oneshot::Sender<Waiting>>,
}

impl Place {
    /// Takes the last place.
    pub(super) fn take(inner: &Arc<Inner>, session: SessionKey) -> Self {
        let (done, waiting) = oneshot::channel();
        let after = inner.state.lock().lines.insert(session.clone(), Waiting(waiting));
        Self { inner: Arc::clone(inner), session, after, done: Some(done) }
    }

    /// Waits until it is this one's turn. Cancel-safe.
    pub(crate) async fn come(&mut self) {
        while let Some(Waiting(after)) = &mut self.after {
            self.after = after.await.ok();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        match (self.done.take(), self.after.take()) {
            // Fails if nobody has come after.
            (Some(done), Some(after)) => drop(done.send(after)),
            (done, _) => drop(done),
        }
        let mut state = self.inner.state.lock();
        let Entry::Occupied(mut last) = state.lines.entry(self.session.clone()) else { return };
        loop {
            match last.get_mut().0.try_recv() {
                Ok(earlier) => *last.get_mut() = earlier,
                Err(TryRecvError::Empty) => return,
                // Nobody has come after.
                Err(TryRecvError::Closed) => {
                    last.remove();
                    return;
                }
            }
        }
    }
}
