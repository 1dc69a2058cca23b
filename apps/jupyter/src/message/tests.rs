//! Messages are read as they were written, and nothing else is.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn key() -> Key {
    Key::new(b"a key")
}

fn written(content: &Value) -> Vec<Bytes> {
    let writer = Writer::new(key()).unwrap();
    let parent = Object::from_iter([("msg_id".to_owned(), json!("1"))]);
    writer.write(&[Bytes::from_static(b"front end")], "execute_reply", &parent, content)
}

#[test]
fn a_message_is_read_as_it_was_written() {
    let message = Message::read(written(&json!({ "code": "é\n", "silent": true })), &key());
    let message = message.unwrap();
    assert_eq!(message.identities, [Bytes::from_static(b"front end")]);
    assert_eq!((message.kind(), message.text("code")), ("execute_reply", "é\n"));
    assert!(message.flag("silent", false) && message.flag("store_history", true));
    assert_eq!((message.number("silent"), message.text("silent")), (None, ""));
}

#[test]
fn signatures_are_those_of_jupyter() {
    // hmac.new(b"a key", b"{}" * 4, "sha256").hexdigest()
    let signature = key().sign([b"{}".as_slice(); 4]);
    assert_eq!(signature, "e2c27855d41353957c8555d30463a97e6a6ea497e6ebb3f7824503c3b64f2c0b");
}

#[test]
fn messages_that_others_signed_are_dropped() {
    let frames = written(&json!({}));
    let read = |frames: &[Bytes]| Message::read(frames.to_vec(), &key());
    assert!(read(&frames).is_ok());
    assert_eq!(Message::read(frames.clone(), &Key::new(b"other")), Err(InvalidMessage::Signature));
    for (at, replaced) in
        [(2, ""), (2, "00"), (3, "{}"), (4, "{}"), (5, "{ }"), (6, "{\"code\": 1}")]
    {
        let mut changed = frames.clone();
        changed[at] = Bytes::from(replaced);
        assert_eq!(read(&changed), Err(InvalidMessage::Signature), "{at}: {replaced}");
    }
    // Without a key nothing is signed.
    let unsigned = Writer::new(Key::new(b"")).unwrap();
    let unsigned = unsigned.write(&[], "a", &Object::new(), &json!({}));
    assert_eq!(unsigned[1], "");
    assert!(Message::read(unsigned.clone(), &Key::new(b"")).is_ok());
    assert_eq!(read(&unsigned), Err(InvalidMessage::Signature));
}

#[test]
fn messages_have_bounds_and_a_form() {
    let frames = written(&json!({}));
    let read = |frames: Vec<Bytes>| Message::read(frames, &key());
    assert_eq!(read(frames[..6].to_vec()), Err(InvalidMessage::TooShort));
    assert_eq!(read(frames[2..].to_vec()), Err(InvalidMessage::NoDelimiter));
    let hops = vec![Bytes::from_static(b"hop"); MOST_IDENTITIES];
    assert_eq!(read([hops, frames].concat()), Err(InvalidMessage::NoDelimiter));
    let long = json!("x".repeat(MOST_BYTES));
    assert_eq!(read(written(&long)), Err(InvalidMessage::TooLong));
    assert_eq!(read(written(&json!([]))), Err(InvalidMessage::NotJson));
    let deep = serde_json::from_str::<Value>(&format!("{}1{}", "[".repeat(120), "]".repeat(120)));
    assert!(read(written(&json!({ "deep": deep.unwrap() }))).is_ok());
}

proptest! {
    /// Any frames are either a message with a right signature or an error.
    #[test]
    fn no_frames_end_the_kernel(
        before in vec(vec(any::<u8>(), 0..12), 0..4),
        after in vec(vec(any::<u8>(), 0..70), 0..8),
        has_delimiter in any::<bool>(),
    ) {
        let delimiter = has_delimiter.then(|| DELIMITER.to_vec());
        let frames = before.into_iter().chain(delimiter).chain(after).map(Bytes::from).collect();
        prop_assert!(Message::read(frames, &key()).is_err());
    }

    /// With a right signature, any contents are read or refused.
    #[test]
    fn no_contents_end_the_kernel(parts in vec(vec(any::<u8>(), 0..70), 4)) {
        let signature = key().sign(parts.iter().map(Vec::as_slice));
        let mut frames = vec![Bytes::from_static(DELIMITER), Bytes::from(signature)];
        frames.extend(parts.into_iter().map(Bytes::from));
        if let Ok(message) = Message::read(frames, &key()) {
            prop_assert!(message.kind().len() < 70 && message.text("code").len() < 70);
        }
    }
}
