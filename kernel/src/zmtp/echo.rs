//! A socket that sends back whatever arrives, to each peer independently of the others.

use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::greeting::Kind;
use super::peer::{Hear, MOST_QUEUED, accept};
use super::{Frames, Listener, Terms};

/// Serves connections until the socket is to end.
pub(crate) async fn echo(listener: Listener, terms: Terms) {
    let serve = |peer: super::peer::Peer| {
        let (sender, queue) = mpsc::channel(MOST_QUEUED);
        async move { peer.run(queue, Echo(sender)).await }
    };
    accept(listener, Kind::Router, terms, serve).await;
}

struct Echo(mpsc::Sender<Frames>);

impl Hear for Echo {
    /// Waits while its peer doesn't read.
    async fn hear(&mut self, frames: Frames, _turn: Option<OwnedSemaphorePermit>) -> bool {
        self.0.send(frames).await.is_ok()
    }
}
