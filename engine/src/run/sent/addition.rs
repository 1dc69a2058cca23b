//! Additions to a transcript, on their way from a worker process while the program runs.

use serde::{Deserialize, Serialize};

use super::error::InvalidSent;
use super::outcome::{SentData, received_bundle, sent_bundle};
use crate::run::outcome::MimeBundle;
use crate::run::transcript::{Copier, Stream, Transcript};

/// What a run has added to its transcript.
#[derive(Debug, Serialize, Deserialize)]
pub struct Addition(AdditionKind);

#[derive(Debug, Serialize, Deserialize)]
enum AdditionKind {
    Output {
        is_error: bool,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    Display(Vec<(String, SentData)>),
    DisplayDropped(u64),
    HostCall(String),
}

impl Addition {
    /// Adds it to a transcript of this process, whose run has begun with
    /// [`Transcript::begin`](crate::Transcript::begin).
    ///
    /// # Errors
    /// It is a display with invalid MIME types.
    pub fn add_to(self, transcript: &Transcript) -> Result<(), InvalidSent> {
        match self.0 {
            AdditionKind::Output { is_error, bytes } => {
                let stream = if is_error { Stream::Stderr } else { Stream::Stdout };
                transcript.append(stream, &bytes);
            }
            AdditionKind::Display(forms) => transcript.show(received_bundle(forms)?),
            AdditionKind::DisplayDropped(bytes) => {
                transcript.drop_display(usize::try_from(bytes).unwrap_or(usize::MAX));
            }
            AdditionKind::HostCall(name) => transcript.host_called(&name),
        }
        Ok(())
    }
}

/// Passes a run's additions on.
pub struct Additions<F>(pub F);

impl<F: Fn(Addition) + Send + Sync> Copier for Additions<F> {
    fn wrote(&self, stream: Stream, bytes: &[u8]) {
        let is_error = stream == Stream::Stderr;
        self.0(Addition(AdditionKind::Output { is_error, bytes: bytes.to_vec() }));
    }

    fn showed(&self, display: &MimeBundle) {
        self.0(Addition(AdditionKind::Display(sent_bundle(display))));
    }

    fn display_dropped(&self, bytes: usize) {
        self.0(Addition(AdditionKind::DisplayDropped(bytes as u64)));
    }

    fn called(&self, name: &str) {
        self.0(Addition(AdditionKind::HostCall(name.to_owned())));
    }
}
