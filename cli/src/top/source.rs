//! Fetches the status of a batch or a server.

use std::io;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use ureq::Agent;

/// The longest time from the request to the end of the answer.
const LONGEST: Duration = Duration::from_secs(5);
/// The longest answer; the status of 10,000 sessions takes a fifth of it.
const MOST_BYTES: u64 = 16 << 20;
/// The HTTP status of a pool that has not started.
const STARTING: u16 = 503;
/// The HTTP status of a server that wants a token.
const NO_TOKEN: u16 = 401;

/// A text is no address to watch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an address; write HOST:PORT, such as 127.0.0.1:9184")]
pub(crate) struct InvalidAddress(pub(crate) String);

/// There is no status to be had from an address.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    /// Nothing answers there, or not over HTTP.
    #[error("no answer over HTTP")]
    Connection(#[from] Box<ureq::Error>),
    /// The system refuses the connection.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The answer takes too long.
    #[error("no answer in {} s", .0.as_secs())]
    Slow(Duration),
    /// It is a server that wants a token.
    #[error("that server requires a token, and `hatchery top` sends none")]
    Token,
    /// Something else answers.
    #[error("that server is not Hatchery: {status}")]
    Other {
        /// The status of HTTP.
        status: String,
    },
    /// The answer is no status, or that of another version.
    #[error("that server runs an incompatible version of Hatchery")]
    Version(#[from] serde_json::Error),
}

/// The answer of a batch or a server: its status, or `None` if its pool has not started.
pub(crate) type Answer = Option<Value>;

/// What every status has.
#[derive(Deserialize)]
struct Recognized {
    #[serde(rename = "phase")]
    _phase: String,
}

/// A client for the batch or server at an address, without encryption and tokens.
#[derive(Debug)]
pub(crate) struct StatusSource {
    agent: Agent,
    address: String,
}

impl StatusSource {
    /// Creates a client for this address, as `HOST:PORT` or `http://HOST:PORT/`.
    ///
    /// # Errors
    /// The address has another form.
    pub(crate) fn new(address: &str) -> Result<Self, InvalidAddress> {
        let plain = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/');
        let has_port = plain.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
        });
        if !has_port || plain.contains(['/', '?', '#', '@', ' ']) {
            return Err(InvalidAddress(address.to_owned()));
        }
        let config = Agent::config_builder()
            .timeout_global(Some(LONGEST))
            // It is local, and answers directly.
            .proxy(None)
            .max_redirects(0)
            .http_status_as_error(false);
        Ok(Self { agent: config.build().into(), address: plain.to_owned() })
    }

    /// Returns the address, as `HOST:PORT`.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Fetches the status. Blocks, for 5 s at most.
    ///
    /// # Errors
    /// Nothing answers, or it isn't Hatchery of this version.
    pub(crate) fn ask(&self) -> Result<Answer, SourceError> {
        let text = self.ask_json()?;
        Ok(text.map(|text| serde_json::from_str(&text)).transpose()?)
    }

    /// Fetches the status as it is sent, on one line; `None` if the pool has not started.
    /// Blocks like [`Self::ask`].
    ///
    /// # Errors
    /// As for [`Self::ask`].
    pub(crate) fn ask_json(&self) -> Result<Option<String>, SourceError> {
        let Some(text) = self.fetch()? else { return Ok(None) };
        let _: Recognized = serde_json::from_str(&text)?;
        Ok(Some(text))
    }

    fn fetch(&self) -> Result<Option<String>, SourceError> {
        let url = format!("http://{}/v1/status", self.address);
        let mut response = self.agent.get(url).call().map_err(plain)?;
        let status = response.status();
        if status.as_u16() == STARTING {
            return Ok(None);
        }
        if status.as_u16() == NO_TOKEN {
            return Err(SourceError::Token);
        }
        if !status.is_success() {
            return Err(SourceError::Other { status: status.to_string() });
        }
        let body = response.body_mut().with_config().limit(MOST_BYTES);
        body.read_to_string().map(Some).map_err(plain)
    }
}

fn plain(error: ureq::Error) -> SourceError {
    match error {
        ureq::Error::Io(error) => SourceError::Io(error),
        ureq::Error::Timeout(_) => SourceError::Slow(LONGEST),
        error => SourceError::Connection(Box::new(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// Returns the result for this answer to one request.
    fn asked(answer: &'static str) -> Result<Answer, SourceError> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let source = StatusSource::new(&listener.local_addr().unwrap().to_string()).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let count = stream.read(&mut request).unwrap();
            assert!(request[..count].starts_with(b"GET /v1/status HTTP/1.1\r\n"));
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let answer = source.ask();
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

    #[test]
    fn answers_are_a_status_or_say_that_there_is_none_yet() {
        let text =
            "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"phase\":\"open\",\"queue_depth\":3}";
        let Ok(Some(view)) = asked(text) else { panic!("that was a status") };
        assert_eq!((&view["phase"], &view["queue_depth"]), (&"open".into(), &3.into()));
        let text = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
        assert!(matches!(asked(text), Ok(None)));
    }

    #[test]
    fn other_servers_are_recognized() {
        let elsewhere = "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\n\
                         content-length: 0\r\n\r\n";
        for text in [
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n<html",
            elsewhere,
        ] {
            let error = asked(text).unwrap_err().to_string();
            let is_named = error.contains("not Hatchery") || error.contains("incompatible version");
            assert!(is_named, "{text}: {error}");
        }
        assert!(asked("SSH-2.0-OpenSSH\r\n").is_err());
    }

    #[test]
    fn an_address_without_a_server_refuses() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let source = StatusSource::new(&free.to_string()).unwrap();
        let error = source.ask().unwrap_err();
        assert!(matches!(error, SourceError::Io(_)), "{error:?}");
        assert!(error.to_string().contains("refused"), "{error}");
    }
}
