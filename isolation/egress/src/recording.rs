//! Recorded exchanges, and how they are replayed without a network.

use std::collections::BTreeMap;

use http::{HeaderMap, Method};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, FailureReason};
use crate::upstream::TlsInfo;

/// What a job did on the network, as its program saw it: with placeholders, without secrets.
///
/// Plain data that any serde format can store. Bodies are texts in base64.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EgressRecording {
    /// The placeholders by their environment variables. A replay uses the same.
    pub placeholders: BTreeMap<String, String>,
    /// In the order in which they ended.
    pub exchanges: Vec<Exchange>,
}

/// An exchange with a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Exchange {
    /// A connection that the rules allow.
    Connection(RecordedConnection),
    /// A request that the rules allow.
    Request(RecordedRequest),
}

/// The result of connecting, or of the handshake of TLS after it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedConnection {
    authority: String,
    failure: Option<Failure>,
    /// After a handshake.
    tls: Option<TlsInfo>,
    is_handshake: bool,
}

/// A request with what came of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RecordedRequest {
    /// The method.
    pub method: String,
    /// The URL.
    pub url: String,
    /// The body.
    #[serde(with = "base64_text")]
    pub body: Vec<u8>,
    /// The response, as far as it came.
    pub response: Option<RecordedResponse>,
    /// Why the response is missing or broke off.
    pub failure: Option<Failure>,
}

/// A response.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RecordedResponse {
    /// The status.
    pub status: u16,
    /// Headers that belong to the message; each byte of a value is a character.
    pub headers: Vec<(String, String)>,
    /// The body.
    #[serde(with = "base64_text")]
    pub body: Vec<u8>,
}

impl RecordedResponse {
    pub(crate) fn new(status: u16, headers: &HeaderMap) -> Self {
        let text = |bytes: &[u8]| bytes.iter().copied().map(char::from).collect();
        let headers =
            headers.iter().map(|(name, value)| (name.to_string(), text(value.as_bytes())));
        Self { status, headers: headers.collect(), body: Vec::new() }
    }

    /// Returns headers with their values in bytes.
    pub(crate) fn header_bytes(&self) -> impl Iterator<Item = (&str, Vec<u8>)> {
        let bytes = |text: &str| text.chars().map(|it| u8::try_from(it).unwrap_or(b'?')).collect();
        self.headers.iter().map(move |(name, value)| (&**name, bytes(value)))
    }
}

impl RecordedConnection {
    pub(crate) fn opened(authority: &str, result: Result<(), &Failure>) -> Self {
        let failure = result.err().cloned();
        Self { authority: authority.to_owned(), failure, tls: None, is_handshake: false }
    }

    pub(crate) fn secured(authority: &str, result: Result<&TlsInfo, &Failure>) -> Self {
        let (tls, failure) = (result.ok().cloned(), result.err().cloned());
        Self { authority: authority.to_owned(), failure, tls, is_handshake: true }
    }
}

/// Serves the exchanges of a recording, each once, to the first request that is alike.
#[derive(Debug)]
pub(crate) struct EgressReplayer {
    exchanges: Mutex<Vec<(Exchange, bool)>>,
}

impl EgressReplayer {
    pub(crate) fn new(recording: EgressRecording) -> Self {
        let exchanges = recording.exchanges.into_iter().map(|exchange| (exchange, false));
        Self { exchanges: Mutex::new(exchanges.collect()) }
    }

    /// Returns the result of connecting, or of a handshake.
    pub(crate) fn connection(
        &self,
        authority: &str,
        is_handshake: bool,
    ) -> Result<Option<TlsInfo>, Failure> {
        let found = self.take(|exchange| match exchange {
            Exchange::Connection(own) => {
                let is_alike = own.authority == authority && own.is_handshake == is_handshake;
                is_alike.then(|| own.clone())
            }
            Exchange::Request(_) => None,
        });
        match found {
            Some(RecordedConnection { failure: Some(failure), .. }) => Err(failure),
            Some(RecordedConnection { tls, .. }) => Ok(tls),
            None => Err(self.nothing("a connection to", authority, "")),
        }
    }

    /// Returns the request of the recording that is like this one.
    pub(crate) fn request(
        &self,
        method: &Method,
        url: &str,
        body: &[u8],
    ) -> Result<RecordedRequest, Failure> {
        let found = self.take(|exchange| match exchange {
            Exchange::Request(own) => {
                let is_alike = own.method == method.as_str() && own.url == url && own.body == body;
                is_alike.then(|| own.clone())
            }
            Exchange::Connection(_) => None,
        });
        found.ok_or_else(|| self.nothing(method.as_str(), url, " with this body"))
    }

    fn take<T>(&self, wanted: impl Fn(&Exchange) -> Option<T>) -> Option<T> {
        let mut exchanges = self.exchanges.lock();
        exchanges.iter_mut().filter(|(_, is_taken)| !is_taken).find_map(|(exchange, is_taken)| {
            let found = wanted(exchange);
            *is_taken = found.is_some();
            found
        })
    }

    /// Returns the failure that shows the nearest request.
    fn nothing(&self, method: &str, url: &str, with: &str) -> Failure {
        let exchanges = self.exchanges.lock();
        let requests = exchanges.iter().filter_map(|(exchange, is_taken)| match exchange {
            Exchange::Request(request) => Some((request, is_taken)),
            Exchange::Connection(_) => None,
        });
        let likeness = |request: &RecordedRequest| {
            let same = request.url.bytes().zip(url.bytes()).take_while(|(a, b)| a == b).count();
            (same, request.method == method)
        };
        let nearest = requests.enumerate().max_by_key(|(_, (request, _))| likeness(request));
        let nearest = match nearest {
            None => "it has no request".to_owned(),
            Some((number, (request, is_taken))) => {
                let of = match (request.method == method && request.url == url, is_taken) {
                    (true, true) => ", which the program has made already",
                    (true, false) => ", with another body",
                    (false, _) => "",
                };
                let number = number + 1;
                format!(
                    "the nearest is its request {number}, {} {}{of}",
                    request.method, request.url
                )
            }
        };
        let text = format!("the recording has no exchange for {method} {url}{with}: {nearest}");
        Failure::new(FailureReason::Replay, text)
    }
}

/// Stores bytes as text in base64.
mod base64_text {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        STANDARD.decode(String::deserialize(from)?).map_err(de::Error::custom)
    }
}
