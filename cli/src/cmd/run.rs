//! `hatchery run`: one program in a fresh interpreter.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;

use hatchery::{ChangedFile, Hatchery, Job, Outcome, Stream, Ticket, Verdict};

use crate::args::RunArguments;
use crate::exit::{Exit, UsageError};
use crate::{inputs, progress, signals, terminal};

pub(crate) async fn run(arguments: RunArguments) -> anyhow::Result<Exit> {
    let job = job(&arguments)?;
    if let Some(folder) = &arguments.output_dir {
        // Before the program runs, since its files would be lost otherwise.
        fs::create_dir_all(folder)
            .map_err(|error| UsageError(format!("can't make `{}`: {error}", folder.display())))?;
    }
    let hatchery = Hatchery::builder().workers(1).progress(progress::sink()).start().await?;
    let mut interrupts = signals::interrupts()?;
    let mut ticket = hatchery.submit(job).await?;
    let outcome = follow(&mut ticket, !arguments.json, &mut interrupts).await?;
    if arguments.json {
        terminal::print(outcome.to_tool_json())?;
    } else {
        report(&outcome);
    }
    let are_kept = keep_files(&outcome, &arguments);
    // Not aborted: that would wait for the interpreter that is being started for a next job, and
    // the process ends here.
    match Exit::of_outcome(&outcome) {
        Exit::Success if !are_kept => Ok(Exit::Failed),
        exit => Ok(exit),
    }
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
        Verdict::Completed { .. } | Verdict::Exited { .. } => {}
        Verdict::Raised(exception) => {
            let _ = std::io::stderr().lock().write_all(exception.traceback.as_bytes());
        }
        Verdict::Limit(hit) => terminal::note(format_args!("stopped, {hit}")),
        Verdict::Cancelled => terminal::note("interrupted"),
        Verdict::SandboxFailed(failure) => {
            terminal::note(format_args!("the sandbox failed: {failure}"));
        }
        verdict => terminal::note(format_args!("ended as {}", verdict.name())),
    }
    if outcome.output_truncated {
        let kept = outcome.stdout.len() + outcome.stderr.len();
        let written = outcome.usage.output_bytes;
        terminal::note(format_args!("of {written} bytes of output, all but {kept} were dropped"));
    }
}

/// Writes the files that the program made, or says that there are some. Returns whether each one
/// was written that should have been.
fn keep_files(outcome: &Outcome, arguments: &RunArguments) -> bool {
    let Some(folder) = &arguments.output_dir else {
        if !outcome.files.is_empty() && !arguments.json {
            let names: Vec<String> = outcome
                .files
                .iter()
                .map(|file| format!("{} ({} bytes)", file.path, file.contents.len()))
                .collect();
            let names = names.join(", ");
            terminal::note(format_args!(
                "the program wrote {names}; keep such files with --output-dir DIR"
            ));
        }
        return true;
    };
    let mut are_kept = true;
    for file in &outcome.files {
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
    Ok(job.args(&arguments.args).timeout(arguments.timeout))
}

fn script(file: &Path, arguments: &RunArguments) -> anyhow::Result<Job> {
    let job = Job::file(file).map_err(|error| UsageError(error.to_string()))?;
    if arguments.no_header_inputs {
        return Ok(job);
    }
    inputs::add_from_header(job, file)
}
