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
pub(in crate::run) mod text {
    use super::*;

    pub(in crate::run) fn serialize<T: Serialize, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        Text(value).serialize(serializer)
    }

    pub(in crate::run) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        Text::deserialize(deserializer).map(|Text(value)| value)
    }
}

/// An optional value as [`Text`], for `serde(with)`.
pub(in crate::run) mod optional_text {
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
