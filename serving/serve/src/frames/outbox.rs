//! What waits to be written to a connection.

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use wire::message::ServerMessage;

use super::codec;

/// Frames that may wait. Sending another one waits, so that a client that doesn't read holds up
/// its own jobs' answers and nothing else.
const MOST_WAITING: usize = 256;
/// Bytes that are written at once, if so many wait.
const BATCH_BYTES: usize = 64 << 10;

/// Sends frames to one client. Clones send to the same one.
#[derive(Debug, Clone)]
pub(super) struct Outbox(mpsc::Sender<Vec<u8>>);

/// The client is gone.
#[derive(Debug)]
pub(super) struct Gone;

impl Outbox {
    /// Returns an outbox, and what is to be written.
    pub(super) fn new() -> (Self, Inbox) {
        let (sender, receiver) = mpsc::channel(MOST_WAITING);
        (Self(sender), Inbox(receiver))
    }

    /// Sends a message, and waits for room.
    ///
    /// # Errors
    /// The client is gone.
    pub(super) async fn send(
        &self,
        message: &ServerMessage,
        attachments: &[&[u8]],
    ) -> Result<(), Gone> {
        self.0.send(codec::encode(message, attachments)).await.map_err(|_| Gone)
    }

    /// Sends a message from where nobody can wait, as soon as there is room.
    pub(super) fn send_soon(&self, message: &ServerMessage) {
        let frame = codec::encode(message, &[]);
        if let Err(mpsc::error::TrySendError::Full(frame)) = self.0.try_send(frame) {
            let sender = self.0.clone();
            tokio::spawn(async move { sender.send(frame).await });
        }
    }
}

/// The frames to write.
#[derive(Debug)]
pub(super) struct Inbox(mpsc::Receiver<Vec<u8>>);

impl Inbox {
    /// Writes frames until nobody can send any more, those that wait together.
    ///
    /// # Errors
    /// The stream fails.
    pub(super) async fn write_to(
        mut self,
        mut stream: impl AsyncWrite + Unpin,
    ) -> std::io::Result<()> {
        while let Some(mut frames) = self.0.recv().await {
            while frames.len() < BATCH_BYTES
                && let Ok(next) = self.0.try_recv()
            {
                frames.extend_from_slice(&next);
            }
            stream.write_all(&frames).await?;
            stream.flush().await?;
        }
        Ok(())
    }
}
