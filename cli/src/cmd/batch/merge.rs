//! `hatchery batch-merge`: the results of a batch's shards in one file, or what is missing of them.

use std::fs::OpenOptions;
use std::io;

use anyhow::Context;
use batch::{Merge, Missing, Parts, Surplus};
use hatchery::error::counted;
use replace::{Access, is_same, replace, through_links};

use super::{exit_of, open};
use crate::args::MergeArguments;
use crate::exit::{Exit, UsageError};
use crate::terminal;

/// The most shards that are named when their results are missing.
const MOST_NAMED: usize = 10;

/// Merges the results of shards.
pub(crate) async fn merge(arguments: MergeArguments) -> anyhow::Result<Exit> {
    if let Some(out) = &arguments.out {
        let mut inputs = arguments.parts.iter().chain([&arguments.jobs]);
        if let Some(input) = inputs.find(|input| is_same(out, input)) {
            let text = format!("`{}` is merged; write the results elsewhere", input.display());
            return Err(UsageError(text).into());
        }
    }
    let parts = Parts::read(&arguments.parts)?;
    for path in parts.cut_off() {
        terminal::note(format_args!("`{}` ends in an incomplete result", path.display()));
    }
    let merge = Merge::of(open(&arguments.jobs).await?, parts).await?;
    refuse_surplus(&merge, &arguments)?;
    report_missing(&merge, &arguments);
    let is_missing = !merge.missing.is_empty();
    if is_missing && !arguments.partial {
        return Ok(Exit::Missing);
    }
    write(&merge, &arguments)?;
    if merge.reruns > 0 {
        terminal::note(format_args!(
            "{} of the results aren't final: --resume makes them again in their shards",
            merge.reruns
        ));
    }
    let exit = exit_of(&merge.tally);
    Ok(if is_missing { Exit::Missing } else { exit })
}

/// Fails if results are left that belong to no line, unless they are to be left out.
fn refuse_surplus(merge: &Merge, arguments: &MergeArguments) -> anyhow::Result<()> {
    if let Some(Surplus { count, first, .. }) = &merge.twins {
        return Err(UsageError(format!(
            "{} too many, the first of them {first}, for lines that have one already: give each \
             part once, and one part for each shard",
            counted(*count, "result")
        ))
        .into());
    }
    match &merge.others {
        None => Ok(()),
        Some(Surplus { count, .. }) if arguments.drop_others => {
            terminal::note(format_args!(
                "left out {} of no line of this batch",
                counted(*count, "result")
            ));
            Ok(())
        }
        Some(Surplus { count, first, .. }) => Err(UsageError(format!(
            "{} of no line of `{}`, the first of them {first}: the part is from another batch, or \
             the line or its program has changed; --drop-others drops such results",
            counted(*count, "result"),
            arguments.jobs.display()
        ))
        .into()),
    }
}

/// Says which lines have no result, and how to get them.
fn report_missing(merge: &Merge, arguments: &MergeArguments) {
    let all = &merge.missing;
    for Missing { shard, count, first, .. } in all.iter().take(MOST_NAMED) {
        let name = match shard {
            Some(shard) => format!("shard {shard}"),
            None => "the batch".to_owned(),
        };
        let what = counted(count, "result");
        let mut lines: Vec<String> = first.iter().map(usize::to_string).collect();
        if *count > first.len() {
            lines.push("…".to_owned());
        }
        let word = if *count == 1 { "line" } else { "lines" };
        let lines = lines.join(", ");
        let part = shard.and_then(|shard| merge.part_of(shard));
        let advice = match (shard, part) {
            (Some(shard), Some(part)) => format!(
                ": hatchery batch {} --shard {shard} --out {} --resume",
                arguments.jobs.display(),
                part.display()
            ),
            _ => "; no part has results of it".to_owned(),
        };
        terminal::error(format_args!("{name} lacks {what}, {word} {lines}{advice}"));
    }
    if all.len() > MOST_NAMED {
        let (shards, more) = (all.len(), all.len() - MOST_NAMED);
        terminal::error(format_args!("{shards} shards lack results, {more} more than these"));
    }
}

/// Writes the results where the options say.
fn write(merge: &Merge, arguments: &MergeArguments) -> anyhow::Result<()> {
    let Some(out) = &arguments.out else {
        return Ok(merge.write(&mut io::stdout().lock()).map_err(terminal::unwritten)?);
    };
    let unwritable = || UsageError(format!("can't write `{}`", out.display()));
    // Such as a pipe or a device, which can't be replaced.
    if out.metadata().is_ok_and(|found| !found.is_file()) {
        let file = OpenOptions::new().write(true).open(out);
        return merge.write(&mut file.with_context(unwritable)?).context("can't write results");
    }
    let replaced = replace(&through_links(out), Access::AsBefore, |file| merge.write(file));
    replaced.with_context(unwritable)
}
