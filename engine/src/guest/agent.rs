//! The protocol between the engine and the agent in the guest (the package `agent/hatchery/`).
//!
//! For a run, the engine calls the guest's function `turn` once. The agent fetches a request
//! through `host.call`, runs the program and posts a reply. Everything from the guest is a claim by
//! the program about itself. Its size is bounded first, then it is parsed strictly.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value as Json;

pub(crate) use self::boot::Word;
pub(crate) use self::wire::AgentFrame;
use self::wire::{HEADER_BYTES, ListedForm, ReplyParts};
use crate::limits::{LimitKind, Limits};
use crate::places::SITE;
use crate::python::spec::ImageSpec;
use crate::run::outcome::{Exception, MimeBundle, Tampering, Verdict};
use crate::run::program::{Program, ProgramEntry};
use crate::run::value::marshal::Marshal;
use crate::run::value::{self, number};

pub(crate) mod boot;
pub(crate) mod wire;

/// The longest frame while the agent starts.
pub(crate) const BOOT_FRAME_BYTES: usize = 16;

/// How a run fits into its interpreter's life.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Moment {
    /// This is the interpreter's last run, so exit functions run.
    pub(crate) last: bool,
    /// The interpreter is a copy, so the random number generators of modules are reseeded.
    pub(crate) reseed: bool,
    /// This is a rehearsal: the agent learns what a run that leaves nothing behind looks like.
    pub(crate) rehearse: bool,
    /// See [`GuestHost::stdin_number`](crate::host::GuestHost::stdin_number).
    pub(crate) stdin: i64,
}

impl Moment {
    /// Encodes the flags in one number; `hatchery/_wire.py` has the same values.
    fn number(self) -> i64 {
        let Self { last, reseed, rehearse, stdin: _ } = self;
        i64::from(last) | (i64::from(reseed) << 1) | (i64::from(rehearse) << 2)
    }
}

/// Tells the agent that integers of any size are accepted; `hatchery/_wire.py` has the same value.
const TAKES_ALL_INTEGERS: i64 = 8;

/// Tells the agent that the program's standard input isn't empty; `hatchery/_wire.py` has the same
/// value.
const HAS_STDIN: i64 = 16;

fn flags(program: &Program) -> i64 {
    let integers = if *number::ARE_ALL_EXACT { TAKES_ALL_INTEGERS } else { 0 };
    if program.stdin.is_empty() { integers } else { integers | HAS_STDIN }
}

pub(crate) fn prepare_request(spec: &ImageSpec, limits: &Limits) -> Vec<u8> {
    let setup = spec.setup.as_ref();
    let path = (!spec.packages.is_empty()).then_some(Marshal::from(SITE));
    Marshal::dict([
        // Appended to `sys.path`.
        ("path", Marshal::List(path.into_iter().collect())),
        ("preload", names(&spec.preload)),
        ("hidden", names(&spec.hidden)),
        ("setup", setup.map(|setup| setup.source.as_str()).into()),
        ("setup_name", setup.map(|setup| setup.filename.as_str()).into()),
        ("result_bytes", limits.result_bytes.into()),
    ])
    .encode()
}

fn names(modules: &[String]) -> Marshal<'_> {
    Marshal::List(modules.iter().map(|name| Marshal::from(name.as_str())).collect())
}

/// Returns everything that this module puts into the guest, for the key of an image.
pub(crate) fn identity() -> impl Iterator<Item = Cow<'static, str>> {
    let words = Word::ALL.map(Word::source).into_iter();
    boot::texts().chain(words.chain([SITE]).map(Cow::Borrowed))
}

/// Encodes the request to compile a program. The reply is its code, or nothing.
pub(crate) fn compile_request(source: &str, is_expression: bool) -> Vec<u8> {
    Marshal::Tuple(vec![source.into(), is_expression.into()]).encode()
}

/// Encodes the request for a run: the source, the moment, the most bytes of a result and of its
/// data. The file's name, arguments, environment and optional fields follow, unless all are empty.
/// Then come the program's code, if it was compiled ahead, and the number of standard input's
/// state.
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
        let args = args.iter().map(|argument| Marshal::from(argument.as_str()));
        let env = env.iter().map(|(name, value)| (name.as_str(), Marshal::from(value.as_str())));
        Marshal::List(vec![
            filename.as_deref().into(),
            Marshal::List(args.collect()),
            Marshal::dict(env),
            if given.is_empty() { Marshal::None } else { Marshal::dict(given) },
        ])
    });
    Marshal::Tuple(vec![
        program.source.as_str().into(),
        Marshal::Int(moment.number() | flags(program)),
        limits.result_bytes.into(),
        limits.result_data_bytes.into(),
        around.into(),
        code.into(),
        Marshal::Int(moment.stdin),
    ])
    .encode()
}

/// Returns the optional fields of a request.
fn given(program: &Program) -> Vec<(&'static str, Marshal<'_>)> {
    let Program { entry, variables, script, workdir, is_prompt, stdin_function, .. } = program;
    let mut given = Vec::new();
    match entry {
        ProgramEntry::Statements => {}
        ProgramEntry::Expression => given.push(("expression", true.into())),
        ProgramEntry::Shell => given.push(("shell", true.into())),
        ProgramEntry::Call(call) => given.push((
            "call",
            Marshal::dict([
                ("module", call.module.as_str().into()),
                ("function", call.function.as_str().into()),
                ("args", Marshal::List(call.args.iter().map(value::request::encoded).collect())),
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

/// Returns the most bytes of a reply without its data. Each text is cut at `result_bytes`: the
/// three texts and the other details of an exception, or value and `repr`. The other forms, behind
/// the header, are cut together. JSON escapes grow a byte to six. The rest has room for the
/// description of data (`MOST_DESCRIPTION_BYTES` in `_values.py`) and the lengths of buffers. It
/// also has room for the header's other fields and its length.
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

/// The most bytes that the agent adds to a text that it cuts.
const CUT_BYTES: usize = 64;

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum ReplyHead {
    /// Comes with the field `value`, which is parsed separately.
    Completed {
        has_value: bool,
        repr: Option<String>,
        #[serde(default)]
        bundle: Vec<ListedForm>,
        data: Option<Json>,
        missing: Option<String>,
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
pub(crate) struct ParsedReply {
    pub(crate) verdict: Verdict,
    pub(crate) left_out: LeftOutSizes,
}

/// The sizes, in bytes, of what was left out of a reply because it exceeded its limit.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct LeftOutSizes {
    /// The value as JSON or in another form, beyond `result_bytes`.
    result: Option<u64>,
    /// The value as raw bytes, beyond `result_data_bytes`.
    data: Option<u64>,
}

impl LeftOutSizes {
    /// Returns the limits that were exceeded, each with the size that was asked for.
    pub(crate) fn limits_met(self) -> impl Iterator<Item = (LimitKind, u64)> {
        let Self { result, data } = self;
        let limits = [(LimitKind::Result, result), (LimitKind::ResultData, data)];
        limits.into_iter().filter_map(|(limit, bytes)| Some((limit, bytes?)))
    }
}

/// The headers of the replies of most programs, as the agent writes them. Such programs end in no
/// expression or in `None`. Reading JSON takes a twentieth of the shortest run.
const PLAIN: [(&[u8], bool); 2] = [
    (br#"{"kind": "completed", "has_value": false, "value": null, "repr": null}"#, false),
    (br#"{"kind": "completed", "has_value": true, "value": null, "repr": null}"#, true),
];

/// Returns what a reply says that is one of [`PLAIN`].
fn plain_reply(bytes: &[u8]) -> Option<ParsedReply> {
    let (length, header) = bytes.split_first_chunk::<4>()?;
    let is_whole = u32::from_le_bytes(*length) as usize == header.len();
    let (_, has_value) = *PLAIN.iter().find(|(plain, _)| is_whole && *plain == header)?;
    let value = has_value.then_some(Json::Null);
    let bundle = MimeBundle::default();
    let verdict = Verdict::Completed { value, repr: None, bundle, data: None, missing: None };
    Some(ParsedReply { verdict, left_out: LeftOutSizes::default() })
}

/// Parses a reply, and refuses one that exceeds the limits.
pub(crate) fn parse_reply(bytes: &[u8], limits: &Limits) -> Result<ParsedReply, Tampering> {
    match plain_reply(bytes) {
        Some(answer) => Ok(answer),
        None => parse_any_reply(bytes, limits),
    }
}

fn parse_any_reply(bytes: &[u8], limits: &Limits) -> Result<ParsedReply, Tampering> {
    let malformed = |why: String| Tampering(format!("its reply is malformed: {why}"));
    let ReplyParts { mut header, buffers } =
        wire::split_reply(bytes, header_cap(limits), structure_cap(limits)).map_err(malformed)?;
    // serde's tagged enums hold only numbers of up to 64 bits, so the value is taken out first.
    let mut value = header.remove("value");
    let reply: ReplyHead = serde_json::from_value(Json::Object(header))
        .map_err(|error| malformed(error.to_string()))?;
    if matches!(reply, ReplyHead::Completed { .. }) != value.is_some() {
        return Err(malformed("only completed replies have a value, and all of them".to_owned()));
    }
    value.as_mut().map_or(Ok(()), number::normalise).map_err(malformed)?;
    let (forms, is_described) = match &reply {
        ReplyHead::Completed { bundle, data, .. } => (bundle.len(), data.is_some()),
        ReplyHead::Raised(_) | ReplyHead::Exited { .. } => (0, false),
    };
    // The buffers of the forms come first.
    let (form_buffers, data_buffers) = buffers
        .split_at_checked(forms)
        .filter(|(_, others)| others.is_empty() || is_described)
        .ok_or_else(|| malformed(format!("{} buffers don't match its header", buffers.len())))?;
    let cap = limits.result_bytes.saturating_add(CUT_BYTES);
    let is_within = match &reply {
        ReplyHead::Completed { repr, missing, .. } => {
            // The size of the whole reply bounds the value, so only a long reply is measured.
            let is_short = bytes.len() <= limits.result_bytes;
            let text = || serde_json::to_vec(&value).map_or(usize::MAX, |text| text.len());
            (is_short || text() <= cap)
                && [repr, missing].into_iter().flatten().all(|text| text.len() <= cap)
                && form_buffers.iter().map(|buffer| buffer.len()).sum::<usize>() <= cap
        }
        ReplyHead::Raised(exception) => exception.is_within(cap),
        ReplyHead::Exited { message, .. } => message.as_ref().is_none_or(|text| text.len() <= cap),
    };
    if !is_within {
        return Err(Tampering("its reply is larger than its limit".to_owned()));
    }
    let mut left_out = LeftOutSizes::default();
    let verdict = match reply {
        ReplyHead::Completed {
            has_value,
            repr,
            bundle,
            data,
            missing,
            data_left_out,
            result_left_out,
        } => {
            left_out = LeftOutSizes { result: result_left_out, data: data_left_out };
            let room = limits.result_data_bytes;
            let bundle = wire::bundle_of(bundle, form_buffers).map_err(malformed)?;
            let data = data.map(|data| value::reply::parsed(data, data_buffers, room)).transpose();
            let data = data.map_err(malformed)?;
            Verdict::Completed { value: value.filter(|_| has_value), repr, bundle, data, missing }
        }
        ReplyHead::Raised(exception) => Verdict::Raised(exception),
        ReplyHead::Exited { code, message } => Verdict::Exited { code, message },
    };
    Ok(ParsedReply { verdict, left_out })
}

#[cfg(test)]
mod tests;
