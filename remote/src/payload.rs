//! Texts in messages: those that are too large for one go through the object store, by digest.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::object_store::ObjectMetadata;
use bytes::Bytes;
use tokio::io::AsyncReadExt;

use crate::clock::sleep;
use crate::connect::Notice;
use crate::error::{Cause, Error};
use crate::headers::OBJECT;
use crate::streams::Streams;

/// The largest text in a message. Servers take messages of 1 MiB by default, headers included.
const LARGEST_INLINE: usize = 512 << 10;
/// The largest text of all: a line of a batch has at most 64 MiB, and its script comes on top.
pub(crate) const LARGEST: usize = 256 << 20;
/// Bytes of a part of an object.
const PART: usize = 128 << 10;
/// Between two attempts to store an object.
const PAUSE: Duration = Duration::from_secs(1);
/// Attempts, after which somebody is told.
const QUIET_ATTEMPTS: u32 = 3;

/// A text as a message has it.
#[derive(Debug, Clone)]
pub(crate) struct Payload {
    /// The text, or nothing.
    pub(crate) inline: Bytes,
    /// The name of the object that has it.
    pub(crate) object: Option<String>,
}

impl Payload {
    pub(crate) fn add_to(&self, headers: &mut HeaderMap) {
        if let Some(object) = &self.object {
            headers.insert(OBJECT, object.as_str());
        }
    }
}

impl Streams {
    /// Stores a text, unless it fits into a message. Tries until it is stored, and says why it waits.
    ///
    /// # Errors
    /// The text is too large.
    pub(crate) async fn payload(&self, text: Vec<u8>) -> Result<Payload, Error> {
        if text.len() <= LARGEST_INLINE {
            return Ok(Payload { inline: text.into(), object: None });
        }
        if text.len() > LARGEST {
            return Err(Error::TooLarge { bytes: text.len(), most: LARGEST });
        }
        let name = blake3::hash(&text).to_hex().to_string();
        let mut attempts = 0;
        while let Err(error) = self.put(&name, &text).await {
            attempts += 1;
            if attempts == QUIET_ATTEMPTS {
                let text = format!("can't store a large job or result on the NATS server: {error}");
                self.link.tell(Notice::Trouble { text });
            }
            sleep(PAUSE).await;
        }
        Ok(Payload { inline: Bytes::new(), object: Some(name) })
    }

    /// Stores an object, unless it is there.
    async fn put(&self, name: &str, mut text: &[u8]) -> Result<(), Cause> {
        let there = self.payloads.0.info(name).await;
        if there.is_ok_and(|info| info.size == text.len() && !info.deleted) {
            return Ok(());
        }
        let metadata = ObjectMetadata {
            name: name.to_owned(),
            chunk_size: Some(PART),
            ..ObjectMetadata::default()
        };
        self.payloads.0.put(metadata, &mut text).await?;
        Ok(())
    }

    /// Returns the text of a message.
    pub(crate) async fn text(
        &self,
        inline: &Bytes,
        headers: Option<&HeaderMap>,
    ) -> Result<Bytes, Error> {
        let Some(name) = headers.and_then(|headers| headers.get(OBJECT)) else {
            return Ok(inline.clone());
        };
        let damaged = || Error::Damaged { what: "a large job or result".to_owned() };
        let name = name.as_str();
        let expected = blake3::Hash::from_hex(name).map_err(|_| damaged())?;
        let failed = |source: Cause| Error::Server { what: "find a large job or result", source };
        let object = self.payloads.0.get(name).await.map_err(|error| failed(error.into()))?;
        if object.info().size > LARGEST {
            return Err(damaged());
        }
        let mut text = Vec::new();
        let mut limited = object.take(LARGEST as u64 + 1);
        limited.read_to_end(&mut text).await.map_err(|error| failed(error.into()))?;
        if blake3::hash(&text) != expected {
            return Err(damaged());
        }
        Ok(text.into())
    }
}
