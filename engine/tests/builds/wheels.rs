//! Wheels with machine code for Pyodide's CPython: the first examples of their own documentation, in
//! images, forks and other processes.
#![expect(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::io::{Cursor, Write};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::{
    CacheDir, EngineError, Interface, Package, PackageOrigin, Progress, PythonTarget, SessionState,
};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use test_support::calm::calm;

use super::*;

/// Five wheels with machine code, clients of language models, and what they need.
const REQUIREMENTS: &str = include_str!("wheels.txt");

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

/// Runs a program that may import much, on a machine that may be busy.
fn run_calmly(interpreter: &mut Interpreter, source: &str) -> (Outcome, Afterwards) {
    run_within(interpreter, source, &calm())
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
pub(crate) fn with_wheels(
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
    return [text.decode(), repr(msgspec.json.decode(text, type=User)), said]

def packed():
    import array, datetime, io, msgpack
    stream = io.BytesIO(b"".join(map(msgpack.packb, range(100))))
    now = datetime.datetime.now()
    def encoded(value):
        if isinstance(value, datetime.datetime):
            return {"__datetime__": True, "as_str": value.strftime("%Y%m%dT%H:%M:%S.%f")}
        return msgpack.ExtType(42, value.tobytes())
    def decoded(value):
        if "__datetime__" in value:
            value = datetime.datetime.strptime(value["as_str"], "%Y%m%dT%H:%M:%S.%f")
        return value
    def extended(code, data):
        return array.array("d", data)
    data = [{"id": 1, "created": now}, array.array("d", [1.2, 3.4])]
    packed = msgpack.packb(data, default=encoded)
    return [
        msgpack.packb([1, 2, 3]).hex(), msgpack.unpackb(b"\x93\x01\x02\x03"), msgpack.Packer.__module__,
        sum(msgpack.Unpacker(stream)),
        msgpack.unpackb(packed, object_hook=decoded, ext_hook=extended) == data,
        repr(msgpack.unpackb(msgpack.packb([b"spam", "eggs"], use_bin_type=False), raw=True)),
        repr(msgpack.unpackb(msgpack.packb(msgpack.ExtType(42, b"xyzzy")))),
    ]

def parsed():
    import jiter
    part = b'{"name": "John", "age": 30, "city": "New Y'
    twice = b'{"foo": 1, "foo": 2}'
    found = [jiter.from_json(b'{"name": "John", "age": 30}'), jiter.from_json(twice)]
    found += [jiter.from_json(part, partial_mode=mode) for mode in (True, "trailing-strings")]
    for text, options in ((part, {}), (twice, {"catch_duplicate_keys": True})):
        try:
            jiter.from_json(text, **options)
        except ValueError as error:
            found.append(str(error))
    return found

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
    return [str(user), user.id, said]

def font():
    """A font of two glyphs, the second of which is for `a`."""
    from struct import pack
    tables = {
        "cmap": pack(">HHHHL", 0, 1, 3, 10, 12) + pack(">HHLLLLLL", 12, 0, 28, 0, 1, 97, 97, 1),
        "head": pack(">LLLLHH36x", 0x10000, 0, 0, 0x5F0F3CF5, 0, 1000), "hhea": pack(">LhhhH22xH", 0x10000, 800, -200, 0, 600, 2),
        "hmtx": pack(">HhHh", 500, 0, 600, 0), "maxp": pack(">LH", 0x5000, 2),
    }
    start, body = 12 + 16 * len(tables), b""
    head = pack(">LHHHH", 0x10000, len(tables), 64, 2, 16)
    for tag, table in tables.items():
        head += tag.encode() + pack(">LLL", 0, start + len(body), len(table))
        body += table + bytes(-len(table) % 4)
    return head + body

def shaped():
    import uharfbuzz as hb
    with open("/tmp/font.ttf", "wb") as file:
        file.write(font())
    made = hb.Font(hb.Face(hb.Blob.from_file_path("/tmp/font.ttf")))
    buffer = hb.Buffer()
    buffer.add_str("ab")
    buffer.guess_segment_properties()
    hb.shape(made, buffer, {"kern": True, "liga": True})
    glyphs = zip(buffer.glyph_infos, buffer.glyph_positions)
    return [buffer.script, *(
        [made.glyph_to_string(info.codepoint), info.cluster, place.x_advance, place.y_offset]
        for info, place in glyphs
    )]
"#;
const RUN_EXAMPLES: &str = "[serialized(), packed(), parsed(), validated(), shaped()]";

fn expected() -> Value {
    let user = "id=123 name='John Doe' signup_ts=datetime.datetime(2017, 6, 1, 12, 22) \
                friends=[1, 2, 3]";
    json!([
        [
            r#"{"name":"alice","groups":["admin"],"email":null}"#,
            "User(name='alice', groups={'admin'}, email=None)",
            "Expected `str`, got `int` - at `$.groups[0]`"
        ],
        [
            "93010203",
            [1, 2, 3],
            "msgpack._cmsgpack",
            4950,
            true,
            "[b'spam', b'eggs']",
            "ExtType(code=42, data=b'xyzzy')"
        ],
        [
            { "name": "John", "age": 30 },
            { "foo": 2 },
            { "name": "John", "age": 30 },
            { "name": "John", "age": 30, "city": "New Y" },
            "EOF while parsing a string at line 1 column 42",
            "Detected duplicate key \"foo\" at line 1 column 18"
        ],
        [user, 123, "int_parsing"],
        ["Latn", ["gid1", 0, 600, 0], ["gid0", 1, 500, 0]],
    ])
}

/// Uses clients of language models: with one another, and without the network that they need.
const CLIENTS: &str = r#"
import asyncio, anthropic, mcp, mcp.server, openai

def served():
    server = mcp.server.MCPServer("Demo")
    @server.tool()
    def add(a: int, b: int) -> int:
        "Add two numbers."
        return a + b
    async def main():
        async with mcp.Client(server) as client:
            return (await client.call_tool("add", {"a": 1, "b": 2})).structured_content
    return asyncio.run(main())

def why(error):
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__
    return str(error)

def refused():
    messages, reasons = [{"role": "user", "content": "hi"}], []
    def ask(kind, **options):
        return kind(api_key="x", max_retries=0, **options)
    try:
        ask(openai.OpenAI).chat.completions.create(model="m", messages=messages)
    except openai.APIConnectionError as error:
        reasons.append(why(error))
    try:
        ask(anthropic.Anthropic).messages.create(model="m", max_tokens=9, messages=messages)
    except anthropic.APIConnectionError as error:
        reasons.append(why(error))
    async def later():
        await ask(openai.AsyncOpenAI).chat.completions.create(model="m", messages=messages)
    try:
        asyncio.run(later())
    except openai.APIConnectionError as error:
        reasons.append(why(error))
    return reasons
"#;

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
        assert!(run_calmly(&mut interpreter, EXAMPLES).0.is_success());
        assert_eq!(value(&run_calmly(&mut interpreter, RUN_EXAMPLES).0), expected());
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
fn clients_of_language_models_are_imported_and_say_what_they_lack() {
    let Some((image, _)) = &*WHEELS else { return };
    let mut interpreter = image.start().unwrap();
    assert!(run_calmly(&mut interpreter, CLIENTS).0.is_success());
    assert_eq!(value(&run_calmly(&mut interpreter, "served()").0), json!({ "result": 3 }));
    let reasons = value(&run_calmly(&mut interpreter, "refused()").0);
    let reasons = reasons.as_array().unwrap();
    let is_clear = |reason: &Value| reason.as_str().unwrap().contains("the sandbox has no network");
    assert!(reasons.len() == 3 && reasons.iter().all(is_clear), "{reasons:?}");
    // Its machine code is for other machines.
    let (mut outcome, _) = run_calmly(&mut interpreter, "import _cffi_backend");
    outcome.word_for(Interface::Library);
    let Verdict::Raised(exception) = outcome.verdict else { panic!("{outcome:?}") };
    let expected =
        "`_cffi_backend` is machine code of cffi 2.1.1, which has no wheel for this build.";
    assert!(exception.traceback.contains(expected), "{}", exception.traceback);
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
