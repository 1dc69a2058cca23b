//! A client of plain HTTP that sends exactly what a test says.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use serde_json::Value;

/// The longest that a test waits for the server.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// An answer whose body is read as it comes.
pub struct Reply {
    pub status: u16,
    headers: Vec<(String, String)>,
    body: Body,
}

struct Body {
    stream: BufReader<TcpStream>,
    rest: Rest,
}

enum Rest {
    Bytes(u64),
    /// Bytes of the present chunk.
    Chunked(u64),
    ToEnd,
    Nothing,
}

/// Sends a request to a `http://HOST:PORT/PATH`, and reads the head of the answer.
pub fn request(
    method: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> std::io::Result<Reply> {
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut head = format!("{method} /{path} HTTP/1.1\r\ncontent-length: {}\r\n", body.len());
    if !headers.iter().any(|(name, _)| *name == "host") {
        head += &format!("host: {address}\r\n");
    }
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    let mut stream = connect(address)?;
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    // A server that refuses by the head alone receives the rest all the same.
    stream.write_all(body)?;
    Reply::read(stream).ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
}

pub fn connect(address: impl ToSocketAddrs) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

impl Reply {
    /// Reads the head of an answer; `None` if the connection ends.
    pub fn read(stream: TcpStream) -> Option<Self> {
        Self::read_from(BufReader::new(stream))
    }

    /// Reads what follows on the same connection.
    pub fn next(mut self) -> Option<Self> {
        self.body.read_to_end(&mut Vec::new()).unwrap();
        Self::read_from(self.body.stream)
    }

    fn read_from(mut stream: BufReader<TcpStream>) -> Option<Self> {
        let mut line = String::new();
        stream.read_line(&mut line).ok().filter(|length| *length > 0)?;
        let status: u16 = line.split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut reply = Self { status, headers, body: Body { stream, rest: Rest::ToEnd } };
        if status == 204 {
            reply.body.rest = Rest::Nothing;
        } else if reply.header("transfer-encoding") == Some("chunked") {
            reply.body.rest = Rest::Chunked(0);
        } else if let Some(length) = reply.header("content-length") {
            reply.body.rest = Rest::Bytes(length.parse().unwrap());
        }
        Some(reply)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    pub fn bytes(mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.body.read_to_end(&mut bytes).unwrap();
        bytes
    }

    /// Returns the body as it comes.
    pub fn reader(self) -> impl Read + use<> {
        self.body
    }

    pub fn json(self) -> Value {
        serde_json::from_slice(&self.bytes()).unwrap()
    }

    /// Returns the `reason` of the problem.
    pub fn reason(self) -> String {
        let mut problem = self.json();
        let reason = problem["error"]["reason"].take();
        reason.as_str().unwrap_or_else(|| panic!("{problem}")).to_owned()
    }

    pub fn lines(self) -> impl Iterator<Item = String> {
        BufReader::new(self.body).lines().map(Result::unwrap)
    }

    /// Returns server-sent events: their names, ids and data.
    pub fn events(self) -> impl Iterator<Item = (String, Option<u64>, Value)> {
        let mut lines = self.lines();
        std::iter::from_fn(move || {
            let (mut name, mut id) = (None, None);
            loop {
                let line = lines.next()?;
                match line.split_once(": ") {
                    Some(("event", text)) => name = Some(text.to_owned()),
                    Some(("id", text)) => id = Some(text.parse().unwrap()),
                    Some(("data", text)) => {
                        return Some((name?, id, serde_json::from_str(text).unwrap()));
                    }
                    _ => {}
                }
            }
        })
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if let Rest::Chunked(0) = self.rest {
            let mut line = String::new();
            // The line end of the last chunk comes first.
            while line.trim().is_empty() {
                line.clear();
                if self.stream.read_line(&mut line)? == 0 {
                    return Err(std::io::ErrorKind::UnexpectedEof.into());
                }
            }
            let length = u64::from_str_radix(line.trim(), 16).unwrap();
            self.rest = if length == 0 { Rest::Nothing } else { Rest::Chunked(length) };
        }
        let (Rest::Bytes(most) | Rest::Chunked(most)) = &mut self.rest else {
            return match self.rest {
                Rest::Nothing => Ok(0),
                _ => self.stream.read(buffer),
            };
        };
        let length = buffer.len().min(usize::try_from(*most).unwrap());
        if length == 0 {
            // The buffered stream would wait for more.
            return Ok(0);
        }
        let length = self.stream.read(&mut buffer[..length])?;
        *most -= length as u64;
        Ok(length)
    }
}
