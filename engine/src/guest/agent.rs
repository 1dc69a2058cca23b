//! The protocol between the engine and the agent in the guest (the package `agent/hatchery/`).
//!
//! For a run, the engine calls the guest's function `turn` once: the agent fetches a request
//! through `host.call`, runs the program and posts a reply. Everything from the guest is a claim by
//! the program about itself; its size is bounded first, then it is parsed strictly.

use serde::Deserialize;
use serde_json::Value as Json;

pub(crate) use self::wire::Frame;
use self::wire::{ListedForm, ReplyParts};
use crate::build::spec::ImageSpec;
use crate::limits::{LimitKind, Limits};
use crate::places::{SITE, WORKSPACE};
use crate::run::outcome::{Exception, Tampering, Verdict};
use crate::run::program::{Entry, Program};
use crate::run::value::marshal::Value;
use crate::run::value::{self, number};

pub(crate) mod wire;

/// The modules of the agent package, each after those that it imports.
const FILES: [(&str, &str); 15] = [
    ("__init__", include_str!("agent/hatchery/__init__.py")),
    ("_wire", include_str!("agent/hatchery/_wire.py")),
    ("_streams", include_str!("agent/hatchery/_streams.py")),
    ("_packages", include_str!("agent/hatchery/_packages.py")),
    ("_describe", include_str!("agent/hatchery/_describe.py")),
    ("_compile", include_str!("agent/hatchery/_compile.py")),
    ("_values", include_str!("agent/hatchery/_values.py")),
    ("_display", include_str!("agent/hatchery/_display.py")),
    ("_image", include_str!("agent/hatchery/_image.py")),
    ("_host", include_str!("agent/hatchery/_host.py")),
    ("_warnings", include_str!("agent/hatchery/_warnings.py")),
    ("_late", include_str!("agent/hatchery/_late.py")),
    ("_system", include_str!("agent/hatchery/_system.py")),
    ("_locks", include_str!("agent/hatchery/_locks.py")),
    ("_agent", include_str!("agent/hatchery/_agent.py")),
];

/// Modules that run only when a program first needs them.
const LATE_FILES: [(&str, &str); 7] = [
    ("_stdin", include_str!("agent/hatchery/_stdin.py")),
    ("_loop", include_str!("agent/hatchery/_loop.py")),
    ("_network", include_str!("agent/hatchery/_network.py")),
    ("_archives", include_str!("agent/hatchery/_archives.py")),
    ("_threads", include_str!("agent/hatchery/_threads.py")),
    ("_jpeg", include_str!("agent/hatchery/_jpeg.py")),
    ("_pytest", include_str!("agent/hatchery/_pytest.py")),
];

/// The source that asks the guest's `turn` for a run, once the agent serves it.
pub(crate) const TURN: &str = "turn";

/// The source that asks the agent to compile a program for later runs.
pub(crate) const COMPILE: &str = "compile";

/// The source that asks the agent to prepare the interpreter for an image.
pub(crate) const PREPARE: &str = "prepare";

/// The longest frame while the agent starts.
pub(crate) const BOOT_FRAME_BYTES: usize = 8;

/// Returns the source that starts the agent. From then on the agent serves the build's function
/// `_reactor.turn`: the build keeps a reference to that function, so its code is replaced. While a
/// program runs, the agent gives it a `__main__` of its own.
///
/// The agent package has no files in the guest. Its modules are registered where imports find them,
/// with specs that hold only their names, so that programs can import them too.
pub(crate) fn boot_source() -> String {
    let listed = |files: &[(&str, &str)]| -> String {
        files.iter().map(|(file, source)| format!("({file:?}, {source:?}), ")).collect()
    };
    let (files, late_files) = (listed(&FILES), listed(&LATE_FILES));
    format!(
        "def _boot():\n\
         \x20   import _host, _reactor, os, sys, types\n\
         \x20   from _frozen_importlib import ModuleSpec\n\
         \x20   package = None\n\
         \x20   for file, source in ({files}):\n\
         \x20       name = f'hatchery.{{file}}' if package else 'hatchery'\n\
         \x20       module = sys.modules[name] = types.ModuleType(name)\n\
         \x20       module.__package__ = 'hatchery'\n\
         \x20       module.__spec__ = ModuleSpec(name, None, is_package=not package)\n\
         \x20       if package:\n\
         \x20           setattr(package, file, module)\n\
         \x20       else:\n\
         \x20           package = module\n\
         \x20           package.__path__ = []\n\
         \x20       exec(compile(source, f'<hatchery/{{file}}.py>', 'exec'), module.__dict__)\n\
         \x20   codes = {{}}\n\
         \x20   for file, source in ({late_files}):\n\
         \x20       code = compile(source, f'<hatchery/{{file}}.py>', 'exec')\n\
         \x20       codes[f'hatchery.{{file}}'] = code\n\
         \x20   from hatchery._late import install\n\
         \x20   install(codes)\n\
         \x20   from hatchery import _system\n\
         \x20   _system.install()\n\
         \x20   from hatchery._agent import Agent\n\
         \x20   from hatchery._streams import open_streams\n\
         \x20   open_streams()\n\
         \x20   os.chdir({WORKSPACE:?})\n\
         \x20   sys.path.insert(0, {WORKSPACE:?})\n\
         \x20   agent = Agent(_host.call, os.environ)\n\
         \x20   _reactor.agent_turn = agent.reactor_turn\n\
         \x20   turn = lambda source, environ: agent_turn(source, environ)\n\
         \x20   _reactor.turn.__code__ = turn.__code__\n\
         _boot()\n\
         del _boot\n"
    )
}

/// How a run fits into its interpreter's life.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Moment {
    /// This is the interpreter's last run, so exit functions run.
    pub(crate) last: bool,
    /// The interpreter is a copy, so the random number generators of modules are reseeded.
    pub(crate) reseed: bool,
    /// This is a rehearsal: the agent learns what a run that leaves nothing behind looks like.
    pub(crate) rehearse: bool,
}

impl Moment {
    /// Encodes the flags in one number; `hatchery/_wire.py` has the same values.
    fn number(self) -> i64 {
        let Self { last, reseed, rehearse } = self;
        i64::from(last) | (i64::from(reseed) << 1) | (i64::from(rehearse) << 2)
    }
}

/// Tells the agent that integers of any size are accepted; `hatchery/_wire.py` has the same value.
const TAKES_ALL_INTEGERS: i64 = 8;

fn integers() -> i64 {
    if *number::ARE_ALL_EXACT { TAKES_ALL_INTEGERS } else { 0 }
}

/// Encodes the request to prepare an interpreter for an image.
pub(crate) fn prepare_request(spec: &ImageSpec, limits: &Limits) -> Vec<u8> {
    let setup = spec.setup.as_ref();
    let preload = spec.preload.iter().map(|name| Value::from(name.as_str()));
    let path = (!spec.packages.is_empty()).then_some(Value::from(SITE));
    Value::dict([
        // Appended to `sys.path`.
        ("path", Value::List(path.into_iter().collect())),
        ("preload", Value::List(preload.collect())),
        ("setup", setup.map(|setup| setup.source.as_str()).into()),
        ("setup_name", setup.map(|setup| setup.filename.as_str()).into()),
        ("result_bytes", limits.result_bytes.into()),
    ])
    .encode()
}

/// Returns everything that this module puts into the guest, for the key of an image.
pub(crate) fn identity() -> String {
    [&boot_source(), TURN, COMPILE, PREPARE, SITE].join("\n")
}

/// Encodes the request to compile a program. The reply is its code, or nothing.
pub(crate) fn compile_request(source: &str, is_expression: bool) -> Vec<u8> {
    Value::Tuple(vec![source.into(), is_expression.into()]).encode()
}

/// Encodes the request for a run: the source, the moment, the most bytes of a result and of its
/// data; unless all are empty, the file's name, arguments, environment and optional fields; and the
/// program's code, if it was compiled ahead.
pub(crate) fn request(
    program: &Program,
    limits: &Limits,
    moment: Moment,
    code: Option<&[u8]>,
) -> Vec<u8> {
    let given = given(program);
    let Program { filename, args, env, .. } = program;
    let is_plain = filename.is_none() && args.is_empty() && env.is_empty() && given.is_empty();
    let around = (!is_plain).then(|| {
        let args = args.iter().map(|argument| Value::from(argument.as_str()));
        let env = env.iter().map(|(name, value)| (name.as_str(), Value::from(value.as_str())));
        Value::List(vec![
            filename.as_deref().into(),
            Value::List(args.collect()),
            Value::dict(env),
            if given.is_empty() { Value::None } else { Value::dict(given) },
        ])
    });
    Value::Tuple(vec![
        program.source.as_str().into(),
        Value::Int(moment.number() | integers()),
        limits.result_bytes.into(),
        limits.result_data_bytes.into(),
        around.into(),
        code.map(|code| Value::Bytes(code.into())).into(),
    ])
    .encode()
}

/// Returns the optional fields of a request.
fn given(program: &Program) -> Vec<(&'static str, Value<'_>)> {
    let Program { entry, variables, script, workdir, is_prompt, stdin_function, .. } = program;
    let mut given = Vec::new();
    match entry {
        Entry::Statements => {}
        Entry::Expression => given.push(("expression", true.into())),
        Entry::Call(call) => given.push((
            "call",
            Value::dict([
                ("module", call.module.as_str().into()),
                ("function", call.function.as_str().into()),
                ("args", Value::List(call.args.iter().map(value::request::encoded).collect())),
                ("keywords", value::request::encoded_all(&call.keywords)),
            ]),
        )),
    }
    if !variables.is_empty() {
        given.push(("variables", value::request::encoded_all(variables)));
    }
    if let Some(script) = script {
        given.push(("script", script.name.as_str().into()));
    }
    if let Some(workdir) = workdir {
        given.push(("workdir", workdir.as_str().into()));
    }
    if *is_prompt {
        given.push(("prompt", true.into()));
    }
    if let Some(function) = stdin_function {
        given.push(("stdin", function.as_str().into()));
    }
    given
}

/// Returns the most bytes that an honest agent sends for a run with these limits.
pub(crate) fn reply_cap(limits: &Limits) -> usize {
    header_cap(limits).saturating_add(limits.result_data_bytes)
}

/// Returns the most bytes of a reply without its data. Either the three texts and the other details
/// of an exception, or value, `repr` and, behind the header, the other forms are each cut at
/// `result_bytes`; JSON escapes grow a byte to six. The rest has room for the description of data
/// (`MOST_DESCRIPTION_BYTES` in `_values.py`), the lengths of buffers, the header's other fields
/// and its length.
fn header_cap(limits: &Limits) -> usize {
    limits.result_bytes.saturating_mul(4 * 6).saturating_add(1 << 20)
}

/// Returns the most bytes of the header outside its texts: those of the value, and the rest.
fn structure_cap(limits: &Limits) -> usize {
    limits.result_bytes.saturating_add(1 << 20)
}

/// Returns the most bytes of a display frame that may be kept.
pub(crate) fn display_cap(display_bytes: usize) -> usize {
    display_bytes.saturating_add(HEADER_BYTES)
}

/// Room for a header's content other than the limited texts.
const HEADER_BYTES: usize = 64 << 10;

/// The most bytes that the agent adds to a text that it cuts.
const CUT_BYTES: usize = 64;

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum Reply {
    /// Comes with the field `value`, which is parsed separately.
    Completed {
        has_value: bool,
        repr: Option<String>,
        #[serde(default)]
        bundle: Vec<ListedForm>,
        data: Option<Json>,
        data_left_out: Option<u64>,
        result_left_out: Option<u64>,
    },
    Raised(Box<Exception>),
    Exited {
        code: u8,
        message: Option<String>,
    },
}

/// What the agent reports about how the run ended.
#[derive(Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) verdict: Verdict,
    pub(crate) left_out: LeftOut,
}

/// The sizes, in bytes, of what was left out of a reply because it exceeded its limit.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct LeftOut {
    /// The value as JSON or in another form, beyond `result_bytes`.
    result: Option<u64>,
    /// The value as raw bytes, beyond `result_data_bytes`.
    data: Option<u64>,
}

impl LeftOut {
    /// Returns the limits that were exceeded, each with the size that was asked for.
    pub(crate) fn limits_met(self) -> impl Iterator<Item = (LimitKind, u64)> {
        let Self { result, data } = self;
        let limits = [(LimitKind::Result, result), (LimitKind::ResultData, data)];
        limits.into_iter().filter_map(|(limit, bytes)| Some((limit, bytes?)))
    }
}

/// Parses a reply, and refuses one that exceeds the limits.
pub(crate) fn parse_reply(bytes: &[u8], limits: &Limits) -> Result<Answer, Tampering> {
    let malformed = |why: String| Tampering(format!("its reply is malformed: {why}"));
    let ReplyParts { mut header, buffers } =
        wire::split_reply(bytes, header_cap(limits), structure_cap(limits)).map_err(malformed)?;
    // serde's tagged enums hold only numbers of up to 64 bits, so the value is taken out first.
    let mut value = header.remove("value");
    let reply: Reply = serde_json::from_value(Json::Object(header))
        .map_err(|error| malformed(error.to_string()))?;
    if matches!(reply, Reply::Completed { .. }) != value.is_some() {
        return Err(malformed("only completed replies have a value, and all of them".to_owned()));
    }
    value.as_mut().map_or(Ok(()), number::normalise).map_err(malformed)?;
    let (forms, is_described) = match &reply {
        Reply::Completed { bundle, data, .. } => (bundle.len(), data.is_some()),
        Reply::Raised(_) | Reply::Exited { .. } => (0, false),
    };
    // The buffers of the forms come first.
    let (form_buffers, data_buffers) = buffers
        .split_at_checked(forms)
        .filter(|(_, others)| others.is_empty() || is_described)
        .ok_or_else(|| malformed(format!("{} buffers don't match its header", buffers.len())))?;
    let cap = limits.result_bytes.saturating_add(CUT_BYTES);
    let is_within = match &reply {
        Reply::Completed { repr, .. } => {
            // The size of the whole reply bounds the value, so only a long reply is measured.
            let is_short = bytes.len() <= limits.result_bytes;
            let text = || serde_json::to_vec(&value).map_or(usize::MAX, |text| text.len());
            (is_short || text() <= cap)
                && repr.as_ref().is_none_or(|repr| repr.len() <= cap)
                && form_buffers.iter().map(|buffer| buffer.len()).sum::<usize>() <= cap
        }
        Reply::Raised(exception) => exception.is_within(cap),
        Reply::Exited { message, .. } => message.as_ref().is_none_or(|text| text.len() <= cap),
    };
    if !is_within {
        return Err(Tampering("its reply is larger than its limit".to_owned()));
    }
    let mut left_out = LeftOut::default();
    let verdict = match reply {
        Reply::Completed { has_value, repr, bundle, data, data_left_out, result_left_out } => {
            left_out = LeftOut { result: result_left_out, data: data_left_out };
            let room = limits.result_data_bytes;
            let bundle = wire::bundle_of(bundle, form_buffers).map_err(malformed)?;
            let data = data.map(|data| value::reply::parsed(data, data_buffers, room)).transpose();
            let data = data.map_err(malformed)?;
            Verdict::Completed { value: value.filter(|_| has_value), repr, bundle, data }
        }
        Reply::Raised(exception) => Verdict::Raised(exception),
        Reply::Exited { code, message } => Verdict::Exited { code, message },
    };
    Ok(Answer { verdict, left_out })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::outcome::MimeBundle;
    use std::io::Write;
    use std::process::{Command, Stdio};

    /// Rust's `{:?}` and Python string literals have different escapes; the boot source only uses
    /// those that they share.
    #[test]
    fn the_boot_source_carries_the_agent_unchanged() {
        assert!(!boot_source().contains("\\u{"), "Python has no such escape");
    }

    #[test]
    fn the_boot_source_carries_every_file_after_its_imports() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/guest/agent/hatchery");
        let found = std::fs::read_dir(folder).unwrap().flatten();
        let mut found: Vec<String> = found
            .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".py").map(str::to_owned))
            .collect();
        found.sort();
        let carried = FILES.iter().chain(&LATE_FILES);
        let mut carried: Vec<&str> = carried.map(|(file, _)| *file).collect();
        carried.sort_unstable();
        assert_eq!(found, carried);
        for (at, (file, source)) in FILES.iter().enumerate() {
            for (later, _) in &FILES[at..] {
                assert!(!source.contains(&format!("hatchery.{later} ")), "{file} imports {later}");
            }
        }
    }

    /// Stands in for the build when the boot source runs outside a guest.
    const BEFORE_BOOT: &str = "
import marshal, os, sys, types
_host = sys.modules['_host'] = types.ModuleType('_host')
_reactor = sys.modules['_reactor'] = types.ModuleType('_reactor')
_host.call = lambda frame: b''
exec('def turn(source, environ): pass', _reactor.__dict__)
os.chdir = lambda path: None
";

    /// Checks that the package can be imported and that turns are served.
    const AFTER_BOOT: &str = "
import hatchery, hatchery._agent, hatchery._wire as wire
from hatchery import _describe, _image, _streams
ours = [name for name in sys.modules if name.split('.')[0] == 'hatchery']
for module in [sys.modules[name] for name in ours]:
    assert not hasattr(module, '__file__') and module.__package__ == 'hatchery', module
    assert module.__spec__.name == module.__name__, module
assert len(ours) == 16 and hatchery.__path__ == [], ours
assert wire.reply_frame.__code__.co_filename == '<hatchery/_wire.py>'
import asyncio
from hatchery import host
import hatchery._loop
assert hatchery._loop.__spec__.name == 'hatchery._loop' and host is hatchery.host
assert asyncio.SelectorEventLoop is hatchery._loop.HostLoop
asyncio.set_event_loop_policy(None)
assert type(asyncio.new_event_loop()) is hatchery._loop.HostLoop
for name in 'hatchery._nothing', 'hatchery._wire.nothing':
    try:
        __import__(name)
    except ModuleNotFoundError:
        continue
    assert False, name
request = ('1 / 0', wire.LAST, 1000, 0, None, None)
frames = []
def call(frame):
    frames.append(frame)
    return marshal.dumps(request) if frame == wire.FETCH else b''
_reactor.agent_turn.__self__._call = call
for name in [*ours, 'hatchery._loop']:
    del sys.modules[name]
assert _reactor.turn(b'turn', {}) == (0, False), frames
sys.stdout.write(frames[-1][5:].decode())
";

    #[test]
    fn the_boot_source_makes_a_package_that_serves_turns() {
        let mut python = Command::new("python3")
            .args(["-B", "-I", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("python3 is installed; it also fetches the build");
        let code = [BEFORE_BOOT, &boot_source(), AFTER_BOOT].concat();
        python.stdin.take().unwrap().write_all(code.as_bytes()).unwrap();
        let output = python.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let reply: Json = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(reply["type"], "ZeroDivisionError");
        let text =
            "Traceback (most recent call last):\n  File \"<job>\", line 1, in <module>\n    1 / 0";
        assert!(reply["traceback"].as_str().unwrap().starts_with(text), "{reply}");
    }

    #[test]
    fn requests_are_what_python_reads() {
        let program = Program {
            source: "print('ä')".to_owned(),
            args: vec!["a".to_owned()],
            env: [("NAME".to_owned(), "value".to_owned())].into(),
            ..Program::default()
        };
        let limits = Limits { result_bytes: 5 << 30, ..Limits::default() };
        let moment = Moment { last: true, ..Moment::default() };
        let expected = serde_json::json!([
            "print('ä')", 9, 5_u64 << 30, 64 << 20, [null, ["a"], {"NAME": "value"}, null],
            null,
        ]);
        assert_eq!(
            crate::run::value::marshal::as_python_reads(&request(&program, &limits, moment, None)),
            expected
        );
        let plain = Program { source: "x = 1".to_owned(), ..Program::default() };
        let moment = Moment { reseed: true, rehearse: true, ..Moment::default() };
        let expected = serde_json::json!(["x = 1", 14, 5_u64 << 30, 64 << 20, null, b"code"]);
        assert_eq!(
            crate::run::value::marshal::as_python_reads(&request(
                &plain,
                &limits,
                moment,
                Some(b"code")
            )),
            expected
        );
        for (program, expected) in [
            (
                Program { filename: Some("a.py".to_owned()), ..Program::default() },
                serde_json::json!(["a.py", [], {}, null]),
            ),
            (
                Program { workdir: Some("/a".to_owned()), ..Program::default() },
                serde_json::json!([null, [], {}, {"workdir": "/a"}]),
            ),
            (
                Program { is_prompt: true, ..Program::default() },
                serde_json::json!([null, [], {}, {"prompt": true}]),
            ),
            (
                Program { stdin_function: Some("read".to_owned()), ..Program::default() },
                serde_json::json!([null, [], {}, {"stdin": "read"}]),
            ),
        ] {
            let sent = request(&program, &limits, Moment::default(), None);
            assert_eq!(crate::run::value::marshal::as_python_reads(&sent)[4], expected);
        }
        let spec = ImageSpec { preload: vec!["json".to_owned()], ..ImageSpec::default() };
        let expected = serde_json::json!({
            "path": [], "preload": ["json"], "setup": null, "setup_name": null, "result_bytes": 5_u64 << 30,
        });
        assert_eq!(
            crate::run::value::marshal::as_python_reads(&prepare_request(&spec, &limits)),
            expected
        );
    }

    #[test]
    fn the_agent_has_the_same_numbers_for_a_moment() {
        let wire = include_str!("agent/hatchery/_wire.py");
        let none = Moment::default();
        for (name, moment) in [
            ("LAST", Moment { last: true, ..none }),
            ("RESEED", Moment { reseed: true, ..none }),
            ("REHEARSE", Moment { rehearse: true, ..none }),
        ] {
            assert!(wire.contains(&format!("\n{name} = {}\n", moment.number())), "{name}");
        }
        assert_eq!(none.number(), 0);
        assert!(wire.contains(&format!("\nTAKES_ALL_INTEGERS = {TAKES_ALL_INTEGERS}\n")));
        for (name, word) in [("TURN", TURN), ("COMPILE", COMPILE), ("PREPARE", PREPARE)] {
            assert!(wire.contains(&format!("\n{name}_WORD = b\"{word}\"\n")), "{name}");
        }
    }

    #[test]
    fn the_agents_own_tests_pass_on_this_machines_python() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/guest/agent");
        let output = Command::new("python3")
            .args(["-B", "-m", "unittest", "-q"])
            .current_dir(folder)
            .output()
            .expect("python3 is installed; it also fetches the build");
        let report = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{report}");
        assert!(report.contains("Ran ") && !report.contains("Ran 0 "), "{report}");
    }

    #[test]
    fn replies_become_verdicts() {
        let completed = |has_value| {
            format!(r#"{{"kind":"completed","has_value":{has_value},"value":[1],"repr":"[1]"}}"#)
        };
        let parse = |text: &str| {
            let answer = parse_reply(&wire::framed(text), &Limits::default());
            answer.map(|answer| answer.verdict)
        };
        assert_eq!(
            parse(&completed(true)),
            Ok(Verdict::Completed {
                value: Some(serde_json::json!([1])),
                repr: Some("[1]".to_owned()),
                bundle: MimeBundle::default(),
                data: None,
            })
        );
        assert_eq!(
            parse(&completed(false)),
            Ok(Verdict::Completed {
                value: None,
                repr: Some("[1]".to_owned()),
                bundle: MimeBundle::default(),
                data: None,
            })
        );
        assert_eq!(
            parse(r#"{"kind":"exited","code":3,"message":null}"#),
            Ok(Verdict::Exited { code: 3, message: None })
        );
        assert!(matches!(
            parse(r#"{"kind":"raised","type":"E","message":"m","traceback":"t"}"#),
            Ok(Verdict::Raised(_))
        ));
    }

    #[test]
    fn exceptions_come_with_their_chains() {
        let linked = r#"{"type":"OSError","message":"","notes":["n"]}"#;
        let frame = r#"{"file":"<job>","line":1,"function":"f"}"#;
        let text = format!(
            r#"{{"kind":"raised","type":"E","message":"m","traceback":"t","frames":[{frame}],
                "context":{linked},"group":[{linked}],"syntax":{{"line":3}}}}"#
        );
        let verdict = parse_reply(&wire::framed(&text), &Limits::default()).unwrap().verdict;
        let Verdict::Raised(exception) = verdict else { panic!("{verdict:?}") };
        assert_eq!((exception.frames[0].line, exception.frames[0].column), (Some(1), None));
        assert_eq!(exception.context.unwrap().notes, ["n"]);
        assert_eq!((exception.group.len(), exception.syntax.unwrap().line), (1, Some(3)));
    }

    #[test]
    fn forms_come_in_buffers() {
        let header = r#"{"kind":"completed","has_value":false,"value":null,"repr":"x",
            "bundle":[["text/html","text",0]],"buffers":[3]}"#;
        let reply = [&wire::framed(header)[..], b"<b>"].concat();
        let verdict = parse_reply(&reply, &Limits::default()).unwrap().verdict;
        let Verdict::Completed { bundle, .. } = verdict else { panic!("{verdict:?}") };
        assert_eq!(bundle.text("text/html"), Some("<b>"));
    }

    #[test]
    fn data_must_match_its_buffers() {
        let reply = |fields: &str| {
            let header = format!(
                r#"{{"kind":"completed","has_value":false,"value":null,"repr":"b",{fields}}}"#
            );
            [&wire::framed(&header)[..], b"abc"].concat()
        };
        let parse = |fields: &str| parse_reply(&reply(fields), &Limits::default());
        let bytes = r#""data":{"kind":"bytes"},"buffers":[3]"#;
        let answer = parse(bytes).unwrap();
        let data = Some(value::Value::Bytes(b"abc".to_vec()));
        let (repr, bundle) = (Some("b".to_owned()), MimeBundle::default());
        let completed = Verdict::Completed { value: None, repr, bundle, data };
        assert_eq!(answer, Answer { verdict: completed, left_out: LeftOut::default() });
        for lie in [
            r#""buffers":[3]"#,
            r#""data":null,"buffers":[3]"#,
            r#""data":{"kind":"bytes"},"buffers":[1,2]"#,
            r#""data":{"kind":"array","dtype":"<f8","shape":[3]},"buffers":[3]"#,
        ] {
            assert!(parse(lie).is_err(), "{lie}");
        }
        let limits = Limits { result_data_bytes: 2, ..Limits::default() };
        assert!(parse_reply(&reply(bytes), &limits).is_err());
        for (value, expected) in [
            ("12345678901234567890123", "12345678901234567890123"),
            ("[-18446744073709551616, 1.50]", "[-18446744073709551616,1.5]"),
        ] {
            let reply =
                format!(r#"{{"kind":"completed","has_value":true,"value":{value},"repr":"x"}}"#);
            let answer = parse_reply(&wire::framed(&reply), &limits).unwrap();
            let Verdict::Completed { value: Some(value), .. } = answer.verdict else { panic!() };
            assert_eq!(value.to_string(), expected);
        }
        for lie in [
            r#"{"kind":"completed","has_value":true,"value":1e400,"repr":"x"}"#,
            r#"{"kind":"completed","has_value":true,"repr":"x"}"#,
            r#"{"kind":"exited","code":0,"message":null,"value":null}"#,
        ] {
            assert!(parse_reply(&wire::framed(lie), &limits).is_err(), "{lie}");
        }
        let left_out = r#"{"kind":"completed","has_value":false,"value":null,"repr":"b",
            "data_left_out":9,"result_left_out":8}"#;
        let answer = parse_reply(&wire::framed(left_out), &limits).unwrap();
        let expected = [(LimitKind::Result, 8), (LimitKind::ResultData, 9)];
        assert_eq!(answer.left_out.limits_met().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn optional_fields_are_sent_only_if_set() {
        let mut call = crate::run::program::Call::new("json:dumps");
        call.args.push(value::Value::from(1));
        call.keywords.insert("indent".to_owned(), value::Value::from(2));
        let program = Program {
            entry: Entry::Call(call),
            variables: [("x".to_owned(), vec![0, 255].into())].into(),
            workdir: Some("/workspace/a".to_owned()),
            ..Program::default()
        };
        let sent = request(&program, &Limits::default(), Moment::default(), None);
        let expected = serde_json::json!({
            "call": {
                "module": "json", "function": "dumps", "args": [["plain", 1]],
                "keywords": {"indent": ["plain", 2]},
            },
            "variables": {"x": ["plain", [0, 255]]},
            "workdir": "/workspace/a",
        });
        assert_eq!(crate::run::value::marshal::as_python_reads(&sent)[4][3], expected);
    }

    #[test]
    fn malformed_replies_are_protocol_failures() {
        for text in [
            "",
            "{}",
            "[]",
            r#"{"kind":"other"}"#,
            r#"{"kind":"exited","code":300,"message":null}"#,
            r#"{"kind":"exited","code":1}{"kind":"exited","code":1}"#,
            r#"{"kind":"exited","code":1,"message":null,"more":0}"#,
            r#"{"kind":"exited","code":1,"message":null,"buffers":[0]}"#,
            r#"{"kind":"exited","code":1,"message":null,"buffers":[1]}"#,
            r#"{"kind":"completed","has_value":false,"value":null,"repr":"","buffers":[0]}"#,
            r#"{"kind":"completed","has_value":false,"value":null,"repr":"","bundle":[["a/b","text",0]]}"#,
            r#"{"kind":"raised","type":"E","message":"m","traceback":"t","more":0}"#,
            r#"{"kind":"raised","type":"E","message":"m","traceback":"t","frames":[{"line":-1}]}"#,
            "\u{0}",
        ] {
            let result = parse_reply(&wire::framed(text), &Limits::default());
            assert!(matches!(result, Err(Tampering(_))), "{text}");
        }
    }

    #[test]
    fn replies_beyond_their_limit_are_protocol_failures() {
        let limits = Limits { result_bytes: 100, ..Limits::default() };
        let long = "x".repeat(200);
        for text in [
            format!(r#"{{"kind":"completed","has_value":true,"value":"{long}","repr":null}}"#),
            format!(r#"{{"kind":"completed","has_value":false,"value":null,"repr":"{long}"}}"#),
            format!(r#"{{"kind":"raised","type":"E","message":"{long}","traceback":""}}"#),
            format!(
                r#"{{"kind":"raised","type":"E","message":"","traceback":"","notes":["{long}"]}}"#
            ),
            format!(r#"{{"kind":"exited","code":1,"message":"{long}"}}"#),
        ] {
            assert!(parse_reply(&wire::framed(&text), &Limits::default()).is_ok(), "{text}");
            assert!(parse_reply(&wire::framed(&text), &limits).is_err(), "{text}");
        }
    }
}
