//! One real interpreter, without the layers above: what a run says and leaves.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use engine::{
    Afterwards, Engine, EngineConfig, HostKind, InputFile, Interpreter, LimitKind, Limits, Outcome,
    Program, ProgressSink, Silent, StopHandle, StopReason, Transcript, Verdict,
};

static ENGINE: LazyLock<Engine> = LazyLock::new(|| {
    let progress: Arc<dyn ProgressSink> = Arc::new(Silent);
    Engine::load(&EngineConfig::from_env(), &progress).expect("the build can be had here")
});

fn run(interpreter: &mut Interpreter, source: &str) -> (Outcome, Afterwards) {
    let program = Program { source: source.to_owned(), ..Program::default() };
    run_with(interpreter, &program, &Limits::default(), &StopHandle::default())
}

fn run_with(
    interpreter: &mut Interpreter,
    program: &Program,
    limits: &Limits,
    stop: &StopHandle,
) -> (Outcome, Afterwards) {
    interpreter.run(program, limits, &Arc::default(), stop, false)
}

#[test]
fn values_output_and_state() {
    let mut interpreter = ENGINE.start().unwrap();
    let (outcome, afterwards) = run(&mut interpreter, "print('hello'); x = 20\nx + 1");
    assert_eq!(afterwards, Afterwards::Usable);
    assert_eq!(outcome.stdout_text(), "hello\n");
    let Verdict::Completed { value, repr, .. } = outcome.verdict else { panic!("{outcome:?}") };
    assert_eq!((value, repr.as_deref()), (Some(serde_json::json!(21)), Some("21")));

    let (outcome, _) = run(&mut interpreter, "x * 2");
    assert!(matches!(outcome.verdict, Verdict::Completed { value: Some(v), .. } if v == 40));

    let (outcome, afterwards) = run(&mut interpreter, "1/0");
    let Verdict::Raised(exception) = outcome.verdict else { panic!("{outcome:?}") };
    assert_eq!(exception.type_name, "ZeroDivisionError");
    assert_eq!(afterwards, Afterwards::Usable);
}

#[test]
fn an_endless_loop_ends_at_its_wall_limit() {
    for source in ["while True: pass", "sum(range(10**18))", "import time; time.sleep(10**6)"] {
        let mut interpreter = ENGINE.start().unwrap();
        let limits = Limits { wall_time: Duration::from_millis(300), ..Limits::default() };
        let program = Program { source: format!("print('begun')\n{source}"), ..Program::default() };
        let (outcome, afterwards) =
            run_with(&mut interpreter, &program, &limits, &StopHandle::default());
        let Verdict::Limit(hit) = outcome.verdict else { panic!("{source}: {outcome:?}") };
        assert_eq!((hit.limit, hit.allowed), (LimitKind::Wall, 300), "{source}");
        assert!(hit.used < 300 + 1000 + 700, "{source}: {hit:?}");
        assert_eq!(outcome.stdout_text(), "begun\n", "{source}");
        let is_in_c = source.starts_with("sum");
        let expected = if is_in_c { Afterwards::Lost } else { Afterwards::Usable };
        assert_eq!(afterwards, expected, "{source}");
        assert_eq!(outcome.interrupted_at.is_some(), !is_in_c, "{source}");
    }
}

/// What the other host serves. It lacks what `HostKind::Wasix` says, and says so.
#[cfg(feature = "wasix")]
#[test]
fn wasmer_wasix_serves_the_same_guest() {
    let progress: Arc<dyn ProgressSink> = Arc::new(Silent);
    let config = EngineConfig { host: HostKind::Wasix, ..EngineConfig::from_env() };
    let engine = Engine::load(&config, &progress).unwrap();
    let mut interpreter = engine.start().unwrap();
    let program = Program {
        source: "import time; time.sleep(0)\nopen('out', 'w').write(open('in').read().upper())"
            .to_owned(),
        files: vec![InputFile::new("in", "abc").unwrap()],
        ..Program::default()
    };
    let (outcome, _) =
        run_with(&mut interpreter, &program, &Limits::default(), &StopHandle::default());
    assert!(outcome.is_success(), "{outcome:?}");
    let [file] = outcome.files.as_slice() else { panic!("{outcome:?}") };
    assert_eq!((file.path.as_str(), file.contents.as_slice()), ("out", &b"ABC"[..]));
    for (stdin, line) in [("a longer line\n", "a longer line"), ("b\n", "b")] {
        let program = Program {
            source: "input()".to_owned(),
            stdin: stdin.as_bytes().to_vec(),
            ..Program::default()
        };
        let (outcome, _) =
            run_with(&mut interpreter, &program, &Limits::default(), &StopHandle::default());
        let Verdict::Completed { value, .. } = &outcome.verdict else { panic!("{outcome:?}") };
        assert_eq!(*value, Some(line.into()));
    }
    let limits = Limits { wall_time: Duration::from_millis(200), ..Limits::default() };
    let endless = Program { source: "x = 1\nwhile True: pass".to_owned(), ..Program::default() };
    let (outcome, afterwards) =
        run_with(&mut interpreter, &endless, &limits, &StopHandle::default());
    assert!(outcome.is_timeout() && afterwards == Afterwards::Usable, "{outcome:?}");
    let read_only = Program { is_read_only: true, ..Program::default() };
    let (outcome, _) =
        run_with(&mut interpreter, &read_only, &Limits::default(), &StopHandle::default());
    assert!(matches!(outcome.verdict, Verdict::SandboxFailed(_)), "{outcome:?}");
}

/// Built without the feature, the engine has no other host than its own.
#[cfg(not(feature = "wasix"))]
#[test]
fn wasmer_wasix_is_refused_with_the_reason_where_it_was_left_out() {
    let progress: Arc<dyn ProgressSink> = Arc::new(Silent);
    let config = EngineConfig { host: HostKind::Wasix, ..EngineConfig::from_env() };
    let loaded = Engine::load(&config, &progress);
    let refusal = engine::chain(&loaded.err().unwrap()).to_string();
    assert!(refusal.contains("built without its feature `wasix`"), "{refusal}");
}

#[test]
fn a_run_is_cancelled_from_another_thread_while_it_prints() {
    let mut interpreter = ENGINE.start().unwrap();
    let (stop, transcript) = (StopHandle::default(), Arc::new(Transcript::default()));
    let (sender, changes) = std::sync::mpsc::channel();
    transcript.watch(move || sender.send(()).unwrap_or_default());
    let canceller = std::thread::spawn({
        let (stop, transcript) = (stop.clone(), Arc::clone(&transcript));
        move || {
            while transcript.text_of(engine::Stream::Stdout).is_empty() {
                changes.recv().expect("it prints before it is cancelled");
            }
            stop.stop(StopReason::Cancelled);
        }
    });
    let source = "while True: print('x')".to_owned();
    let program = Program { source, ..Program::default() };
    let (outcome, afterwards) =
        interpreter.run(&program, &Limits::default(), &transcript, &stop, true);
    canceller.join().unwrap();
    assert_eq!(outcome.verdict, Verdict::Cancelled);
    assert_eq!(afterwards, Afterwards::Lost);
    assert!(outcome.stdout_text().starts_with("x"));
}

#[test]
fn files_go_in_and_changed_ones_come_out() {
    let mut interpreter = ENGINE.start().unwrap();
    let program = Program {
        source: "text = open('in/a.txt').read()\nopen('out.txt', 'w').write(text.upper())"
            .to_owned(),
        files: vec![InputFile::new("in/a.txt", "abc").unwrap()],
        ..Program::default()
    };
    let (outcome, _) =
        run_with(&mut interpreter, &program, &Limits::default(), &StopHandle::default());
    assert!(outcome.is_success(), "{outcome:?}");
    let files: Vec<_> =
        outcome.files.iter().map(|file| (file.path.as_str(), file.contents.as_slice())).collect();
    assert_eq!(files, [("out.txt", &b"ABC"[..])]);
}

#[test]
fn surroundings_reach_the_program() {
    let mut interpreter = ENGINE.start().unwrap();
    let program = Program {
        source: "import os, sys\n[sys.argv, os.environ['A'], sys.stdin.read(), os.getcwd()]"
            .to_owned(),
        filename: Some("x.py".to_owned()),
        args: vec!["1".to_owned()],
        env: [("A".to_owned(), "b".to_owned())].into(),
        stdin: "in ä".as_bytes().to_vec(),
        ..Program::default()
    };
    let (outcome, _) =
        run_with(&mut interpreter, &program, &Limits::default(), &StopHandle::default());
    let Verdict::Completed { value: Some(value), .. } = &outcome.verdict else {
        panic!("{outcome:?}")
    };
    assert_eq!(*value, serde_json::json!([["x.py", "1"], "b", "in ä", "/workspace"]));
}

#[test]
fn leaving_by_os_exit_costs_the_interpreter() {
    let mut interpreter = ENGINE.start().unwrap();
    let (outcome, afterwards) = run(&mut interpreter, "import os; print('a'); os._exit(7)");
    assert_eq!(outcome.verdict, Verdict::Exited { code: 7, message: None });
    assert_eq!(outcome.stdout_text(), "a\n");
    assert_eq!(afterwards, Afterwards::Lost);
}

#[test]
fn pandas_and_matplotlib_work() {
    let mut interpreter = ENGINE.start().unwrap();
    let source = "import io, pandas\nimport matplotlib\nmatplotlib.use('Agg')\n\
                  import matplotlib.pyplot as plt\n\
                  frame = pandas.read_csv(io.StringIO('a,b\\n1,2\\n3,4'))\n\
                  frame.plot(); plt.savefig('plot.png'); frame.to_excel('x.xlsx')\n\
                  int(frame.sum().sum())";
    let (outcome, _) = run(&mut interpreter, source);
    assert!(
        matches!(&outcome.verdict, Verdict::Completed { value: Some(v), .. } if *v == 10),
        "{outcome:?}"
    );
    let [plot, sheet] = outcome.files.as_slice() else { panic!("{:?}", outcome.files.len()) };
    assert!(plot.contents.starts_with(b"\x89PNG") && sheet.contents.starts_with(b"PK"));
}

#[test]
fn memory_beyond_the_limit_is_a_memory_error() {
    let mut interpreter = ENGINE.start().unwrap();
    let limits = Limits { memory_bytes: 128 << 20, ..Limits::default() };
    let source = "try:\n    bytearray(1 << 29)\nexcept MemoryError:\n    print('refused')";
    let program = Program { source: source.to_owned(), ..Program::default() };
    let (outcome, afterwards) =
        run_with(&mut interpreter, &program, &limits, &StopHandle::default());
    assert_eq!(outcome.stdout_text(), "refused\n", "{outcome:?}");
    assert_eq!(afterwards, Afterwards::Usable);
}
