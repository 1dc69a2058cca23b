//! Stores messages in streams, with retries.

use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;

use crate::clock::sleep;
use crate::connect::Notice;
use crate::error::Error;
use crate::streams::Streams;

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
                Some(Err(error)) => failure(error),
                // Asked again at once: the server is back.
                None => continue,
            };
            attempts += 1;
            match failure {
                Failure::Already => return Ok(Stored::Already),
                Failure::TooLarge => return Err(Error::MaxPayload),
                Failure::Full(answer) => {
                    if !std::mem::replace(&mut is_full, true) {
                        self.link.tell(Notice::Full { answer });
                    }
                }
                Failure::Trouble(cause) => {
                    if attempts == QUIET_ATTEMPTS {
                        let text = format!("can't store a message on the NATS server: {cause}");
                        self.link.tell(Notice::Trouble { text });
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

fn failure(error: PublishError) -> Failure {
    match error.kind() {
        PublishErrorKind::WrongLastSequence => Failure::Already,
        PublishErrorKind::MaxPayloadExceeded => Failure::TooLarge,
        _ => {
            let source = std::error::Error::source(&error);
            let answer = source.and_then(|source| source.downcast_ref::<jetstream::Error>());
            match answer {
                Some(answer) if answer.error_code() == STORE_FAILED => full(&answer.to_string()),
                Some(answer) => Failure::Trouble(answer.to_string()),
                None => Failure::Trouble(error.to_string()),
            }
        }
    }
}

/// Tells the reasons apart, for which the server has one code.
fn full(answer: &str) -> Failure {
    if answer.contains("per subject") {
        return Failure::Already;
    }
    Failure::Full(answer.to_owned())
}
