//! Requests to the agent, and replies of honest and hostile guests.

use super::wire::tests::framed;
use super::*;
use crate::run::outcome::MimeBundle;
use crate::run::value::tests::as_python_reads;
use std::io::Write;
use std::process::{Command, Stdio};

/// Rust's `{:?}` and Python string literals have different escapes; the boot source only uses
/// those that they share.
#[test]
fn the_boot_source_carries_the_agent_unchanged() {
    assert!(!boot::reactor_source(true).contains("\\u{"), "Python has no such escape");
}

#[test]
fn the_boot_source_carries_every_file_after_its_imports() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/guest/agent/hatchery");
    let folders = [folder.to_owned(), format!("{folder}/stand_ins")].into_iter();
    let paths = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap().flatten());
    let names = paths.map(|entry| entry.path().to_str().unwrap().replacen(folder, "", 1));
    let mut found: Vec<String> =
        names.filter_map(|name| name[1..].strip_suffix(".py").map(str::to_owned)).collect();
    found.sort();
    let carried = boot::FILES.iter().chain(&boot::LATE_FILES);
    let mut carried: Vec<&str> = carried.map(|(file, _)| *file).collect();
    carried.sort_unstable();
    assert_eq!(found, carried);
    for (at, (file, source)) in boot::FILES.iter().enumerate() {
        for (later, _) in &boot::FILES[at..] {
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
assert len(ours) == 20 and hatchery.__path__ == [], ours
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
request = ('1 / 0', wire.LAST, 1000, 0, None, None, 0)
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
    let code = [BEFORE_BOOT, &boot::reactor_source(true), AFTER_BOOT].concat();
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
        null, 0,
    ]);
    assert_eq!(as_python_reads(&request(&program, &limits, moment, None)), expected);
    let plain = Program { source: "x = 1".to_owned(), ..Program::default() };
    let moment = Moment { reseed: true, rehearse: true, stdin: 7, ..Moment::default() };
    let expected = serde_json::json!(["x = 1", 14, 5_u64 << 30, 64 << 20, null, b"code", 7]);
    assert_eq!(as_python_reads(&request(&plain, &limits, moment, Some(b"code"))), expected);
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
        assert_eq!(as_python_reads(&sent)[4], expected);
    }
    let spec = ImageSpec { preload: vec!["json".to_owned()], ..ImageSpec::default() };
    let expected = serde_json::json!({
        "path": [], "preload": ["json"], "hidden": [], "setup": null, "setup_name": null, "result_bytes": 5_u64 << 30,
    });
    assert_eq!(as_python_reads(&prepare_request(&spec, &limits)), expected);
}

#[test]
fn the_agent_has_the_same_numbers_for_a_moment() {
    let wire = include_str!("hatchery/_wire.py");
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
    assert!(wire.contains(&format!("\nHAS_STDIN = {HAS_STDIN}\n")));
    for (name, word) in ["TURN", "COMPILE", "PREPARE"].into_iter().zip(Word::ALL) {
        let word = word.source();
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
        let answer = parse_reply(&framed(text), &Limits::default());
        answer.map(|answer| answer.verdict)
    };
    assert_eq!(
        parse(&completed(true)),
        Ok(Verdict::Completed {
            value: Some(serde_json::json!([1])),
            repr: Some("[1]".to_owned()),
            bundle: MimeBundle::default(),
            data: None,
            missing: None,
        })
    );
    assert_eq!(
        parse(&completed(false)),
        Ok(Verdict::Completed {
            value: None,
            repr: Some("[1]".to_owned()),
            bundle: MimeBundle::default(),
            data: None,
            missing: None,
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
fn the_shortest_replies_say_what_their_json_says() {
    let source = include_str!("hatchery/_wire.py");
    assert!(
        source.contains(
            r#"{"kind": "completed", "has_value": has_value, "value": None, "repr": None}"#
        )
    );
    for (header, _) in PLAIN {
        let reply = framed(str::from_utf8(header).unwrap());
        let limits = Limits { result_bytes: 0, ..Limits::default() };
        assert_eq!(plain_reply(&reply), parse_any_reply(&reply, &limits).ok());
        assert!(plain_reply(&reply).is_some());
        // Only if nothing follows.
        assert_eq!(plain_reply(&[&reply[..], b"x"].concat()), None);
    }
}

#[test]
fn exceptions_come_with_their_chains() {
    let linked = r#"{"type":"OSError","message":"","notes":["n"]}"#;
    let frame = r#"{"file":"<job>","line":1,"function":"f"}"#;
    let text = format!(
        r#"{{"kind":"raised","type":"E","message":"m","traceback":"t","frames":[{frame}],
            "context":{linked},"group":[{linked}],"syntax":{{"line":3}}}}"#
    );
    let verdict = parse_reply(&framed(&text), &Limits::default()).unwrap().verdict;
    let Verdict::Raised(exception) = verdict else { panic!("{verdict:?}") };
    assert_eq!((exception.frames[0].line, exception.frames[0].column), (Some(1), None));
    assert_eq!(exception.context.unwrap().notes, ["n"]);
    assert_eq!((exception.group.len(), exception.syntax.unwrap().line), (1, Some(3)));
}

#[test]
fn forms_come_in_buffers() {
    let header = r#"{"kind":"completed","has_value":false,"value":null,"repr":"x",
        "bundle":[["text/html","text",0]],"buffers":[3]}"#;
    let reply = [&framed(header)[..], b"<b>"].concat();
    let verdict = parse_reply(&reply, &Limits::default()).unwrap().verdict;
    let Verdict::Completed { bundle, .. } = verdict else { panic!("{verdict:?}") };
    assert_eq!(bundle.text("text/html"), Some("<b>"));
}

#[test]
fn data_must_match_its_buffers() {
    let reply = |fields: &str| {
        let header =
            format!(r#"{{"kind":"completed","has_value":false,"value":null,"repr":"b",{fields}}}"#);
        [&framed(&header)[..], b"abc"].concat()
    };
    let parse = |fields: &str| parse_reply(&reply(fields), &Limits::default());
    let bytes = r#""data":{"kind":"bytes"},"buffers":[3]"#;
    let answer = parse(bytes).unwrap();
    let data = Some(value::Value::Bytes(b"abc".to_vec()));
    let (repr, bundle) = (Some("b".to_owned()), MimeBundle::default());
    let completed = Verdict::Completed { value: None, repr, bundle, data, missing: None };
    assert_eq!(answer, ParsedReply { verdict: completed, left_out: LeftOutSizes::default() });
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
        let answer = parse_reply(&framed(&reply), &limits).unwrap();
        let Verdict::Completed { value: Some(value), .. } = answer.verdict else { panic!() };
        assert_eq!(value.to_string(), expected);
    }
    for lie in [
        r#"{"kind":"completed","has_value":true,"value":1e400,"repr":"x"}"#,
        r#"{"kind":"completed","has_value":true,"repr":"x"}"#,
        r#"{"kind":"exited","code":0,"message":null,"value":null}"#,
    ] {
        assert!(parse_reply(&framed(lie), &limits).is_err(), "{lie}");
    }
    let left_out = r#"{"kind":"completed","has_value":false,"value":null,"repr":"b",
        "data_left_out":9,"result_left_out":8}"#;
    let answer = parse_reply(&framed(left_out), &limits).unwrap();
    let expected = [(LimitKind::Result, 8), (LimitKind::ResultData, 9)];
    assert_eq!(answer.left_out.limits_met().collect::<Vec<_>>(), expected);
}

#[test]
fn optional_fields_are_sent_only_if_set() {
    let mut call = crate::run::program::Call::new("json:dumps");
    call.args.push(value::Value::from(1));
    call.keywords.insert("indent".to_owned(), value::Value::from(2));
    let program = Program {
        entry: ProgramEntry::Call(call),
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
    assert_eq!(as_python_reads(&sent)[4][3], expected);
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
        let result = parse_reply(&framed(text), &Limits::default());
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
        format!(r#"{{"kind":"raised","type":"E","message":"","traceback":"","notes":["{long}"]}}"#),
        format!(r#"{{"kind":"exited","code":1,"message":"{long}"}}"#),
    ] {
        assert!(parse_reply(&framed(&text), &Limits::default()).is_ok(), "{text}");
        assert!(parse_reply(&framed(&text), &limits).is_err(), "{text}");
    }
}
