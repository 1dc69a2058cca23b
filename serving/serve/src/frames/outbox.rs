//! The queue of frames to write to a connection.

use std::io;

use serde::Serialize;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use wire::message::{MOST_ATTACHED_BYTES, MOST_HEADER_BYTES, ServerMessage};

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
    /// Returns an outbox, and the task that writes to a stream until nobody can send any more.
    pub(super) fn new(
        stream: impl AsyncWrite + Unpin + Send + 'static,
    ) -> (Self, JoinHandle<io::Result<()>>) {
        let (sender, receiver) = mpsc::channel(MOST_WAITING);
        (Self(sender), tokio::spawn(write(receiver, stream)))
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
        self.0.send(encode(message, attachments)).await.map_err(|_| Gone)
    }

    /// Sends a message from where nobody can wait, as soon as there is room.
    pub(super) fn send_soon(&self, message: &ServerMessage) {
        let frame = encode(message, &[]);
        if let Err(mpsc::error::TrySendError::Full(frame)) = self.0.try_send(frame) {
            let sender = self.0.clone();
            tokio::spawn(async move { sender.send(frame).await });
        }
    }
}

/// Writes frames, those that wait together.
async fn write(
    mut frames: mpsc::Receiver<Vec<u8>>,
    mut stream: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    while let Some(mut bytes) = frames.recv().await {
        while bytes.len() < BATCH_BYTES
            && let Ok(next) = frames.try_recv()
        {
            bytes.extend_from_slice(&next);
        }
        stream.write_all(&bytes).await?;
        stream.flush().await?;
    }
    Ok(())
}

/// The field of a header that has the lengths of its attachments.
const ATTACHMENTS: &str = "attachments";

/// A frame as it was read.
#[derive(Debug)]
pub(super) struct Frame {
    /// The message, without the lengths of the attachments.
    pub(super) message: Value,
    pub(super) attachments: Vec<Vec<u8>>,
}

/// Why no frame can be read. What follows can't be understood either, so the connection ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum FrameError {
    #[error("the connection failed")]
    Io(#[from] io::Error),
    #[error("the header of a frame has {bytes} bytes; at most {MOST_HEADER_BYTES} are accepted")]
    LongHeader { bytes: usize },
    #[error("the attachments of a frame have more than {MOST_ATTACHED_BYTES} bytes in all")]
    LongAttachments,
    #[error("the header of a frame is not a JSON object")]
    Header(#[source] Option<serde_json::Error>),
    #[error("`attachments` must be an array of lengths in bytes")]
    Lengths,
}

/// Reads the next frame; `None` at the end of the stream.
///
/// # Errors
/// The stream ends within a frame or fails, or the frame is invalid or too long.
pub(super) async fn read_frame(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<Option<Frame>, FrameError> {
    let mut length = [0; 4];
    // Nothing at all is the end; a part of a length is not.
    match stream.read(&mut length).await? {
        0 => return Ok(None),
        count => stream.read_exact(&mut length[count..]).await?,
    };
    let bytes = u32::from_le_bytes(length) as usize;
    if bytes > MOST_HEADER_BYTES {
        return Err(FrameError::LongHeader { bytes });
    }
    let header = take(stream, bytes).await?;
    let mut message: Value =
        serde_json::from_slice(&header).map_err(|error| FrameError::Header(Some(error)))?;
    let fields = message.as_object_mut().ok_or(FrameError::Header(None))?;
    let lengths = match fields.remove(ATTACHMENTS) {
        None => Vec::new(),
        Some(lengths) => {
            serde_json::from_value::<Vec<usize>>(lengths).map_err(|_| FrameError::Lengths)?
        }
    };
    let total = lengths.iter().try_fold(0_usize, |total, length| total.checked_add(*length));
    if total.is_none_or(|total| total > MOST_ATTACHED_BYTES) {
        return Err(FrameError::LongAttachments);
    }
    let mut attachments = Vec::with_capacity(lengths.len().min(1024));
    for length in lengths {
        attachments.push(take(stream, length).await?);
    }
    Ok(Some(Frame { message, attachments }))
}

/// Reads this many bytes. Takes memory for them as they come, so that a length alone takes none.
async fn take(stream: &mut (impl AsyncRead + Unpin), count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(count.min(64 << 10));
    let read = stream.take(count as u64).read_to_end(&mut bytes).await?;
    if read < count {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

/// Returns a frame as bytes.
///
/// # Panics
/// The message isn't a JSON object.
pub(super) fn encode(message: &impl Serialize, attachments: &[&[u8]]) -> Vec<u8> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, message).expect("a message is text and numbers");
    if !attachments.is_empty() {
        let lengths: Vec<usize> = attachments.iter().map(|bytes| bytes.len()).collect();
        assert_eq!(frame.pop(), Some(b'}'), "a message is an object");
        frame.extend_from_slice(b",\"attachments\":");
        serde_json::to_writer(&mut frame, &lengths).expect("they are numbers");
        frame.push(b'}');
    }
    let header = u32::try_from(frame.len() - 4).expect("results are shorter");
    frame[..4].copy_from_slice(&header.to_le_bytes());
    attachments.iter().for_each(|bytes| frame.extend_from_slice(bytes));
    frame
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    async fn read_all(mut bytes: &[u8]) -> Result<Vec<Frame>, FrameError> {
        let mut frames = Vec::new();
        while let Some(frame) = read_frame(&mut bytes).await? {
            frames.push(frame);
        }
        Ok(frames)
    }

    fn framed(header: &str) -> Vec<u8> {
        let length = u32::try_from(header.len()).unwrap().to_le_bytes();
        [&length, header.as_bytes()].concat()
    }

    #[tokio::test]
    async fn frames_come_back_as_they_were() {
        let plain = encode(&json!({ "a": 1 }), &[]);
        let full = encode(&json!({ "b": "ä" }), &[b"xyz", b"", &[0; 100_000]]);
        let frames = read_all(&[plain, full].concat()).await.unwrap();
        assert_eq!(frames[0].message, json!({ "a": 1 }));
        assert_eq!(frames[1].message, json!({ "b": "ä" }));
        assert_eq!(frames[1].attachments, [b"xyz".to_vec(), Vec::new(), vec![0; 100_000]]);
    }

    #[tokio::test]
    async fn what_is_no_frame_is_an_error_that_says_why() {
        for (bytes, expected) in [
            (b"\x01".to_vec(), "the connection failed"),
            (framed("{}")[..5].to_vec(), "the connection failed"),
            (u32::MAX.to_le_bytes().to_vec(), "at most 67108864"),
            (framed("[]"), "not a JSON object"),
            (framed("{"), "not a JSON object"),
            (framed(r#"{"attachments": 1}"#), "an array of lengths"),
            (framed(r#"{"attachments": [-1]}"#), "an array of lengths"),
            (framed(r#"{"attachments": [18446744073709551615, 1]}"#), "more than 1073741824"),
            (framed(r#"{"attachments": [1073741824]}"#), "the connection failed"),
        ] {
            let error = read_all(&bytes).await.unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_frames_or_an_error(bytes: Vec<u8>) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let _ = runtime.block_on(read_all(&bytes));
        }
    }
}
