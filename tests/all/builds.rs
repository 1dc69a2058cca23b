//! All features of a job on builds other than the default one: one table, all of which each build
//! serves. The rows of `table.rs` run on these builds, too.

use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::time::Duration;

use hatchery::event::{EventKind, Stream};
use hatchery::files::ChangeKind;
use hatchery::{
    Call, Deterministic, Hatchery, HostError, HostFunction, Job, LimitKind, Limits, Outcome,
    Session, Verdict,
};
use serde_json::{Value, json};

use crate::support::{Shared, calm, exception, next_output, other_builds, value};

/// A feature, and what shows that a build serves it.
type Feature = (&'static str, fn(&'static Shared));

const FEATURES: &[Feature] = &[
    ("values, data and variables", values),
    ("events and displays in one order", events),
    ("files", files),
    ("mounted folders", mounts),
    ("standard input, arguments and environment", surroundings),
    ("deterministic clock and random numbers", determinism),
    ("sleep in a deterministic run", sleeping),
    ("host functions", functions),
    ("asyncio, waiting for host functions", asynchronous_functions),
    ("limits that a program meets", limits_met),
    ("limits that end a program", limits),
    ("exceptions", exceptions),
    ("sessions that go back before a turn that was stopped by force", sessions),
    ("interrupts", interrupts),
    ("forks and checkpoints", forks),
    ("suspending", suspending),
    ("saved sessions", saving),
];

#[test]
fn every_feature_is_served_by_other_builds() {
    let mut failed = Vec::new();
    for (name, shared) in other_builds() {
        for (feature, holds) in FEATURES {
            let held = panic::catch_unwind(AssertUnwindSafe(|| holds(shared)));
            failed.extend(held.is_err().then(|| format!("{name}: {feature}")));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

fn run(shared: &'static Shared, job: Job) -> Outcome {
    shared.with(|pool| async { pool.run(job).await.expect("the queue isn't full") })
}

fn short() -> Limits {
    let wall_time = Duration::from_millis(300);
    Limits { wall_time, grace: Duration::from_millis(100), ..calm() }
}

async fn ask(session: &Session, source: &str) -> Value {
    value(&session.run(Job::code(source)).await.expect("the session accepts jobs"))
}

fn values(shared: &'static Shared) {
    let given = json!({"a": [1, -2.5, null, true], "ä": "\u{1f600}", "big": u64::MAX});
    let job = Job::code("print(b, n)\n[x, s]").variable("x", given.clone());
    let outcome = run(shared, job.variable("b", vec![0, 255]).variable("n", 41).variable("s", "t"));
    assert_eq!(value(&outcome), json!([given, "t"]));
    assert_eq!(outcome.stdout_text(), "b'\\x00\\xff' 41\n");
    let outcome = run(shared, Job::code("bytes(range(256)) * 1000"));
    let Verdict::Completed { data: Some(data), .. } = outcome.verdict else {
        panic!("{outcome:?}")
    };
    let bytes: Vec<u8> = (0..=255).cycle().take(256_000).collect();
    assert_eq!(data, bytes.into());
    let call = Job::from(Call::new("textwrap:shorten").arg("many words").keyword("width", 5));
    assert_eq!(value(&run(shared, call)), json!("[...]"));
}

fn events(shared: &'static Shared) {
    let source = "import sys\nprint('a'); display(1)\nprint('b', file=sys.stderr)\n\
                  class A: _repr_html_ = lambda self: '<b>'\ndisplay(A()); open('f', 'w').close()";
    let seen = shared.with(|pool| async {
        let ticket = pool.submit(Job::code(source)).await.expect("the queue isn't full");
        let (mut events, mut seen) = (ticket.events(), Vec::<(&str, String)>::new());
        while let Some(event) = events.next().await {
            let (kind, shown) = match event.kind {
                EventKind::Output { stream: Stream::Stdout, bytes } => ("out", text(&bytes)),
                EventKind::Output { stream: Stream::Stderr, bytes } => ("err", text(&bytes)),
                EventKind::Display(shown) => {
                    let form = shown.text("text/html").or_else(|| shown.text("text/plain"));
                    ("show", form.unwrap_or_default().to_owned())
                }
                EventKind::FileChanged { path, .. } => ("file", path),
                EventKind::Started | EventKind::Finished => continue,
                kind => panic!("{kind:?}"),
            };
            match seen.last_mut() {
                // Output is read in pieces, wherever the program happens to be.
                Some((last, text)) if *last == kind && kind != "show" => *text += &shown,
                _ => seen.push((kind, shown)),
            }
        }
        seen
    });
    let expected = [("out", "a\n"), ("show", "1"), ("err", "b\n"), ("show", "<b>"), ("file", "f")];
    assert_eq!(seen, expected.map(|(kind, text)| (kind, text.to_owned())));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn files(shared: &'static Shared) {
    let source = "import os\nopen('new', 'w').write(open('in/given').read().upper())\n\
                  open('changed', 'a').write('!'); os.remove('gone')\n\
                  os.makedirs('a/b'); os.rename('moved', 'a/b/moved'); open('/tmp/t', 'w').close()";
    let mut job = Job::code(source);
    for name in ["in/given", "changed", "gone", "moved"] {
        job = job.input(name, "same").expect("the path is valid");
    }
    let outcome = run(shared, job);
    assert!(outcome.is_success(), "{outcome:?}");
    let told = outcome.files.iter();
    let told: Vec<_> = told.map(|file| (&*file.path, file.kind, &*file.contents)).collect();
    let expected: [(&str, _, &[u8]); 5] = [
        ("a/b/moved", ChangeKind::Created, b"same"),
        ("changed", ChangeKind::Modified, b"same!"),
        ("gone", ChangeKind::Deleted, b""),
        ("moved", ChangeKind::Deleted, b""),
        ("new", ChangeKind::Created, b"SAME"),
    ];
    assert_eq!(told, expected);
    let look = "import os\n[os.listdir(), os.listdir('/tmp')]";
    assert_eq!(value(&run(shared, Job::code(look))), json!([[], []]));
}

fn mounts(shared: &'static Shared) {
    let folder = tempfile::tempdir().expect("it works here");
    fs::create_dir(folder.path().join("inner")).expect("it works here");
    fs::write(folder.path().join("inner/data"), "mounted").expect("it works here");
    std::os::unix::fs::symlink("/etc", folder.path().join("out")).expect("it works here");
    let job = |source: &str| {
        Job::code(source).mount(folder.path(), "/data").expect("the folder can be mounted")
    };
    let source = "import os\n[open('/data/inner/data').read(), os.listdir('/data/inner')]";
    assert_eq!(value(&run(shared, job(source))), json!(["mounted", ["data"]]));
    for (source, name) in [
        ("open('/data/out/passwd')", "PermissionError"),
        ("open('/data/../etc/passwd')", "FileNotFoundError"),
        ("open('/data/inner/data', 'a')", "OSError"),
        ("open('/data/new', 'w')", "OSError"),
        ("import os; os.remove('/data/inner/data')", "OSError"),
    ] {
        assert_eq!(exception(&run(shared, job(source))).type_name, name, "{source}");
    }
    assert_eq!(value(&run(shared, Job::code("import os\nos.path.exists('/data')"))), json!(false));
}

fn surroundings(shared: &'static Shared) {
    let source = "import os, sys\n[input(), sys.stdin.read(), sys.argv[1:], os.environ['NAME']]";
    let job = Job::code(source).stdin("one\ntwo\n").args(["an argument"]).env("NAME", "value");
    let seen = json!(["one", "two\n", ["an argument"], "value"]);
    assert_eq!(value(&run(shared, job)), seen);
}

const CHANCE: &str = "import datetime, os, random, secrets, tempfile, time, uuid\n\
     print(time.time(), time.monotonic(), datetime.datetime.now(), hash('text'), {'a', 'b', 'c'})\n\
     print(random.random(), secrets.token_hex(), os.urandom(4), uuid.uuid4(), tempfile.mkdtemp())";

fn determinism(shared: &'static Shared) {
    let output = |job: Job| {
        let outcome = run(shared, job);
        assert!(outcome.is_success(), "{outcome:?}");
        outcome.stdout_text()
    };
    let seeded = |seed| output(Job::code(CHANCE).deterministic(Deterministic::new(seed)));
    let (first, other) = (seeded(7), seeded(8));
    assert_eq!(first, seeded(7));
    assert_eq!(first.lines().next(), other.lines().next(), "the clock begins at the same time");
    assert_ne!(first.lines().nth(1), other.lines().nth(1));
    assert_ne!(output(Job::code(CHANCE)), output(Job::code(CHANCE)));
}

/// It would take ten years otherwise.
fn sleeping(shared: &'static Shared) {
    let job = Job::code("import time\ntime.sleep(10 * 365 * 86400)\ntime.gmtime().tm_year")
        .deterministic(Deterministic::new(0).starting_at(1_000_000_000 * 86_400));
    assert_eq!(value(&run(shared, job)), json!(1979));
}

#[derive(serde::Deserialize)]
struct Number {
    number: u64,
}

/// Waits until both calls of a program have begun, so those that aren't concurrent never end.
fn together() -> HostFunction {
    let barrier = std::sync::Arc::new(tokio::sync::Barrier::new(2));
    HostFunction::future("together", move |Number { number }: Number| {
        let barrier = std::sync::Arc::clone(&barrier);
        async move {
            barrier.wait().await;
            Ok::<_, HostError>(number * 2)
        }
    })
    .parameter("number", "int")
}

fn functions(shared: &'static Shared) {
    let half = HostFunction::sync("half", |Number { number }: Number| match number % 2 {
        0 => Ok(number / 2),
        _ => Err(HostError::new("OddNumber", number.to_string())),
    });
    let half = half.parameter("number", "int");
    let source = "import hatchery\nfrom hatchery import host\nseen = [host.half(12)]\n\
                  try: host.half(number=3)\nexcept Exception as error: seen += [type(error).__name__, str(error)]\n\
                  seen";
    let outcome = run(shared, Job::code(source).function(half));
    assert_eq!(value(&outcome), json!([6, "OddNumber", "3"]));
    let missing = run(shared, Job::code("from hatchery import host\nhost.half(12)"));
    assert_eq!(exception(&missing).type_name, "AttributeError");
}

fn asynchronous_functions(shared: &'static Shared) {
    let source = "import asyncio\nfrom hatchery import host\n\
                  async def tick():\n    await asyncio.sleep(0.01)\n    return 'tick'\n\
                  await asyncio.gather(host.together.aio(1), tick(), host.together.aio(2))";
    let outcome = run(shared, Job::code(source).function(together()));
    assert_eq!(value(&outcome), json!([2, "tick", 4]));
}

fn limits_met(shared: &'static Shared) {
    let bounds = Limits {
        memory_bytes: 128 << 20,
        output_bytes: 1000,
        file_bytes: 1 << 20,
        open_files: 16,
        ..calm()
    };
    for (source, raised, limit) in [
        ("bytearray(1 << 29)", Some("MemoryError"), LimitKind::Memory),
        ("x = []\nwhile True: x.append(bytes(1 << 20))", Some("MemoryError"), LimitKind::Memory),
        ("for _ in range(100): print('x' * 99)", None, LimitKind::Output),
        ("open('f', 'wb').write(bytes(2 << 20))", Some("OSError"), LimitKind::FileBytes),
        ("kept = [open('f', 'w') for _ in range(99)]", Some("OSError"), LimitKind::OpenFiles),
    ] {
        let outcome = run(shared, Job::code(source).limits(bounds.clone()));
        match raised {
            Some(name) => assert_eq!(exception(&outcome).type_name, name, "{source}"),
            None => assert!(outcome.is_success(), "{source}: {outcome:?}"),
        }
        let met: Vec<_> = outcome.limits_met.iter().map(|hit| hit.limit).collect();
        assert_eq!(met, [limit], "{source}");
        assert_eq!(value(&run(shared, Job::code("1 + 1"))), json!(2), "after {source}");
    }
}

fn limits(shared: &'static Shared) {
    let computing = Limits { cpu_time: Some(Duration::from_millis(300)), ..calm() };
    let calling = Limits { host_calls: 1000, ..calm() };
    let printing = Limits { output_bytes: 1000, stop_at_output_limit: true, ..calm() };
    let long = Limits { source_bytes: 10, ..calm() };
    for (source, limits, limit) in [
        ("while True: pass", short(), LimitKind::Wall),
        ("sum(range(10**18))", short(), LimitKind::Wall),
        ("import time; time.sleep(10**6)", short(), LimitKind::Wall),
        ("import select; select.select([], [], [], 10**6)", short(), LimitKind::Wall),
        ("import threading; threading.Event().wait(10**6)", short(), LimitKind::Wall),
        (
            "while True:\n try:\n  while True: pass\n except BaseException: pass",
            short(),
            LimitKind::Wall,
        ),
        ("class A:\n def __del__(self):\n  while True: pass\nA()", short(), LimitKind::Wall),
        ("while True: open('f', 'w').close()", short(), LimitKind::Wall),
        ("while True: pass", computing, LimitKind::Cpu),
        ("import time\nwhile True: time.time()", calling, LimitKind::HostCalls),
        ("while True: print('x' * 99)", printing, LimitKind::Output),
        ("'a long program'", long, LimitKind::Source),
    ] {
        let outcome = run(shared, Job::code(source).limits(limits));
        let Verdict::Limit(hit) = &outcome.verdict else { panic!("{source}: {outcome:?}") };
        assert_eq!(hit.limit, limit, "{source}");
        assert_eq!(value(&run(shared, Job::code("1 + 1"))), json!(2), "after {source}");
    }
}

fn exceptions(shared: &'static Shared) {
    let source = "def f():\n    try: {}['k']\n    except KeyError as error:\n        \
                  error = ValueError('why') \n        error.add_note('a note'); raise error\nf()";
    let outcome = run(shared, Job::code(source));
    let exception = exception(&outcome);
    assert_eq!((&*exception.type_name, &*exception.message), ("ValueError", "why"));
    assert_eq!(exception.notes, ["a note"]);
    let frames: Vec<_> =
        exception.frames.iter().map(|frame| (&*frame.function, frame.line)).collect();
    assert_eq!(frames, [("<module>", Some(6)), ("f", Some(5))]);
    let outcome = run(shared, Job::code("import sys\nprint('out')\nsys.exit('said')"));
    let Verdict::Exited { code: 1, message: Some(said) } = &outcome.verdict else {
        panic!("{outcome:?}")
    };
    assert_eq!((&**said, outcome.stdout_text()), ("said", "out\n".to_owned()));
}

fn sessions(shared: &'static Shared) {
    shared.with(|pool| async {
        let session = pool.session("turns").await.expect("the name is free");
        ask(&session, "x = 1; f = open('kept', 'w+'); f.write('1'); f.flush()").await;
        for (turn, end) in [
            "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
            "sum(range(10**13))",
            "import os; os._exit(3)",
            "import os; os.abort()",
        ]
        .into_iter()
        .enumerate()
        {
            let changes = "x = 2; y = 3; open('kept', 'w').write('2'); open('new', 'w').close()";
            let job = Job::code(format!("{changes}\n{end}")).limits(short());
            let ended = session.run(job).await.expect("the session accepts jobs");
            assert!(ended.session_restored, "{end}: {ended:?}");
            let look =
                "import os; x += 1\n[x, 'y' in globals(), open('kept').read(), os.listdir()]";
            let expected = json!([turn + 2, false, "1", ["kept"]]);
            assert_eq!(ask(&session, look).await, expected, "{end}");
        }
        let failed = session.run(Job::code("x = 0\n1 / 0")).await.expect("it accepts jobs");
        assert!(!failed.session_restored, "{failed:?}");
        assert_eq!(ask(&session, "x").await, json!(0));
        session.close();
    });
}

/// Where CPython's offsets are known the program is interrupted and what it did stays; elsewhere it
/// is stopped by force, and the session goes back.
fn interrupts(shared: &'static Shared) {
    shared.with(|pool| async {
        let session = pool.session("interrupted").await.expect("the name is free");
        let minor = ask(&session, "import sys; x = 1\nsys.version_info[1]").await;
        let is_soft = minor.as_u64() >= Some(13);
        for source in [
            "while True: pass",
            "import time\ntime.sleep(10**6)",
            "import select\nselect.select([], [], [], 10**6)",
        ] {
            let before = ask(&session, "x").await;
            let source = format!("x += 1; print('begun', flush=True)\n{source}");
            let job =
                Job::code(&source).limits(Limits { wall_time: Duration::from_secs(20), ..short() });
            let mut ticket = session.submit(job).await.expect("the queue isn't full");
            assert!(next_output(&mut ticket.events()).await.is_some());
            ticket.interrupt();
            let outcome = ticket.outcome().await;
            let after = ask(&session, "x").await;
            if is_soft {
                assert_eq!(exception(&outcome).type_name, "KeyboardInterrupt", "{source}");
                assert!(!outcome.session_restored && after != before, "{source}: {outcome:?}");
            } else {
                assert_eq!(outcome.verdict, Verdict::Cancelled, "{source}");
                assert!(outcome.session_restored && after == before, "{source}: {outcome:?}");
            }
        }
        session.close();
    });
}

fn forks(shared: &'static Shared) {
    shared.with(|pool| async {
        let trunk = pool.session("trunk").await.expect("the name is free");
        ask(&trunk, "x = [1]; f = open('f', 'w+'); f.write('trunk'); f.flush()").await;
        let checkpoint = trunk.checkpoint().await.expect("it can be copied");
        let branch = trunk.fork("branch").await.expect("it can be copied");
        ask(&branch, "x.append('branch'); open('f', 'w').write('branch')").await;
        ask(&trunk, "x.append('trunk')").await;
        let look = "[x, open('f').read()]";
        assert_eq!(ask(&trunk, look).await, json!([[1, "trunk"], "trunk"]));
        assert_eq!(ask(&branch, look).await, json!([[1, "branch"], "branch"]));
        branch.restore(&checkpoint).await.expect("it can be restored");
        assert_eq!(ask(&branch, look).await, json!([[1], "trunk"]));
        let chance = "import random\nrandom.random()";
        assert_ne!(ask(&trunk, chance).await, ask(&branch, chance).await);
        trunk.close();
        branch.close();
    });
}

/// Four sessions on two workers take turns, so each is suspended again and again.
fn suspending(shared: &'static Shared) {
    shared.with(|pool| async {
        let mut sessions = Vec::new();
        for number in 0..4 {
            let session =
                pool.session(&format!("suspended {number}")).await.expect("the name is free");
            let begin = format!(
                "state = [{number}] * 10_000; f = open('f', 'w+'); f.write('{number}'); f.seek(0)\n\
                 def g():\n    while True: yield f.read(1)\nrest = g(); None"
            );
            ask(&session, &begin).await;
            sessions.push(session);
        }
        for turn in 1..4 {
            for (number, session) in sessions.iter().enumerate() {
                let look = "state.append(1)\n[len(state), state[0], next(rest)]";
                let read = if turn == 1 { number.to_string() } else { String::new() };
                let expected = json!([10_000 + turn, number, read]);
                assert_eq!(ask(session, look).await, expected, "{turn}");
            }
        }
        sessions.into_iter().for_each(Session::close);
    });
}

fn saving(shared: &'static Shared) {
    let folder = tempfile::tempdir().expect("it works here");
    let path = folder.path().join("session");
    shared.with(|pool: &'static Hatchery| async {
        let session = pool.session("saved").await.expect("the name is free");
        ask(&session, "x = 1; f = open('f', 'w+'); f.write('abcdef'); f.seek(2)").await;
        session.save(&path).await.expect("it can be saved");
        ask(&session, "x = 2; f.read(2)").await;
        let revived = pool.revive("revived", &path).await.expect("it can be revived");
        assert_eq!(ask(&revived, "[x, f.read(2)]").await, json!([1, "cd"]));
        assert_eq!(ask(&session, "[x, f.read(2)]").await, json!([2, "ef"]));
        session.close();
        revived.close();
    });
}
