//! Wheels with machine code for Pyodide's CPython: the first examples of their own documentation, in
//! images, forks and other processes.

use std::io::{Cursor, Write};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::{CacheDir, EngineError, Package, PackageOrigin, Progress, PythonTarget, SessionState};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::*;

/// Five wheels with machine code, and what they need.
const REQUIREMENTS: &str = "\
annotated-types==0.8.0 --hash=sha256:f072f4d804ea359e4eaf198b1af7a8b0943881a87f31bb764f8bf219bb9419e0
jiter==0.19.0 --hash=sha256:707b8194222a343c4a5e1574df95f5ade03e3f1cbdba77d8c89c6af0f40d92cd
msgpack==1.2.4 --hash=sha256:06a0657a4110d563255006b7cb7147432f67827144e429c2cdb1c967548d1817
msgspec==0.23.0 --hash=sha256:1836f50ad87e7c56600b648a1b75c3bbcce62835cb1f489435fc5fee8d068831
pydantic==2.14.4 --hash=sha256:653a2ad9f6d8858529c77c72717d0ea991d6c6837fe683246b2f4b2bbfc3fadc
pydantic-core==2.50.5 --hash=sha256:b2910ec0fa5aeb9bef70156f2b79f4783978fdcfaa7b2f1b5d1814458d2e79a1
typing-extensions==4.16.0 --hash=sha256:481caa481374e813c1b176ada14e97f1f67a4539ce9cfeb3f350d78d6370c2e8
typing-inspection==0.4.5 --hash=sha256:bc210535442b39e1bf2805e0c7a17dfd6a4ace760c84c7f7d16245d23a6b1c39
uharfbuzz==0.57.0 --hash=sha256:430b78efc0cff3365461ff79e0d0a944cda17253171d5a4f8cf4615ebde08541
";

/// Tells the other half of a test where the session is.
const SAVED_VARIABLE: &str = "HATCHERY_TEST_WHEELS_FROM";

/// Notes whether something was compiled.
#[derive(Default)]
struct CompilesSeen(AtomicBool);

impl ProgressSink for CompilesSeen {
    fn report(&self, progress: Progress) {
        if matches!(progress, Progress::Compiling { .. }) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// Opens the packages of a requirements file in the usual cache.
fn opened(text: &str, target: &PythonTarget) -> Vec<Package> {
    let folder = tempfile::tempdir().expect("temporary folders can be created");
    let path = folder.path().join("requirements.txt");
    fs::write(&path, text).expect("it is writable");
    let cache = CacheDir::open(None).expect("it is usable");
    Package::from_requirements(&cache, &path, None, target, &Silent).expect("pip fetches them")
}

/// Returns an image of Pyodide's CPython with these wheels, and whether it was compiled for that.
fn with_wheels(
    preload: &[&str],
    open: impl FnOnce(&PythonTarget) -> Vec<Package>,
) -> Option<(Image, bool)> {
    let python = Some(found::pyodide()?);
    let config = EngineConfig { python, ..EngineConfig::from_env() };
    let mut spec = ImageSpec {
        preload: preload.iter().map(|&name| name.to_owned()).collect(),
        ..ImageSpec::default()
    };
    let seen = Arc::new(CompilesSeen::default());
    let progress: Arc<dyn ProgressSink> = Arc::clone(&seen) as _;
    let engine = Engine::load_with(&config, &progress, |target| {
        spec.packages = open(target);
        Ok::<_, EngineError>(spec.packages.clone())
    });
    let image = Image::load_or_build(&engine.expect("it is linked"), &spec, &progress);
    Some((image.expect("it takes them"), seen.0.load(Ordering::Relaxed)))
}

static WHEELS: LazyLock<Option<(Image, bool)>> =
    LazyLock::new(|| with_wheels(&["msgspec", "pydantic"], |target| opened(REQUIREMENTS, target)));

/// The examples. Their values are the same wherever they run.
const EXAMPLES: &str = r#"
def serialized():
    import msgspec
    class User(msgspec.Struct):
        name: str
        groups: set[str] = set()
        email: str | None = None
    alice = User("alice", groups={"admin"})
    text = msgspec.json.encode(alice)
    try:
        msgspec.json.decode(b'{"name":"bob","groups":[123]}', type=User)
    except msgspec.ValidationError as error:
        said = str(error)
    return [text.decode(), msgspec.json.decode(text, type=User) == alice, said]

def packed():
    import msgpack
    return [msgpack.packb([1, 2, 3]).hex(), msgpack.unpackb(b"\x93\x01\x02\x03"), msgpack.Packer.__module__]

def parsed():
    import jiter
    return jiter.from_json(b'{"int": 1, "float": 1.2, "str": "hello"}')

def validated():
    from datetime import datetime
    from typing import Optional
    from pydantic import BaseModel, ValidationError
    class User(BaseModel):
        id: int
        name: str = "John Doe"
        signup_ts: Optional[datetime] = None
        friends: list[int] = []
    user = User(**{"id": "123", "signup_ts": "2017-06-01 12:22", "friends": [1, "2", b"3"]})
    try:
        User(id="x")
    except ValidationError as error:
        said = error.errors()[0]["type"]
    return [repr(user), said]

def shaped():
    import uharfbuzz
    font = uharfbuzz.Font(uharfbuzz.Face(b""))
    buffer = uharfbuzz.Buffer()
    buffer.add_str("hello")
    buffer.guess_segment_properties()
    uharfbuzz.shape(font, buffer, {"kern": True, "liga": True})
    return [buffer.script, [info.codepoint for info in buffer.glyph_infos]]
"#;
const RUN_EXAMPLES: &str = "[serialized(), packed(), parsed(), validated(), shaped()]";

fn expected() -> Value {
    let user = "User(id=123, name='John Doe', signup_ts=datetime.datetime(2017, 6, 1, 12, 22), \
                friends=[1, 2, 3])";
    json!([
        [
            r#"{"name":"alice","groups":["admin"],"email":null}"#,
            true,
            "Expected `str`, got `int` - at `$.groups[0]`"
        ],
        ["93010203", [1, 2, 3], "msgpack._cmsgpack"],
        { "int": 1, "float": 1.2, "str": "hello" },
        [user, "int_parsing"],
        ["Latn", [0, 0, 0, 0, 0]],
    ])
}

/// Makes objects of the wheels' types, which a later turn uses.
const OBJECTS: &str = "\
import jiter, msgpack, msgspec, pydantic, uharfbuzz
class Point(msgspec.Struct):
    x: int
class Model(pydantic.BaseModel):
    x: int
buffer = uharfbuzz.Buffer()
buffer.add_str('abc')
kept = [Point(1), Model(x='2'), msgpack.Packer(), buffer]";
const USE_OBJECTS: &str = "\
[kept[0].x, kept[1].x, kept[2].pack([kept[0].x]).hex(), len(kept[3].glyph_infos), \
Model(x='4').x, msgspec.json.decode(b'{\"x\": 5}', type=Point).x, jiter.from_json(b'[6]')]";

fn used() -> Value {
    json!([1, 2, "9101", 3, 4, 5, [6]])
}

#[test]
fn wheels_with_machine_code_do_what_their_documentation_says() {
    let Some((image, _)) = &*WHEELS else { return };
    let mut interpreter = image.start().unwrap();
    for _ in 0..2 {
        assert!(run(&mut interpreter, EXAMPLES).0.is_success());
        assert_eq!(value(&run(&mut interpreter, RUN_EXAMPLES).0), expected());
        // What a job loads, the next one loads again.
        interpreter.reset().unwrap();
        assert!(interpreter.is_as_image());
    }
    let of_wheel = |name: &str| {
        image.info().packages.iter().any(|info| {
            matches!(&info.origin, PackageOrigin::Requirements(wheel)
                if wheel.starts_with(name) && wheel.ends_with("-pyemscripten_2026_0_wasm32.whl"))
        })
    };
    assert!(
        ["jiter", "msgpack", "msgspec", "pydantic_core", "uharfbuzz"].into_iter().all(of_wheel)
    );
}

#[test]
fn objects_of_wheels_live_on_in_forks_and_in_another_process() {
    let Some((image, _)) = &*WHEELS else { return };
    let mut interpreter = image.start().unwrap();
    assert!(run(&mut interpreter, OBJECTS).0.is_success());
    let state = interpreter.suspend().unwrap();
    let mut other = image.start().unwrap();
    let mut changed = Vec::new();
    for number in 0..1_000 {
        other.resume(&state.fork()).unwrap();
        assert_eq!(value(&run(&mut other, USE_OBJECTS).0), used(), "fork {number}");
        let change = format!("kept[1] = Model(x='{number}'); kept[0].x = {number}");
        assert!(run(&mut other, &change).0.is_success());
        changed.push(other.suspend().unwrap());
    }
    for (number, state) in changed.iter().enumerate() {
        other.resume(state).unwrap();
        let found = value(&run(&mut other, "[kept[0].x, kept[1].x]").0);
        assert_eq!(found, json!([number, number]));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session");
    state.save(&path).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "wheels::revived_from_another_process", "--nocapture"])
        .env(SAVED_VARIABLE, &path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// The other half of that test.
#[test]
fn revived_from_another_process() {
    let Some(path) = std::env::var_os(SAVED_VARIABLE) else { return };
    let (image, has_compiled) = WHEELS.as_ref().expect("it was there before");
    assert!(!has_compiled, "the module with the wheels is in the cache");
    let (_, state) = SessionState::revive(std::slice::from_ref(image), Path::new(&path)).unwrap();
    let mut interpreter = image.start().unwrap();
    interpreter.resume(&state).unwrap();
    assert_eq!(value(&run(&mut interpreter, USE_OBJECTS).0), used());
}

#[test]
fn machine_code_is_stopped_and_interrupted_like_any() {
    let Some((image, _)) = &*WHEELS else { return };
    let mut interpreter = image.start().unwrap();
    let limits = Limits { wall_time: Duration::from_millis(300), ..Limits::default() };
    let source =
        "import jiter\ntext = b'[' + b'1,' * 10**5 + b'1]'\nwhile True: jiter.from_json(text)";
    let (outcome, afterwards) = run_within(&mut interpreter, source, &limits);
    let Verdict::Limit(hit) = outcome.verdict else { panic!("{outcome:?}") };
    assert_eq!((hit.limit, afterwards), (LimitKind::Wall, Afterwards::Usable));
    assert_eq!(value(&run(&mut interpreter, "jiter.from_json(b'[1]')").0), json!([1]));
}

#[test]
fn other_paths_and_builds_take_no_machine_code() {
    let Some((image, _)) = &*WHEELS else { return };
    let mut interpreter = image.start().unwrap();
    let source = "\
import importlib.util, msgpack._cmsgpack, shutil
shutil.copy(msgpack._cmsgpack.__file__, '/tmp/_cmsgpack.so')
spec = importlib.util.spec_from_file_location('_cmsgpack', '/tmp/_cmsgpack.so')
importlib.util.module_from_spec(spec)";
    let (outcome, _) = run(&mut interpreter, source);
    let Verdict::Raised(exception) = outcome.verdict else { panic!("{outcome:?}") };
    assert_eq!(exception.type_name, "ImportError");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x-1-cp314-cp314-pyemscripten_2026_0_wasm32.whl");
    fs::write(&path, "").unwrap();
    let refusal = Package::open(&path, &PythonTarget::default()).unwrap_err().to_string();
    assert!(refusal.contains("made for the platform `pyemscripten_2026_0_wasm32`"), "{refusal}");
}

/// A module whose number is what a shared library computes.
const MODULE: &str = r#"(module
    (@custom "dylink.0" (before first) "\01\04\60\04\00\00\02\0b\01\09libsum.so")
    (import "env" "memory" (memory 1))
    (import "env" "__memory_base" (global $base i32))
    (import "env" "PyModule_Create2" (func $create (param i32 i32) (result i32)))
    (import "env" "PyModule_AddIntConstant" (func $add (param i32 i32 i32) (result i32)))
    (import "env" "sum" (func $sum (param i32 i32) (result i32)))
    (data (i32.add (global.get $base) (i32.const 64)) "adder\00\00\00answer")
    (func (export "PyInit_adder") (result i32) (local $module i32)
        (i32.store offset=20 (global.get $base) (i32.add (global.get $base) (i32.const 64)))
        (i32.store offset=28 (global.get $base) (i32.const -1))
        (local.set $module (call $create (global.get $base) (i32.const 1013)))
        (drop (call $add (local.get $module) (i32.add (global.get $base) (i32.const 72))
            (call $sum (i32.const 40) (i32.const 1))))
        (local.get $module)))"#;
const SHARED: &str = r#"(module
    (@custom "dylink.0" (before first) "\01\04\04\02\00\00")
    (import "env" "memory" (memory 1))
    (import "env" "__memory_base" (global $base i32))
    (data (global.get $base) "\01")
    (func (export "sum") (param i32 i32) (result i32)
        (i32.add (i32.load (global.get $base)) (i32.add (local.get 0) (local.get 1)))))"#;
const ADDER: &str = "adder-1.0-cp314-cp314-pyodide_2026_0_wasm32.whl";
const LIBRARY: &str = "libsum-0.1.zip";
const PLAIN: &str = "plain-2.0-py3-none-any.whl";
const LOCK: &str = "pyodide-lock.json";

/// Makes a folder as Pyodide has it, of two packages and a shared library.
fn distribution() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |file: &str, entries: &[(&str, &[u8])]| {
        let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
        let parts: Vec<&str> = file.split('-').collect();
        let metadata = format!("Name: {}\nVersion: {}\n", parts[0], parts[1]);
        let path = format!("{}-{}.dist-info/METADATA", parts[0], parts[1]);
        let of_wheel = file.ends_with(".whl").then_some((path.as_str(), metadata.as_bytes()));
        for (name, contents) in entries.iter().copied().chain(of_wheel) {
            archive.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
            archive.write_all(contents).unwrap();
        }
        let bytes = archive.finish().unwrap().into_inner();
        fs::write(folder.path().join(file), &bytes).unwrap();
        Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let [module, shared] = [MODULE, SHARED].map(|text| wat::parse_str(text).unwrap());
    let package = |name: &str, kind: &str, file: &str, sha256: String, depends: &[&str]| {
        let version = file.split('-').nth(1).unwrap().trim_end_matches(".zip");
        json!({
            "name": name, "version": version, "file_name": file, "sha256": sha256,
            "package_type": kind, "install_dir": "site", "imports": [], "depends": depends,
        })
    };
    let adder = write(ADDER, &[("adder.so", &module)]);
    let library = write(LIBRARY, &[("libsum.so", &shared)]);
    let plain = write(PLAIN, &[("plain.py", b"x = 7")]);
    let lock = json!({
        "info": { "abi_version": "2026_0", "arch": "wasm32", "platform": "emscripten_5_0_3",
                  "python": "3.14.2" },
        "packages": {
            "adder": package("adder", "package", ADDER, adder, &["libsum", "plain"]),
            "libsum": package("libsum", "shared_library", LIBRARY, library, &[]),
            "plain": package("plain", "package", PLAIN, plain, &[]),
        },
    });
    fs::write(folder.path().join(LOCK), lock.to_string()).unwrap();
    folder
}

/// Opens what a requirements file finds in a folder, with a cache of its own.
fn indexed(folder: &Path, index: &Path, text: &str) -> Result<Vec<Package>, String> {
    let path = folder.join("requirements.txt");
    fs::write(&path, text).unwrap();
    let cache = CacheDir::open(Some(&folder.join("cache"))).unwrap();
    let target = PythonTarget::new([3, 14, 2], "emscripten");
    Package::from_requirements(&cache, &path, Some(index), &target, &Silent)
        .map_err(|error| engine::chain(&error).to_string())
}

#[test]
fn packages_of_a_lock_file_come_with_their_shared_libraries() {
    let folder = distribution();
    let (folder, lock) = (folder.path(), folder.path().join(LOCK));
    let packages = indexed(folder, folder, "Adder==1.0\n").unwrap();
    let named: Vec<_> = packages.iter().map(|package| package.infos()[0].to_string()).collect();
    assert_eq!(named, ["adder 1.0", "libsum 0.1", "plain 2.0"]);
    fs::remove_file(folder.join(ADDER)).unwrap();
    assert_eq!(indexed(folder, &lock, "Adder==1.0\n").unwrap(), packages, "they are in the cache");
    let Some((image, _)) = with_wheels(&[], |_| packages) else { return };
    let mut interpreter = image.start().unwrap();
    for _ in 0..2 {
        let source = "import adder, plain\n[adder.answer, plain.x]";
        assert_eq!(value(&run(&mut interpreter, source).0), json!([42, 7]));
        interpreter.reset().unwrap();
    }
}

#[test]
fn what_is_not_as_the_lock_file_says_is_refused() {
    let folder = distribution();
    let folder = folder.path();
    let said = indexed(folder, &folder.join("nowhere"), "adder").unwrap_err();
    assert!(said.contains("can't read") && said.contains("nowhere"), "{said}");
    let lock = fs::read_to_string(folder.join(LOCK)).unwrap();
    for (expected, replaced, by) in [
        ("line 1: the package index has no `adder`", "\"name\":\"adder\"", "\"name\":\"other\""),
        ("line 1: the package index has adder==1.1", "\"version\":\"1.0\"", "\"version\":\"1.1\""),
        ("nowhere.whl`: the lock file names it", ADDER, "nowhere.whl"),
        (".whl`: its SHA-256 isn't that", "\"sha256\":\"", "\"sha256\":\"0"),
        ("made for the platform `emscripten_4_0_9_wasm32`", "5_0_3", "4_0_9"),
        ("isn't a lock file", "packages", "others"),
    ] {
        let text = lock.replacen(replaced, by, 1);
        assert_ne!(text, lock, "{replaced}");
        fs::write(folder.join(LOCK), text).unwrap();
        let said = indexed(folder, folder, "adder==1.0").unwrap_err();
        assert!(said.contains(expected), "{said}");
    }
    let other = "adder-1.0-cp313-cp313-pyodide_2026_0_wasm32.whl";
    fs::write(folder.join(LOCK), lock.replace(ADDER, other)).unwrap();
    fs::rename(folder.join(ADDER), folder.join(other)).unwrap();
    let said = indexed(folder, folder, "adder").unwrap_err();
    assert!(said.contains("requires Python cp313-cp313, and the build has 3.14"), "{said}");
}
