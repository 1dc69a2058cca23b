//! Rich forms of an object: data of several MIME types, as notebooks show them.
//!
//! A guest states the types, so they may not match the data.

use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The longest name of a MIME type, and the most forms; `agent/hatchery/_display.py` has the same
/// numbers.
const LONGEST_TYPE: usize = 255;
const MOST_FORMS: usize = 32;

/// The data of one form of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MimeData {
    /// A text, such as HTML, SVG or JSON.
    Text(String),
    /// Bytes, such as a PNG.
    Bytes(Vec<u8>),
}

impl MimeData {
    /// Returns its bytes; those of a text are UTF-8.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }

    /// Returns the text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Bytes(_) => None,
        }
    }
}

/// The forms of one object by MIME type, in the object's order. A clone is a reference.
///
/// Its JSON is that of notebooks: an object from types to texts, bytes in base64.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MimeBundle {
    /// `None` if there are none. An empty `Arc` is one of the whole process. The threads of all
    /// workers would change its count with each outcome.
    forms: Option<Arc<[(String, MimeData)]>>,
}

impl MimeBundle {
    /// Creates a bundle; `None` if a type's name is invalid or repeated, or if there are too many.
    pub fn new(forms: Vec<(String, MimeData)>) -> Option<Self> {
        let is_name = |name: &str| {
            name.len() <= LONGEST_TYPE
                && name.contains('/')
                && name.bytes().all(|byte| byte.is_ascii_graphic())
        };
        let is_new = |at: usize| forms[..at].iter().all(|(name, _)| *name != forms[at].0);
        let is_sound = forms.len() <= MOST_FORMS
            && forms.iter().all(|(name, _)| is_name(name))
            && (0..forms.len()).all(is_new);
        is_sound.then(|| Self { forms: (!forms.is_empty()).then(|| forms.into()) })
    }

    /// Returns the form of this type, such as `image/png`.
    pub fn get(&self, mime_type: &str) -> Option<&MimeData> {
        self.iter().find(|(name, _)| *name == mime_type).map(|(_, data)| data)
    }

    /// Returns the text of this type, such as `text/html`.
    pub fn text(&self, mime_type: &str) -> Option<&str> {
        self.get(mime_type).and_then(MimeData::as_text)
    }

    /// Iterates over the types with their data.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &MimeData)> {
        self.forms.iter().flat_map(|forms| &**forms).map(|(name, data)| (name.as_str(), data))
    }

    /// Returns whether there is no form.
    pub fn is_empty(&self) -> bool {
        self.forms.is_none()
    }

    /// Returns the length of names and data together.
    pub fn byte_count(&self) -> usize {
        self.iter().map(|(name, data)| name.len() + data.as_bytes().len()).sum()
    }
}

impl Serialize for MimeBundle {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(name, data)| match data {
            MimeData::Text(text) => (name, std::borrow::Cow::Borrowed(text.as_str())),
            MimeData::Bytes(bytes) => (name, BASE64_STANDARD.encode(bytes).into()),
        }))
    }
}

/// A form of a bundle, with its MIME type.
#[derive(Serialize, Deserialize)]
struct WireForm(String, #[serde(with = "MimeDataFields")] MimeData);

#[derive(Serialize, Deserialize)]
#[serde(remote = "MimeData")]
enum MimeDataFields {
    Text(String),
    Bytes(#[serde(with = "serde_bytes")] Vec<u8>),
}

/// A bundle as its forms, for `serde(with)`.
pub(in crate::run) mod forms {
    use super::*;

    pub(in crate::run) fn serialize<S: Serializer>(
        bundle: &MimeBundle,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let form = |(name, form): (&str, &MimeData)| WireForm(name.to_owned(), form.clone());
        Vec::from_iter(bundle.iter().map(form)).serialize(serializer)
    }

    pub(in crate::run) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<MimeBundle, D::Error> {
        let forms = Vec::<WireForm>::deserialize(deserializer)?;
        MimeBundle::new(forms.into_iter().map(|WireForm(name, form)| (name, form)).collect())
            .ok_or_else(|| D::Error::custom("forms with invalid MIME types"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str) -> (String, MimeData) {
        (name.to_owned(), MimeData::Text("x".to_owned()))
    }

    #[test]
    fn names_are_names_and_differ() {
        let bundle = MimeBundle::new(vec![text("text/html"), text("a/b")]).unwrap();
        assert_eq!(bundle.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["text/html", "a/b"]);
        assert_eq!((bundle.text("a/b"), bundle.get("a/c")), (Some("x"), None));
        assert_eq!(bundle.byte_count(), 14);
        for names in [&["texthtml"][..], &["text/ html"], &["text/ä"], &["a/b", "c/d", "a/b"]] {
            assert_eq!(MimeBundle::new(names.iter().map(|name| text(name)).collect()), None);
        }
        let many = |count| MimeBundle::new((0..count).map(|n| text(&format!("a/{n}"))).collect());
        assert!(many(MOST_FORMS).is_some() && many(MOST_FORMS + 1).is_none());
        assert!(MimeBundle::new(vec![text(&format!("a/{}", "b".repeat(254)))]).is_none());
    }

    #[test]
    fn bytes_are_base64_in_json() {
        let png = ("image/png".to_owned(), MimeData::Bytes(vec![0x89]));
        let json = serde_json::to_value(MimeBundle::new(vec![png, text("a/b")]).unwrap()).unwrap();
        assert_eq!(json, serde_json::json!({"image/png": "iQ==", "a/b": "x"}));
    }
}
