//! What bytes are: images that clients can show, texts, and types by the names of files.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use rmcp::model::{ContentBlock, ResourceContents};

/// The largest image that is sent: 5 MB in base64, the most that models take.
const MOST_IMAGE_BYTES: usize = 3_750_000;

/// The types of images that models take, with how each begins. The first that an object has is used.
const IMAGES: [(&str, &[u8]); 5] = [
    ("image/png", b"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", b"\xff\xd8\xff"),
    ("image/webp", b"RIFF"),
    ("image/gif", b"GIF8"),
    ("image/gif", b"GIF9"),
];

/// Types of files by the ends of their names.
const TYPES: [(&str, &str); 18] = [
    ("csv", "text/csv"),
    ("css", "text/css"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("html", "text/html"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript"),
    ("json", "application/json"),
    ("md", "text/markdown"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("py", "text/x-python"),
    ("svg", "image/svg+xml"),
    ("txt", "text/plain"),
    ("webp", "image/webp"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("zip", "application/zip"),
];

/// Returns the types of images that can be sent.
pub(super) fn image_types() -> impl Iterator<Item = &'static str> {
    IMAGES.iter().map(|(name, _)| *name)
}

/// Returns the type of an image that a client can show. A program says what its bytes are, and a
/// client that believes it may fail at them, so they must begin as such an image does.
pub(super) fn image_type(bytes: &[u8]) -> Option<&'static str> {
    let is_webp = |name| name != "image/webp" || bytes.get(8..12) == Some(b"WEBP");
    let found = IMAGES.iter().find(|(name, begin)| bytes.starts_with(begin) && is_webp(*name));
    found.filter(|_| bytes.len() <= MOST_IMAGE_BYTES).map(|(name, _)| *name)
}

/// Returns an image as a client shows it.
pub(super) fn image(bytes: &[u8], mime_type: &str) -> ContentBlock {
    ContentBlock::image(BASE64_STANDARD.encode(bytes), mime_type)
}

/// Returns the type of a file by its name.
pub(super) fn file_type(path: &str) -> Option<&'static str> {
    let (_, end) = path.rsplit_once('.')?;
    TYPES.iter().find(|(known, _)| end.eq_ignore_ascii_case(known)).map(|(_, name)| *name)
}

/// Returns a file as a resource: a text if it is UTF-8, else base64.
pub(super) fn resource(uri: &str, path: &str, bytes: Vec<u8>) -> ResourceContents {
    match String::from_utf8(bytes) {
        Ok(text) => ResourceContents::text(text, uri)
            .with_mime_type(file_type(path).unwrap_or("text/plain")),
        Err(error) => ResourceContents::blob(BASE64_STANDARD.encode(error.as_bytes()), uri)
            .with_mime_type(file_type(path).unwrap_or("application/octet-stream")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_begins_as_an_image_is_one() {
        assert_eq!(image_type(b"\x89PNG\r\n\x1a\nrest"), Some("image/png"));
        assert_eq!(image_type(b"RIFF0000WEBP"), Some("image/webp"));
        for other in [&b""[..], b"\x89PNG", b"RIFF0000WAVE", b"<svg/>", b"RIFF"] {
            assert_eq!(image_type(other), None);
        }
        let mut large = b"\xff\xd8\xff".to_vec();
        assert_eq!(image_type(&large), Some("image/jpeg"));
        large.resize(MOST_IMAGE_BYTES + 1, 0);
        assert_eq!(image_type(&large), None);
    }

    #[test]
    fn files_are_texts_or_base64() {
        assert_eq!((file_type("a/b.CSV"), file_type("a.b/c")), (Some("text/csv"), None));
        let text = resource("u", "a.json", b"{}".to_vec());
        assert_eq!(text, ResourceContents::text("{}", "u").with_mime_type("application/json"));
        let blob = resource("u", "a", vec![0xff]);
        let expected = ResourceContents::blob("/w==", "u");
        assert_eq!(blob, expected.with_mime_type("application/octet-stream"));
    }
}
