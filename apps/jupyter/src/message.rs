//! Messages of the protocol between front ends and kernels: their frames, and their signatures.
//!
//! A message has identities, a delimiter, a signature, and four JSON objects: its header, its
//! parent's header, metadata and content. Further frames are buffers, which nothing here uses.
//! Values are plain JSON, read field by field. So a field of an unexpected type counts as missing
//! and never ends the kernel.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Map, Value, json};
use sha2::Sha256;

#[cfg(test)]
mod tests;

/// What divides the identities from the message.
const DELIMITER: &[u8] = b"<IDS|MSG>";

/// The most frames of a message before the delimiter: one for each router that passed it on.
const MOST_IDENTITIES: usize = 16;

/// The most bytes of a message's JSON. A cell's source may have 1 MiB, and a notebook's outputs
/// never come this way.
const MOST_BYTES: usize = 16 << 20;

/// A JSON object.
pub(crate) type Object = Map<String, Value>;

/// A message from a front end, whose signature is right.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Message {
    /// Whom a reply goes to.
    pub(crate) identities: Vec<Bytes>,
    /// Its header, which a reply repeats.
    pub(crate) header: Object,
    pub(crate) content: Object,
}

/// Why a message was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidMessage {
    #[error("it has no delimiter among its first frames")]
    NoDelimiter,
    #[error("it has too few frames")]
    TooShort,
    #[error("it has more than {MOST_BYTES} bytes")]
    TooLong,
    #[error("its signature is wrong")]
    Signature,
    #[error("expected a JSON object")]
    NotJson,
}

impl Message {
    /// Reads a message from its frames. Checks its signature before anything else.
    pub(crate) fn read(frames: Vec<Bytes>, key: &Key) -> Result<Self, InvalidMessage> {
        let delimiter = frames.iter().take(MOST_IDENTITIES + 1).position(|it| it == DELIMITER);
        let delimiter = delimiter.ok_or(InvalidMessage::NoDelimiter)?;
        let [signature, header, parent, metadata, content] = frames
            .get(delimiter + 1..delimiter + 6)
            .and_then(|parts| <&[Bytes; 5]>::try_from(parts).ok())
            .ok_or(InvalidMessage::TooShort)?;
        let parts = [header, parent, metadata, content].map(|part| part.as_ref());
        if parts.iter().map(|part| part.len()).sum::<usize>() > MOST_BYTES {
            return Err(InvalidMessage::TooLong);
        }
        if !key.verifies(signature, parts) {
            return Err(InvalidMessage::Signature);
        }
        let object = |part| serde_json::from_slice(part).map_err(|_| InvalidMessage::NotJson);
        let (header, content) = (object(header)?, object(content)?);
        let mut identities = frames;
        identities.truncate(delimiter);
        Ok(Self { identities, header, content })
    }

    /// Returns its type, such as `execute_request`; empty if it has none.
    pub(crate) fn kind(&self) -> &str {
        text(&self.header, "msg_type")
    }

    /// Returns a text of its content; empty if it is missing.
    pub(crate) fn text(&self, name: &str) -> &str {
        text(&self.content, name)
    }

    /// Returns a truth value of its content, or the default.
    pub(crate) fn flag(&self, name: &str, default: bool) -> bool {
        self.content.get(name).and_then(Value::as_bool).unwrap_or(default)
    }

    /// Returns a whole number of its content.
    pub(crate) fn number(&self, name: &str) -> Option<i64> {
        self.content.get(name).and_then(Value::as_i64)
    }
}

fn text<'a>(object: &'a Object, name: &str) -> &'a str {
    object.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// A key of HMAC-SHA256. An empty key signs nothing and accepts everything.
#[derive(Debug, Clone)]
pub(crate) struct Key(Option<Hmac<Sha256>>);

impl Key {
    pub(crate) fn new(key: &[u8]) -> Self {
        let mac = (!key.is_empty()).then(|| Hmac::new_from_slice(key));
        Self(mac.map(|mac| mac.expect("HMAC takes keys of any length")))
    }

    /// Returns the signature of the parts of a message.
    pub(crate) fn sign<'a>(&self, parts: impl IntoIterator<Item = &'a [u8]>) -> String {
        let Some(mac) = self.mac_of(parts) else { return String::new() };
        hex::encode(mac.finalize().into_bytes())
    }

    /// Returns whether a signature is that of the parts. The time doesn't depend on how much of it is
    /// right.
    pub(crate) fn verifies<'a>(
        &self,
        signature: &[u8],
        parts: impl IntoIterator<Item = &'a [u8]>,
    ) -> bool {
        let Some(mac) = self.mac_of(parts) else { return true };
        hex::decode(signature).is_ok_and(|signature| mac.verify_slice(&signature).is_ok())
    }

    fn mac_of<'a>(&self, parts: impl IntoIterator<Item = &'a [u8]>) -> Option<Hmac<Sha256>> {
        let mut mac = self.0.clone()?;
        parts.into_iter().for_each(|part| mac.update(part));
        Some(mac)
    }
}

/// The version of the protocol. With 5.4 a kernel welcomes those that subscribe to its outputs.
pub(crate) const PROTOCOL: &str = "5.4";

/// Writes the messages of one kernel. Clones count them together.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    key: Key,
    /// Identifies this run of the kernel.
    session: Arc<str>,
    count: Arc<AtomicU64>,
}

impl Writer {
    /// Creates a writer with a session's name that no other kernel has.
    pub(crate) fn new(key: Key) -> Result<Self, getrandom::Error> {
        let session = format!("{:016x}{:016x}", getrandom::u64()?, getrandom::u64()?);
        Ok(Self { key, session: session.into(), count: Arc::default() })
    }

    /// Returns what identifies this run of the kernel.
    pub(crate) fn session(&self) -> &str {
        &self.session
    }

    /// Returns the frames of a message that answers another one, with the identities or the topic
    /// before it.
    pub(crate) fn write(
        &self,
        before: &[Bytes],
        kind: &str,
        parent: &Object,
        content: &Value,
    ) -> Vec<Bytes> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let header = json!({
            "date": humantime::format_rfc3339_micros(SystemTime::now()).to_string(),
            "msg_id": format!("{}_{number}", self.session),
            "msg_type": kind,
            "session": &*self.session,
            "username": "kernel",
            "version": PROTOCOL,
        });
        let parent = serde_json::to_vec(parent).expect("JSON can be written");
        let parts = [
            Bytes::from(header.to_string()),
            Bytes::from(parent),
            Bytes::from_static(b"{}"),
            Bytes::from(content.to_string()),
        ];
        let signature = self.key.sign(parts.iter().map(AsRef::as_ref));
        let mut frames = before.to_vec();
        frames.push(Bytes::from_static(DELIMITER));
        frames.push(Bytes::from(signature));
        frames.extend(parts);
        frames
    }
}
