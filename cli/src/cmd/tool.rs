//! `hatchery tool`: a program as a tool of an agent, JSON in and out.

use std::io::Read;

use hatchery::{Hatchery, Job};

use crate::args::ToolRunArguments;
use crate::exit::{Exit, UsageError};
use crate::follow::follow;
use crate::{progress, signals, terminal};

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
    let builder = Hatchery::builder().workers(1).limits(arguments.limits.limits());
    let hatchery = arguments.image.apply(builder.progress(progress::sink()))?.start().await?;
    let mut interrupts = signals::interrupts(3)?;
    let mut ticket = hatchery.submit(job).await?;
    let (outcome, _) = follow(&mut ticket, false, &mut interrupts).await?;
    terminal::print(outcome.to_tool_json())?;
    Ok(Exit::of_outcome(&outcome))
}
