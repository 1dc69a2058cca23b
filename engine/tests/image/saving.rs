//! Sessions are saved to a file and revived in another process; other files are refused.

use std::fs;
use std::path::{Path, PathBuf};

use engine::{Deterministic, Program, SessionError, SessionState};
use serde_json::{Value, json};

use crate::support::{
    both, copied, in_another_process, mapped, plain, program, revived, value, value_of,
};

const SESSION: &str = r"
import os, random, sys, time, types, uuid
import numpy
os.mkdir('data')
os.chdir('data')
open('notes', 'w').write('abcdefghi')
text, raw = open('notes'), open('notes', 'rb', 0)
text.read(3), raw.read(3)
out = open('/tmp/out', 'ab', 0)
out.write(b'begun, ')
nameless = open('gone', 'w+')
nameless.write('still here')
null, noise = open('/dev/null', 'r+b', 0), open('/dev/urandom', 'rb', 0)
os.remove('gone')
sys.modules['made_up'] = types.SimpleNamespace(x=1)
numbers = numpy.arange(1000.0)
kept = {'a': [1, 2.5, None, 'ä']}
kept['itself'] = kept
def added(n): return n + len(kept)
started = time.monotonic()
";

/// Returns the same wherever the session continues.
const GO_ON: &str = r"
import made_up
nameless.seek(0)
out.write(b'ended')
[
    text.read(3), raw.read(3).decode(), open('/tmp/out').read(), nameless.read(), made_up.x,
    float(numbers.sum()), kept['itself'] is kept, added(40), os.getcwd(), sorted(os.listdir('.')),
    time.monotonic() >= started, null.write(b'xyz'), null.read().decode(), len(noise.read(5)),
]
";

/// Returns the same wherever a deterministic session continues.
const CHANCE: &str = "[time.time(), time.monotonic(), random.random(), float(numpy.random.rand()), \
                      str(uuid.uuid4()), str(uuid.uuid1()), os.urandom(8).hex()]";

fn expected() -> Value {
    json!([
        "def",
        "def",
        "begun, ended",
        "still here",
        1,
        499_500.0,
        true,
        42,
        "/workspace/data",
        ["notes"],
        true,
        3,
        "",
        5
    ])
}

/// The folder for the files of one test.
struct Folder {
    folder: tempfile::TempDir,
}

impl Folder {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("temporary folders can be created") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Tells the other half of the test below where the sessions are.
const FOLDER_VARIABLE: &str = "HATCHERY_TEST_REVIVE_FROM";

#[test]
fn saved_sessions_go_on_in_another_process() {
    let folder = Folder::new();
    let mut slot = mapped().start().unwrap();
    value(&mut slot, SESSION);
    let plain = slot.suspend().unwrap();
    let written = plain.save(&folder.path("plain")).unwrap();
    assert_eq!(fs::metadata(folder.path("plain")).unwrap().len(), written);
    let drawn = value(&mut slot, CHANCE);
    fs::write(folder.path("drawn.json"), drawn.to_string()).unwrap();

    slot.reset().unwrap();
    let deterministic = Some(Deterministic::new(11));
    value_of(&mut slot, &Program { deterministic, ..program(SESSION) });
    let fixed = slot.suspend().unwrap();
    fixed.save(&folder.path("fixed")).unwrap();
    let wanted = value(&mut slot, CHANCE);
    fs::write(folder.path("wanted.json"), wanted.to_string()).unwrap();
    let told = folder.folder.path().to_str().unwrap();
    in_another_process("saving::revive", FOLDER_VARIABLE, told);
}

/// The other half of that test.
#[test]
fn revive() {
    let Some(folder) = std::env::var_os(FOLDER_VARIABLE) else { return };
    let folder = Path::new(&folder);
    let read = |name: &str| -> Value {
        serde_json::from_slice(&fs::read(folder.join(name)).unwrap()).unwrap()
    };
    for (kind, image) in both() {
        let mut slot = image.start().unwrap();
        let fixed = revived(image, &folder.join("fixed")).unwrap();
        slot.resume(&fixed).unwrap();
        assert_eq!(value(&mut slot, CHANCE), read("wanted.json"), "{kind}");
        assert_eq!(value(&mut slot, GO_ON), expected(), "{kind}, deterministic");
        let plain = revived(image, &folder.join("plain")).unwrap();
        slot.resume(&plain).unwrap();
        let drawn = value(&mut slot, CHANCE);
        for place in 0..7 {
            assert_ne!(drawn[place], read("drawn.json")[place], "{kind}: {drawn}");
        }
        assert_eq!(value(&mut slot, GO_ON), expected(), "{kind}");
    }
}

#[test]
fn a_revived_session_is_saved_and_revived_like_any_other() {
    let folder = Folder::new();
    let mut slot = copied().start().unwrap();
    value(&mut slot, SESSION);
    slot.suspend().unwrap().save(&folder.path("first")).unwrap();
    let first = revived(copied(), &folder.path("first")).unwrap();
    first.save(&folder.path("second")).unwrap();
    let second = revived(mapped(), &folder.path("second")).unwrap();
    assert_eq!((first.pages(), first.bytes()), (second.pages(), second.bytes()));
    let mut slot = mapped().start().unwrap();
    slot.resume(&second).unwrap();
    assert_eq!(value(&mut slot, GO_ON), expected());
}

#[test]
fn a_fresh_session_can_be_saved_and_a_file_replaced() {
    let (folder, mut slot) = (Folder::new(), mapped().start().unwrap());
    let path = folder.path("session");
    fs::write(&path, "something else").unwrap();
    SessionState::fresh(mapped()).save(&path).unwrap();
    slot.resume(&revived(mapped(), &path).unwrap()).unwrap();
    assert_eq!(value(&mut slot, "x = 1; x"), json!(1));
    assert_eq!(fs::read_dir(folder.folder.path()).unwrap().count(), 1, "nothing is left beside it");
    let refused = SessionState::fresh(mapped()).save(&folder.path("no/such/folder")).unwrap_err();
    assert!(refused.to_string().starts_with("can't write `"), "{refused}");
}

/// Asserts that these bytes are refused as no session, by a message that names the file.
#[track_caller]
fn assert_no_session(path: &Path, bytes: &[u8], what: &str) {
    fs::write(path, bytes).expect("temporary files can be written");
    match revived(mapped(), path) {
        Err(error @ SessionError::NotASession { .. }) => {
            assert!(error.to_string().contains(path.to_str().expect("a plain path")), "{error}");
        }
        other => panic!("{what}: {other:?}"),
    }
}

#[test]
fn what_is_no_whole_session_is_an_error() {
    let folder = Folder::new();
    let mut slot = mapped().start().unwrap();
    value(&mut slot, SESSION);
    let path = folder.path("session");
    slot.suspend().unwrap().save(&path).unwrap();
    let whole = fs::read(&path).unwrap();
    revived(mapped(), &path).unwrap();
    // Forty at the beginning, the rest all over the file.
    let all_over = (1..=30).map(|part| part * (whole.len() - 1) / 30);
    for at in (0..40).chain(all_over) {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 8);
        assert_no_session(&path, &flipped, &format!("byte {at} is another"));
    }
    for len in [0, 1, 7, 8, 39, 40, 41, whole.len() / 2, whole.len() - 1] {
        assert_no_session(&path, &whole[..len], &format!("cut to {len} bytes"));
    }
    assert_no_session(&path, &[&whole[..], b"x"].concat(), "a byte more");
    assert_no_session(&path, &[b"HTCHSES9", &whole[8..]].concat(), "another version");
    assert_no_session(&path, b"PK\x03\x04 or whatever else there is", "another format");
    let image = mapped().info().path.clone().unwrap();
    let head = fs::read(image).unwrap()[..4096].to_vec();
    assert_no_session(&path, &head, "an image");
}

/// The hash is no secret. Anyone who knows the format can give any contents a valid one.
#[test]
fn a_right_checksum_over_nonsense_is_an_error() {
    let folder = Folder::new();
    let path = folder.path("session");
    SessionState::fresh(mapped()).save(&path).unwrap();
    let body = fs::read(&path).unwrap()[40..].to_vec();
    let sealed = |body: &[u8]| [&b"HTCHSES3"[..], blake3::hash(body).as_bytes(), body].concat();
    fs::write(&path, sealed(&body)).unwrap();
    revived(mapped(), &path).unwrap();
    for len in (0..body.len()).step_by(body.len().div_ceil(50)) {
        assert_no_session(&path, &sealed(&body[..len]), &format!("cut to {len} bytes"));
    }
    // Some of these are other sessions, or of other images. None causes a panic.
    let mut slot = mapped().start().unwrap();
    for at in (0..body.len()).step_by(body.len().div_ceil(100)) {
        let mut other = body.clone();
        other[at] = other[at].wrapping_add(0x41);
        fs::write(&path, sealed(&other)).unwrap();
        if let Ok(state) = revived(mapped(), &path) {
            // Whether or not the system has enough memory.
            drop(slot.resume(&state));
            slot.reset().unwrap();
            assert!(slot.is_as_image(), "byte {at}");
        }
    }
}

#[test]
fn a_session_of_another_image_says_which() {
    let folder = Folder::new();
    let path = folder.path("session");
    SessionState::fresh(mapped()).save(&path).unwrap();
    let refused = revived(plain(), &path).unwrap_err();
    let SessionError::OtherImage { saved, here, preload, .. } = &refused else {
        panic!("{refused}")
    };
    assert_eq!((saved, here), (&mapped().info().key, &plain().info().key));
    assert_eq!(preload.as_slice(), ["numpy", "pandas"]);
    let text = refused.to_string();
    for expected in [saved.as_str(), here.as_str(), "numpy,pandas", path.to_str().unwrap()] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn a_file_that_cannot_be_read_says_so() {
    let folder = Folder::new();
    for path in [folder.path("missing"), folder.folder.path().to_owned()] {
        let refused = revived(mapped(), &path).unwrap_err();
        assert!(matches!(refused, SessionError::File { action: "read", .. }), "{refused}");
        assert!(refused.to_string().contains(path.to_str().unwrap()), "{refused}");
    }
}
