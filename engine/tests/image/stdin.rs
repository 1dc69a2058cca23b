//! Each turn of a session finds its own standard input, whatever earlier turns did to theirs.

use engine::Program;
use serde_json::json;

use crate::support::{both, mapped, program, turn, value, value_of};

/// What turns do to standard input besides reading it to its end.
const USES: &[&str] = &[
    "pass",
    "import sys; sys.stdin.readline()",
    "import sys; sys.stdin.read(1)",
    "import sys; sys.stdin.buffer.peek()",
    "import os; os.read(0, 2)",
    "import sys; list(sys.stdin)",
    "import sys; sys.stdin.close()",
    "import sys; sys.stdin.detach()",
    "import sys; sys.stdin.buffer.detach()",
    "import sys; sys.stdin.buffer.raw.close()",
    "import sys; sys.stdin.reconfigure(encoding='latin-1')",
    "import sys; sys.stdin.reconfigure(errors='strict')",
    "import sys; sys.stdin.reconfigure(line_buffering=True)",
    "import sys; sys.stdin = None",
    "import io, sys; sys.stdin = io.StringIO('mine')",
    "import sys; mine = sys.stdin",
    "import os; os.close(0)",
    "import os; os.dup2(os.open('f', os.O_RDWR | os.O_CREAT), 0)",
    "del __import__('sys').stdin",
    "input()",
    "1 / 0",
];

/// Shows the whole input as text and what the stream is.
const READ: &str = "import sys\n\
    [sys.stdin.read(), sys.stdin.encoding, sys.stdin.errors, sys.stdin.line_buffering]";

fn with_input(source: &str, input: &str) -> Program {
    Program { stdin: input.into(), ..program(source) }
}

#[test]
fn every_turn_reads_its_own_input_from_the_beginning() {
    let stream = |text: &str| json!([text, "utf-8", "surrogateescape", false]);
    for (kind, image) in both() {
        let mut slot = image.start().unwrap();
        for (number, first) in USES.iter().enumerate() {
            // The second use follows a turn that may have left the stream open and unread.
            for second in ["pass", "import sys; sys.stdin.read(1)", first] {
                turn(&mut slot, &with_input(first, "ä\r\nfirst\n"));
                turn(&mut slot, &with_input(second, "second\n"));
                let input = format!("ä\r\nthird {number}");
                let read = value_of(&mut slot, &with_input(READ, &input));
                assert_eq!(read, stream(&input), "{kind}: {first}; {second}");
            }
        }
        assert_eq!(value(&mut slot, READ), stream(""), "{kind}");
    }
}

#[test]
fn an_input_that_nobody_read_is_not_opened_anew() {
    let mut slot = mapped().start().unwrap();
    let stream = "import sys; id(sys.stdin)";
    let first = value(&mut slot, stream);
    assert_eq!(value(&mut slot, &format!("unread = sys.stdin; {stream}")), first);
    value(&mut slot, "input()[:0] if False else sys.stdin.read()");
    assert_ne!(value(&mut slot, stream), first);
}

#[test]
fn a_turn_that_is_undone_leaves_the_input_before_it_behind() {
    let mut slot = mapped().start().unwrap();
    let (empty, reads) = (slot.suspend().unwrap(), "import sys; x = sys.stdin.read(); x");
    // The state has a stream that was read to its end; the turn after it would open another.
    assert_eq!(value_of(&mut slot, &with_input(reads, "first")), json!("first"));
    let read = slot.snapshot().unwrap();
    turn(&mut slot, &program("y = 1"));
    for state in [&read, &read, &empty, &read] {
        slot.resume(state).unwrap();
        assert_eq!(value_of(&mut slot, &with_input(reads, "next")), json!("next"));
        slot.resume(state).unwrap();
        turn(&mut slot, &program("y = 1"));
        assert_eq!(value_of(&mut slot, &with_input(reads, "last")), json!("last"));
    }
}
