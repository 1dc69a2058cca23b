//! Messages of the protocol between front ends and kernels: their frames, and their signatures.
//!
//! A message is identities, a delimiter, a signature, and four JSON objects: header, header of the
//! message that it answers, metadata and content. Further frames are buffers, which nothing here
//! uses. Values are plain JSON, read field by field, so that a field of another type than expected
//! counts as missing and never ends the kernel.

use bytes::Bytes;
use serde_json::{Map, Value};

pub(crate) use self::key::Key;
pub(crate) use self::writer::{PROTOCOL, Writer};

mod key;
#[cfg(test)]
mod tests;
mod writer;

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
