//! Runs that cross to another process and back: programs and outcomes as plain data, for postcard.
//!
//! A worker process may be in the hands of its guest, so nothing that comes from one is believed:
//! values are built by the constructors that check values from a guest, and what the embedding
//! process knows itself isn't sent at all. Output and displays are its transcript's, host functions
//! and mounted folders stay where they are and are named by numbers.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

pub use addition::{Addition, Additions};
pub use outcome::SentOutcome;
pub use program::{Lent, SentProgram};

mod addition;
mod limits;
mod outcome;
mod program;
mod value;

/// What another process sent isn't what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("another process sent {what}")]
pub struct InvalidSent {
    what: String,
}

impl InvalidSent {
    fn new(what: impl Into<String>) -> Self {
        Self { what: what.into() }
    }

    /// As [`Self::new`], with the error that says what is wrong.
    fn because(what: &str, error: &dyn std::error::Error) -> Self {
        Self { what: format!("{what}: {error}") }
    }
}

/// JSON as text, since postcard's format doesn't describe itself. The text keeps whole numbers of
/// any size.
#[derive(Debug, Clone, PartialEq)]
struct Text<T>(T);

impl<T: Serialize> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer
            .serialize_str(&serde_json::to_string(&self.0).map_err(serde::ser::Error::custom)?)
    }
}

impl<'de, T: for<'a> Deserialize<'a>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        serde_json::from_str(&text).map(Self).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests;
