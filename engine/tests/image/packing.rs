//! A packed session continues in the same process as if it had only been suspended.

use std::fs;
use std::sync::Arc;

use engine::{
    Interpreter, Mount, MountedFolder, PackedSession, Program, SessionError, SessionState,
};
use serde_json::json;

use crate::support::{mapped, plain, program, value, value_of};

/// Packs the state of the interpreter and unpacks it in another interpreter.
fn moved(slot: &mut Interpreter) -> Interpreter {
    let PackedSession { bytes, rest } = slot.suspend().expect("it can be suspended").pack();
    let unpacked = SessionState::unpack(mapped(), &bytes, &rest).expect("it is whole");
    let mut other = mapped().start().expect("there is memory");
    other.resume(&unpacked).expect("there is memory");
    other
}

#[test]
fn an_unpacked_session_goes_on_with_its_memory_files_clock_and_random_numbers() {
    const DRAW: &str = "[random.random(), float(numpy.random.rand()), float(numbers.sum()), \
                        open('kept').read(), file.read(2), time.monotonic() >= started]";
    let mut slot = mapped().start().unwrap();
    let begin = "import random, time, numpy\nopen('kept', 'w').write('abcd')\n\
                 file = open('kept')\nfile.read(1)\nnumbers = numpy.ones(100_000)\n\
                 random.random()\nstarted = time.monotonic()";
    value(&mut slot, begin);
    let mut other = moved(&mut slot);
    let drawn = value(&mut slot, DRAW);
    assert_eq!(drawn[3], json!("abcd"));
    assert_eq!(drawn[5], json!(true));
    assert_eq!(value(&mut other, DRAW), drawn, "it is no fork");
}

#[test]
fn an_unpacked_session_has_its_mounted_folders_and_what_is_open_there() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("data"), "0123456789").unwrap();
    let mount = MountedFolder::new("/data", Arc::new(Mount::open(folder.path()).unwrap())).unwrap();
    let mut slot = mapped().start().unwrap();
    let begin = "import os\nfile = open('/data/data', 'rb', 0)\nfile.read(3)\n\
                 open('mine', 'w').write('x')";
    value_of(&mut slot, &Program { mounts: vec![mount], ..program(begin) });
    let mut other = moved(&mut slot);
    let told = value(&mut other, "[file.read(2).decode(), os.listdir('/data'), os.listdir('.')]");
    assert_eq!(told, json!(["34", ["data"], ["mine"]]));
}

#[test]
fn damage_and_other_images_are_errors() {
    let mut slot = mapped().start().unwrap();
    value(&mut slot, "x = 1");
    let PackedSession { mut bytes, rest } = slot.suspend().unwrap().pack();
    let refused = SessionState::unpack(plain(), &bytes, &rest).unwrap_err();
    assert!(matches!(refused, SessionError::NotSuspendable), "{refused}");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let refused = SessionState::unpack(mapped(), &bytes, &rest).unwrap_err();
    assert!(matches!(refused, SessionError::Damaged(..)), "{refused}");
    let refused = SessionState::unpack(mapped(), &bytes[..middle], &rest).unwrap_err();
    assert!(matches!(refused, SessionError::Damaged(..)), "{refused}");
}

#[test]
fn an_interpreter_tells_what_memory_is_its_own() {
    let mut slot = mapped().start().unwrap();
    let image = mapped().info().memory_bytes;
    assert!(mapped().shared_bytes() >= image);
    value(&mut slot, "big = bytearray(64 << 20)");
    let grown = slot.private_bytes();
    assert!(grown >= 60 << 20, "{grown}");
    slot.reset().unwrap();
    let after = slot.private_bytes();
    assert!(after < grown / 2 && after < image, "{after} of {image}");
}

/// wasmer keeps each exception until its store is dropped, so a reset replaces the instance.
#[test]
fn what_native_exceptions_took_is_given_back_at_the_reset() {
    let mut slot = mapped().start().unwrap();
    let throws = "import os, matplotlib\nfrom matplotlib.ft2font import FT2Font\n\
                  font = 'fonts/ttf/DejaVuSans.ttf'\n\
                  font = FT2Font(os.path.join(matplotlib.get_data_path(), font))\n\
                  for _ in range(5_000):\n\
                  \x20 try: font.load_glyph(10**6)\n\
                  \x20 except RuntimeError: pass";
    value(&mut slot, throws);
    let grown = slot.private_bytes();
    assert!(grown >= 5_000 * 2048, "{grown}");
    slot.reset().unwrap();
    // More than the pages that a memory keeps at a reset.
    let after = slot.private_bytes();
    assert!(after <= 4 << 20, "{after}");
}
