//! JSON in a format that doesn't describe itself.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// JSON as text, since postcard's format doesn't describe itself. The text keeps whole numbers of
/// any size.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Text<T>(pub(super) T);

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
