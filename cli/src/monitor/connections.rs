//! Limits the clients of the monitor: the number of connections, and the duration of each.
//!
//! Otherwise idle connections could take every descriptor of the process, and the batch's jobs
//! couldn't open their files. A client whose connection ends can reconnect.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Connections at once; further ones wait to be accepted. A higher limit means shorter waits for
/// clients, and fewer descriptors for the batch.
const MOST: usize = 32;
/// The longest connection. Answers take milliseconds, and scrapers give up after 10 s.
const LONGEST: Duration = Duration::from_secs(30);

/// Serves pages until it is dropped.
pub(super) async fn serve(mut listener: TcpListener, pages: Router) {
    let room = Arc::new(Semaphore::new(MOST));
    loop {
        let place = Arc::clone(&room).acquire_owned().await.expect("nobody closes it");
        // Listens on after errors.
        let (stream, _) = Listener::accept(&mut listener).await;
        let pages = TowerToHyperService::new(pages.clone());
        tokio::spawn(async move {
            let builder = Builder::new(TokioExecutor::new());
            let _ = timeout(LONGEST, builder.serve_connection(TokioIo::new(stream), pages)).await;
            drop(place);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    /// Serves a long page, and returns where.
    async fn served() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let pages = Router::new().fallback(|| async { "x".repeat(1 << 20) });
        tokio::spawn(serve(listener, pages));
        address
    }

    #[tokio::test(start_paused = true)]
    async fn excess_connections_wait_until_another_one_ends() {
        let address = served().await;
        let mut clients = Vec::new();
        for _ in 0..MOST {
            clients.push(TcpStream::connect(address).await.unwrap());
        }
        let mut late = TcpStream::connect(address).await.unwrap();
        late.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        assert!(timeout(LONGEST / 2, late.read_u8()).await.is_err());
        drop(clients.pop());
        assert_eq!(late.read_u8().await.unwrap(), b'H');
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_send_or_read_nothing_end() {
        let address = served().await;
        let mut idle = TcpStream::connect(address).await.unwrap();
        let mut said = Vec::new();
        let _ = idle.read_to_end(&mut said).await;
        assert!(said.is_empty());

        let mut deaf = TcpStream::connect(address).await.unwrap();
        // The server stops reading when it can't write, and finally hangs up.
        while deaf.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.is_ok() {}
    }
}
