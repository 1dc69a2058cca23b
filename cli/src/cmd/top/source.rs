//! Fetches the status of a batch or a server.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use ureq::Agent;

use crate::exit::UsageError;

/// The longest time from the request to the end of the answer.
const LONGEST: Duration = Duration::from_secs(5);
/// The longest answer; the status of 10,000 sessions takes a fifth of it.
const MOST_BYTES: u64 = 16 << 20;
/// The HTTP status of a pool that has not started.
const STARTING: u16 = 503;
/// The HTTP status of a server that wants a token.
const NO_TOKEN: u16 = 401;

/// The answer of a batch or a server: its status, or `None` if its pool has not started.
pub(super) type Answer = Option<Value>;

/// What every status has.
#[derive(Deserialize)]
struct Recognized {
    #[serde(rename = "phase")]
    _phase: String,
}

/// A client for the batch or server at an address.
pub(super) struct Source {
    agent: Agent,
    address: String,
}

impl Source {
    /// Fails if the address is not `HOST:PORT`.
    pub(super) fn new(address: &str) -> Result<Self, UsageError> {
        let plain = address.strip_prefix("http://").unwrap_or(address).trim_end_matches('/');
        let has_port = plain.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
        });
        if !has_port || plain.contains(['/', '?', '#', '@', ' ']) {
            let text =
                format!("`{address}` is not an address; write HOST:PORT, such as 127.0.0.1:9184");
            return Err(UsageError(text));
        }
        let config = Agent::config_builder()
            .timeout_global(Some(LONGEST))
            // It is local, and answers directly.
            .proxy(None)
            .max_redirects(0)
            .http_status_as_error(false);
        Ok(Self { agent: config.build().into(), address: plain.to_owned() })
    }

    /// Fetches the status. Blocks. Fails if nothing answers, or if it isn't Hatchery.
    pub(super) fn ask(&self) -> Result<Answer, String> {
        let text = self.ask_json()?;
        text.map(|text| serde_json::from_str(&text)).transpose().map_err(other_version)
    }

    /// Fetches the status as it is sent, on one line; `None` if the pool has not started.
    /// Blocks, and fails like `ask`.
    pub(super) fn ask_json(&self) -> Result<Option<String>, String> {
        let Some(text) = self.fetch()? else { return Ok(None) };
        let _: Recognized = serde_json::from_str(&text).map_err(other_version)?;
        Ok(Some(text))
    }

    fn fetch(&self) -> Result<Option<String>, String> {
        let url = format!("http://{}/v1/status", self.address);
        let mut response = self.agent.get(url).call().map_err(plain)?;
        let status = response.status();
        if status.as_u16() == STARTING {
            return Ok(None);
        }
        if status.as_u16() == NO_TOKEN {
            return Err("the server there wants a token, and `hatchery top` sends none".to_owned());
        }
        if !status.is_success() {
            return Err(format!("the server there is not Hatchery: {status}"));
        }
        let body = response.body_mut().with_config().limit(MOST_BYTES);
        body.read_to_string().map(Some).map_err(plain)
    }

    /// Describes an error, and what to do about it.
    pub(super) fn advice(&self, error: &str) -> String {
        let address = &self.address;
        format!(
            "can't watch a pool at `{address}`: {error}; start one with `hatchery batch JOBS \
             --metrics {address}` or `hatchery serve --http {address}`"
        )
    }
}

fn other_version(error: serde_json::Error) -> String {
    format!("the server there is not Hatchery of this version: {error}")
}

fn plain(error: ureq::Error) -> String {
    match error {
        ureq::Error::Io(error) => error.to_string(),
        ureq::Error::Timeout(_) => format!("no answer in {} s", LONGEST.as_secs()),
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// Returns the result for this answer to one request.
    fn asked(answer: &'static str) -> Result<Answer, String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let source = Source::new(&listener.local_addr().unwrap().to_string()).unwrap();
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
            assert!(Source::new(right).is_ok(), "{right}");
        }
        for wrong in
            ["", "localhost", ":9184", "a:0", "a:65536", "a:1/status", "https://a:1", "b a:1"]
        {
            assert!(Source::new(wrong).is_err(), "{wrong}");
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
            let error = asked(text).unwrap_err();
            assert!(error.contains("not Hatchery"), "{text}: {error}");
        }
        assert!(asked("SSH-2.0-OpenSSH\r\n").is_err());
    }

    #[test]
    fn no_server_is_an_error_that_says_what_to_do() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let source = Source::new(&free.to_string()).unwrap();
        let advice = source.advice(&source.ask().unwrap_err());
        assert!(advice.contains("refused"), "{advice}");
        assert!(advice.contains(&format!("--metrics {free}")), "{advice}");
    }
}
