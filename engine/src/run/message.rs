//! Runs that cross to another process and back: programs and outcomes as plain data, for postcard.
//!
//! A worker process may be in the hands of its guest, so nothing that comes from one is believed:
//! values are built by the constructors that check values from a guest, and what the embedding
//! process knows itself isn't sent at all. Output and displays are its transcript's, host functions
//! and mounted folders stay where they are and are named by numbers.

use std::error::Error;
use std::time::Duration;

use serde::de::{DeserializeOwned, Error as _};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::limits::Limits;
use crate::run::outcome::MimeBundle;
use crate::run::transcript::{Copier, Stream, Transcript};
pub use outcome::OutcomeMessage;
use outcome::WireForm;
pub use program::{ProgramMessage, Proxies};

mod outcome;
mod program;
mod value;

/// What another process sent isn't what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("another process sent {what}")]
pub struct InvalidMessage {
    what: String,
}

impl InvalidMessage {
    fn new(what: impl Into<String>) -> Self {
        Self { what: what.into() }
    }

    /// As [`Self::new`], with the error that says what is wrong.
    fn because(what: &str, error: &dyn Error) -> Self {
        Self { what: format!("{what}: {error}") }
    }
}

/// Limits as plain data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitsMessage(#[serde(with = "LimitsFields")] pub Limits);

/// The same fields as [`Limits`], which is no format of its own.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Limits")]
struct LimitsFields {
    wall_time: Duration,
    cpu_time: Option<Duration>,
    grace: Duration,
    memory_bytes: usize,
    output_bytes: usize,
    stop_at_output_limit: bool,
    file_bytes: u64,
    file_count: u64,
    open_files: u64,
    threads: usize,
    network_bytes: u64,
    host_calls: u64,
    function_calls: u64,
    functions_in_flight: usize,
    function_argument_bytes: usize,
    function_result_bytes: usize,
    source_bytes: usize,
    result_bytes: usize,
    result_data_bytes: usize,
    display_bytes: usize,
    display_count: usize,
}

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

/// JSON as text, since postcard's format doesn't describe itself. The text keeps whole numbers of
/// any size.
#[derive(Debug, Clone, PartialEq)]
struct Text<T>(T);

impl<T: Serialize> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&serde_json::to_string(&self.0).map_err(S::Error::custom)?)
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        serde_json::from_str(&text).map(Self).map_err(D::Error::custom)
    }
}

/// A value as [`Text`], for `serde(with)`.
mod text {
    use super::*;

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        Text(value).serialize(serializer)
    }

    pub(super) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        Text::deserialize(deserializer).map(|Text(value)| value)
    }
}

/// An optional value as [`Text`], for `serde(with)`.
pub(super) mod optional_text {
    use super::*;

    pub(in crate::run) fn serialize<T: Serialize, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.as_ref().map(Text).serialize(serializer)
    }

    pub(in crate::run) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        Ok(Option::<Text<T>>::deserialize(deserializer)?.map(|Text(value)| value))
    }
}

#[cfg(test)]
mod tests;
