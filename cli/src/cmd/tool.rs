//! `hatchery tool`: a program as a tool of an agent, JSON in and out.

use std::io::Read;

use hatchery::{Hatchery, Job};

use crate::args::ToolRunArguments;
use crate::exit::{Exit, UsageError};
use crate::follow::follow;
use crate::output::OutputFolder;
use crate::{escapes, inputs, progress, signals, terminal};

/// Prints the schema of calls, or that of results.
pub(crate) fn schema(is_result: bool) -> anyhow::Result<Exit> {
    let schema = match is_result {
        true => hatchery::tool_result_schema(),
        false => hatchery::tool_schema(),
    };
    terminal::print(format_args!("{schema:#}"))?;
    Ok(Exit::Success)
}

/// Runs the call on standard input.
pub(crate) async fn run(arguments: ToolRunArguments) -> anyhow::Result<Exit> {
    let mut call = String::new();
    std::io::stdin()
        .read_to_string(&mut call)
        .map_err(|error| UsageError(format!("can't read the call: {error}")))?;
    let call = serde_json::from_str(&call)
        .map_err(|error| UsageError(format!("the call is no JSON: {error}")))?;
    let job = Job::from_tool_call(&call).map_err(|error| UsageError(error.to_string()))?;
    let job = given(job, &arguments)?;
    // Before the program runs, since its files would be lost otherwise.
    let output = arguments.output_dir.as_deref().map(OutputFolder::open).transpose()?;
    let builder = Hatchery::builder().workers(1).limits(arguments.limits.limits());
    let hatchery = arguments.image.apply(builder.progress(progress::sink()))?.start().await?;
    let mut interrupts = signals::interrupts(3)?;
    let mut ticket = hatchery.submit(job).await?;
    let (outcome, interrupts) = follow(&mut ticket, false, &mut interrupts).await?;
    // Before the result is printed, so that they are there for whoever reads it.
    let problems = output.map_or_else(Vec::new, |folder| folder.keep(&outcome.files));
    problems.iter().for_each(terminal::error);
    let result = match arguments.file_contents {
        true => outcome.to_tool_json_with_files(),
        false => outcome.to_tool_json(),
    };
    terminal::print(escapes::in_json(&result.to_string()))?;
    Ok(Exit::of_followed(&outcome, interrupts, problems.is_empty()))
}

/// The job with the files and folders that the options give it as well.
fn given(job: Job, arguments: &ToolRunArguments) -> anyhow::Result<Job> {
    let shared = inputs::add_named(Job::default(), &arguments.input)?;
    Ok(job.with_files_of(&inputs::add_mounts(shared, &arguments.mount)?))
}
