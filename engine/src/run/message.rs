//! Runs that cross to another process and back: programs and outcomes as plain data, for postcard.
//!
//! A guest may have taken over its worker process, so nothing from one is trusted. The constructors
//! that check values from a guest build them, and what the embedding process knows itself isn't
//! sent. Output and displays are its transcript's, host functions and mounted folders stay where
//! they are and are named by numbers.

use serde::{Deserialize, Serialize};

use crate::run::outcome::MimeBundle;
use crate::run::transcript::{Stream, Transcript};
pub use encoding::InvalidMessage;
pub use outcome::OutcomeMessage;
pub use program::{ProgramMessage, Proxies};

pub(in crate::run) mod encoding;
mod outcome;
mod program;

/// What a run has added to its transcript, on its way from a worker process while the program runs.
#[derive(Debug, Serialize, Deserialize)]
pub struct Addition(pub(in crate::run) AdditionKind);

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::run) enum AdditionKind {
    Output {
        is_error: bool,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    Display(#[serde(with = "outcome::forms")] MimeBundle),
    DisplayDropped(u64),
    HostCall(String),
}

impl Addition {
    /// Adds it to a transcript of this process, whose run has begun with
    /// [`Transcript::begin`](crate::Transcript::begin).
    pub fn add_to(self, transcript: &Transcript) {
        match self.0 {
            AdditionKind::Output { is_error, bytes } => {
                let stream = if is_error { Stream::Stderr } else { Stream::Stdout };
                transcript.append(stream, &bytes);
            }
            AdditionKind::Display(display) => transcript.show(display),
            AdditionKind::DisplayDropped(bytes) => {
                transcript.drop_display(usize::try_from(bytes).unwrap_or(usize::MAX));
            }
            AdditionKind::HostCall(name) => transcript.host_called(&name),
        }
    }
}

#[cfg(test)]
mod tests;
