//! `hatchery tool`: runs a program as an agent's tool, with JSON in and out.

use std::io::Read;

use anyhow::Context;
use hatchery::wire::{Problem, ProblemKind, to_line};
use hatchery::{Interface, Job};
use serde_json::Value;

use super::repl::workspace::SessionFile;
use crate::args::ToolRunArguments;
use crate::exit::{Exit, UsageError};
use crate::follow::{Followed, follow};
use crate::pool::start_pool;
use crate::{inputs, output, signals, terminal};

/// The name of the session of `--session`.
const SESSION: &str = "tool";

/// Prints the schema of calls, of results or of jobs.
pub(crate) fn schema(is_result: bool, is_job: bool) -> anyhow::Result<Exit> {
    let schema = match (is_result, is_job) {
        (true, _) => hatchery::tool::result_schema(),
        (false, true) => hatchery::wire::job_schema(),
        (false, false) => hatchery::tool::schema(),
    };
    terminal::print(format_args!("{schema:#}"))?;
    Ok(Exit::Success)
}

/// Runs the call on standard input. Always prints a result, since an agent reads nothing else.
pub(crate) async fn run(arguments: ToolRunArguments) -> anyhow::Result<Exit> {
    match run_call(&arguments).await {
        Ok((result, exit)) => {
            terminal::print(to_line(&result))?;
            Ok(exit)
        }
        Err(error) => {
            let result = hatchery::tool::refusal(&problem(&error));
            terminal::print(to_line(&result))?;
            Err(error)
        }
    }
}

fn problem(error: &anyhow::Error) -> Problem {
    let cause = error.downcast_ref::<hatchery::Error>();
    let kind = match (Exit::of_error(error), cause.map(hatchery::Error::kind)) {
        (Exit::Usage, _) => ProblemKind::Usage,
        (_, Some(ProblemKind::Refused)) => ProblemKind::Refused,
        _ => ProblemKind::Sandbox,
    };
    let retry_after = cause.and_then(hatchery::Error::retry_after);
    Problem::new(kind, format!("{error:#}")).with_retry_after(retry_after)
}

async fn run_call(arguments: &ToolRunArguments) -> anyhow::Result<(Value, Exit)> {
    let mut call = String::new();
    std::io::stdin()
        .read_to_string(&mut call)
        .with_context(|| UsageError("can't read the call".to_owned()))?;
    let call = serde_json::from_str(&call)
        .with_context(|| UsageError("the call is not valid JSON".to_owned()))?;
    let job = Job::from_tool_call(&call)?;
    let job = job.with_files_of(&inputs::add_all(Job::default(), &arguments.host)?);
    // Opened before the program runs: a failure afterwards would lose its files.
    let output = arguments.output_dir.as_deref().map(output::open).transpose()?;
    let mut kept = arguments.session.as_deref().map(SessionFile::open).transpose()?;
    let builder = arguments.programs.image.apply(arguments.programs.builder().workers(1))?;
    let hatchery = start_pool(builder.interface(Interface::Batch)).await?;
    // The session that earlier calls left in the file, or a fresh one.
    let session = match kept.as_ref().map(SessionFile::existing) {
        Some(Some(file)) => Some(hatchery.revive(SESSION, file).await?),
        Some(None) => Some(hatchery.session(SESSION).await?),
        None => None,
    };
    let mut interrupts = signals::interrupts(3)?;
    let mut ticket = match &session {
        Some(session) => session.submit(job).await?,
        None => hatchery.submit(job).await?,
    };
    let followed = follow(&mut ticket, false, &mut interrupts, &mut ()).await?;
    let Followed { outcome, interrupts, .. } = followed;
    // Written before the result is printed, so that everything exists when it is read.
    if output.is_some() {
        output::mention_left_out(outcome.left_out_files, "");
    }
    let problems = output.map_or_else(Vec::new, |folder| folder.keep(&outcome.files));
    problems.iter().for_each(terminal::error);
    let mut are_kept = problems.is_empty();
    if let (Some(kept), Some(session)) = (&mut kept, &session)
        && let Err(error) = kept.save(session).await
    {
        terminal::error(format_args!("the session is not saved: {error:#}"));
        are_kept = false;
    }
    let result = match arguments.file_contents {
        true => outcome.to_tool_json_with_files(),
        false => outcome.to_tool_json(),
    };
    Ok((result, Exit::of_job(&outcome, interrupts, are_kept)))
}
