//! `hatchery run`: one program in a fresh interpreter.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;

use anyhow::Context;

use hatchery::{
    ChangeKind, ChangedFile, Deterministic, Hatchery, Job, LimitKind, Outcome, Stream, Ticket,
    Verdict,
};

use tokio::task::JoinHandle;

use crate::args::RunArguments;
use crate::exit::{Exit, UsageError};
use crate::signals::{self, Interrupts};
use crate::{inputs, progress, terminal};

pub(crate) async fn run(arguments: RunArguments) -> anyhow::Result<Exit> {
    let job = job(&arguments)?;
    if let Some(folder) = &arguments.output_dir {
        // Before the program runs, since its files would be lost otherwise.
        fs::create_dir_all(folder)
            .map_err(|error| UsageError(format!("can't make `{}`: {error}", folder.display())))?;
    }
    let hatchery = Hatchery::builder().workers(1).progress(progress::sink()).start().await?;
    // The first asks the program to end, the second ends it, the third ends this process.
    let mut interrupts = signals::interrupts(3)?;
    let mut ticket = hatchery.submit(job).await?;
    let (outcome, interrupts) = follow(&mut ticket, !arguments.json, &mut interrupts).await?;
    if arguments.json {
        terminal::print(outcome.to_tool_json())?;
    } else {
        report(&outcome);
    }
    let are_kept = keep_files(&outcome, &arguments);
    // Not aborted: that would wait for the interpreter that is being started for a next job, and
    // the process ends here.
    match Exit::of_outcome(&outcome) {
        Exit::Success | Exit::Program(0) if !are_kept => Ok(Exit::Failed),
        // The program heard Ctrl-C and ended of it.
        Exit::Failed if interrupts > 0 => Ok(Exit::Interrupted),
        exit => Ok(exit),
    }
}

/// Waits for the outcome, passing output on as it comes, and says how often Ctrl-C came. The first
/// one interrupts the program, the second one stops it.
async fn follow(
    ticket: &mut Ticket,
    passes_on: bool,
    interrupts: &mut Interrupts,
) -> anyhow::Result<(Outcome, u32)> {
    let mut heard = 0;
    // On a thread of its own, since a reader may stop reading, and Ctrl-C is heard all the same.
    let mut writing: Option<JoinHandle<std::io::Result<()>>> = None;
    loop {
        tokio::select! {
            count = interrupts.more_than(heard) => {
                heard = count;
                match heard {
                    1 => ticket.interrupt(),
                    _ => ticket.stop(),
                }
            }
            written = async { writing.as_mut().expect("there is a write").await },
                if writing.is_some() =>
            {
                writing = None;
                written.context("a write died")??;
            }
            chunk = ticket.next_output(), if writing.is_none() => {
                let Some(chunk) = chunk else { break };
                if passes_on {
                    let write = move || pass_on(chunk.stream, &chunk.bytes);
                    writing = Some(tokio::task::spawn_blocking(write));
                }
            }
        }
    }
    Ok((ticket.outcome().await, heard))
}

fn pass_on(stream: Stream, bytes: &[u8]) -> std::io::Result<()> {
    match stream {
        Stream::Stdout => {
            let mut stdout = std::io::stdout().lock();
            stdout.write_all(bytes).and_then(|()| stdout.flush())
        }
        Stream::Stderr => std::io::stderr().lock().write_all(bytes),
    }
}

/// Says on standard error what the program's own output doesn't.
fn report(outcome: &Outcome) {
    match &outcome.verdict {
        Verdict::Completed { .. } => {}
        // A message of `sys.exit` is among the program's own output already.
        Verdict::Exited { code: Outcome::ABORTED | Outcome::CRASHED, message: Some(message) } => {
            terminal::note(message);
        }
        Verdict::Exited { .. } => {}
        Verdict::Raised(exception) => {
            let _ = std::io::stderr().lock().write_all(exception.traceback.as_bytes());
        }
        Verdict::Limit(hit) => {
            report_place(outcome);
            terminal::note(format_args!("stopped, {hit}"));
        }
        Verdict::Cancelled => {
            report_place(outcome);
            terminal::note("interrupted");
        }
        Verdict::SandboxFailed(failure) => {
            terminal::note(format_args!("the sandbox failed: {failure}"));
        }
        verdict => terminal::note(format_args!("ended as {}", verdict.name())),
    }
    for hit in outcome.limits_met.iter().filter(|hit| hit.limit != LimitKind::Output) {
        let (name, unit) = (hit.limit.name(), hit.limit.unit());
        let (allowed, used) = (hit.allowed, hit.used);
        terminal::note(format_args!(
            "the program was refused {used}{unit}: the {name} limit is {allowed}{unit}"
        ));
    }
    if outcome.output_truncated {
        let kept = outcome.stdout.len() + outcome.stderr.len();
        let written = outcome.usage.output_bytes;
        terminal::note(format_args!("of {written} bytes of output, all but {kept} were dropped"));
    }
}

/// Says where the program was when it was made to end.
fn report_place(outcome: &Outcome) {
    if let Some(exception) = &outcome.interrupted_at {
        let _ = std::io::stderr().lock().write_all(exception.traceback.as_bytes());
    }
}

/// Writes the files that the program made, or says that there are some. Returns whether each one
/// was written that should have been.
fn keep_files(outcome: &Outcome, arguments: &RunArguments) -> bool {
    let Some(folder) = &arguments.output_dir else {
        if !outcome.files.is_empty() && !arguments.json {
            let written = outcome.files.iter().filter(|file| file.kind != ChangeKind::Deleted);
            let names: Vec<String> = written
                .map(|file| format!("{} ({} bytes)", file.path, file.contents.len()))
                .collect();
            if !names.is_empty() {
                let names = names.join(", ");
                terminal::note(format_args!(
                    "the program wrote {names}; keep such files with --output-dir DIR"
                ));
            }
        }
        return true;
    };
    let mut are_kept = true;
    for file in outcome.files.iter().filter(|file| file.kind != ChangeKind::Deleted) {
        if let Err(error) = keep_file(folder, file) {
            terminal::note(format_args!("can't keep `{}`: {error:#}", file.path));
            are_kept = false;
        }
    }
    are_kept
}

fn keep_file(folder: &Path, file: &ChangedFile) -> anyhow::Result<()> {
    // The rule for input files holds for names from the guest too: plain and relative.
    hatchery::check_path(&file.path)?;
    let path = folder.join(&file.path);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    Ok(fs::write(&path, &file.contents)?)
}

fn job(arguments: &RunArguments) -> anyhow::Result<Job> {
    let job = match (&arguments.code, &arguments.file) {
        (Some(code), _) => Job::code(code),
        (None, Some(file)) if file == Path::new("-") => {
            let mut source = String::new();
            std::io::stdin()
                .read_to_string(&mut source)
                .map_err(|error| UsageError(format!("can't read the program: {error}")))?;
            Job::code(source).named("-")
        }
        (None, Some(file)) => script(file, arguments)?,
        (None, None) => unreachable!("clap wants one of the two"),
    };
    let job = inputs::add_named(job, &arguments.input)?;
    let job = arguments.env.iter().fold(job, |job, (name, value)| job.env(name, value));
    let job = inputs::add_mounts(job, &arguments.mount)?;
    let job = if arguments.read_only { job.read_only() } else { job };
    let job = if arguments.keep_files { job.keep_files() } else { job };
    let job = match arguments.deterministic {
        Some(seed) => {
            let start = arguments.start.map(|seconds| seconds.saturating_mul(1_000_000_000));
            let start = start.unwrap_or(Deterministic::DEFAULT_START);
            job.deterministic(Deterministic { seed, start })
        }
        None => job,
    };
    let job = match &arguments.stdin {
        Some(file) => job.stdin(inputs::read(file)?),
        None => job,
    };
    Ok(job.args(&arguments.args).limits(arguments.limits.limits()))
}

fn script(file: &Path, arguments: &RunArguments) -> anyhow::Result<Job> {
    let job = Job::file(file).map_err(|error| UsageError(error.to_string()))?;
    if arguments.no_header_inputs {
        return Ok(job);
    }
    inputs::add_from_header(job, file)
}
