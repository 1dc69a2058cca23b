//! Frames on the wire: reads messages within bounds, and writes them.
//!
//! A frame is a byte of flags, a length of one byte or of eight, and the body. Bodies are read only
//! once the whole message is known to stay within its bound, and no memory is taken for what was
//! announced and hasn't been allowed.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, BufWriter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::Frames;

/// A connection's two directions.
pub(super) type Reader = Box<dyn AsyncRead + Send + Unpin>;
pub(super) type Writer = Box<dyn AsyncWrite + Send + Unpin>;

const MORE: u8 = 1;
const LONG: u8 = 1 << 1;
const COMMAND: u8 = 1 << 2;

/// The longest command. `READY` has a socket's type and its identity.
const MOST_COMMAND_BYTES: usize = 1024;
/// The most frames of a message: identities, the parts of a message, and buffers of widgets.
const MOST_FRAMES: usize = 64;
/// The bytes of a message that any connection may send at any time.
const SMALL_BYTES: usize = 64 << 10;
/// How many messages with more bytes are received at once, by all sockets of a kernel.
const MOST_LARGE: usize = 4;
/// How long a large message may take, once it is its turn.
const LONGEST_LARGE: Duration = Duration::from_secs(60);

/// What the large messages of a kernel's sockets share.
#[derive(Debug, Clone)]
pub(crate) struct Large(Arc<Semaphore>);

impl Default for Large {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOST_LARGE)))
    }
}

/// What arrives.
#[derive(Debug)]
pub(super) enum Incoming {
    /// A message, and its turn if it is large, to be held until it is known whose it is.
    Message(Frames, Option<OwnedSemaphorePermit>),
    /// The body of a command.
    Command(Bytes),
}

/// Reads frames.
pub(super) struct FrameReader {
    reader: BufReader<Reader>,
    /// The most bytes of a message.
    most_bytes: usize,
    large: Large,
}

/// A message of which more is to come.
#[derive(Debug, Default)]
struct Begun {
    frames: Frames,
    bytes: usize,
    /// The header that was read last, if its body wasn't.
    next: Option<Header>,
}

#[derive(Debug, Clone, Copy)]
struct Header {
    flags: u8,
    bytes: usize,
}

/// How far a message was read.
enum Progress {
    Whole,
    /// The next frame would exceed the bound.
    Exceeds,
    Command(Bytes),
}

impl FrameReader {
    pub(super) fn new(reader: Reader, most_bytes: usize, large: Large) -> Self {
        Self { reader: BufReader::new(reader), most_bytes, large }
    }

    /// Reads bytes that are no frames: a greeting.
    pub(super) async fn exactly<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes).await?;
        Ok(bytes)
    }

    /// Reads the next message or command.
    ///
    /// # Errors
    /// The connection ended, or what comes breaks a bound or the protocol. Nothing can be read
    /// afterwards.
    pub(super) async fn next(&mut self) -> io::Result<Incoming> {
        let mut begun = Begun::default();
        match self.read(&mut begun, SMALL_BYTES.min(self.most_bytes)).await? {
            Progress::Whole => return Ok(Incoming::Message(begun.frames, None)),
            Progress::Command(body) => return Ok(Incoming::Command(body)),
            Progress::Exceeds => {}
        }
        let announced = begun.next.map_or(0, |header| header.bytes);
        if begun.bytes.saturating_add(announced) > self.most_bytes {
            return Err(invalid("a message is too long"));
        }
        let turn = Arc::clone(&self.large.0).acquire_owned().await;
        let turn = turn.expect("nobody closes the semaphore");
        let rest = timeout(LONGEST_LARGE, self.read(&mut begun, self.most_bytes));
        match rest.await.map_err(|_| invalid("a large message took too long"))?? {
            Progress::Whole => Ok(Incoming::Message(begun.frames, Some(turn))),
            Progress::Exceeds => Err(invalid("a message is too long")),
            Progress::Command(_) => Err(invalid("a command is inside of a message")),
        }
    }

    /// Reads on, unless the message would have more bytes than these.
    async fn read(&mut self, begun: &mut Begun, most_bytes: usize) -> io::Result<Progress> {
        loop {
            let header = match begun.next.take() {
                Some(header) => header,
                None => self.header().await?,
            };
            if header.flags & COMMAND != 0 {
                if !begun.frames.is_empty() || header.bytes > MOST_COMMAND_BYTES {
                    return Err(invalid("a command is too long or inside of a message"));
                }
                return Ok(Progress::Command(self.body(header.bytes).await?));
            }
            if begun.bytes.saturating_add(header.bytes) > most_bytes {
                begun.next = Some(header);
                return Ok(Progress::Exceeds);
            }
            if begun.frames.len() == MOST_FRAMES {
                return Err(invalid("a message has too many frames"));
            }
            begun.bytes += header.bytes;
            begun.frames.push(self.body(header.bytes).await?);
            if header.flags & MORE == 0 {
                return Ok(Progress::Whole);
            }
        }
    }

    async fn header(&mut self) -> io::Result<Header> {
        let flags = self.reader.read_u8().await?;
        if flags & !(MORE | LONG | COMMAND) != 0 {
            return Err(invalid("a frame has unknown flags"));
        }
        let bytes = match flags & LONG {
            0 => u64::from(self.reader.read_u8().await?),
            _ => self.reader.read_u64().await?,
        };
        // Whatever doesn't fit exceeds every bound.
        Ok(Header { flags, bytes: usize::try_from(bytes).unwrap_or(usize::MAX) })
    }

    async fn body(&mut self, bytes: usize) -> io::Result<Bytes> {
        let mut body = BytesMut::zeroed(bytes);
        self.reader.read_exact(&mut body).await?;
        Ok(body.freeze())
    }
}

/// Writes frames. What is written leaves with [`flush`](Self::flush) at the latest.
pub(super) struct FrameWriter(BufWriter<Writer>);

impl FrameWriter {
    pub(super) fn new(writer: Writer) -> Self {
        Self(BufWriter::new(writer))
    }

    /// Writes bytes that are no frames.
    pub(super) async fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).await
    }

    pub(super) async fn message(&mut self, frames: &[Bytes]) -> io::Result<()> {
        let last = frames.len().saturating_sub(1);
        for (place, frame) in frames.iter().enumerate() {
            self.frame(if place == last { 0 } else { MORE }, frame).await?;
        }
        Ok(())
    }

    pub(super) async fn command(&mut self, body: &[u8]) -> io::Result<()> {
        self.frame(COMMAND, body).await
    }

    async fn frame(&mut self, flags: u8, body: &[u8]) -> io::Result<()> {
        match u8::try_from(body.len()) {
            Ok(bytes) => self.0.write_all(&[flags, bytes]).await?,
            Err(_) => {
                self.0.write_u8(flags | LONG).await?;
                self.0.write_u64(body.len() as u64).await?;
            }
        }
        self.0.write_all(body).await
    }

    pub(super) async fn flush(&mut self) -> io::Result<()> {
        self.0.flush().await
    }

    /// Writes what is left, and says that nothing follows.
    pub(super) async fn end(mut self) -> io::Result<()> {
        self.0.shutdown().await
    }
}

/// Returns the error of a peer that breaks the protocol.
pub(super) fn invalid(problem: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use tokio::io::duplex;

    use super::*;

    /// Returns what a reader makes of these bytes, until they end.
    async fn read(bytes: &[u8], most_bytes: usize) -> Vec<io::Result<Incoming>> {
        let reader = Box::new(io::Cursor::new(bytes.to_vec()));
        let mut reader = FrameReader::new(reader, most_bytes, Large::default());
        let mut all = Vec::new();
        loop {
            all.push(reader.next().await);
            if all.last().is_some_and(Result::is_err) {
                return all;
            }
        }
    }

    fn problem(read: &[io::Result<Incoming>]) -> String {
        read.last().unwrap().as_ref().unwrap_err().to_string()
    }

    #[tokio::test]
    async fn lengths_are_refused_before_memory_is_taken() {
        for length in [1 << 63, u64::MAX, 1001, 70_000] {
            let announced = [&[LONG][..], &length.to_be_bytes()].concat();
            assert_eq!(problem(&read(&announced, 1000).await), "a message is too long");
        }
        // Frames count together.
        let halves = [[LONG | MORE].as_slice(), &600_u64.to_be_bytes(), &[0; 600]].concat();
        assert_eq!(problem(&read(&halves.repeat(2), 1000).await), "a message is too long");
        let endless = [MORE, 0].repeat(MOST_FRAMES + 1);
        assert_eq!(problem(&read(&endless, 1000).await), "a message has too many frames");
        let command = [&[COMMAND | LONG][..], &(1_u64 << 40).to_be_bytes()].concat();
        assert!(problem(&read(&command, 1000).await).contains("a command is too long"));
        assert_eq!(problem(&read(&[0xff; 9], 1000).await), "a frame has unknown flags");
    }

    #[tokio::test]
    async fn large_messages_have_turns_and_small_ones_need_none() {
        let large = Large::default();
        let turns = Arc::clone(&large.0).acquire_many_owned(MOST_LARGE as u32).await.unwrap();
        let (mut near, far) = duplex(1 << 20);
        let mut reader = FrameReader::new(Box::new(far), 1 << 20, large);
        near.write_all(&[0, 1, b'a']).await.unwrap();
        assert!(matches!(reader.next().await, Ok(Incoming::Message(_, None))));
        let body = vec![7; SMALL_BYTES + 1];
        let header = [&[LONG][..], &(body.len() as u64).to_be_bytes()].concat();
        near.write_all(&[header, body.clone()].concat()).await.unwrap();
        let reading = tokio::spawn(async move { reader.next().await });
        drop(turns);
        let Ok(Ok(Incoming::Message(frames, Some(_)))) = reading.await else { panic!() };
        assert_eq!(frames, [Bytes::from(body)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_message_that_stands_still_loses_its_turn() {
        let (mut near, far) = duplex(1 << 20);
        let large = Large::default();
        let mut reader = FrameReader::new(Box::new(far), 1 << 20, large.clone());
        let header = [&[LONG][..], &(SMALL_BYTES as u64 + 1).to_be_bytes()].concat();
        near.write_all(&header).await.unwrap();
        let read = reader.next().await;
        assert_eq!(read.unwrap_err().to_string(), "a large message took too long");
        assert_eq!(large.0.available_permits(), MOST_LARGE);
    }

    proptest! {
        /// What is written is read.
        #[test]
        fn messages_are_read_as_they_were_written(
            messages in vec(vec(vec(any::<u8>(), 0..600), 1..6), 1..4),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let (near, far) = duplex(1 << 20);
                let mut writer = FrameWriter::new(Box::new(near));
                let messages: Vec<Frames> = messages
                    .into_iter()
                    .map(|frames| frames.into_iter().map(Bytes::from).collect())
                    .collect();
                for message in &messages {
                    writer.message(message).await.unwrap();
                }
                writer.end().await.unwrap();
                let mut reader = FrameReader::new(Box::new(far), 1 << 20, Large::default());
                for message in &messages {
                    let Ok(Incoming::Message(frames, None)) = reader.next().await else { panic!() };
                    assert_eq!(&frames, message);
                }
                assert!(reader.next().await.is_err());
            });
        }

        /// Any bytes are read or refused.
        #[test]
        fn no_bytes_end_the_reader(bytes in vec(any::<u8>(), 0..300)) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let read = runtime.block_on(read(&bytes, 200));
            prop_assert!(read.len() <= bytes.len() + 1);
        }
    }
}
