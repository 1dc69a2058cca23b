//! Writes messages of the kernel.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use bytes::Bytes;
use serde_json::{Value, json};

use super::{DELIMITER, Key, Object};

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
