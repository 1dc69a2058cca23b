//! Runs that cross to another process and back: programs and outcomes as plain data, for postcard.
//!
//! A guest may have taken over its worker process, so nothing from one is trusted. The constructors
//! that check values from a guest build them, and what the embedding process knows itself isn't
//! sent. Output and displays are its transcript's, host functions and mounted folders stay where
//! they are and are named by numbers.

use serde::{Deserialize, Serialize};

use crate::run::outcome::MimeBundle;
use crate::run::transcript::{Copier, Stream, Transcript};
pub use encoding::InvalidMessage;
pub use outcome::OutcomeMessage;
use outcome::WireForm;
pub use program::{ProgramMessage, Proxies};

pub(in crate::run) mod encoding;
mod outcome;
mod program;

/// What a run has added to its transcript, on its way from a worker process while the program runs.
#[derive(Debug, Serialize, Deserialize)]
pub struct Addition(AdditionKind);

#[derive(Debug, Serialize, Deserialize)]
enum AdditionKind {
    Output {
        is_error: bool,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    Display(Vec<WireForm>),
    DisplayDropped(u64),
    HostCall(String),
}

impl Addition {
    /// Adds it to a transcript of this process, whose run has begun with
    /// [`Transcript::begin`](crate::Transcript::begin).
    ///
    /// # Errors
    /// It is a display with invalid MIME types.
    pub fn add_to(self, transcript: &Transcript) -> Result<(), InvalidMessage> {
        match self.0 {
            AdditionKind::Output { is_error, bytes } => {
                let stream = if is_error { Stream::Stderr } else { Stream::Stdout };
                transcript.append(stream, &bytes);
            }
            AdditionKind::Display(forms) => {
                let invalid = || InvalidMessage::new("forms with invalid MIME types");
                transcript.show(WireForm::bundle(forms).ok_or_else(invalid)?);
            }
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
        self.0(Addition(AdditionKind::Display(WireForm::all_of(display))));
    }

    fn display_dropped(&self, bytes: usize) {
        self.0(Addition(AdditionKind::DisplayDropped(bytes as u64)));
    }

    fn called(&self, name: &str) {
        self.0(Addition(AdditionKind::HostCall(name.to_owned())));
    }
}

#[cfg(test)]
mod tests;
