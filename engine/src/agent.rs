//! The protocol between the engine and the agent in the guest (`agent/agent.py`).
//!
//! A run is one turn of the guest: the agent fetches a request through `host.call`, runs the
//! program and posts a reply. Everything from the guest is a claim by the program about itself; it
//! is parsed strictly and bounded before it is parsed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::image::ImageSpec;
use crate::limits::Limits;
use crate::outcome::{Exception, SandboxFailure, Verdict};
use crate::packages::SITE;
use crate::program::Program;

/// The agent's source.
const AGENT: &str = include_str!("agent/agent.py");

/// The module of it that knows what to say about imports.
const PACKAGES: &str = include_str!("agent/hatchery/_packages.py");

/// What a turn of the guest is given in place of source, once the agent serves turns: a run.
pub(crate) const TURN: &str = "turn";

/// The turn that makes an interpreter ready for an image to be taken of it.
pub(crate) const PREPARE: &str = "prepare";

/// The longest frame while the agent starts.
pub(crate) const BOOT_FRAME_BYTES: usize = 8;

/// The guest's working directory.
pub(crate) const WORKSPACE: &str = "/workspace";

/// The first byte of each frame that the guest sends, and what the host answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Wants the request, as JSON.
    Fetch,
    /// Carries the reply, as JSON; the answer is empty.
    Reply,
    /// Carries the address of `KeyboardInterrupt`, 4 bytes, once as the agent starts.
    Hello,
    /// From here on the program's own code runs, and can be interrupted.
    ProgramBegins,
    /// What follows is the agent's again.
    ProgramOver,
    /// Says where a generator of random numbers is that the module of its name shares: the
    /// address of the object, its size, and the first words of its state. While an image is
    /// prepared.
    Seeded,
    /// Carries addresses of objects, 4 bytes each, whose references are not to be counted any
    /// more. While an image is prepared.
    Immortal,
}

impl Frame {
    /// Splits a frame; `None` if it is of no known kind.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        match bytes.split_first()? {
            (1, rest) => Some((Self::Fetch, rest)),
            (2, rest) => Some((Self::Reply, rest)),
            (3, rest) => Some((Self::Hello, rest)),
            (4, rest) => Some((Self::ProgramBegins, rest)),
            (5, rest) => Some((Self::ProgramOver, rest)),
            (6, rest) => Some((Self::Seeded, rest)),
            (7, rest) => Some((Self::Immortal, rest)),
            _ => None,
        }
    }
}

/// The turn that starts the agent, which serves all later turns in place of the build's function
/// `_reactor.turn`: that holds on to the function itself, so the function gets another body. The
/// agent gives programs another `__main__` while they run. The agent's part is a module only for as
/// long as the agent needs to import it.
pub(crate) fn boot_source() -> String {
    format!(
        "def _boot():\n\
         \x20   import _host, _reactor, os, sys, types\n\
         \x20   name = 'hatchery._packages'\n\
         \x20   part = sys.modules[name] = types.ModuleType(name)\n\
         \x20   exec(compile({PACKAGES:?}, '<agent>', 'exec'), part.__dict__)\n\
         \x20   module = types.ModuleType('_hatchery_agent')\n\
         \x20   exec(compile({AGENT:?}, '<agent>', 'exec'), module.__dict__)\n\
         \x20   del sys.modules[name]\n\
         \x20   module.open_streams()\n\
         \x20   os.chdir({WORKSPACE:?})\n\
         \x20   sys.path.insert(0, {WORKSPACE:?})\n\
         \x20   agent = module.Agent(_host.call, os.environ)\n\
         \x20   _reactor.agent_turn = agent.reactor_turn\n\
         \x20   turn = lambda source, environ: agent_turn(source, environ)\n\
         \x20   _reactor.turn.__code__ = turn.__code__\n\
         _boot()\n\
         del _boot\n"
    )
}

#[derive(Serialize)]
struct Request<'a> {
    source: &'a str,
    filename: Option<&'a str>,
    args: &'a [String],
    env: &'a BTreeMap<String, String>,
    last: bool,
    reseed: bool,
    rehearse: bool,
    result_bytes: usize,
}

/// What comes before and after a program's run in its interpreter's life.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Moment {
    /// The interpreter is done after this run, so exit functions run.
    pub(crate) last: bool,
    /// It is a copy of another one, so the generators that modules share are seeded anew.
    pub(crate) reseed: bool,
    /// It is no run at all: the agent is to learn what a run that leaves nothing looks like.
    pub(crate) rehearse: bool,
}

#[derive(Serialize)]
struct PrepareRequest<'a> {
    /// What `sys.path` ends with.
    path: &'a [&'a str],
    preload: &'a [String],
    setup: Option<&'a str>,
    setup_name: Option<&'a str>,
    result_bytes: usize,
}

/// The request to prepare an interpreter for an image.
pub(crate) fn prepare_request(spec: &ImageSpec, limits: &Limits) -> Vec<u8> {
    let path: &[&str] = if spec.packages.is_empty() { &[] } else { &[SITE] };
    let request = PrepareRequest {
        path,
        preload: &spec.preload,
        setup: spec.setup.as_ref().map(|setup| setup.source.as_str()),
        setup_name: spec.setup.as_ref().map(|setup| setup.filename.as_str()),
        result_bytes: limits.result_bytes,
    };
    serde_json::to_vec(&request).expect("strings and numbers have a JSON form")
}

/// Everything in the guest that comes from here, for the key of an image.
pub(crate) fn identity() -> String {
    [&boot_source(), TURN, PREPARE, SITE].join("\n")
}

/// The request for a run.
pub(crate) fn request(program: &Program, limits: &Limits, moment: Moment) -> Vec<u8> {
    let Moment { last, reseed, rehearse } = moment;
    let request = Request {
        source: &program.source,
        filename: program.filename.as_deref(),
        args: &program.args,
        env: &program.env,
        last,
        reseed,
        rehearse,
        result_bytes: limits.result_bytes,
    };
    serde_json::to_vec(&request).expect("strings and numbers have a JSON form")
}

/// The most bytes that an honest agent sends for a run with these limits: value, `repr` and the
/// texts of an exception are each cut at `result_bytes`, and JSON escapes grow a byte to six.
pub(crate) fn reply_cap(limits: &Limits) -> usize {
    limits.result_bytes.saturating_mul(4 * 6).saturating_add(64 << 10)
}

/// What the agent adds to a text that it cuts.
const CUT_BYTES: usize = 64;

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum Reply {
    Completed { has_value: bool, value: serde_json::Value, repr: Option<String> },
    Raised(Exception),
    Exited { code: u8, message: Option<String> },
}

/// What the agent says about how the run ended.
pub(crate) fn parse_reply(bytes: &[u8], limits: &Limits) -> Result<Verdict, SandboxFailure> {
    let reply = serde_json::from_slice(bytes)
        .map_err(|error| SandboxFailure::Protocol(format!("the reply is malformed: {error}")))?;
    let cap = limits.result_bytes.saturating_add(CUT_BYTES);
    let is_within = match &reply {
        Reply::Completed { value, repr, .. } => {
            // The whole reply bounds the value; only a long one has to be measured.
            let is_short = bytes.len() <= limits.result_bytes;
            let text = || serde_json::to_vec(value).map_or(usize::MAX, |text| text.len());
            (is_short || text() <= cap) && repr.as_ref().is_none_or(|repr| repr.len() <= cap)
        }
        Reply::Raised(Exception { type_name, message, traceback }) => {
            [type_name, message, traceback].iter().all(|text| text.len() <= cap)
        }
        Reply::Exited { message, .. } => message.as_ref().is_none_or(|text| text.len() <= cap),
    };
    if !is_within {
        let text = "the reply is larger than its limit".to_owned();
        return Err(SandboxFailure::Protocol(text));
    }
    Ok(match reply {
        Reply::Completed { has_value, value, repr } => {
            Verdict::Completed { value: has_value.then_some(value), repr }
        }
        Reply::Raised(exception) => Verdict::Raised(exception),
        Reply::Exited { code, message } => Verdict::Exited { code, message },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// A Python string literal and Rust's `{:?}` differ in escapes; the boot source relies on
    /// their common part.
    #[test]
    fn the_boot_source_carries_the_agent_unchanged() {
        assert!(!boot_source().contains("\\u{"), "Python has no such escape");
    }

    #[test]
    fn the_agents_own_tests_pass_on_this_machines_python() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/agent");
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
        let parse = |text: &str| parse_reply(text.as_bytes(), &Limits::default());
        assert_eq!(
            parse(&completed(true)),
            Ok(Verdict::Completed {
                value: Some(serde_json::json!([1])),
                repr: Some("[1]".to_owned())
            })
        );
        assert_eq!(
            parse(&completed(false)),
            Ok(Verdict::Completed { value: None, repr: Some("[1]".to_owned()) })
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
    fn malformed_replies_are_protocol_failures() {
        for text in [
            "",
            "{}",
            "[]",
            r#"{"kind":"other"}"#,
            r#"{"kind":"exited","code":300,"message":null}"#,
            r#"{"kind":"exited","code":1}{"kind":"exited","code":1}"#,
            "\u{0}",
        ] {
            let result = parse_reply(text.as_bytes(), &Limits::default());
            assert!(matches!(result, Err(SandboxFailure::Protocol(_))), "{text}");
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
            format!(r#"{{"kind":"exited","code":1,"message":"{long}"}}"#),
        ] {
            assert!(parse_reply(text.as_bytes(), &Limits::default()).is_ok(), "{text}");
            assert!(parse_reply(text.as_bytes(), &limits).is_err(), "{text}");
        }
    }

    #[test]
    fn frames_have_a_known_first_byte() {
        assert_eq!(Frame::parse(b"\x01"), Some((Frame::Fetch, &b""[..])));
        assert_eq!(Frame::parse(b"\x02x"), Some((Frame::Reply, &b"x"[..])));
        assert_eq!(Frame::parse(b"\x05"), Some((Frame::ProgramOver, &b""[..])));
        assert_eq!(Frame::parse(b"\x08"), None);
        assert_eq!(Frame::parse(b""), None);
    }
}
