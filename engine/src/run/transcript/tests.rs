//! The order of entries, their caps, and readers of every pace.

use super::*;
use crate::run::outcome::MimeData;

fn transcript(cap: usize) -> Transcript {
    let transcript = Transcript::default();
    transcript.begin(&Limits { output_bytes: cap, ..Limits::default() });
    transcript
}

#[test]
fn one_order_across_both_streams() {
    let transcript = transcript(100);
    transcript.append(Stream::Stdout, b"a");
    transcript.append(Stream::Stdout, b"b");
    transcript.append(Stream::Stderr, b"c");
    transcript.append(Stream::Stdout, b"d");
    transcript.close();
    let mut cursor = Cursor::default();
    let output = |stream, bytes: &[u8]| EventKind::Output { stream, bytes: bytes.to_vec() };
    let expected = [
        EventKind::Started,
        output(Stream::Stdout, b"ab"),
        output(Stream::Stderr, b"c"),
        output(Stream::Stdout, b"d"),
        EventKind::Finished,
    ];
    assert_eq!(events(&transcript, &mut cursor), expected);
    assert_eq!(transcript.read(&mut cursor), Next::End);
    assert_eq!(transcript.text_of(Stream::Stdout), b"abd");
}

#[test]
fn a_flood_on_one_stream_leaves_the_other_its_share() {
    let transcript = transcript(4);
    transcript.append(Stream::Stderr, b"flood");
    transcript.append(Stream::Stdout, b"42\n");
    transcript.append(Stream::Stderr, b"x");
    assert_eq!(transcript.text_of(Stream::Stdout), b"42\n");
    assert_eq!(transcript.text_of(Stream::Stderr), b"floo");
    assert_eq!((transcript.written_bytes(), transcript.is_truncated()), (9, true));
}

#[test]
fn another_try_begins_with_nothing_and_readers_are_told() {
    let transcript = transcript(3);
    transcript.append(Stream::Stdout, b"abcd");
    assert!(transcript.is_truncated());
    let mut cursor = Cursor::default();
    transcript.restart();
    transcript.begin(&Limits { output_bytes: 3, ..Limits::default() });
    transcript.append(Stream::Stdout, b"xyz");
    transcript.close();
    transcript.restart();
    assert_eq!(transcript.text_of(Stream::Stdout), b"xyz");
    assert_eq!((transcript.written_bytes(), transcript.is_truncated()), (3, false));
    let output = |bytes: &[u8]| EventKind::Output { stream: Stream::Stdout, bytes: bytes.to_vec() };
    let expected = [
        EventKind::Started,
        output(b"abc"),
        EventKind::Retried,
        EventKind::Started,
        output(b"xyz"),
        EventKind::Finished,
    ];
    assert_eq!(events(&transcript, &mut cursor), expected);
}

#[test]
fn another_try_without_a_bound_keeps_all_it_says() {
    let transcript = transcript(usize::MAX);
    transcript.append(Stream::Stdout, b"abc");
    transcript.restart();
    transcript.begin(&Limits { output_bytes: usize::MAX, ..Limits::default() });
    transcript.append(Stream::Stdout, b"xyz");
    assert_eq!(transcript.text_of(Stream::Stdout), b"xyz");
    assert!(!transcript.is_truncated());
}

#[test]
fn a_reader_in_the_middle_of_a_run_goes_on_where_it_was() {
    let transcript = transcript(100);
    let mut cursor = Cursor::default();
    assert_eq!(events(&transcript, &mut cursor), [EventKind::Started]);
    transcript.append(Stream::Stdout, b"a");
    assert_eq!(output(&transcript, &mut cursor), b"a");
    transcript.append(Stream::Stdout, b"b");
    assert_eq!(output(&transcript, &mut cursor), b"b");
}

#[test]
fn characters_are_read_whole_and_cut_whole() {
    let transcript = transcript(6);
    let mut cursor = Cursor::default();
    transcript.append(Stream::Stdout, b"a\xe2\x82");
    assert_eq!(output(&transcript, &mut cursor), b"a");
    assert_eq!(transcript.read(&mut cursor), Next::Pending);
    transcript.append(Stream::Stdout, b"\xac\xc3");
    assert_eq!(output(&transcript, &mut cursor), "€".as_bytes());
    transcript.append(Stream::Stdout, b"\xa4\xc3\xb6");
    assert_eq!(transcript.text_of(Stream::Stdout), "a€ä".as_bytes());
    transcript.append(Stream::Stdout, b"b");
    assert_eq!(transcript.text_of(Stream::Stdout), "a€ä".as_bytes(), "nothing after the cut");
    for (bytes, whole) in
        [(&b"\xff\xe2\x82"[..], 1), (b"\x82\x82\x82", 3), (b"\xf0\x9f\x98", 0), (b"", 0)]
    {
        assert_eq!(whole_characters(bytes), whole, "{bytes:x?}");
    }
}

#[test]
fn the_cap_holds_and_everything_is_counted() {
    let transcript = transcript(3);
    transcript.append(Stream::Stdout, b"ab");
    assert!(!transcript.is_truncated());
    transcript.append(Stream::Stderr, b"cd");
    transcript.append(Stream::Stdout, b"ef");
    assert_eq!(transcript.text_of(Stream::Stdout), b"abe");
    assert_eq!(transcript.text_of(Stream::Stderr), b"cd");
    assert_eq!(transcript.written_bytes(), 6);
    assert!(transcript.is_truncated());
}

fn events(transcript: &Transcript, cursor: &mut Cursor) -> Vec<EventKind> {
    let mut events = Vec::new();
    while let Next::Found(event) = transcript.read(cursor) {
        assert_eq!(event.sequence, cursor.sequence - 1);
        events.push(event.kind);
    }
    events
}

/// Returns the next output, which is there.
#[track_caller]
fn output(transcript: &Transcript, cursor: &mut Cursor) -> Vec<u8> {
    loop {
        let Next::Found(event) = transcript.read(cursor) else { panic!("there is no output") };
        if let EventKind::Output { bytes, .. } = event.kind {
            return bytes;
        }
    }
}

fn shown(text: &str) -> MimeBundle {
    let form = ("text/plain".to_owned(), MimeData::Text(text.to_owned()));
    MimeBundle::new(vec![form]).unwrap()
}

#[test]
fn events_of_all_kinds_are_in_one_order() {
    let transcript = transcript(100);
    let mut cursor = Cursor::default();
    assert_eq!(events(&transcript, &mut cursor), [EventKind::Started]);
    transcript.append(Stream::Stdout, b"a");
    transcript.show(shown("b"));
    transcript.append(Stream::Stdout, b"c");
    transcript.host_called("f");
    transcript.append(Stream::Stdout, b"\xc3");
    let path = "x".to_owned();
    let file = ChangedFile { path: path.clone(), kind: ChangeKind::Created, contents: vec![] };
    transcript.file_changed(&file);
    transcript.close();
    transcript.close();
    transcript.show(shown("late"));
    let output = |bytes: &[u8]| EventKind::Output { stream: Stream::Stdout, bytes: bytes.into() };
    let expected = [
        output(b"a"),
        EventKind::Display(shown("b")),
        output(b"c"),
        EventKind::HostCall { name: "f".to_owned() },
        output(b"\xc3"),
        EventKind::FileChanged { path, kind: ChangeKind::Created },
        EventKind::Finished,
    ];
    assert_eq!(events(&transcript, &mut cursor), expected);
    assert_eq!(transcript.read(&mut cursor), Next::End);
    assert_eq!(transcript.text_of(Stream::Stdout), b"ac\xc3");
    assert_eq!(transcript.displays(), [shown("b")]);
}

#[test]
fn displays_are_dropped_beyond_either_cap() {
    let limits = Limits { display_bytes: 30, display_count: 3, ..Limits::default() };
    let transcript = Transcript::default();
    transcript.begin(&limits);
    transcript.show(shown("0123"));
    assert_eq!(transcript.display_limits_met().count(), 0);
    transcript.show(shown(&"x".repeat(7)));
    transcript.show(shown("456789"));
    assert_eq!(
        transcript.display_limits_met().collect::<Vec<_>>(),
        [(LimitKind::DisplayBytes, 47)]
    );
    transcript.show(shown(""));
    transcript.drop_display(1000);
    assert_eq!(transcript.displays(), [shown("0123"), shown("456789")]);
    let met: Vec<_> = transcript.display_limits_met().collect();
    assert_eq!(met, [(LimitKind::DisplayBytes, 1057), (LimitKind::DisplayCount, 5)]);
}

/// One reader reads now and then, the other never does.
#[test]
fn a_million_lines_take_no_more_than_the_cap() {
    let cap = 16 << 20;
    let transcript = transcript(cap);
    let mut cursor = Cursor::default();
    let (mut read, mut written) = (Vec::new(), Vec::new());
    for line in 0..1_000_000 {
        let text = format!("{line}\n");
        transcript.append(Stream::Stdout, text.as_bytes());
        written.extend_from_slice(text.as_bytes());
        if line % 50_000 == 0 {
            let bytes = output(&transcript, &mut cursor);
            assert!(bytes.len() <= LONGEST_PIECE_BYTES);
            read.extend(bytes);
        }
    }
    transcript.close();
    for event in events(&transcript, &mut cursor) {
        if let EventKind::Output { bytes, .. } = event {
            read.extend(bytes);
        }
    }
    assert!(read == written, "{} of {} bytes", read.len(), written.len());
    let state = transcript.state.lock();
    assert!(state.bytes.capacity() <= 2 * cap && state.entries.len() == 3);
}

#[test]
fn calls_of_the_host_are_told_up_to_a_number() {
    let transcript = transcript(100);
    (0..2 * MOST_CALLS_TOLD).for_each(|_| transcript.host_called("f"));
    assert_eq!(events(&transcript, &mut Cursor::default()).len(), 1 + MOST_CALLS_TOLD);
    assert!(std::mem::size_of::<TranscriptEntry>() <= 24);
}
