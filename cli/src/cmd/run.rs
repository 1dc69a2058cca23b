//! `hatchery run`: one program in a fresh interpreter.

use std::io::Read;
use std::path::Path;

use anyhow::Context;
use hatchery::error::chain;
use hatchery::files::{ChangedFile, OutputFolder, display_files};
use hatchery::wire::to_line;
use hatchery::{Hatchery, Job, Outcome, Verdict};

use crate::args::RunArguments;
use crate::exit::{Exit, UsageError};
use crate::follow::{Followed, follow, report};
use crate::output::{self, list};
use crate::pool::start_pool;
use crate::{displays, inputs, progress, signals, terminal};

pub(crate) async fn run(arguments: RunArguments) -> anyhow::Result<Exit> {
    terminal::set_raw(arguments.raw_output);
    let job = job(&arguments)?;
    let dependencies = inputs::header_dependencies(job.source());
    let seems_to_read = ["input", "stdin"].iter().any(|name| job.source().contains(name));
    let ignores_input = arguments.stdin.is_none() && seems_to_read;
    // Opened before the program runs: a failure afterwards would lose its files.
    let output = arguments.output_dir.as_deref().map(output::open).transpose()?;
    let shown = arguments.save_displays.as_deref().map(output::open).transpose()?;
    let builder = Hatchery::builder().workers(1).starts_early(true).progress(progress::sink());
    let hatchery = start_pool(arguments.programs.image.apply(builder)?).await?;
    inputs::mention_missing(dependencies, &hatchery).await;
    // The first asks the program to end, the second stops it, the third ends this process.
    let mut counter = signals::interrupts(3)?;
    let mut ticket = hatchery.submit(job).await?;
    let followed = follow(&mut ticket, !arguments.json, &mut counter, &mut ()).await?;
    let Followed { outcome, interrupts, drawn } = followed;
    if arguments.json {
        let result = match arguments.file_contents {
            true => outcome.to_tool_json_with_files(),
            false => outcome.to_tool_json(),
        };
        terminal::print(to_line(&result))?;
    } else {
        // As Python's prompt shows it: nothing for `None`.
        if let (Some(_), Verdict::Completed { repr: Some(repr), .. }) =
            (&arguments.call, &outcome.verdict)
        {
            terminal::print(repr)?;
        }
        report(&outcome);
        if let Some(script) = &arguments.file {
            inputs::mention_missed_file(&outcome, script);
        }
    }
    if ignores_input {
        inputs::mention_unread();
    }
    let are_shown = match shown {
        Some(folder) => keep(&display_files(&outcome), &folder),
        None => {
            if !arguments.json {
                displays::mention(&outcome, drawn);
            }
            true
        }
    };
    let are_kept = keep_files(&outcome, output.as_ref(), &arguments) && are_shown;
    if hatchery.started_early() {
        terminal::note("compiling the rest of Python; Ctrl-C leaves it to the next start");
        tokio::select! {
            finished = hatchery.finish_compiling() => {
                // The program's end is what the exit code tells.
                if let Err(error) = finished {
                    terminal::note(chain(&error));
                }
            }
            _ = counter.more_than(interrupts) => {}
        }
    }
    // No abort: that would wait for the replacement interpreter to start, and the process ends here
    // anyway.
    Ok(Exit::of_job(&outcome, interrupts, are_kept))
}

/// Writes the files that the program created, or notes that there are some. Returns whether every
/// file that should be written was.
fn keep_files(outcome: &Outcome, output: Option<&OutputFolder>, arguments: &RunArguments) -> bool {
    let Some(folder) = output else {
        if let Some(files) = list(&outcome.files).filter(|_| !arguments.json) {
            terminal::note(format_args!(
                "the program wrote {files}; keep such files with --output-dir DIR"
            ));
        }
        return true;
    };
    let keeping = "; `--keep-files` keeps what a failed program wrote";
    output::mention_left_out(outcome.left_out_files, keeping);
    keep(&outcome.files, folder)
}

/// Writes files into a folder. Returns whether all were written.
fn keep(files: &[ChangedFile], folder: &OutputFolder) -> bool {
    let problems = folder.keep(files);
    problems.iter().for_each(terminal::error);
    problems.is_empty()
}

fn job(arguments: &RunArguments) -> anyhow::Result<Job> {
    let job = match (&arguments.code, &arguments.file) {
        (Some(code), _) => Job::code(code),
        (None, Some(file)) if file == Path::new("-") => {
            if arguments.stdin.as_deref() == Some(file) {
                let text =
                    "the program and `--stdin -` both read standard input; put one in a file";
                return Err(UsageError(text.to_owned()).into());
            }
            Job::code(source_from_stdin()?).named("-")
        }
        (None, Some(file)) => script(file, arguments)?,
        (None, None) => match &arguments.call {
            Some(target) => Job::call(target, arguments.arg.clone()),
            None => {
                let text = "give a program: FILE, `-` for standard input, or -c CODE";
                return Err(UsageError(text.to_owned()).into());
            }
        },
    };
    let variables = arguments.var.iter();
    let job = variables.fold(job, |job, (name, value)| job.variable(name, value.clone()));
    let job = match &arguments.workdir {
        Some(path) => job.workdir(path)?,
        None => job,
    };
    let job = arguments.env.iter().fold(job, |job, (name, value)| job.env(name, value));
    let job = inputs::add_all(job, &arguments.host)?;
    let job = match (arguments.beside, &arguments.file) {
        (false, _) => job,
        (true, Some(file)) if file != Path::new("-") => inputs::add_beside(job, file)?,
        (true, _) => job.beside(".")?,
    };
    let job = arguments.conduct.apply(job);
    let job = match &arguments.stdin {
        Some(file) => job.stdin(inputs::read(file)?),
        None => job,
    };
    Ok(job.args(&arguments.args).limits(arguments.programs.limits()))
}

fn source_from_stdin() -> anyhow::Result<String> {
    let unreadable = || UsageError("can't read the program from standard input".to_owned());
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes).with_context(unreadable)?;
    hatchery::source::decode(&bytes).with_context(unreadable)
}

fn script(file: &Path, arguments: &RunArguments) -> anyhow::Result<Job> {
    let job = Job::file(file)?;
    let job = if arguments.alone { job.alone() } else { job };
    if arguments.no_header_inputs {
        return Ok(job);
    }
    inputs::add_from_header(job, file)
}
