//! Python builds that the user brings. These are a CPython from a registry that wasn't made for
//! Hatchery, one that was made for JavaScript, and one for WASIX if it is available.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use engine::{
    Afterwards, Callee, Deterministic, Engine, EngineConfig, HostCall, HostFunctions, Image,
    ImageSpec, Interpreter, LimitKind, Limits, Outcome, Program, ProgressSink, Signature, Silent,
    StopHandle, Verdict,
};

use serde_json::json;
use test_support::found;

mod clang;
mod network;
mod wheels;

/// The builds beside the default one that are here, with their names.
static OTHERS: LazyLock<Vec<(&str, Engine)>> =
    LazyLock::new(|| found::others().into_iter().map(|(name, path)| (name, load(path))).collect());

/// CPython 3.12 for WASI: one module with its library inside.
static COMMAND: LazyLock<&Engine> = LazyLock::new(|| named("3.12").expect("it is fetched"));

/// CPython 3.13 for WASIX in the shape of a reactor; `None` where it isn't there.
static REACTOR: LazyLock<Option<&Engine>> = LazyLock::new(|| named("wasix"));

/// The same as a command whose memory is shared by threads.
static THREADED: LazyLock<Option<&Engine>> = LazyLock::new(|| named("wasix-threads"));

fn named(name: &str) -> Option<&'static Engine> {
    OTHERS.iter().find(|(other, _)| *other == name).map(|(_, engine)| engine)
}

/// Returns the builds that are here.
fn engines() -> impl Iterator<Item = &'static Engine> {
    OTHERS.iter().map(|(_, engine)| engine)
}

fn load(path: PathBuf) -> Engine {
    let progress: Arc<dyn ProgressSink> = Arc::new(Silent);
    let config = EngineConfig { python: Some(path), ..EngineConfig::from_env() };
    Engine::load(&config, &progress).expect("the build can be loaded")
}

fn image(engine: &Engine) -> Image {
    let progress: Arc<dyn ProgressSink> = Arc::new(Silent);
    Image::load_or_build(engine, &ImageSpec::default(), &progress).expect("the image can be built")
}

fn run(interpreter: &mut Interpreter, source: &str) -> (Outcome, Afterwards) {
    run_within(interpreter, source, &Limits::default())
}

fn run_within(
    interpreter: &mut Interpreter,
    source: &str,
    limits: &Limits,
) -> (Outcome, Afterwards) {
    let program = Program { source: source.to_owned(), ..Program::default() };
    interpreter.run(&program, limits, &Arc::default(), &StopHandle::default(), false)
}

fn value(outcome: &Outcome) -> serde_json::Value {
    match &outcome.verdict {
        Verdict::Completed { value: Some(value), .. } => value.clone(),
        verdict => panic!("{verdict:?} {}", String::from_utf8_lossy(&outcome.stderr)),
    }
}

#[test]
fn a_command_build_runs_programs_one_after_another() {
    let mut interpreter = COMMAND.start().unwrap();
    let (outcome, afterwards) = run(
        &mut interpreter,
        "import sys; print('hello'); x = 20\n[*sys.version_info[:2], sys.path[0], sys.argv, x + 1]",
    );
    assert_eq!(value(&outcome), serde_json::json!([3, 12, "/workspace", [""], 21]));
    assert_eq!((outcome.stdout_text(), afterwards), ("hello\n".into(), Afterwards::Usable));
    assert_eq!(value(&run(&mut interpreter, "x * 2").0), 40);
    let (outcome, afterwards) = run(&mut interpreter, "def f(): 1 / 0\nf()");
    let Verdict::Raised(exception) = outcome.verdict else { panic!("{outcome:?}") };
    assert_eq!(exception.type_name, "ZeroDivisionError");
    assert!(!exception.traceback.contains("_start"), "{}", exception.traceback);
    assert_eq!(afterwards, Afterwards::Usable);
}

#[test]
fn builds_have_images_and_resets() {
    for engine in engines() {
        has_images_and_resets(engine);
    }
}

fn has_images_and_resets(engine: &Engine) {
    let image = image(engine);
    let mut interpreter = image.start().expect("it works here");
    for turn in 0..3 {
        let (outcome, _) = run(&mut interpreter, "'x' in globals(), open('/tmp/f', 'a').tell()");
        assert_eq!(value(&outcome), serde_json::json!([false, 0]), "{turn}");
        assert!(run(&mut interpreter, "x = 1; open('/tmp/f', 'a').write('x')").0.is_success());
        interpreter.reset().expect("it works here");
        assert!(interpreter.is_as_image());
    }
    assert!(run(&mut interpreter, "state = list(range(1000))").0.is_success());
    let state = interpreter.suspend().expect("it works here");
    let mut other = image.start().expect("it works here");
    other.resume(&state).expect("it works here");
    assert_eq!(value(&run(&mut other, "sum(state)").0), 499_500);
}

#[test]
fn a_program_that_closes_or_replaces_the_device_still_ends_well() {
    let mut interpreter = COMMAND.start().unwrap();
    for source in [
        "import os\nos.closerange(3, 256)",
        "import os\nos.closerange(4, 256)\nfiles = [open(f'/tmp/{n}', 'w') for n in range(9)]",
        "for file in files: file.close()\n[os.path.getsize(f'/tmp/{n}') for n in range(9)]",
        "import os\nos.write = os.read = os.open = os.lseek = None",
    ] {
        let (outcome, afterwards) = run(&mut interpreter, source);
        assert!(outcome.is_success(), "{source}: {outcome:?}");
        assert_eq!(afterwards, Afterwards::Usable, "{source}");
    }
    let (outcome, _) = run(&mut interpreter, "[os.path.getsize(f'/tmp/{n}') for n in range(9)]");
    assert_eq!(
        value(&outcome),
        serde_json::json!(vec![0; 9]),
        "nothing was written into its files"
    );
}

#[test]
fn builds_are_stopped_anywhere_and_start_again() {
    for engine in engines() {
        is_stopped_anywhere_and_starts_again(engine);
    }
}

fn is_stopped_anywhere_and_starts_again(engine: &Engine) {
    let image = image(engine);
    let mut interpreter = image.start().expect("it works here");
    for source in ["while True: pass", "sum(range(10**18))", "import time; time.sleep(10**6)"] {
        let limits = Limits {
            wall_time: Duration::from_millis(200),
            grace: Duration::from_millis(200),
            ..Limits::default()
        };
        let (outcome, _) = run_within(&mut interpreter, source, &limits);
        let Verdict::Limit(hit) = outcome.verdict else { panic!("{source}: {outcome:?}") };
        assert_eq!(hit.limit, LimitKind::Wall, "{source}");
        interpreter.reset().expect("it works here");
        assert_eq!(value(&run(&mut interpreter, "6 * 7").0), 42);
    }
    let (outcome, afterwards) = run(&mut interpreter, "import os; os._exit(3)");
    assert!(matches!(outcome.verdict, Verdict::Exited { code: 3, .. }), "{outcome:?}");
    assert_eq!(afterwards, Afterwards::Lost);
    interpreter.reset().expect("it works here");
    let (outcome, _) = run(&mut interpreter, "raise SystemExit(4)");
    assert!(matches!(outcome.verdict, Verdict::Exited { code: 4, .. }), "{outcome:?}");
}

#[test]
fn a_wasix_build_is_interrupted_softly_and_serves_asyncio() {
    let Some(engine) = &*REACTOR else { return };
    let mut interpreter = image(engine).start().unwrap();
    assert_eq!(
        value(&run(&mut interpreter, "import sys; x = 41\n[*sys.version_info[:3]]").0),
        serde_json::json!([3, 13, 5])
    );
    let limits = Limits { wall_time: Duration::from_millis(100), ..Limits::default() };
    for source in ["while True: pass", "import time\ntime.sleep(100)"] {
        let (outcome, afterwards) = run_within(&mut interpreter, source, &limits);
        let Verdict::Limit(hit) = outcome.verdict else { panic!("{source}: {outcome:?}") };
        assert_eq!((hit.limit, afterwards), (LimitKind::Wall, Afterwards::Usable), "{source}");
    }
    let source = "import asyncio\nasync def f():\n    await asyncio.sleep(0.01)\n    return x + 1\n\
                  asyncio.run(f())";
    assert_eq!(value(&run(&mut interpreter, source).0), 42);
}

#[test]
fn a_module_for_javascript_runs_without_it() {
    let Some(engine) = named("pyodide") else { return };
    let mut interpreter = image(engine).start().expect("it works here");
    for (source, expected) in [
        ("import sys\n[*sys.version_info[:2], sys.platform]", json!([3, 14, "emscripten"])),
        (
            "a, b = [], []\nfor _ in range(100_000): a, b = [a], [b]\n\
             def is_too_deep(function):\n    try: function()\n\
             \x20   except RecursionError: return True\n\
             [is_too_deep(lambda: repr(a)), is_too_deep(lambda: a == b)]",
            json!([true, true]),
        ),
        ("import os, sys\n[sys.stdout.isatty(), os.isatty(0)]", json!([false, false])),
        (
            "def missing(name):\n    try: __import__(name)\n\
             \x20   except ImportError as error: return error.name\n\
             [missing(name) for name in ('js', '_pyodide_core')]",
            json!(["js", "_pyodide_core"]),
        ),
        (
            "import ctypes\nclass P(ctypes.Structure):\n\
             \x20   _fields_ = [('x', ctypes.c_short), ('y', ctypes.c_double)]\n\
             point, other = P(3, 4.5), P()\n\
             ctypes.memmove(ctypes.byref(other), ctypes.byref(point), ctypes.sizeof(P))\n\
             number = ctypes.pointer(ctypes.c_int(0x41424344))\n\
             text = ctypes.cast(number, ctypes.POINTER(ctypes.c_char))\n\
             kind = ctypes.CFUNCTYPE(ctypes.c_longlong, ctypes.c_longlong, ctypes.c_double, ctypes.py_object)\n\
             [other.x, other.y, text[0].decode(), ctypes.string_at(b'abc', 2).decode(), \
             kind(lambda a, b, c: int(a * b) + len(c))(1 << 40, 1.5, [7])]",
            json!([3, 4.5, "D", "ab", (3_i64 << 39) + 1]),
        ),
        (
            "import ctypes.util\ndef refused(function):\n    try: function()\n\
             \x20   except Exception as error: return type(error).__name__\n\
             [refused(lambda: ctypes.CDLL('libc.so')), refused(lambda: ctypes.pythonapi.Py_IncRef), \
             refused(lambda: ctypes.CFUNCTYPE(None)(lambda: 1 / 0)()), ctypes.util.find_library('c')]",
            json!(["OSError", "AttributeError", null, null]),
        ),
        (
            "import asyncio\nasync def f():\n    await asyncio.sleep(0.01)\n    return 42\n\
             asyncio.run(f())",
            json!(42),
        ),
        (
            "import time\nbefore = time.process_time()\ntime.sleep(0.3)\n\
             time.process_time() - before < 0.1",
            json!(true),
        ),
        (
            "import sqlite3\nfirst, second = (sqlite3.connect('/tmp/a.db') for _ in range(2))\n\
             first.execute('create table t (n)'); first.execute('insert into t values (7)')\n\
             first.commit(); second.execute('select n from t').fetchall()",
            json!([[7]]),
        ),
    ] {
        assert_eq!(value(&run(&mut interpreter, source).0), expected, "{source}");
    }
    let limits = Limits { wall_time: Duration::from_millis(100), ..Limits::default() };
    for source in ["while True: pass", "import time\ntime.sleep(100)"] {
        let (outcome, afterwards) = run_within(&mut interpreter, source, &limits);
        let Verdict::Limit(hit) = outcome.verdict else { panic!("{source}: {outcome:?}") };
        assert_eq!((hit.limit, afterwards), (LimitKind::Wall, Afterwards::Usable), "{source}");
    }
}

/// Returns an interpreter of the build with threads.
fn threaded(test: &str) -> Option<Interpreter> {
    let Some(engine) = &*THREADED else {
        eprintln!("{test}: skipped, since HATCHERY_TEST_WASIX_PYTHON names no folder");
        return None;
    };
    Some(image(engine).start().expect("it works here"))
}

#[test]
fn python_threads_work() {
    let Some(mut interpreter) = threaded("python_threads_work") else { return };
    for (source, expected) in [
        (
            "import threading\nlock, count = threading.Lock(), 0\ndef work():\n\
             \x20   global count\n    for _ in range(1000):\n        with lock: count += 1\n\
             threads = [threading.Thread(target=work) for _ in range(8)]\n\
             for thread in threads: thread.start()\nfor thread in threads: thread.join()\ncount",
            serde_json::json!(8000),
        ),
        (
            "from concurrent.futures import ThreadPoolExecutor\n\
             with ThreadPoolExecutor(8) as pool:\n\
             \x20   counted = sum(pool.map(lambda n: sum(range(n)), range(200)))\ncounted",
            serde_json::json!((0..200).map(|n| n * (n - 1) / 2).sum::<i32>()),
        ),
        (
            "import queue, threading\nasked, answered = queue.Queue(), queue.Queue()\n\
             def serve():\n    while (n := asked.get()) is not None: answered.put(n * n)\n\
             thread = threading.Thread(target=serve)\nthread.start()\n\
             for n in range(100): asked.put(n)\nasked.put(None)\nthread.join()\n\
             sum(answered.get() for _ in range(100))",
            serde_json::json!(328_350),
        ),
        (
            "import asyncio, threading, time\ndef block(n):\n    time.sleep(0.01)\n\
             \x20   return n, threading.current_thread() is threading.main_thread()\n\
             async def main():\n\
             \x20   return await asyncio.gather(*(asyncio.to_thread(block, n) for n in range(4)))\n\
             asyncio.run(main())",
            serde_json::json!([[0, false], [1, false], [2, false], [3, false]]),
        ),
        (
            "import os, threading\nreader, writer = os.pipe()\n\
             thread = threading.Timer(0.01, os.write, (writer, b'late'))\nthread.start()\n\
             got = os.read(reader, 10).decode()\nthread.join()\n[got, threading.active_count()]",
            serde_json::json!(["late", 1]),
        ),
    ] {
        let (outcome, afterwards) = run(&mut interpreter, source);
        assert_eq!(value(&outcome), expected, "{source}");
        assert_eq!((afterwards, interpreter.threads()), (Afterwards::Usable, 0), "{source}");
        interpreter.reset().expect("it works here");
        assert!(interpreter.is_as_image(), "{source}");
    }
}

#[test]
fn eight_threads_that_spin_are_stopped_a_hundred_times() {
    let test = "eight_threads_that_spin_are_stopped_a_hundred_times";
    let Some(mut interpreter) = threaded(test) else { return };
    let source = "import threading\ndef spin():\n    while True: pass\n\
                  for _ in range(8): threading.Thread(target=spin).start()\nspin()";
    let limits = Limits {
        wall_time: Duration::from_millis(60),
        grace: Duration::from_millis(200),
        ..Limits::default()
    };
    for run in 0..100 {
        let (outcome, _) = run_within(&mut interpreter, source, &limits);
        let Verdict::Limit(hit) = outcome.verdict else { panic!("{run}: {outcome:?}") };
        assert_eq!(hit.limit, LimitKind::Wall, "{run}");
        assert!(outcome.usage.wall < Duration::from_millis(2000), "{run}: {:?}", outcome.usage);
        interpreter.reset().expect("it works here");
        assert_eq!(interpreter.threads(), 0, "{run}");
    }
    assert_eq!(value(&run(&mut interpreter, "6 * 7").0), 42);
}

#[test]
fn the_main_thread_alone_is_interrupted() {
    let Some(mut interpreter) = threaded("the_main_thread_alone_is_interrupted") else { return };
    let limits = Limits { wall_time: Duration::from_millis(300), ..Limits::default() };
    let source = "import threading, time\nstop = threading.Event()\n\
                  def work():\n    while not stop.wait(0.001): pass\n    global done\n\
                  \x20   done = True\nthread = threading.Thread(target=work)\nthread.start()\n\
                  while True: pass";
    let (outcome, afterwards) = run_within(&mut interpreter, source, &limits);
    let Verdict::Limit(hit) = &outcome.verdict else { panic!("{outcome:?}") };
    assert_eq!((hit.limit, afterwards), (LimitKind::Wall, Afterwards::Usable));
    assert_eq!(interpreter.threads(), 1, "the other thread lives on, held");
    let source = "stop.set(); thread.join(); done";
    assert_eq!(value(&run(&mut interpreter, source).0), true);
    assert_eq!(interpreter.threads(), 0);
}

#[test]
fn threads_of_a_session_are_held_between_turns_and_go_on() {
    let test = "threads_of_a_session_are_held_between_turns_and_go_on";
    let Some(mut interpreter) = threaded(test) else { return };
    let source = "import threading\ncount, go = 0, True\ndef work():\n    global count\n\
                  \x20   while go: count += 1\nthread = threading.Thread(target=work)\n\
                  thread.start()";
    assert!(run(&mut interpreter, source).0.is_success());
    assert_eq!(interpreter.threads(), 1);
    let error = interpreter.suspend().unwrap_err().to_string();
    assert!(error.contains("1 beside the main one"), "{error}");
    let first = value(&run(&mut interpreter, "count").0).as_i64();
    let source = "import time\nbefore = count\ntime.sleep(0.05)\ncount > before";
    assert_eq!(value(&run(&mut interpreter, source).0), true, "it goes on from {first:?}");
    assert!(run(&mut interpreter, "go = False; thread.join()").0.is_success());
    let state = interpreter.suspend().expect("it has no other thread now");
    interpreter.reset().expect("it works here");
    interpreter.resume(&state).expect("it works here");
    assert_eq!(value(&run(&mut interpreter, "count > 0").0), true);
}

#[test]
fn a_job_waits_for_its_threads_and_counts_their_time() {
    let test = "a_job_waits_for_its_threads_and_counts_their_time";
    let Some(mut interpreter) = threaded(test) else { return };
    let source = "import threading, time\ndef late():\n    time.sleep(0.05); print('late')\n\
                  threading.Thread(target=late).start()\n\
                  threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()";
    let program = Program { source: source.to_owned(), ..Program::default() };
    let (limits, stop) = (Limits::default(), StopHandle::default());
    let (outcome, _) = interpreter.run(&program, &limits, &Arc::default(), &stop, true);
    assert!(outcome.is_success(), "{outcome:?}");
    assert_eq!((outcome.stdout_text(), interpreter.threads()), ("late\n".into(), 1));
    interpreter.reset().expect("it works here");
    assert_eq!(interpreter.threads(), 0);

    // The main thread waits while another one computes.
    let source = "import threading\nthread = threading.Thread(target=sum, args=(range(10**12),))\n\
                  thread.start()\nwhile thread.is_alive(): thread.join(0.01)";
    let limits = Limits { cpu_time: Some(Duration::from_millis(200)), ..Limits::default() };
    let limits = Limits { grace: Duration::from_millis(100), ..limits };
    let (outcome, _) = run_within(&mut interpreter, source, &limits);
    let Verdict::Limit(hit) = &outcome.verdict else { panic!("{outcome:?}") };
    assert_eq!(hit.limit, LimitKind::Cpu);
    assert!(outcome.usage.cpu >= Duration::from_millis(200), "{:?}", outcome.usage);
}

/// Doubles a number on another thread.
struct Double;

impl Callee for Double {
    fn call(&self, call: HostCall) {
        std::thread::spawn(move || {
            let HostCall { arguments, room, reply, .. } = call;
            drop(room);
            let number = arguments.get("number").and_then(serde_json::Value::as_i64);
            reply.answer(Ok((2 * number.unwrap_or_default()).into()));
        });
    }
}

#[test]
fn threads_call_host_functions_side_by_side() {
    let test = "threads_call_host_functions_side_by_side";
    let Some(mut interpreter) = threaded(test) else { return };
    let signature = Signature { name: "double".to_owned(), ..Signature::default() };
    let double: Arc<dyn Callee> = Arc::new(Double);
    // The loop waits for any call, while threads wait for theirs.
    let source = "import asyncio\nfrom hatchery import host\n\
                  def plain(n):\n    return [host.double(number=n * 100 + m) for m in range(50)]\n\
                  async def main():\n\
                  \x20   threads = [asyncio.to_thread(plain, n) for n in range(4)]\n\
                  \x20   async def own():\n\
                  \x20       return [await host.double.aio(number=m) for m in range(50)]\n\
                  \x20   return await asyncio.gather(own(), *threads)\n\
                  own, *others = asyncio.run(main())\n\
                  [sum(own), *(sum(other) for other in others)]";
    let program = Program {
        source: source.to_owned(),
        functions: HostFunctions::new([(signature, double)]).expect("it has a name"),
        ..Program::default()
    };
    let (limits, stop) = (Limits::default(), StopHandle::default());
    let (outcome, _) = interpreter.run(&program, &limits, &Arc::default(), &stop, true);
    assert_eq!(value(&outcome), serde_json::json!([2450, 2450, 12450, 22450, 32450]));
}

#[test]
fn threads_meet_their_limit_and_end_the_program_as_processes_do() {
    let test = "threads_meet_their_limit_and_end_the_program_as_processes_do";
    let Some(mut interpreter) = threaded(test) else { return };
    let source = "import threading\nwait = threading.Event()\nstarted = 0\ntry:\n\
                  \x20   for _ in range(1000):\n\
                  \x20       threading.Thread(target=wait.wait, daemon=True).start()\n\
                  \x20       started += 1\nexcept RuntimeError as error:\n    said = str(error)\n\
                  wait.set()\n[started, said]";
    let (outcome, _) = run(&mut interpreter, source);
    assert_eq!(value(&outcome), serde_json::json!([64, "can't start new thread"]));
    assert_eq!(outcome.limits_met[0].limit, LimitKind::Threads);
    interpreter.reset().expect("it works here");
    let source = "import os, threading, time\n\
                  threading.Timer(0.01, os._exit, (3,)).start()\ntime.sleep(100)";
    let (outcome, afterwards) = run(&mut interpreter, source);
    assert!(matches!(outcome.verdict, Verdict::Exited { code: 3, .. }), "{outcome:?}");
    assert_eq!(afterwards, Afterwards::Lost);
    interpreter.reset().expect("it works here");
    // The order of threads isn't determined.
    let program = Program {
        source: "import threading\nthreading.Thread(target=print).start()".to_owned(),
        deterministic: Some(Deterministic::new(7)),
        ..Program::default()
    };
    let (limits, stop) = (Limits::default(), StopHandle::default());
    let (outcome, _) = interpreter.run(&program, &limits, &Arc::default(), &stop, true);
    let Verdict::Raised(exception) = &outcome.verdict else { panic!("{outcome:?}") };
    assert_eq!(exception.type_name, "RuntimeError");
}

#[test]
fn what_cannot_run_is_refused_before_it_is_compiled() {
    let folder = tempfile::tempdir().unwrap();
    let refusal = |text: &str| {
        let path = folder.path().join("build.wasm");
        fs::write(&path, wat::parse_str(text).unwrap()).unwrap();
        let config = EngineConfig { python: Some(path), ..EngineConfig::from_env() };
        let progress: Arc<dyn ProgressSink> = Arc::new(Silent);
        Engine::load(&config, &progress).unwrap_err().to_string()
    };
    for (said, text) in [
        ("threads can't start", r#"(module (import "env" "memory" (memory 1 2 shared)))"#),
        ("`env.memory`", r#"(module (import "env" "memory" (memory 1)))"#),
        ("`wasix_32v1.dlopen`", r#"(module (import "wasix_32v1" "dlopen" (func)) (memory 1))"#),
        ("neither `_start`", r#"(module (memory 1) (func (export "main")))"#),
    ] {
        let refusal = refusal(text);
        assert!(refusal.contains(said), "{refusal}");
    }
}

/// Packs the module of CPython 3.12 as `wasmer package build` does.
#[cfg(feature = "wasix")]
fn packed(wheel: &std::path::Path) -> Vec<u8> {
    use std::io::Read;
    use webc::v3::write::{FileEntry, Writer};
    use webc::v3::{SignatureAlgorithm, Timestamps};
    let mut wheel = zip::ZipArchive::new(fs::File::open(wheel).expect("it is there"))
        .expect("it is an archive");
    let names =
        Vec::from_iter(wheel.file_names().map(|name| name.expect("it is text").into_owned()));
    let name = names.iter().find(|name| name.ends_with(".wasm")).expect("it has a module");
    let mut wasm = Vec::new();
    wheel.by_name(name).expect("it is there").read_to_end(&mut wasm).expect("it is intact");
    let manifest = serde_json::json!({ "commands": { "python3": {
        "runner": "https://webc.org/runner/wasi",
        "annotations": { "atom": { "name": "cpython" } },
    } } });
    let manifest = serde_json::from_value(manifest).expect("it is a manifest");
    let atom = FileEntry::owned(wasm, Timestamps::default());
    let writer = Writer::default().write_manifest(&manifest).expect("it can be packed");
    let atoms = [("cpython".parse().expect("it is a name"), atom)].into();
    let writer = writer.write_atoms(atoms).expect("it can be packed");
    writer.finish(SignatureAlgorithm::None).expect("it can be packed").to_vec()
}

#[cfg(feature = "wasix")]
#[test]
fn a_webc_package_runs_whatever_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("package");
    fs::write(&path, packed(&found::wasi())).unwrap();
    let engine = load(path.clone());
    let mut interpreter = engine.start().unwrap();
    let (outcome, _) = run(&mut interpreter, "import json, sys; [*sys.version_info[:2]]");
    assert_eq!(value(&outcome), serde_json::json!([3, 12]));
    let info = engine.describe_build().unwrap();
    assert_eq!((info.kind, info.host, &*info.version), ("command", "own", "3.12.0"));
    // Of wasmer-wasix it needs what that doesn't have.
    let config = EngineConfig {
        python: Some(path),
        host: engine::HostKind::Wasix,
        ..EngineConfig::from_env()
    };
    let progress: Arc<dyn ProgressSink> = Arc::new(Silent);
    let refusal = Engine::load(&config, &progress).unwrap_err();
    let why =
        std::error::Error::source(&refusal).map(|cause| format!("{cause} {:?}", cause.source()));
    assert!(format!("{refusal} {why:?}").contains("--host own"), "{refusal} {why:?}");
}
