//! `hatchery replay`: shows recordings, runs them again, and continues from any of their turns.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use grade::{Grader, Settings, VerdictRecord};
use hatchery::error::counted;
use hatchery::record::{DifferentPart, RecordedTurn, RecordingFile, Verified};
use hatchery::{Builder, Hatchery, Interface, Job, Session, Verdict};
use serde_json::Value;

use crate::args::{HostFiles, HostFolders, ReplArguments, ReplayArguments};
use crate::cmd::{grade as grading, repl};
use crate::exit::{Exit, UsageError};
use crate::follow::{Followed, follow, report};
use crate::pool::start_pool;
use crate::{progress, signals, terminal};

/// The most lines of a program, and the most characters of a line and of a part that differs, that are
/// shown.
const MOST_LINES: usize = 20;
const LONGEST_LINE: usize = 200;
const MOST_CHARACTERS: usize = 2_000;

/// The most CPU time of a sample that is graded again.
const LONGEST_SAMPLE: Duration = Duration::from_secs(60 * 60);

/// Name of the session in which a program is run.
const SESSION: &str = "replay";

/// Returns the names in the main module with their representations, shortened.
const VARIABLES: &str = "\
def _hatchery_shown(value):
    try:
        text = repr(value)
    except Exception as error:
        text = f'<{type(error).__name__} in repr>'
    return text if len(text) <= 300 else text[:300] + f'... ({len(text)} characters)'
{name: _hatchery_shown(value) for name, value in list(globals().items())
 if not name.startswith('_') and type(value).__name__ not in ('module', 'function', 'type')}";

pub(crate) async fn run(arguments: ReplayArguments) -> anyhow::Result<Exit> {
    let mut recordings = Vec::new();
    let files = arguments.files.clone();
    for path in &files {
        let recording = RecordingFile::open(path).await;
        recordings.push((path.as_path(), recording?));
    }
    for (path, recording) in &recordings {
        if let Some(cut) = recording.cut() {
            let turns = counted(recording.turns().len(), "whole turn");
            terminal::error(format_args!("`{}` ends after {turns}: {cut}", path.display()));
        }
    }
    match (arguments.turn, recordings.as_slice()) {
        _ if arguments.verify => verify(&arguments, &recordings).await,
        _ if arguments.diff => match recordings.as_slice() {
            [(_, first), (_, second)] => diff(&arguments, first, second).await,
            _ => Err(UsageError("give `--diff` two recordings".to_owned()).into()),
        },
        (Some(turn), [(_, recording)]) => continue_at(arguments, recording, turn).await,
        (Some(_), _) => Err(UsageError("give `--turn` one recording".to_owned()).into()),
        (None, _) => {
            recordings.iter().try_for_each(|(path, recording)| list(path, recording))?;
            Ok(Exit::Success)
        }
    }
}

fn list(path: &Path, recording: &RecordingFile) -> anyhow::Result<()> {
    let header = recording.header();
    let text = |name: &str| header.get(name).and_then(Value::as_str).unwrap_or("?");
    let session = match header.get("session").and_then(Value::as_str) {
        Some(name) => format!("session `{name}`"),
        None => text("kind").to_owned(),
    };
    let key = header.get("image").and_then(|image| image["key"].as_str()).unwrap_or("?");
    terminal::print(format_args!(
        "{}: {session}, {}, Hatchery {}, image {key}, {}",
        path.display(),
        counted(recording.turns().len(), "turn"),
        text("hatchery"),
        text("machine"),
    ))?;
    if let Some(sample) = recording.sample() {
        terminal::print(serde_json::to_string(&sample.get("verdict"))?)?;
    }
    recording.turns().iter().try_for_each(show)
}

fn show(turn: &RecordedTurn) -> anyhow::Result<()> {
    let outcome = turn.outcome();
    let field = |name: &str| outcome.get(name).and_then(Value::as_str);
    let name = turn.name().map(|name| format!(" {name}")).unwrap_or_default();
    let taken = turn.taken().map(|reason| format!(" (can't be repeated: {reason})"));
    terminal::print(format_args!("[{}]{name}{}", turn.number(), taken.unwrap_or_default()))?;
    for (place, line) in turn.code().lines().take(MOST_LINES).enumerate() {
        let mut shown: String = line.chars().take(LONGEST_LINE).collect();
        if shown.len() < line.len() {
            shown.push_str("...");
        }
        terminal::print(format_args!("{} {shown}", if place == 0 { ">>>" } else { "..." }))?;
    }
    match turn.code().lines().count().saturating_sub(MOST_LINES) {
        0 => {}
        more => terminal::print(format_args!("... and {}", counted(more, "line")))?,
    }
    for is_error in [false, true] {
        let output = String::from_utf8_lossy(&turn.output(is_error)?).into_owned();
        if !output.is_empty() {
            terminal::print(output.trim_end_matches('\n'))?;
        }
    }
    let displays = outcome.get("displays").and_then(Value::as_array);
    for display in displays.into_iter().flatten().filter_map(Value::as_object) {
        let forms: Vec<&str> = display.keys().map(String::as_str).collect();
        terminal::print(format_args!("[display: {}]", forms.join(", ")))?;
    }
    for text in [field("repr"), field("interrupted_at"), field("exception")].into_iter().flatten() {
        terminal::print(text.trim_end_matches('\n'))?;
    }
    if let Some(message) = outcome.get("error").and_then(|error| error["message"].as_str())
        && field("exception").is_none()
    {
        terminal::print(message)?;
    }
    Ok(())
}

/// Begins a pool with the image of a recording, unless the options name one.
fn builder(arguments: &ReplayArguments, recording: &RecordingFile) -> anyhow::Result<Builder> {
    let builder = arguments.workers.set(arguments.programs.builder());
    let image = &arguments.programs.image;
    let builder = image.apply_to_all(builder)?.interface(Interface::Prompt);
    Ok(if image.is_plain() { builder.preload(recording.preload()) } else { builder })
}

async fn verify(
    arguments: &ReplayArguments,
    recordings: &[(&Path, RecordingFile)],
) -> anyhow::Result<Exit> {
    let mut exit = Exit::Success;
    let mut pool: Option<(Vec<String>, Hatchery)> = None;
    for (path, recording) in recordings {
        let is_equal = if let Some(sample) = recording.sample() {
            verify_verdict(arguments, sample).await?
        } else {
            let preload = recording.preload();
            if pool.as_ref().is_none_or(|(present, _)| *present != preload) {
                pool = Some((preload, start_pool(builder(arguments, recording)?).await?));
            }
            let (_, pool) = pool.as_ref().expect("it was just started");
            let (mut equal, mut taken, mut differs) = (0, 0, 0);
            let verified = recording.verify(pool, |turn, verified| match verified {
                Verified::Equal => equal += 1,
                Verified::Taken(reason) => {
                    taken += 1;
                    let number = turn.number();
                    let text = format!("turn {number} is taken from the recording: {reason}");
                    // A reader that is gone shows at the end.
                    let _ = terminal::print(text);
                }
                Verified::Differs(parts) => {
                    differs += 1;
                    let _ = terminal::print(format_args!("turn {} differs", turn.number()));
                    parts.iter().for_each(show_part);
                }
                _ => {}
            });
            let verified = verified.await?;
            terminal::print(format_args!(
                "{}: {equal} equal, {taken} taken from the recording, {differs} differ",
                path.display()
            ))?;
            if !verified {
                mention_machine(recording);
            }
            verified
        };
        if !is_equal || recording.cut().is_some() {
            exit = Exit::Failed;
        }
    }
    Ok(exit)
}

/// Says what of the machine may be why something differs.
fn mention_machine(recording: &RecordingFile) {
    let there = |name: &str| recording.header().get(name).and_then(Value::as_str).unwrap_or("?");
    let here = hatchery::python::module_target();
    if there("machine") != here {
        terminal::note(format_args!("it was recorded on {}, and this is {here}", there("machine")));
    }
    let version = env!("CARGO_PKG_VERSION");
    if there("hatchery") != version {
        let there = there("hatchery");
        terminal::note(format_args!("it was recorded by Hatchery {there}, and this is {version}"));
    }
}

async fn verify_verdict(
    arguments: &ReplayArguments,
    sample: &serde_json::Map<String, Value>,
) -> anyhow::Result<bool> {
    let record = VerdictRecord::of(sample).map_err(|error| UsageError(error.to_string()))?;
    let builder = Hatchery::builder().preload(grading::preload()).progress(progress::sink());
    let builder = arguments.programs.image.apply(builder)?.interface(Interface::Grade);
    // They are the file's.
    let cpu_time = record.settings.cpu_time.min(LONGEST_SAMPLE);
    let settings = Settings { at_once: 1, cpu_time, ..record.settings.clone() };
    let grader = Grader::start(builder, settings).await?;
    let graded = grader.grade(&record.task, &record.sample).await?;
    grader.pool().drain().await;
    let (verdict, differences) = (record.verdict.verdict.name(), record.differences(&graded));
    let id = &record.verdict.task_id;
    if differences.is_empty() {
        terminal::print(format_args!("`{id}`: {verdict} again"))?;
    }
    for (name, there, here) in &differences {
        terminal::print(format_args!("`{id}`: {name} was {there}, and is {here}"))?;
    }
    if record.is_by_clock() {
        terminal::print(format_args!(
            "`{id}`: a limit on time decided, which depends on the machine: its verdict is taken from the \
             recording"
        ))?;
    }
    Ok(differences.is_empty() || record.is_by_clock())
}

fn show_part(part: &DifferentPart) {
    let shown = |bytes: &Option<Vec<u8>>| match bytes {
        None => "nothing".to_owned(),
        Some(bytes) => {
            let text = String::from_utf8_lossy(bytes);
            let mut shown: String = text.chars().take(MOST_CHARACTERS).collect();
            if shown.len() < text.len() {
                shown.push_str(&format!("... ({} bytes)", bytes.len()));
            }
            shown
        }
    };
    let (name, first, second) = (&part.name, shown(&part.recorded), shown(&part.found));
    let _ = terminal::print(format_args!("  {name}\n- {first}\n+ {second}"));
}

async fn diff(
    arguments: &ReplayArguments,
    first: &RecordingFile,
    second: &RecordingFile,
) -> anyhow::Result<Exit> {
    let Some((turn, parts)) = first.parting(second)? else {
        let turns = counted(first.turns().len(), "turn");
        terminal::print(format_args!("the recordings have the same {turns}"))?;
        return Ok(Exit::Success);
    };
    terminal::print(format_args!("the recordings part in turn {turn}"))?;
    if first.header().get("seed") != second.header().get("seed") {
        terminal::note("their seeds differ, and so do random numbers");
    }
    parts.iter().for_each(show_part);
    if [first, second]
        .iter()
        .all(|recording| recording.is_session() && recording.turns().len() >= turn)
    {
        let mut found = Vec::new();
        for recording in [first, second] {
            let pool = start_pool(builder(arguments, recording)?).await?;
            let read = async {
                let session = recording.session_at(&pool, SESSION, turn).await?;
                variables(&session).await
            };
            match read.await {
                Ok(variables) => found.push(variables),
                Err(error) => terminal::note(format_args!("no variables are compared: {error:#}")),
            }
            pool.drain().await;
        }
        if let [first, second] = found.as_slice() {
            let names: BTreeSet<_> = first.keys().chain(second.keys()).collect();
            for name in names {
                let of = |all: &BTreeMap<String, String>| {
                    all.get(name).map(|text| text.clone().into_bytes())
                };
                let (recorded, now) = (of(first), of(second));
                if recorded != now {
                    show_part(&DifferentPart::new(format!("variable {name}"), recorded, now));
                }
            }
        }
    }
    Ok(Exit::Failed)
}

async fn variables(session: &Session) -> anyhow::Result<BTreeMap<String, String>> {
    let outcome = session.run(Job::code(VARIABLES).named("<variables>")).await?;
    match outcome.verdict {
        Verdict::Completed { value: Some(value), .. } => Ok(serde_json::from_value(value)?),
        verdict => anyhow::bail!("the variables can't be read: it ended as {}", verdict.name()),
    }
}

async fn continue_at(
    arguments: ReplayArguments,
    recording: &RecordingFile,
    turn: usize,
) -> anyhow::Result<Exit> {
    let code = match (&arguments.code, &arguments.program) {
        (Some(code), _) => Some((code.clone(), "<replay>".to_owned())),
        (None, Some(path)) => {
            let unreadable = || UsageError(format!("can't read `{}`", path.display()));
            let source = std::fs::read_to_string(path).with_context(unreadable)?;
            Some((source, path.display().to_string()))
        }
        (None, None) => None,
    };
    let builder = builder(&arguments, recording)?;
    let Some((code, name)) = code else {
        let host = HostFiles { input: Vec::new(), folders: HostFolders { mount: Vec::new() } };
        let prompt = ReplArguments {
            session: None,
            host,
            output_dir: None,
            save_displays: None,
            record: None,
            raw_output: false,
            programs: arguments.programs,
        };
        return repl::converse(prompt, builder, Some((recording, turn))).await;
    };
    let pool = start_pool(builder).await?;
    let session = recording.session_at(&pool, SESSION, turn).await?;
    let mut counter = signals::interrupts(3)?;
    let job = Job::code(code).named(name).limits(arguments.programs.limits());
    let mut ticket = session.submit(job).await?;
    let Followed { outcome, interrupts, .. } =
        follow(&mut ticket, true, &mut counter, &mut ()).await?;
    if let Verdict::Completed { repr: Some(repr), .. } = &outcome.verdict {
        terminal::print(repr)?;
    }
    report(&outcome);
    Ok(Exit::of_job(&outcome, interrupts, true))
}
