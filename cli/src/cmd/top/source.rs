//! Fetches the status of a batch or a server.

use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use http_body_util::{BodyExt, Limited};
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::exit::UsageError;

/// The longest time from the request to the end of the answer.
const LONGEST: Duration = Duration::from_secs(5);
/// The longest answer; the status of 10,000 sessions takes a fifth of it.
const MOST_BYTES: usize = 16 << 20;
const NO_HTTP: &str = "no answer over HTTP";
/// What answers isn't this version's status.
const INCOMPATIBLE: &str = "that server runs an incompatible version of Hatchery";

/// The answer of a batch or a server: its status, or `None` if its pool has not started.
pub(super) type Answer = Option<Value>;

/// A client for the batch or server at an address, without encryption and tokens.
#[derive(Debug)]
pub(super) struct StatusSource {
    /// As `HOST:PORT`.
    pub(super) address: String,
}

impl StatusSource {
    /// Creates a client for this address, as `HOST:PORT` or `http://HOST:PORT/`.
    pub(super) fn new(address: &str) -> Result<Self, UsageError> {
        let plain = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/');
        let has_port = plain.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
        });
        if !has_port || plain.contains(['/', '?', '#', '@', ' ']) {
            return Err(UsageError(format!(
                "`{address}` is not an address; write HOST:PORT, such as 127.0.0.1:9184"
            )));
        }
        Ok(Self { address: plain.to_owned() })
    }

    /// Fetches the status, in 5 s at most. Fails if nothing answers, or if it isn't Hatchery of this
    /// version.
    pub(super) async fn ask(&self) -> anyhow::Result<Answer> {
        let answer = timeout(LONGEST, self.fetch()).await;
        answer.map_err(|_| anyhow!("no answer in {} s", LONGEST.as_secs()))?
    }

    async fn fetch(&self) -> anyhow::Result<Answer> {
        let stream = TokioIo::new(TcpStream::connect(&self.address).await?);
        let (mut sender, connection) = http1::handshake(stream).await.context(NO_HTTP)?;
        tokio::spawn(connection);
        let request = Request::get("/v1/status").header(HOST, &self.address);
        let response = sender.send_request(request.body(String::new())?).await.context(NO_HTTP)?;
        match response.status() {
            StatusCode::SERVICE_UNAVAILABLE => return Ok(None),
            StatusCode::UNAUTHORIZED => {
                bail!("that server requires a token, and `hatchery top` sends none")
            }
            status => ensure!(status.is_success(), "that server is not Hatchery: {status}"),
        }
        let body = Limited::new(response.into_body(), MOST_BYTES).collect().await;
        let body = body.map_err(anyhow::Error::from_boxed).context(NO_HTTP)?.to_bytes();
        let status: Value = serde_json::from_slice(&body).context(INCOMPATIBLE)?;
        ensure!(status["phase"].is_string(), INCOMPATIBLE);
        Ok(Some(status))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// Returns the result for this answer to one request.
    async fn asked(answer: &'static str) -> anyhow::Result<Answer> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let source = StatusSource::new(&listener.local_addr().unwrap().to_string()).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let count = stream.read(&mut request).unwrap();
            assert!(request[..count].starts_with(b"GET /v1/status HTTP/1.1\r\n"));
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let answer = source.ask().await;
        server.join().unwrap();
        answer
    }

    #[test]
    fn addresses_are_a_host_and_a_port() {
        for right in ["127.0.0.1:9184", "http://localhost:1/", "[::1]:9184"] {
            assert!(StatusSource::new(right).is_ok(), "{right}");
        }
        for wrong in
            ["", "localhost", ":9184", "a:0", "a:65536", "a:1/status", "https://a:1", "b a:1"]
        {
            assert!(StatusSource::new(wrong).is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn answers_are_a_status_or_say_that_there_is_none_yet() {
        let text =
            "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"phase\":\"open\",\"queue_depth\":3}";
        let Ok(Some(view)) = asked(text).await else { panic!("that was a status") };
        assert_eq!((&view["phase"], &view["queue_depth"]), (&"open".into(), &3.into()));
        let text = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
        assert!(matches!(asked(text).await, Ok(None)));
    }

    #[tokio::test]
    async fn other_servers_are_recognized() {
        let elsewhere = "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\n\
                         content-length: 0\r\n\r\n";
        for text in [
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n<html",
            elsewhere,
        ] {
            let error = asked(text).await.unwrap_err().to_string();
            let is_named = error.contains("not Hatchery") || error.contains("incompatible version");
            assert!(is_named, "{text}: {error}");
        }
        assert!(asked("SSH-2.0-OpenSSH\r\n").await.is_err());
    }

    #[tokio::test]
    async fn an_address_without_a_server_refuses() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let source = StatusSource::new(&free.to_string()).unwrap();
        let error = source.ask().await.unwrap_err();
        assert!(error.is::<std::io::Error>(), "{error:?}");
        assert!(error.to_string().contains("refused"), "{error}");
    }
}
