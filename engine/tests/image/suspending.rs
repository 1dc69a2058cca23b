//! The state of a session moves from one interpreter to another, and unchanged parts are shared.

use engine::{Afterwards, Image, Interpreter, Limits, SessionError, SessionState};
use serde_json::{Value, json};

use crate::support::{
    both, copied, engine, in_another_process, job, mapped, plain, program, resident_bytes, turn,
    value,
};

/// The length of the array in the session below: 10 MiB of numbers.
const NUMBERS: u64 = (10 << 20) / 8;

/// Returns a program that leaves state of every kind.
fn session() -> String {
    format!(
        r"
import decimal, json, os, sys, types
import numpy

os.makedirs('/tmp/deep/er')
os.chdir('/tmp/deep/er')
open('notes', 'w').write('abcdefghijkl')
text, raw, out = open('notes'), open('notes', 'rb', 0), open('out', 'w')
text.read(3), raw.read(3), out.write('begun, ')
sys.modules['made_up'] = types.SimpleNamespace(x='patched')
json.dumps = lambda value: 'patched'
numbers = numpy.arange({NUMBERS}.0)
squares = (n * n for n in range(10))
[next(squares) for _ in range(3)]
def chat():
    said = []
    while True: said.append((yield list(said)))
chatting = chat()
next(chatting), chatting.send('a')
decimal.getcontext().prec = 5
class Counter:
    count = 0
    def __call__(self): self.count += 1; return self.count
counter = Counter()
counter()
"
    )
}

/// Continues with all of that state.
const GO_ON: &str = r"
import made_up
out.write('ended'); out.flush()
[
    text.read(3), raw.read(3).decode(), open('out').read(), os.getcwd(), made_up.x, json.dumps(1),
    float(numbers.sum()), next(squares), chatting.send('b'), str(decimal.Decimal(1) / 3),
    counter(), sorted(os.listdir('.')),
]
";

fn expected() -> Value {
    let sum = (NUMBERS * (NUMBERS - 1) / 2) as f64;
    json!([
        "def",
        "def",
        "begun, ended",
        "/tmp/deep/er",
        "patched",
        "patched",
        sum,
        9,
        ["a", "b"],
        "0.33333",
        2,
        ["notes", "out"]
    ])
}

/// Checks that the interpreter has nothing left of the session that was taken from it.
const NOTHING: &str = "import os, sys, decimal\n\
    ['numbers' in globals(), 'made_up' in sys.modules, os.getcwd(), \
    os.path.exists('/tmp/deep'), decimal.getcontext().prec]";

#[test]
fn a_session_goes_on_anywhere_with_all_that_it_holds() {
    let pairs: [(&str, &Image, &Image); 3] = [
        ("mapped", mapped(), mapped()),
        ("copied", copied(), copied()),
        ("mapped to copied", mapped(), copied()),
    ];
    for (kind, here, there) in pairs {
        let (mut here, mut there) = (here.start().unwrap(), there.start().unwrap());
        value(&mut here, &session());
        let suspended = here.suspend().unwrap();
        assert!(suspended.bytes() > 10 << 20, "{kind}: {suspended:?}");
        here.reset().unwrap();
        assert!(here.is_as_image(), "{kind}");
        let nothing = json!([false, false, "/workspace", false, 28]);
        assert_eq!(value(&mut here, NOTHING), nothing, "{kind}");
        value(&mut there, "numbers = 'its own'");
        there.resume(&suspended).unwrap();
        assert_eq!(value(&mut there, GO_ON), expected(), "{kind}");
        // The state is immutable, so it can be resumed again, here too.
        here.resume(&suspended).unwrap();
        assert_eq!(value(&mut here, GO_ON), expected(), "{kind}, where it came from");
    }
}

#[test]
fn a_suspended_session_can_go_on_where_it_is() {
    let mut slot = mapped().start().unwrap();
    value(&mut slot, &session());
    slot.suspend().unwrap();
    assert_eq!(value(&mut slot, GO_ON), expected());
}

#[test]
fn a_session_that_grew_gives_the_memory_back_and_grows_again() {
    for (kind, image) in both() {
        let mut slot = image.start().unwrap();
        value(&mut slot, "big = bytearray(b'x' * (32 << 20))");
        let big = slot.suspend().unwrap();
        slot.reset().unwrap();
        value(&mut slot, "small = 1");
        let small = slot.suspend().unwrap();
        for _ in 0..3 {
            slot.resume(&big).unwrap();
            assert_eq!(value(&mut slot, "big.count(b'x')"), json!(32 << 20), "{kind}");
            slot.resume(&small).unwrap();
            assert_eq!(value(&mut slot, "[small, 'big' in globals()]"), json!([1, false]));
            let outcome = turn(&mut slot, &program("small"));
            let peak = outcome.usage.peak_memory_bytes;
            assert!(peak < image.info().memory_bytes + (16 << 20), "{kind}: {peak}");
        }
        slot.reset().unwrap();
        assert!(slot.is_as_image(), "{kind}");
    }
}

#[test]
fn a_small_session_holds_a_few_pages() {
    for (kind, image) in both() {
        assert_eq!(SessionState::fresh(image).pages(), 0);
        let mut slot = image.start().unwrap();
        assert_eq!(slot.suspend().unwrap().pages(), 0, "{kind}");
        value(&mut slot, "x = 1");
        let suspended = slot.suspend().unwrap();
        assert!((1..300).contains(&suspended.pages()), "{kind}: {suspended:?}");
        assert!(suspended.bytes() < 300 * 4096, "{kind}: {suspended:?}");
        let again = slot.suspend().unwrap();
        assert_eq!(
            (again.pages(), again.bytes()),
            (suspended.pages(), suspended.bytes()),
            "{kind}"
        );
        slot.resume(&suspended).unwrap();
        let again = slot.suspend().unwrap();
        assert_eq!(
            (again.pages(), again.bytes()),
            (suspended.pages(), suspended.bytes()),
            "{kind}"
        );
    }
}

#[test]
fn a_fresh_state_is_that_of_a_fresh_interpreter() {
    for (kind, image) in both() {
        let mut slot = image.start().unwrap();
        value(&mut slot, "x = 1");
        slot.resume(&SessionState::fresh(image)).unwrap();
        assert!(slot.is_as_image(), "{kind}");
        assert_eq!(value(&mut slot, "'x' in globals()"), json!(false), "{kind}");
    }
}

/// Tells the test below that it runs in its own process.
const ALONE_VARIABLE: &str = "HATCHERY_TEST_A_HUNDRED_FORKS";

#[test]
fn a_hundred_forks_take_no_memory() {
    in_another_process("suspending::a_hundred_forks", ALONE_VARIABLE, "yes");
}

/// The other half of that test, in its own process, so that only its memory is measured.
#[test]
fn a_hundred_forks() {
    if std::env::var_os(ALONE_VARIABLE).is_none() {
        return;
    }
    let mut slot = mapped().start().unwrap();
    value(&mut slot, &session());
    let suspended = slot.suspend().unwrap();
    assert!(suspended.bytes() > 10 << 20);
    let before = resident_bytes();
    let forks: Vec<SessionState> = (0..100).map(|_| suspended.fork()).collect();
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 2 * suspended.bytes(), "{grown} bytes for {} forks", forks.len());
    // Suspending again shares what didn't change.
    let again: Vec<SessionState> = (0..100).map(|_| slot.suspend().unwrap()).collect();
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 4 * suspended.bytes(), "{grown} bytes for {} more", again.len());
    for fork in forks.iter().step_by(33) {
        slot.resume(fork).unwrap();
        assert_eq!(value(&mut slot, GO_ON), expected());
    }
}

#[test]
fn states_of_another_image_are_refused_and_the_interpreter_can_be_reset() {
    let mut other = plain().start().unwrap();
    value(&mut other, "x = 1");
    let foreign = other.suspend().unwrap();
    for (kind, image) in both() {
        let mut slot = image.start().unwrap();
        value(&mut slot, "x = 2");
        let refused = slot.resume(&foreign).unwrap_err();
        assert!(matches!(refused, SessionError::NotSuspendable), "{kind}: {refused}");
        slot.reset().unwrap();
        assert_eq!(value(&mut slot, "'x' in globals()"), json!(false), "{kind}");
    }
}

#[test]
fn snapshots_between_turns_are_the_states_that_suspending_gives() {
    for (kind, image) in both() {
        let (mut slot, mut other) = (image.start().unwrap(), image.start().unwrap());
        let mut snapshots = Vec::new();
        for number in 0..8 {
            value(&mut slot, &format!("x = {number}; open('f', 'w').write(str(x))"));
            let snapshot = slot.snapshot().unwrap();
            if let Some(compact) = snapshot.compact() {
                assert!(compact.bytes() < snapshot.bytes(), "{kind}");
                assert_eq!(compact.pages(), snapshot.pages(), "{kind}");
                assert!(compact.compact().is_none(), "{kind}");
            }
            snapshots.push(snapshot);
        }
        let suspended = slot.suspend().unwrap();
        assert_eq!(snapshots[7].pages(), suspended.pages(), "{kind}");
        // Later turns and snapshots change none of the earlier ones.
        for (number, snapshot) in snapshots.iter().enumerate() {
            other.resume(snapshot).unwrap();
            assert_eq!(
                value(&mut other, "x, open('f').read()"),
                json!([number, number.to_string()])
            );
        }
    }
}

#[test]
fn a_copy_is_said_to_be_short_only_after_a_turn_that_touched_little() {
    let mut slot = mapped().start().unwrap();
    turn(&mut slot, &program("x = 1"));
    assert!(!slot.copies_soon(), "there was none before");
    slot.snapshot().unwrap();
    for _ in 0..5 {
        turn(&mut slot, &program("x += 1"));
        slot.snapshot().unwrap();
    }
    turn(&mut slot, &program("x += 1"));
    assert!(slot.copies_soon());
    slot.snapshot().unwrap();
    turn(&mut slot, &program("y = b'x' * (8 << 20)"));
    assert!(!slot.copies_soon());
    slot.reset().unwrap();
    turn(&mut slot, &program("x = 1"));
    assert!(!slot.copies_soon(), "that was another session's");
}

/// Returns how many page faults this thread has had.
fn faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("Linux has it");
    // After the name, which may have spaces: proc(5).
    let fields = stat.rsplit(')').next().and_then(|fields| fields.split_whitespace().nth(7));
    fields.and_then(|faults| faults.parse().ok()).expect("the tenth field is a number")
}

/// Each fault makes the copy after the turn ask the kernel which pages were written to.
#[test]
fn turns_of_a_program_that_is_compiled_ahead_take_few_page_faults() {
    let mut slot = mapped().start().unwrap();
    let program = program("x = 1");
    for _ in 0..10 {
        turn(&mut slot, &program);
        slot.reset().unwrap();
        slot.compile_ahead().unwrap();
    }
    turn(&mut slot, &program);
    assert!(slot.had_code());
    let mut run = |count: usize| {
        let before = faults();
        for _ in 0..count {
            turn(&mut slot, &program);
            slot.snapshot().unwrap();
        }
        faults() - before
    };
    run(1000);
    let faults = run(1000);
    assert!(faults < 50, "{faults}");
}

/// Runs turns of a session, each followed by a copy for the case that the next one must be undone.
/// Returns the bytes of the last copy.
fn turns(slot: &mut Interpreter, count: usize) -> u64 {
    let mut bytes = 0;
    for _ in 0..count {
        value(slot, "x = globals().get('x', 0) + 1");
        bytes = slot.snapshot().expect("it has an image").bytes();
    }
    bytes
}

#[test]
fn a_session_of_many_turns_needs_fewer_until_its_copies_are_small_elsewhere() {
    let image = mapped();
    let (mut slot, mut other) = (image.start().unwrap(), image.start().unwrap());
    let first = turns(&mut slot, 4);
    let last = turns(&mut slot, 116);
    let suspended = slot.suspend().unwrap();
    // A fork says nothing of how long it lives.
    other.resume(&suspended.fork()).unwrap();
    let of_fork = turns(&mut other, 20);
    other.resume(&suspended).unwrap();
    let of_session = turns(&mut other, 20);
    assert_eq!(value(&mut other, "x"), json!(140));
    if last < first {
        assert!(of_session < 2 * of_fork / 3, "{of_session} against {of_fork} bytes");
    }
}

#[test]
fn an_interpreter_without_an_image_is_not_suspended() {
    let mut slot = engine().start().unwrap();
    for refused in [slot.suspend(), slot.snapshot()] {
        let refused = refused.unwrap_err();
        assert!(matches!(refused, SessionError::NotSuspendable), "{refused}");
    }
    let refused = slot.resume(&SessionState::fresh(mapped())).unwrap_err();
    assert!(matches!(refused, SessionError::NotSuspendable), "{refused}");
    assert!(!slot.is_as_image());
}

#[test]
fn a_lost_interpreter_takes_up_a_session() {
    for (kind, image) in both() {
        let mut slot = image.start().unwrap();
        value(&mut slot, &session());
        let suspended = slot.suspend().unwrap();
        let (_, afterwards) =
            job(&mut slot, &program("import os; os._exit(1)"), &Limits::default());
        assert_eq!(afterwards, Afterwards::Lost, "{kind}");
        slot.resume(&suspended).unwrap();
        assert_eq!(value(&mut slot, GO_ON), expected(), "{kind}");
    }
}
