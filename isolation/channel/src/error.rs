//! What sending and receiving fail with, and the ways in which the other process can lie.

use std::io;

/// Why a frame wasn't sent or received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The other process broke the protocol. Nothing of what it sent is used, and every later call
    /// fails alike.
    #[error("the other process broke the protocol of the channel: {what}")]
    Lied {
        /// What was wrong.
        what: Lie,
    },
    /// This end was closed, and a receiver has taken every whole frame that had arrived.
    #[error("the channel is closed")]
    Closed,
    /// The deadline passed. A receiver keeps what has arrived of a frame, and continues with it.
    #[error("the deadline passed while waiting for the other process")]
    TimedOut,
    /// The frame is longer than its direction allows. Nothing was sent.
    #[error("a frame of {length} bytes is longer than the {longest} that this direction allows")]
    TooLong {
        /// The bytes of the message.
        length: u64,
        /// The most that [`Direction::longest_frame`](crate::Direction::longest_frame) allows.
        longest: u64,
    },
    /// An earlier frame was cut off by its deadline when part of it had been sent.
    #[error("an earlier frame was cut off, so that the other process can't read later ones")]
    CutOff,
    /// The message has no encoding. Nothing was sent.
    #[error("can't encode the message")]
    Encode(#[source] postcard::Error),
    /// The kernel refused memory or a wait.
    #[error("the kernel refused what the channel needs")]
    System(#[from] io::Error),
}

impl From<Lie> for Error {
    fn from(what: Lie) -> Self {
        Self::Lied { what }
    }
}

/// What an honest process never does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Lie {
    /// A position is outside the ring, went back, or isn't aligned.
    #[error("a position outside the ring")]
    Position,
    /// A frame is longer than its direction allows.
    #[error("a frame that is too long")]
    Length,
    /// A frame's number doesn't follow the last one's.
    #[error("a frame out of order")]
    Sequence,
    /// The message isn't one of the expected type.
    #[error("a message that can't be decoded")]
    Message,
    /// Bytes follow the message.
    #[error("bytes after a message")]
    Trailing,
    /// It woke this end again and again with nothing to say.
    #[error("wake-ups without bytes")]
    Wakes,
    /// The descriptors that came aren't the ones announced, or are too many.
    #[error("other descriptors than announced")]
    Descriptors,
}
