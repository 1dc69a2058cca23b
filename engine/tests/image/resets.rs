//! A reset leaves nothing. The memory equals the image's byte for byte, and a program finds
//! everything as in a fresh interpreter.

use std::time::Duration;

use engine::{Afterwards, Image, Interpreter, Limits, Outcome, Program, Verdict};
use serde_json::{Value, json};

use crate::programs::{DEADLY, EVERYDAY, GREEDY, HEAVY, LIGHT, with_token};
use crate::support::{
    both, in_another_process, job, mapped, program, resident_bytes, value, value_of,
};

/// Returns what a job can see of others. Standard input has the text to look for.
const PROBE: &str = r"
import atexit, builtins, decimal, gc, os, sys, warnings

def is_open(fd):
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True

def look():
    word = sys.stdin.read()
    places = {
        'globals': globals(),
        'builtins': vars(builtins),
        'modules': sys.modules,
        'environment': os.environ,
        'arguments': dict.fromkeys(sys.argv + sys.path),
    }
    found = [
        place
        for place, names in places.items()
        for item in [*names.items()]
        if any(type(part) is str and word in part for part in item)
    ]
    settings = [
        sys.gettrace() is None, sys.getprofile() is None, sys.getrecursionlimit(),
        sys.get_int_max_str_digits(), gc.isenabled(), gc.get_threshold(), gc.get_debug(),
        len(gc.callbacks), atexit._ncallbacks(), decimal.getcontext().prec, os.getcwd(),
        len(sys.meta_path), len(sys.path_hooks), len(warnings.filters),
    ]
    files = [names for top in ('/tmp', '/workspace', '/home') for names in os.walk(top)]
    names = [sorted(globals()), sorted(vars(builtins)), sorted(sys.modules), sorted(os.environ)]
    return [found, settings, files, [fd for fd in range(300) if is_open(fd)], names]

look()
";

/// Returns what the probe sees, with its finds of the token in front.
fn look(interpreter: &mut Interpreter, token: &str) -> Value {
    let stdin = token.as_bytes().to_vec();
    value_of(interpreter, &Program { stdin, ..program(PROBE) })
}

/// Selects the programs and how often they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    Light,
    Everyday,
    Heavy,
    Greedy,
    Deadly,
}

impl Load {
    const ALL: [Self; 5] = [Self::Light, Self::Everyday, Self::Heavy, Self::Greedy, Self::Deadly];

    fn of_round(round: usize) -> Self {
        match (round % 500, round % 200, round % 10) {
            (499, _, _) => Self::Deadly,
            (_, 107, _) => Self::Heavy,
            (_, 25, _) => Self::Greedy,
            (_, _, 0) => Self::Everyday,
            _ => Self::Light,
        }
    }

    fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Light => LIGHT,
            Self::Everyday => EVERYDAY,
            Self::Heavy => HEAVY,
            Self::Greedy => GREEDY,
            Self::Deadly => DEADLY,
        }
    }

    fn limits(self, image: &Image) -> Limits {
        let limits = Limits::default();
        match self {
            Self::Light | Self::Everyday | Self::Heavy => limits,
            Self::Greedy => {
                let memory_bytes = image.info().memory_bytes as usize + (16 << 20);
                Limits { memory_bytes, ..limits }
            }
            Self::Deadly => {
                Limits { wall_time: Duration::from_millis(20), grace: Duration::ZERO, ..limits }
            }
        }
    }

    /// Runs a program of this load, and checks what it must not do.
    fn run(
        self,
        interpreter: &mut Interpreter,
        image: &Image,
        source: &str,
        token: &str,
    ) -> Outcome {
        let program = program(&with_token(source, token));
        let (outcome, afterwards) = job(interpreter, &program, &self.limits(image));
        assert!(
            !matches!(outcome.verdict, Verdict::SandboxFailed(_)),
            "{source}\n{:?}",
            outcome.verdict
        );
        let expected = match self {
            Self::Light | Self::Everyday | Self::Heavy => Some(Afterwards::Usable),
            // Out of memory, a program may crash its interpreter.
            Self::Greedy => None,
            Self::Deadly => Some(Afterwards::Lost),
        };
        assert!(expected.is_none_or(|e| e == afterwards), "{source}\n{:?}", outcome.verdict);
        outcome
    }
}

fn token(number: usize) -> String {
    format!("leftover-{number:05}-of-a-job")
}

#[test]
fn a_reset_makes_the_memory_the_images_after_every_program() {
    for (kind, image) in both() {
        let mut slot = image.start().unwrap();
        assert!(slot.is_as_image(), "{kind}, as it starts");
        for load in Load::ALL {
            for source in load.programs() {
                load.run(&mut slot, image, source, &token(0));
                slot.reset().unwrap();
                assert!(slot.is_as_image(), "{kind}, after {source}");
            }
        }
    }
}

#[test]
fn programs_end_as_they_are_meant_to() {
    let image = mapped();
    let mut slot = image.start().unwrap();
    for source in GREEDY {
        let outcome = Load::Greedy.run(&mut slot, image, source, &token(0));
        assert!(!outcome.limits_met.is_empty(), "{source}\n{:?}", outcome.verdict);
        slot.reset().unwrap();
    }
    let cpp = HEAVY.iter().find(|source| source.contains("contourpy")).unwrap();
    let outcome = Load::Heavy.run(&mut slot, image, cpp, &token(0));
    let Verdict::Raised(exception) = outcome.verdict else { panic!("{outcome:?}") };
    assert_eq!(exception.type_name, "ValueError", "{exception:?}");
}

#[test]
fn what_a_reset_takes_away_was_there_before_it() {
    let (needle, absent) = (token(1), token(2));
    let mut slot = mapped().start().unwrap();
    value(
        &mut slot,
        &format!("import builtins, os\nbuiltins.canary = os.environ['A'] = '{needle}'"),
    );
    value(&mut slot, "open('/tmp/kept', 'w').close()");
    assert!(slot.finds(needle.as_bytes()) && !slot.is_as_image());
    assert!(!slot.finds(absent.as_bytes()));
    let seen = look(&mut slot, &needle);
    assert_eq!(seen[0], json!(["builtins", "environment"]), "{seen}");
    slot.reset().unwrap();
    assert!(!slot.finds(needle.as_bytes()) && slot.is_as_image());
    assert_ne!(look(&mut slot, &needle), seen);
}

#[test]
fn a_lost_interpreter_can_be_reset() {
    for (kind, image) in both() {
        let mut slot = image.start().unwrap();
        for source in DEADLY {
            Load::Deadly.run(&mut slot, image, source, &token(0));
            slot.reset().unwrap();
            assert_eq!(value(&mut slot, "'TOKEN' in globals()"), json!(false), "{kind}: {source}");
        }
    }
}

#[test]
fn a_reset_is_said_to_be_short_only_after_a_run_that_touched_little() {
    let mut slot = mapped().start().unwrap();
    for _ in 0..5 {
        value(&mut slot, "1");
        slot.reset().unwrap();
    }
    value(&mut slot, "1");
    assert!(slot.resets_soon());
    slot.reset().unwrap();
    value(&mut slot, "len(b'x' * (8 << 20))");
    assert!(!slot.resets_soon());
    slot.reset().unwrap();
    Load::Deadly.run(&mut slot, mapped(), DEADLY[0], &token(0));
    assert!(!slot.resets_soon());
}

/// Tells the test that it runs in its own process.
const ALONE_VARIABLE: &str = "HATCHERY_TEST_TEN_THOUSAND_RESETS";
const RESETS: usize = 10_000;
/// After this many resets, everything that stays has been allocated.
const SETTLED: usize = 2_000;

#[test]
fn ten_thousand_hostile_jobs_leave_nothing_and_take_no_memory() {
    in_another_process("resets::ten_thousand_resets", ALONE_VARIABLE, "yes");
}

/// The other half of that test, in its own process, so that only its memory is measured.
#[test]
fn ten_thousand_resets() {
    if std::env::var_os(ALONE_VARIABLE).is_none() {
        return;
    }
    let image = mapped();
    let mut slot = image.start().unwrap();
    let fresh = look(&mut slot, &token(0));
    assert_eq!(fresh[0], json!([]));
    slot.reset().unwrap();
    let (mut taken, mut resident) = ([0; Load::ALL.len()], 0);
    for round in 1..=RESETS {
        let (load, token) = (Load::of_round(round), token(round));
        let count = &mut taken[load as usize];
        let source = load.programs()[*count % load.programs().len()];
        *count += 1;
        load.run(&mut slot, image, source, &token);
        slot.reset().unwrap();
        if round % 100 == 0 {
            assert!(slot.is_as_image(), "round {round}, after {source}");
            // Searches the whole memory, so only now and then.
            assert!(round % 2000 != 0 || !slot.finds(token.as_bytes()), "round {round}: {source}");
            if round == SETTLED {
                resident = resident_bytes();
            }
            assert_eq!(look(&mut slot, &token), fresh, "round {round}, after {source}");
            slot.reset().unwrap();
        }
    }
    let all_ran = Load::ALL.iter().all(|load| taken[*load as usize] >= load.programs().len());
    assert!(all_ran, "{taken:?}");
    assert!(slot.is_as_image());
    let now = resident_bytes();
    let grown = now.abs_diff(resident);
    assert!(grown * 20 <= resident, "{resident} bytes after {SETTLED} resets, {now} at the end");
}
