//! Sends what an attempt consists of, and reads what becomes of it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::client::{Client, PATIENCE, Reply};
use crate::server::BOB;

/// What an attempt gets at most: the head of an answer, or the end of the connection.
pub(super) const ENDED: u16 = 0;

/// How long a server takes at most to answer what it has, on a busy machine. What is whole is answered
/// long before.
const MOMENT: Duration = Duration::from_secs(5);

/// One attempt.
pub(super) struct Attempt {
    pub(super) name: String,
    pub(super) send: Box<dyn Fn(&Client) -> u16>,
    /// The statuses that refuse it.
    pub(super) expected: Vec<u16>,
}

#[derive(Default)]
pub(super) struct Attempts(pub(super) Vec<Attempt>);

impl Attempts {
    pub(super) fn add(
        &mut self,
        name: &str,
        expected: &[u16],
        send: impl Fn(&Client) -> u16 + 'static,
    ) -> &mut Self {
        let (name, expected) = (name.to_owned(), expected.to_vec());
        self.0.push(Attempt { name, send: Box::new(send), expected });
        self
    }

    /// Bytes as they are. `HOST` stands for the server's address, and `TOKEN` for the header with
    /// the token of a tenant.
    pub(super) fn raw(
        &mut self,
        name: &str,
        expected: &[u16],
        bytes: impl Into<Vec<u8>>,
    ) -> &mut Self {
        let bytes = bytes.into();
        self.add(name, expected, move |client| first_of(&said_to(client, &filled(client, &bytes))))
    }

    /// A request without a token, with these lines in its head.
    pub(super) fn stranger(
        &mut self,
        name: &str,
        expected: &[u16],
        line: &str,
        head: &str,
    ) -> &mut Self {
        self.raw(name, expected, format!("{line} HTTP/1.1\r\nhost: HOST\r\n{head}\r\n"))
    }

    /// A request of a tenant, with these lines in its head.
    pub(super) fn tenant(
        &mut self,
        name: &str,
        expected: &[u16],
        line: &str,
        head: &str,
    ) -> &mut Self {
        self.stranger(name, expected, line, &format!("TOKEN\r\n{head}"))
    }

    /// A request of a tenant that ends here, whatever it announced.
    pub(super) fn cut(
        &mut self,
        name: &str,
        expected: &[u16],
        line: &str,
        head: &str,
    ) -> &mut Self {
        let bytes = format!("{line} HTTP/1.1\r\nhost: HOST\r\nTOKEN\r\n{head}\r\n");
        self.add(name, expected, move |client| {
            let stream = sent(client, &filled(client, bytes.as_bytes()));
            let _ = stream.shutdown(Shutdown::Write);
            first_of(&heard(stream))
        })
    }

    /// A job of a tenant.
    pub(super) fn job(
        &mut self,
        name: &str,
        expected: &[u16],
        body: impl Into<Vec<u8>>,
    ) -> &mut Self {
        let body = body.into();
        self.add(name, expected, move |client| client.send("POST", "/v1/run", &[], &body).status)
    }
}

pub(super) fn filled(client: &Client, bytes: &[u8]) -> Vec<u8> {
    let with = [
        (&b"HOST"[..], client.address.to_string()),
        (b"TOKEN", format!("authorization: Bearer {BOB}")),
    ];
    let mut filled = bytes.to_vec();
    for (name, value) in with {
        while let Some(at) = filled.windows(name.len()).position(|window| window == name) {
            filled.splice(at..at + name.len(), value.bytes());
        }
    }
    filled
}

/// Sends bytes and ends the request there, and returns what comes until the connection ends.
fn said_to(client: &Client, bytes: &[u8]) -> Vec<u8> {
    let stream = sent(client, bytes);
    // A client that says at once that there is no more gives up the answer to a whole request.
    stream.set_read_timeout(Some(MOMENT)).unwrap();
    let _ = stream.peek(&mut [0]);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = stream.shutdown(Shutdown::Write);
    heard(stream)
}

/// Sends bytes, after which more could come.
pub(super) fn sent(client: &Client, bytes: &[u8]) -> TcpStream {
    let mut stream = client.connect();
    // A server that refuses early doesn't read the rest.
    let _ = stream.write_all(bytes);
    stream
}

/// Returns what comes until the connection ends.
pub(super) fn heard(mut stream: TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    // It may end by a reset, as not everything was read.
    let _ = stream.read_to_end(&mut said);
    said
}

/// Returns the statuses of the answers.
pub(super) fn statuses(said: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(said);
    let heads = text.split("HTTP/1.").skip(1);
    heads.map(|head| head[2..5].parse().unwrap()).collect()
}

pub(super) fn first_of(said: &[u8]) -> u16 {
    statuses(said).first().copied().unwrap_or(ENDED)
}

/// Says this much, and waits for the server's patience to end.
pub(super) fn waits(client: &Client, text: &str) -> u16 {
    let mut stream = client.connect();
    stream.write_all(&filled(client, text.as_bytes())).unwrap();
    Reply::read(stream).map_or(ENDED, |reply| reply.status)
}

/// Sends a byte at a time, as long as the server listens.
pub(super) fn drips(client: &Client, text: &str) -> u16 {
    let mut stream = client.connect();
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    for byte in filled(client, text.as_bytes()) {
        if stream.write_all(&[byte]).is_err() {
            break;
        }
        // The pause between bytes is the wait for an answer.
        let mut answer = [0; 64];
        match stream.read(&mut answer) {
            Ok(length) => return first_of(&answer[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return ENDED,
        }
    }
    panic!("the server never gives up")
}

/// The status of the only answer.
#[track_caller]
pub(super) fn only(said: &[u8]) -> u16 {
    let statuses = statuses(said);
    assert!(statuses.len() <= 1, "{}", String::from_utf8_lossy(said));
    statuses.first().copied().unwrap_or(ENDED)
}
