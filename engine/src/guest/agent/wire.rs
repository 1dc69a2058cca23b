//! What the guest sends through the door, byte by byte; `hatchery/_wire.py` is its other side.
//!
//! Whoever sends it may lie: a frame is split only where its lengths add up exactly.

use serde::Deserialize;
use serde_json::{Map, Value as Json};

use crate::run::outcome::{MimeBundle, MimeData};

/// The first byte of each frame that the guest sends, and what the host answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Wants the request, in the format of `marshal`.
    Fetch,
    /// Carries the reply, a header and buffers; the answer is empty.
    Reply,
    /// Carries the address of `KeyboardInterrupt`, 4 bytes, once as the agent starts.
    Hello,
    /// From here on the program's own code runs, and can be interrupted.
    ProgramBegins,
    /// What follows is the agent's again.
    ProgramOver,
    /// Says where a generator of random numbers is that the module of its name shares: the
    /// address of the object, its size, and the first words of its state. While an image is
    /// prepared.
    Seeded,
    /// Carries addresses of objects, 4 bytes each, whose references are not to be counted any
    /// more. While an image is prepared.
    Immortal,
    /// Carries a call of a host function, a JSON object; the answer is its ticket, or an error.
    Call,
    /// Waits for the ends of calls: 8 bytes with the most nanoseconds, below 0 for no end, and 4
    /// with the ticket, 0 for any.
    Wait,
    /// Carries the ticket of a call that nobody wants any more.
    Cancel,
    /// Wants to know which host functions there are.
    Functions,
    /// Carries what the program shows, built as a reply is; the answer is empty.
    Display,
}

impl Frame {
    /// The first byte of calls, whose size has a limit of its own.
    pub(crate) const CALL: u8 = 16;

    /// Splits a frame; `None` if it is of no known kind.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        match bytes.split_first()? {
            (1, rest) => Some((Self::Fetch, rest)),
            (2, rest) => Some((Self::Reply, rest)),
            (3, rest) => Some((Self::Hello, rest)),
            (4, rest) => Some((Self::ProgramBegins, rest)),
            (5, rest) => Some((Self::ProgramOver, rest)),
            (6, rest) => Some((Self::Seeded, rest)),
            (7, rest) => Some((Self::Immortal, rest)),
            (&Self::CALL, rest) => Some((Self::Call, rest)),
            (17, rest) => Some((Self::Wait, rest)),
            (18, rest) => Some((Self::Cancel, rest)),
            (19, rest) => Some((Self::Functions, rest)),
            (8, rest) => Some((Self::Display, rest)),
            _ => None,
        }
    }
}

/// What a reply carries.
#[derive(Debug)]
pub(crate) struct ReplyParts<'a> {
    pub(crate) header: Map<String, Json>,
    pub(crate) buffers: Vec<&'a [u8]>,
}

/// Splits what a reply carries: 4 bytes with the length of the header, little-endian, the header, a
/// JSON object, and the buffers one after another. The header's field `buffers`, which is taken out
/// of it, lists their lengths; without it there are none.
///
/// A header longer than `most_header` bytes is not read, nor one with more than `most_structure` bytes
/// outside of its texts: a few of those, such as `{"":`, become hundreds of bytes here.
pub(crate) fn split_reply(
    bytes: &[u8],
    most_header: usize,
    most_structure: usize,
) -> Result<ReplyParts<'_>, String> {
    let (length, rest) = bytes.split_first_chunk::<4>().ok_or("it has no header")?;
    let length = u32::from_le_bytes(*length) as usize;
    let (header, mut rest) = rest.split_at_checked(length).ok_or("its header is cut off")?;
    if length > most_header || (length > most_structure && structure_bytes(header) > most_structure)
    {
        return Err("its header is larger than its limit".to_owned());
    }
    let mut header: Map<String, Json> =
        serde_json::from_slice(header).map_err(|error| error.to_string())?;
    let lengths: Vec<u32> = match header.remove("buffers") {
        Some(lengths) => serde_json::from_value(lengths).map_err(|error| error.to_string())?,
        None => Vec::new(),
    };
    let mut buffers = Vec::with_capacity(lengths.len());
    for length in lengths {
        let (buffer, behind) =
            rest.split_at_checked(length as usize).ok_or("a buffer is cut off")?;
        buffers.push(buffer);
        rest = behind;
    }
    if !rest.is_empty() {
        return Err(format!("{} bytes follow its buffers", rest.len()));
    }
    Ok(ReplyParts { header, buffers })
}

/// The bytes of a JSON text that are not inside of its strings.
fn structure_bytes(json: &[u8]) -> usize {
    let (mut count, mut is_inside, mut is_escaped) = (0, false, false);
    for byte in json {
        let is_quote = *byte == b'"' && !is_escaped;
        is_escaped = is_inside && *byte == b'\\' && !is_escaped;
        is_inside ^= is_quote;
        count += usize::from(is_quote || !is_inside);
    }
    count
}

/// What a header says of one form of an object: its MIME type, what it is, and which buffer has it.
pub(crate) type ListedForm = (String, FormKind, usize);

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FormKind {
    Text,
    Bytes,
}

/// The forms that a header lists, each in the buffer of its place in the list.
pub(crate) fn bundle_of(listed: Vec<ListedForm>, buffers: &[&[u8]]) -> Result<MimeBundle, String> {
    let mut forms = Vec::with_capacity(listed.len());
    for (place, (name, kind, index)) in listed.into_iter().enumerate() {
        let buffer = buffers.get(index).filter(|_| index == place);
        let bytes = buffer.ok_or("a form is in no buffer of its own")?.to_vec();
        let data = match kind {
            FormKind::Text => {
                MimeData::Text(String::from_utf8(bytes).map_err(|error| error.to_string())?)
            }
            FormKind::Bytes => MimeData::Bytes(bytes),
        };
        forms.push((name, data));
    }
    MimeBundle::new(forms).ok_or_else(|| "its MIME types can't be such".to_owned())
}

/// What the frame of a display carries.
pub(crate) fn parse_display(bytes: &[u8]) -> Result<MimeBundle, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Header {
        bundle: Vec<ListedForm>,
    }
    let ReplyParts { header, buffers } =
        split_reply(bytes, super::HEADER_BYTES, super::HEADER_BYTES)?;
    let Header { bundle } =
        serde_json::from_value(Json::Object(header)).map_err(|error| error.to_string())?;
    if bundle.is_empty() || bundle.len() != buffers.len() {
        return Err(format!("{} forms are in {} buffers", bundle.len(), buffers.len()));
    }
    bundle_of(bundle, &buffers)
}

/// What a reply with this header and without buffers carries.
#[cfg(test)]
pub(crate) fn framed(header: &str) -> Vec<u8> {
    let length = u32::try_from(header.len()).unwrap();
    [&length.to_le_bytes(), header.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_a_known_first_byte() {
        assert_eq!(Frame::parse(b"\x01"), Some((Frame::Fetch, &b""[..])));
        assert_eq!(Frame::parse(b"\x02x"), Some((Frame::Reply, &b"x"[..])));
        assert_eq!(Frame::parse(b"\x05"), Some((Frame::ProgramOver, &b""[..])));
        assert_eq!(Frame::parse(b"\x08x"), Some((Frame::Display, &b"x"[..])));
        assert_eq!(Frame::parse(b"\x20"), None);
        assert_eq!(Frame::parse(b""), None);
    }

    #[test]
    fn a_reply_is_a_header_and_its_buffers() {
        let ReplyParts { header, buffers } = split_reply(b"\x02\0\0\0{}", 2, 2).unwrap();
        assert_eq!((header.len(), buffers.len()), (0, 0));
        let carried = [&framed(r#"{"a":1,"buffers":[3,0,2]}"#)[..], b"abcde"].concat();
        let ReplyParts { header, buffers } = split_reply(&carried, 1000, 1000).unwrap();
        assert_eq!(Json::Object(header), serde_json::json!({"a": 1}));
        assert_eq!(buffers, [&b"abc"[..], b"", b"de"]);
    }

    #[test]
    fn lengths_that_do_not_add_up_are_refused() {
        for carried in [
            &b""[..],
            b"\0\0\0",
            b"\0\0\0\0",
            b"\x03\0\0\0{}",
            b"\x02\0\0\0{}x",
            b"\xff\xff\xff\xff{}",
            b"\x02\0\0\0[]",
        ] {
            assert!(split_reply(carried, 1000, 1000).is_err(), "{carried:?}");
        }
        for buffers in
            ["[1]", "[3]", "[1,2]", "[2,4294967295]", "[4294967296]", "[-1]", "2", "null"]
        {
            let header = framed(&format!(r#"{{"buffers":{buffers}}}"#));
            assert!(split_reply(&[&header[..], b"ab"].concat(), 1000, 1000).is_err(), "{buffers}");
        }
        assert!(split_reply(b"\x02\0\0\0{}", 1, 1).is_err());
    }

    #[test]
    fn a_header_is_read_if_little_of_it_is_outside_of_texts() {
        for (json, expected) in
            [(r#"{"a": [1]}"#, 9), (r#"["a\"[[[[", "\\", ["#, 10), (r#""[[[["#, 1), ("\\[", 2)]
        {
            assert_eq!(structure_bytes(json.as_bytes()), expected, "{json}");
        }
        let text = framed(&format!(r#"{{"a":"{}"}}"#, "[".repeat(100)));
        assert!(split_reply(&text, 1000, 20).is_ok());
        let nested = framed(&format!(r#"{{"a":{}{}}}"#, "[".repeat(20), "]".repeat(20)));
        assert!(split_reply(&nested, 1000, 20).is_err());
        assert!(split_reply(&nested, 1000, 100).is_ok());
    }

    #[test]
    fn a_display_has_each_form_in_a_buffer_of_its_own() {
        let parse =
            |header: &str, data: &[u8]| parse_display(&[&framed(header)[..], data].concat());
        let sound =
            r#"{"bundle":[["text/html","text",0],["image/png","bytes",1]],"buffers":[2,1]}"#;
        let bundle = parse(sound, b"ab\xff").unwrap();
        assert_eq!(bundle.text("text/html"), Some("ab"));
        assert_eq!(bundle.get("image/png"), Some(&MimeData::Bytes(vec![0xff])));
        assert!(parse(sound, b"a\xff\xff").is_err(), "no text");
        for header in [
            r#"{"bundle":[]}"#,
            r#"{"bundle":[["a/b","text",0]]}"#,
            r#"{"bundle":[["a/b","text",0]],"buffers":[1,2]}"#,
            r#"{"bundle":[["a/b","text",0],["a/c","text",0]],"buffers":[1,2]}"#,
            r#"{"bundle":[["a/b","text",1],["a/c","text",0]],"buffers":[1,2]}"#,
            r#"{"bundle":[["a/b","text",0],["a/b","text",1]],"buffers":[1,2]}"#,
            r#"{"bundle":[["a/b","other",0]],"buffers":[3]}"#,
            r#"{"bundle":[["ab","text",0]],"buffers":[3]}"#,
            r#"{"bundle":[["a/b","text",-1]],"buffers":[3]}"#,
            r#"{"bundle":[["a/b","text",0,0]],"buffers":[3]}"#,
            r#"{"bundle":[["a/b","text",0]],"buffers":[3],"more":0}"#,
            r#"{"bundle":{"a/b":0},"buffers":[3]}"#,
            r#"{"buffers":[3]}"#,
        ] {
            assert!(parse(header, b"abc").is_err(), "{header}");
        }
    }
}
