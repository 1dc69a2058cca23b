//! JSON in messages, and the error for messages that aren't valid.

use std::error::Error;

use serde::de::{DeserializeOwned, Error as _};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What another process sent isn't what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("another process sent {what}")]
pub struct InvalidMessage {
    what: String,
}

impl InvalidMessage {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into() }
    }

    /// As [`Self::new`], with the error that says what is wrong.
    pub(super) fn because(what: &str, error: &dyn Error) -> Self {
        Self { what: format!("{what}: {error}") }
    }
}

/// A value as JSON in a text, for `serde(with)`: postcard's format doesn't describe itself. The text
/// keeps whole numbers of any size.
pub(in crate::run) mod text {
    use super::*;

    pub(in crate::run) fn serialize<T: Serialize, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serde_json::to_string(value).map_err(S::Error::custom)?.serialize(serializer)
    }

    pub(in crate::run) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        serde_json::from_str(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// An optional value as [`text`].
pub(in crate::run) mod optional_text {
    use super::*;

    pub(in crate::run) fn serialize<T: Serialize, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let text = value.as_ref().map(serde_json::to_string).transpose();
        text.map_err(S::Error::custom)?.serialize(serializer)
    }

    pub(in crate::run) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| serde_json::from_str(&text)).transpose().map_err(D::Error::custom)
    }
}
