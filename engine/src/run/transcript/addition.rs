//! What a run adds to its transcript, as plain data.

use serde::{Deserialize, Serialize};

use super::{Stream, Transcript};
use crate::run::outcome::mime::{MimeBundle, forms};

/// What a run has added to its transcript, on its way from a worker process while the program runs.
#[derive(Debug, Serialize, Deserialize)]
pub struct Addition(pub(super) AdditionKind);

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum AdditionKind {
    Output {
        is_error: bool,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    Display(#[serde(with = "forms")] MimeBundle),
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
