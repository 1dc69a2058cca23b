//! `hatchery run`: one program in a fresh interpreter.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;

use anyhow::Context;
use hatchery::{Hatchery, Job, Outcome, Stream, Ticket, Verdict};

use crate::args::RunArguments;
use crate::exit::{Exit, UsageError};
use crate::{inputs, progress, signals};

pub(crate) async fn run(arguments: RunArguments) -> anyhow::Result<Exit> {
    let job = job(&arguments)?;
    let hatchery = Hatchery::builder().workers(1).progress(progress::sink()).start().await?;
    let mut interrupts = signals::interrupts()?;
    let mut ticket = hatchery.submit(job).await?;
    let outcome = follow(&mut ticket, !arguments.json, &mut interrupts).await?;
    if arguments.json {
        println!("{}", outcome.to_tool_json());
    } else {
        report(&outcome);
    }
    keep_files(&outcome, &arguments)?;
    hatchery.abort().await;
    Ok(Exit::of_outcome(&outcome))
}

/// Waits for the outcome, passing output on as it comes. The first Ctrl-C cancels.
async fn follow(
    ticket: &mut Ticket,
    passes_on: bool,
    interrupts: &mut tokio::sync::watch::Receiver<bool>,
) -> anyhow::Result<Outcome> {
    let mut is_cancelled = false;
    loop {
        tokio::select! {
            _ = signals::interrupted(interrupts), if !is_cancelled => {
                ticket.cancel();
                is_cancelled = true;
            }
            chunk = ticket.next_output() => {
                let Some(chunk) = chunk else { break };
                if passes_on {
                    pass_on(chunk.stream, &chunk.bytes)?;
                }
            }
        }
    }
    Ok(ticket.outcome().await)
}

fn pass_on(stream: Stream, bytes: &[u8]) -> anyhow::Result<()> {
    let written = match stream {
        Stream::Stdout => {
            let mut stdout = std::io::stdout().lock();
            stdout.write_all(bytes).and_then(|()| stdout.flush())
        }
        Stream::Stderr => std::io::stderr().lock().write_all(bytes),
    };
    written.context("can't pass the program's output on")
}

/// Says on standard error what the program's own output doesn't.
fn report(outcome: &Outcome) {
    match &outcome.verdict {
        Verdict::Completed { .. } | Verdict::Exited { .. } => {}
        Verdict::Raised(exception) => eprint!("{}", exception.traceback),
        Verdict::Limit(hit) => eprintln!("hatchery: stopped, {hit}"),
        Verdict::Cancelled => eprintln!("hatchery: interrupted"),
        Verdict::SandboxFailed(failure) => eprintln!("hatchery: the sandbox failed: {failure}"),
        _ => eprintln!("hatchery: ended as {}", outcome.verdict.name()),
    }
    if outcome.output_truncated {
        eprintln!(
            "hatchery: of {} bytes of output, the rest was dropped",
            outcome.usage.output_bytes
        );
    }
}

/// Writes the files that the program made, or says that there are some.
fn keep_files(outcome: &Outcome, arguments: &RunArguments) -> anyhow::Result<()> {
    let Some(folder) = &arguments.output_dir else {
        if !outcome.files.is_empty() && !arguments.json {
            let names: Vec<String> = outcome
                .files
                .iter()
                .map(|file| format!("{} ({} bytes)", file.path, file.contents.len()))
                .collect();
            eprintln!(
                "hatchery: the program wrote {}; keep such files with --output-dir DIR",
                names.join(", ")
            );
        }
        return Ok(());
    };
    for file in &outcome.files {
        // `InputFile`'s rule holds for names from the guest too: plain and relative.
        hatchery::check_path(&file.path)?;
        let path = folder.join(&file.path);
        let parent = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(parent)
            .and_then(|()| fs::write(&path, &file.contents))
            .with_context(|| format!("can't write `{}`", path.display()))?;
    }
    Ok(())
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
    Ok(job.args(&arguments.args).timeout(arguments.timeout))
}

fn script(file: &Path, arguments: &RunArguments) -> anyhow::Result<Job> {
    let job = Job::file(file).map_err(|error| UsageError(error.to_string()))?;
    if arguments.no_header_inputs {
        return Ok(job);
    }
    let source = fs::read_to_string(file).map_err(|error| UsageError(error.to_string()))?;
    inputs::add_from_header(job, file, &source)
}
