//! What the guest sends through the call channel, byte by byte; `hatchery/_wire.py` is the other
//! side.
//!
//! The sender may lie, so a frame is only split if its lengths add up exactly.

use serde::Deserialize;
use serde_json::{Map, Value as Json};

use crate::run::outcome::{MimeBundle, MimeData};

/// The kinds of frames that the guest sends, told apart by the first byte, and the host's answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AgentFrame {
    /// Asks for the request, in the format of `marshal`.
    Fetch,
    /// Carries the reply, a header and buffers; the answer is empty.
    Reply,
    /// Carries the address of `KeyboardInterrupt`, 4 bytes, once when the agent starts.
    Hello,
    /// The program's own code begins, and can be interrupted from here on.
    ProgramBegins,
    /// The program's own code has ended, and the agent's continues.
    ProgramOver,
    /// Reports a random number generator that is shared through its module. It carries the address
    /// of the object, its size, and the first words of its state. Only while an image is prepared.
    Seeded,
    /// Carries addresses of objects, 4 bytes each, whose references need no counting any more. Only
    /// while an image is prepared.
    Immortal,
    /// Calls a host function, described by a JSON object; the answer is the call's ticket, or an
    /// error.
    Call,
    /// Waits for calls to end. The first 8 bytes have the timeout in nanoseconds, below 0 for none.
    /// The other 4 have the ticket, 0 for any.
    Wait,
    /// Carries the ticket of a call to cancel.
    Cancel,
    /// Ends another thread's wait for any call.
    Wake,
    /// Asks which host functions there are.
    Functions,
    /// Sets when the interpreter is to collect garbage: 8 bytes with nanoseconds from now, below 0
    /// for never. A callback of collections serves the timer of Python's `signal`.
    Alarm,
    /// Duplicates a descriptor: 4 bytes with its number, and 4 with that of the copy, or below 0 for
    /// any. The answer is the copy's number, or an error number below 0, in 4 bytes.
    Duplicate,
    /// Carries what the program displays, built like a reply; the answer is empty.
    Display,
    /// Carries an operation on a stream of the network, for the peer that serves it.
    Net,
    /// Carries four addresses of 4 bytes each, once when the agent of a command build has started.
    /// They are those of the type `Turns`, and of its objects for each `Word`.
    Enter,
}

impl AgentFrame {
    /// The first byte of calls, which have their own size limit.
    pub(crate) const CALL: u8 = 16;
    /// The first byte of other frames that the agent's start sends.
    pub(crate) const FETCH: u8 = 1;
    pub(crate) const ENTER: u8 = 9;

    /// Splits a frame; `None` if its kind is unknown.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        match bytes.split_first()? {
            (&Self::FETCH, rest) => Some((Self::Fetch, rest)),
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
            (20, rest) => Some((Self::Wake, rest)),
            (21, rest) => Some((Self::Alarm, rest)),
            (22, rest) => Some((Self::Duplicate, rest)),
            (23, rest) => Some((Self::Net, rest)),
            (8, rest) => Some((Self::Display, rest)),
            (&Self::ENTER, rest) => Some((Self::Enter, rest)),
            _ => None,
        }
    }
}

/// Room for a header's content other than the limited texts.
pub(super) const HEADER_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct ReplyParts<'a> {
    pub(crate) header: Map<String, Json>,
    pub(crate) buffers: Vec<&'a [u8]>,
}

/// Splits a reply: 4 bytes with the length of the header, little-endian; the header, a JSON object;
/// and the buffers. The header's field `buffers`, which is removed from it, lists their lengths;
/// without the field there are none.
///
/// Refuses a header longer than `most_header` bytes, and one with more than `most_structure` bytes
/// outside its texts. A few such bytes, for example `{"":`, become hundreds of bytes here.
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

/// Counts the bytes of a JSON text outside its strings.
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

/// A header's entry for one form of an object: its MIME type, its kind, and the index of its
/// buffer.
pub(crate) type ListedForm = (String, FormKind, usize);

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FormKind {
    Text,
    Bytes,
}

/// Returns the forms that a header lists, each from the buffer with its own index.
pub(crate) fn bundle_of(listed: Vec<ListedForm>, buffers: &[&[u8]]) -> Result<MimeBundle, String> {
    let mut forms = Vec::with_capacity(listed.len());
    for (place, (name, kind, index)) in listed.into_iter().enumerate() {
        let buffer = buffers.get(index).filter(|_| index == place);
        let bytes = buffer.ok_or("a form isn't in the buffer of its index")?.to_vec();
        let data = match kind {
            FormKind::Text => {
                MimeData::Text(String::from_utf8(bytes).map_err(|error| error.to_string())?)
            }
            FormKind::Bytes => MimeData::Bytes(bytes),
        };
        forms.push((name, data));
    }
    MimeBundle::new(forms).ok_or_else(|| "its MIME types are invalid".to_owned())
}

pub(crate) fn parse_display(bytes: &[u8]) -> Result<MimeBundle, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct ReplyHeader {
        bundle: Vec<ListedForm>,
    }
    let ReplyParts { header, buffers } = split_reply(bytes, HEADER_BYTES, HEADER_BYTES)?;
    let ReplyHeader { bundle } =
        serde_json::from_value(Json::Object(header)).map_err(|error| error.to_string())?;
    if bundle.is_empty() || bundle.len() != buffers.len() {
        return Err(format!("{} forms are in {} buffers", bundle.len(), buffers.len()));
    }
    bundle_of(bundle, &buffers)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a reply with this header and without buffers.
    pub(crate) fn framed(header: &str) -> Vec<u8> {
        let length = u32::try_from(header.len()).unwrap();
        [&length.to_le_bytes(), header.as_bytes()].concat()
    }

    #[test]
    fn frames_have_a_known_first_byte() {
        assert_eq!(AgentFrame::parse(b"\x01"), Some((AgentFrame::Fetch, &b""[..])));
        assert_eq!(AgentFrame::parse(b"\x02x"), Some((AgentFrame::Reply, &b"x"[..])));
        assert_eq!(AgentFrame::parse(b"\x05"), Some((AgentFrame::ProgramOver, &b""[..])));
        assert_eq!(AgentFrame::parse(b"\x08x"), Some((AgentFrame::Display, &b"x"[..])));
        assert_eq!(AgentFrame::parse(b"\x20"), None);
        assert_eq!(AgentFrame::parse(b""), None);
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
    fn a_header_may_have_little_outside_its_texts() {
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
    fn a_display_has_each_form_in_its_own_buffer() {
        let parse =
            |header: &str, data: &[u8]| parse_display(&[&framed(header)[..], data].concat());
        let sound =
            r#"{"bundle":[["text/html","text",0],["image/png","bytes",1]],"buffers":[2,1]}"#;
        let bundle = parse(sound, b"ab\xff").unwrap();
        assert_eq!(bundle.text("text/html"), Some("ab"));
        assert_eq!(bundle.get("image/png"), Some(&MimeData::Bytes(vec![0xff])));
        assert!(parse(sound, b"a\xff\xff").is_err(), "not UTF-8");
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
