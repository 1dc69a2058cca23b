//! Programs that run again and again are compiled ahead, and end as those that weren't.

use engine::{
    Deterministic, Image, ImageSpec, Interpreter, Limits, Program, ProgramEntry, SessionState,
    Verdict,
};
use serde_json::json;

use crate::support::{engine, job, load_or_build, plain, program, turn, value};

/// After so many runs a program is compiled ahead.
const RUNS: usize = 3;

/// Programs that are compiled ahead.
#[rustfmt::skip] // One program, one line.
const AHEAD: &[&str] = &[
    "x = 1",
    "1 + 1",
    "print('a')\nx = [1, 2.5, 'ä', b'\\0', None]\nx",
    "def f():\n    '''Doc.'''\n    return [1 / y for y in (1, 0)]\n\nf()",
    "class A:\n    def f(self):\n        raise ValueError('x' *\n            3)\nA().f()",
    "try:\n    {}['a']\nexcept KeyError as e:\n    raise RuntimeError('b') from e",
    "import inspect\ndef f():\n    return 1\n\nclass A:\n    x = 1\ninspect.getsource(f) + inspect.getsource(A)",
    "from __future__ import annotations\ndef f(x: no_such_name): pass\nstr(f.__annotations__)",
    "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 1\nawait f()",
    "import asyncio\nawait asyncio.sleep(0)\nawait g()",
    "import warnings\nwarnings.warn('here')\n\nwarnings.warn('there')",
    "import traceback, sys\ndef f(a): a[0]['x'][1] + 1\ntry: f([{'x': [1, None]}])\nexcept TypeError: print(traceback.format_exc())",
    "def f(): f()\nf()",
    "x = 'abc'; y = 'ab' 'c'; (x is y, 1000.5 == 1e3 + 0.5, -0.0, 10 ** 20, 2j)",
    "for x in {1, 2, 3.5, None}: print(x)",
    "x: int = 1\nclass A:\n    y: str\n(__annotations__, A.__annotations__)",
    "def f(a, /, b=1, *c, d, **e):\n    def g():\n        nonlocal b\n        b += 1\n        return b\n    return g\nf(1, d=2)()",
    "match {'a': [1, 2]}:\n    case {'a': [x, *y]}: print(x, y)",
    "t = t'{1 + 1!r}'\n(type(t).__name__, f'{t.values[0]:>5}')",
    "__import__('sys')._getframe().f_code.co_positions().__class__.__name__, __name__",
    "import sys\nsys.stderr.write('e')\nraise SystemExit(3)",
    "",
];

/// Programs that each run compiles, since compiling them tells something, or reading them back
/// would change them.
#[rustfmt::skip] // One program, one line.
const EACH_TIME: &[&str] = &[
    "def f(:",
    "print('\\d')",
    "x = 1\nx is 1",
    "return",
    "for x in {24, 16, 8, 0}: print(x)",
    "\u{0}",
];

/// Returns the same image with nothing compiled ahead.
fn image() -> Image {
    load_or_build(engine(), &ImageSpec::default()).expect("nothing is to be imported")
}

/// Runs a job on a fresh interpreter, and lets it compile ahead afterwards. Returns all that it
/// tells, and whether it had code.
fn told(slot: &mut Interpreter, program: &Program) -> (String, bool) {
    let (outcome, _) = job(slot, program, &Limits::default());
    let had_code = slot.had_code();
    slot.reset().expect("there is memory");
    slot.compile_ahead().expect("there is memory");
    assert!(slot.is_as_image(), "{}", program.source);
    let texts = [outcome.stdout, outcome.stderr]
        .map(|text| String::from_utf8(text).expect("programs print text"));
    (format!("{:?} {texts:?} {:?}", outcome.verdict, outcome.limits_met), had_code)
}

#[test]
fn code_made_ahead_changes_no_outcome() {
    let mut slot = image().start().expect("there is memory");
    let expressions =
        ["1 + 1", "  [\n1 / 0]"].map(|source| (source, ProgramEntry::Expression, true));
    let statements = |sources: &'static [&'static str], is_ahead| {
        sources.iter().map(move |source| (*source, ProgramEntry::Statements, is_ahead))
    };
    let programs = statements(AHEAD, true).chain(statements(EACH_TIME, false)).chain(expressions);
    for (source, entry, is_ahead) in programs {
        for filename in [None, Some("dir/prog.py".to_owned())] {
            let program = Program { entry: entry.clone(), filename, ..program(source) };
            let is_first = program.filename.is_none();
            let outcomes: Vec<_> = (0..RUNS + 2).map(|_| told(&mut slot, &program)).collect();
            assert!(outcomes.iter().all(|one| one.0 == outcomes[0].0), "{outcomes:#?}");
            // The file's name isn't part of the code.
            let had_code: Vec<_> = outcomes.iter().map(|one| one.1).collect();
            let expected = [!is_first, !is_first, !is_first, true, true].map(|had| had && is_ahead);
            assert_eq!(had_code, expected, "{source}");
        }
    }
}

/// Makes an image whose interpreters have the code of `source`.
fn image_with(source: &str) -> Image {
    let image = image();
    let mut slot = image.start().expect("there is memory");
    for _ in 0..RUNS {
        told(&mut slot, &program(source));
    }
    image
}

#[test]
fn sessions_get_code_too() {
    let source = "seen.append(1)\nseen + [1 / (2 - len(seen))]";
    let image = image_with(source);
    let mut slot = image.start().expect("there is memory");
    value(&mut slot, "seen = []");
    assert_eq!(value(&mut slot, source), json!([1, 1.0]));
    assert!(slot.had_code());
    let Verdict::Raised(exception) = turn(&mut slot, &program(source)).verdict else { panic!() };
    assert!(slot.had_code());
    assert_eq!(exception.frames[0].file, "<job 3>");
    assert_eq!(exception.frames[0].source_line.as_deref(), Some("seen + [1 / (2 - len(seen))]"));
    let hook = "seen = []\ndef hook(event, arguments):\n    if event == 'compile':\n        \
                seen.append(str(arguments))\nimport sys\nsys.addaudithook(hook)";
    let probe = "x = 'probed'";
    let [ahead, plain] = [image_with(probe), plain().clone()].map(|image| {
        let mut slot = image.start().expect("there is memory");
        value(&mut slot, hook);
        value(&mut slot, probe);
        (slot.had_code(), value(&mut slot, "seen[0]"))
    });
    assert_eq!((ahead.0, plain.0), (true, false));
    assert_eq!(ahead.1, plain.1, "hooks see the same");
}

#[test]
fn deterministic_runs_compile_themselves() {
    let image = image_with("id(object())");
    let mut slot = image.start().expect("there is memory");
    let deterministic = Some(Deterministic::new(1));
    told(&mut slot, &Program { deterministic, ..program("id(object())") });
    assert!(!slot.had_code());
    told(&mut slot, &program("id(object())"));
    assert!(slot.had_code());
}

#[test]
fn only_an_interpreter_as_in_its_image_compiles_ahead() {
    let image = image();
    let mut slot = image.start().expect("there is memory");
    for _ in 0..RUNS {
        turn(&mut slot, &program("x = 1"));
    }
    let state = slot.suspend().expect("there is memory");
    let compiles_none = |slot: &mut Interpreter| {
        slot.compile_ahead().expect("there is memory");
        image.code_cache_size() == (0, 0)
    };
    assert!(compiles_none(&mut slot));
    slot.resume(&state).expect("there is memory");
    assert!(compiles_none(&mut slot));
    assert_eq!(value(&mut slot, "x"), json!(1), "it keeps its state");
    slot.resume(&SessionState::fresh(&image)).expect("there is memory");
    assert!(!compiles_none(&mut slot));
    assert!(slot.is_as_image());
    assert_eq!(image.code_cache_size().0, 1);
}

#[test]
fn a_program_that_takes_long_to_compile_ends_the_same() {
    // About half a second, after which compiling ahead is stopped by force.
    let source = format!("x = [{}]", "a,".repeat(130_000));
    assert!(source.len() < 1 << 18);
    let mut slot = image().start().expect("there is memory");
    let outcomes: Vec<_> = (0..RUNS + 1).map(|_| told(&mut slot, &program(&source)).0).collect();
    assert!(outcomes.iter().all(|one| *one == outcomes[0]));
}
