//! One engine for each way in which interpreters get the memory of an image, and helpers of tests.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, LazyLock};

use engine::{
    Afterwards, Engine, EngineConfig, Image, ImageError, ImageSpec, Interpreter, Limits, Outcome,
    Program, ProgressSink, SessionError, SessionState, Silent, StopHandle, Verdict,
};
use serde_json::Value;

/// An engine and the image that most tests begin from.
struct Loaded {
    engine: Engine,
    image: Image,
}

impl Loaded {
    fn new(config: &EngineConfig) -> Self {
        let engine = Engine::load(config, &silent()).expect("the build is installed");
        let preload = ["numpy", "pandas"].map(str::to_owned).to_vec();
        let image = load_or_build(&engine, &ImageSpec { preload, ..ImageSpec::default() });
        Self { engine, image: image.expect("numpy and pandas are in the build") }
    }
}

static MAPPED: LazyLock<Loaded> = LazyLock::new(|| {
    Loaded::new(&EngineConfig { copy_on_write: true, ..EngineConfig::from_env() })
});
static COPIED: LazyLock<Loaded> = LazyLock::new(|| {
    Loaded::new(&EngineConfig { copy_on_write: false, ..EngineConfig::from_env() })
});
static PLAIN: LazyLock<Image> = LazyLock::new(|| {
    load_or_build(&MAPPED.engine, &ImageSpec::default()).expect("nothing is to be imported")
});

/// The engine whose interpreters map their image.
pub(crate) fn engine() -> &'static Engine {
    &MAPPED.engine
}

/// The engine whose interpreters copy their image.
pub(crate) fn copying_engine() -> &'static Engine {
    &COPIED.engine
}

/// The image with numpy and pandas, as interpreters map it.
pub(crate) fn mapped() -> &'static Image {
    &MAPPED.image
}

/// The same image, as interpreters copy it.
pub(crate) fn copied() -> &'static Image {
    &COPIED.image
}

/// Returns the same image, of an engine whose host computes nothing for NumPy.
pub(crate) fn without_kernels() -> Image {
    Loaded::new(&EngineConfig { host_kernels: false, ..EngineConfig::from_env() }).image
}

/// Returns both, with their names.
pub(crate) fn both() -> [(&'static str, &'static Image); 2] {
    [("mapped", mapped()), ("copied", copied())]
}

/// Reads a session that was saved on this image.
pub(crate) fn revived(image: &Image, path: &Path) -> Result<SessionState, SessionError> {
    SessionState::revive(std::slice::from_ref(image), path).map(|(_, state)| state)
}

/// Returns an image without imports.
pub(crate) fn plain() -> &'static Image {
    &PLAIN
}

pub(crate) fn load_or_build(engine: &Engine, spec: &ImageSpec) -> Result<Image, ImageError> {
    Image::load_or_build(engine, spec, &silent())
}

fn silent() -> Arc<dyn ProgressSink> {
    Arc::new(Silent)
}

pub(crate) fn program(source: &str) -> Program {
    Program { source: source.to_owned(), ..Program::default() }
}

/// Runs a whole job, exit functions included.
pub(crate) fn job(
    interpreter: &mut Interpreter,
    program: &Program,
    limits: &Limits,
) -> (Outcome, Afterwards) {
    interpreter.run(program, limits, &Arc::default(), &StopHandle::default(), true)
}

/// Runs a job of a session, which others may follow.
pub(crate) fn turn(interpreter: &mut Interpreter, program: &Program) -> Outcome {
    let stop = StopHandle::default();
    interpreter.run(program, &Limits::default(), &Arc::default(), &stop, false).0
}

/// Runs a job of a session that has to succeed, and returns the value of its last expression.
#[track_caller]
pub(crate) fn value(interpreter: &mut Interpreter, source: &str) -> Value {
    value_of(interpreter, &program(source))
}

/// Like `value`, for a program with inputs.
#[track_caller]
pub(crate) fn value_of(interpreter: &mut Interpreter, program: &Program) -> Value {
    let outcome = turn(interpreter, program);
    match outcome.verdict {
        Verdict::Completed { value, .. } => value.unwrap_or_default(),
        verdict => panic!("{}\n{verdict:?}", program.source),
    }
}

/// Runs a test of this binary in its own process, with `told` in the variable, and fails if it
/// fails.
pub(crate) fn in_another_process(test: &str, variable: &str, told: &str) {
    let binary = std::env::current_exe().expect("this process has a binary");
    let output = Command::new(binary)
        .args(["--exact", test, "--nocapture"])
        .env(variable, told)
        .output()
        .expect("this binary can be started again");
    let said =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{test} in another process:\n{}", said.concat());
    assert!(said[0].contains("1 passed"), "there is no test {test}:\n{}", said[0]);
}

/// Returns the resident memory of this process, in bytes.
pub(crate) fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kilobytes.and_then(|number| number.trim().parse::<u64>().ok()).expect("a number of kB") * 1024
}
