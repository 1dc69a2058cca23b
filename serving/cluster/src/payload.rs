//! Messages and their texts: stored in streams, with retries. Texts too large for a message go
//! through the object store, by digest.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::object_store::InfoErrorKind;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::clock::sleep;
use crate::connect::Notice;
use crate::error::Error;
use crate::names::Lane;
use crate::streams::Streams;

/// The largest text in a message. Servers take messages of 1 MiB by default, headers included.
pub(crate) const LARGEST_INLINE: usize = 512 << 10;
/// The largest text of all: a line of a batch has at most 64 MiB, and its script comes on top.
pub(crate) const LARGEST: usize = 256 << 20;
/// Between two attempts to find an object.
const PAUSE: Duration = Duration::from_secs(1);
/// Attempts to store an object, after which a notice is sent, and the pause between them.
pub(crate) const SLOWLY: (u32, Duration) = (3, Duration::from_secs(1));
/// How often an object has to be missing. A replica that lags behind doesn't have it yet.
const MISSED: u32 = 3;

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
    /// Stores a text, unless it has at most `most` bytes. Tries until it is stored, and says why it
    /// waits.
    ///
    /// # Errors
    /// The text is too large.
    pub(crate) async fn payload(&self, text: Vec<u8>, most: usize) -> Result<Payload, Error> {
        if text.len() <= most {
            return Ok(Payload { inline: text.into(), object: None });
        }
        if text.len() > LARGEST {
            return Err(Error::TooLarge { bytes: text.len(), most: LARGEST });
        }
        let name = blake3::hash(&text).to_hex().to_string();
        let what = "store a large job or result on the NATS server";
        self.link.insist(what, SLOWLY, || self.payloads.keep(&name, &text)).await;
        Ok(Payload { inline: Bytes::new(), object: Some(name) })
    }

    /// Returns the text of a message.
    pub(crate) async fn text(
        &self,
        inline: &Bytes,
        headers: Option<&HeaderMap>,
    ) -> Result<Bytes, Error> {
        match headers.and_then(|headers| headers.get(OBJECT)) {
            Some(name) => self.object(name.as_str()).await,
            None => Ok(inline.clone()),
        }
    }

    /// Returns the text that has an object of its own.
    pub(crate) async fn object(&self, name: &str) -> Result<Bytes, Error> {
        let expected = blake3::Hash::from_hex(name).map_err(|_| damaged())?;
        self.check_object(name).await?;
        let text = self.payloads.get(name, LARGEST as u64).await.map_err(failed)?;
        let text = text.filter(|text| blake3::hash(text) == expected);
        text.map(Bytes::from).ok_or_else(damaged)
    }

    /// Checks that there is an object of this name, and that Hatchery stored it.
    async fn check_object(&self, name: &str) -> Result<(), Error> {
        let mut missed = 0;
        loop {
            match self.payloads.0.info(name).await {
                Ok(info) => {
                    // A link could lead to any other bucket, or back to itself.
                    let is_link = info.options.is_some_and(|options| options.link.is_some());
                    let is_ours = !is_link && !info.deleted && info.size <= LARGEST;
                    return if is_ours { Ok(()) } else { Err(damaged()) };
                }
                Err(error) if error.kind() == InfoErrorKind::NotFound => {
                    missed += 1;
                    if missed == MISSED {
                        return Err(damaged());
                    }
                    sleep(PAUSE).await;
                }
                Err(error) => return Err(failed(error)),
            }
        }
    }
}

fn damaged() -> Error {
    Error::Damaged("a large job or result".to_owned())
}

fn failed(answer: impl std::fmt::Display) -> Error {
    Error::server("read a large job or result", answer)
}

/// What a submitter wants beside the result: a list of the words below.
pub(crate) const WANTS: &str = "Hatchery-Wants";
pub(crate) const WANTS_EVENTS: &str = "events";
pub(crate) const WANTS_FILES: &str = "files";
/// Which of the jobs with the same text in its batch this is, from 0. The job's key is made of it.
pub(crate) const NTH: &str = "Hatchery-Nth";
/// Names the object that has the text of the message.
pub(crate) const OBJECT: &str = "Hatchery-Object";
/// Which worker has stored a result.
pub(crate) const WORKER: &str = "Hatchery-Worker";
/// The starts of a dead letter.
pub(crate) const HISTORY: &str = "Hatchery-History";
/// The name of the session whose turn the message is.
pub(crate) const SESSION: &str = "Hatchery-Session";

/// The largest message that is read.
const MOST_BYTES: usize = 1 << 10;

/// What stops a running job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Command {
    /// Ends the job, which has its result.
    Cancel,
    /// Raises `KeyboardInterrupt` in its program.
    Interrupt,
}

/// A message to all workers of a pool, of which one may have the job.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Control {
    #[serde(rename = "do")]
    pub(crate) command: Command,
    pub(crate) key: String,
}

impl Control {
    /// Sends it to the worker that runs the job of this lane. Rights on the server are for lanes: a message
    /// about a job of another one is ignored.
    pub(crate) async fn send(&self, streams: &Streams, lane: &Lane) {
        let Ok(text) = serde_json::to_vec(self) else { return };
        let subject = streams.subjects.of("control", lane);
        let _ = streams.client.publish(subject, text.into()).await;
    }

    /// Reads a message; `None` if it isn't one.
    pub(crate) fn read(text: &[u8]) -> Option<Self> {
        if text.len() > MOST_BYTES {
            return None;
        }
        serde_json::from_slice(text).ok()
    }
}

/// Between two attempts, of which the first ones follow quickly.
const PAUSES: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(50)..=Duration::from_secs(2);
/// Attempts without an answer, after which a notice is sent.
const QUIET_ATTEMPTS: u32 = 10;
/// The code of all reasons why a stream takes no further message.
const STORE_FAILED: jetstream::ErrorCode = jetstream::ErrorCode::STREAM_STORE_FAILED;

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stored {
    /// The stream has it now.
    New,
    /// The stream has one of the same subject or id, and didn't take this one.
    Already,
}

/// Why a message wasn't stored.
enum Failure {
    /// There is one of this subject.
    Already,
    /// The stream is full.
    Full(String),
    /// The server can't store it now; without an answer, it may be stored or not.
    Trouble(String),
    TooLarge,
}

impl Streams {
    /// Stores a message in the stream of its subject, of which the stream takes only one. Tries
    /// until there is an answer, and says why it waits.
    ///
    /// # Errors
    /// The server takes no message of this size.
    pub(crate) async fn store(
        &self,
        subject: &str,
        message: &PublishMessage,
    ) -> Result<Stored, Error> {
        let mut pause = *PAUSES.start();
        let (mut attempts, mut is_full) = (0, false);
        loop {
            let asked = self.link.unless_renewed(self.publish(subject, message.clone())).await;
            let failure = match asked {
                Some(Ok(stored)) => {
                    if is_full {
                        self.link.tell(Notice::HasRoom);
                    }
                    return Ok(stored);
                }
                Some(Err(error)) => failure(&error),
                // Asked again at once: the server is back.
                None => continue,
            };
            attempts += 1;
            match failure {
                Failure::Already => return Ok(Stored::Already),
                Failure::TooLarge => return Err(Error::MaxPayload),
                Failure::Full(answer) => {
                    if !std::mem::replace(&mut is_full, true) {
                        self.link.tell(Notice::Full(answer));
                    }
                }
                Failure::Trouble(cause) => {
                    if attempts == QUIET_ATTEMPTS {
                        let text = format!("can't store a message on the NATS server: {cause}");
                        self.link.tell(Notice::Trouble(text));
                    }
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(*PAUSES.end());
        }
    }

    async fn publish(
        &self,
        subject: &str,
        message: PublishMessage,
    ) -> Result<Stored, PublishError> {
        let sent = self.context.send_publish(subject.to_owned(), message).await?;
        let is_repeat = sent.await?.duplicate;
        Ok(if is_repeat { Stored::Already } else { Stored::New })
    }
}

fn failure(error: &PublishError) -> Failure {
    match error.kind() {
        PublishErrorKind::WrongLastSequence => Failure::Already,
        PublishErrorKind::MaxPayloadExceeded => Failure::TooLarge,
        _ => {
            let source = std::error::Error::source(error);
            let answer = source.and_then(|source| source.downcast_ref::<jetstream::Error>());
            let failed = answer.filter(|answer| answer.error_code() == STORE_FAILED);
            // The server has one code for several reasons.
            match failed.map(ToString::to_string) {
                Some(answer) if answer.contains("per subject") => Failure::Already,
                Some(answer) => Failure::Full(answer),
                None => Failure::Trouble(error.to_string()),
            }
        }
    }
}
