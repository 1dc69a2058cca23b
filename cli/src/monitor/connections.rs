//! Limits the clients of the monitor: the number of connections, and the duration of each.
//!
//! Otherwise idle connections could take every descriptor of the process, and the batch's jobs
//! couldn't open their files. A client whose connection ends can reconnect.

use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

/// Connections at once; further ones wait to be accepted. A higher limit means shorter waits for
/// clients, and fewer descriptors for the batch.
const MOST: usize = 32;
/// The longest connection. Answers take milliseconds, and scrapers give up after 10 s.
const LONGEST: Duration = Duration::from_secs(30);

/// A listener with a bounded number of connections.
pub(super) struct Connections {
    listener: TcpListener,
    room: Arc<Semaphore>,
}

/// A connection with a deadline.
pub(super) struct Connection {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    _room: OwnedSemaphorePermit,
}

impl Connections {
    pub(super) fn new(listener: TcpListener) -> Self {
        Self { listener, room: Arc::new(Semaphore::new(MOST)) }
    }
}

impl Listener for Connections {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let room = Arc::clone(&self.room).acquire_owned().await;
        let room = room.expect("nobody closes the semaphore");
        let (stream, address) = Listener::accept(&mut self.listener).await;
        (Connection { stream, end: Box::pin(end()), _room: room }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

#[expect(clippy::disallowed_methods, reason = "connections end after a time")]
fn end() -> Sleep {
    tokio::time::sleep(LONGEST)
}

impl Connection {
    /// Returns the stream, unless the time is over.
    fn poll_stream(&mut self, context: &mut Context<'_>) -> io::Result<Pin<&mut TcpStream>> {
        match self.end.as_mut().poll(context) {
            Poll::Ready(()) => Err(ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(Pin::new(&mut self.stream)),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_stream(context)?.poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_stream(context)?.poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_stream(context)?.poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_stream(context)?.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::timeout;

    use super::*;

    async fn connections() -> (Connections, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (Connections::new(listener), address)
    }

    #[tokio::test(start_paused = true)]
    async fn excess_connections_wait_until_another_one_ends() {
        let (mut connections, address) = connections().await;
        let mut clients = Vec::new();
        let mut accepted = Vec::new();
        for _ in 0..MOST {
            clients.push(TcpStream::connect(address).await.unwrap());
            accepted.push(connections.accept().await);
        }
        clients.push(TcpStream::connect(address).await.unwrap());
        assert!(timeout(LONGEST, connections.accept()).await.is_err());
        drop(accepted.pop());
        let _ = connections.accept().await;
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_send_or_read_nothing_end() {
        let (connections, address) = connections().await;
        let pages = Router::new().fallback(|| async { "x".repeat(1 << 20) });
        let server = tokio::spawn(async { axum::serve(connections, pages).await });
        let mut idle = TcpStream::connect(address).await.unwrap();
        let mut said = Vec::new();
        let _ = idle.read_to_end(&mut said).await;
        assert!(said.is_empty());

        let mut deaf = TcpStream::connect(address).await.unwrap();
        // The server stops reading when it can't write, and finally hangs up.
        while deaf.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.is_ok() {}
        server.abort();
    }
}
