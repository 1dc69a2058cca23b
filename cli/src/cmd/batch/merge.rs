//! `hatchery batch-merge`: the results of a batch's shards in one file, or what is missing of them.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};

use anyhow::Context;
use replace::{Access, is_same, replace, through_links};
use serde_json::Value;

use super::line::{self, NoRequest, Shared};
use super::parts::{Left, Parts};
use super::results::Tally;
use super::{open, sum_up};
use crate::args::MergeArguments;
use crate::exit::{Exit, UsageError};
use crate::lines::Lines;
use crate::shard::Shard;
use crate::terminal;

/// The most lines of a shard, and shards, that are named when their results are missing.
const MOST_NAMED: usize = 10;

/// Lines without a result, by shard; `None` if the number of shards isn't known.
type Missing = BTreeMap<Option<Shard>, Lack>;

/// What a shard lacks.
#[derive(Default)]
struct Lack {
    count: usize,
    /// The numbers of the first of these lines.
    first: Vec<usize>,
}

/// Merges the results of shards.
pub(crate) async fn merge(arguments: MergeArguments) -> anyhow::Result<Exit> {
    if let Some(out) = &arguments.out {
        let mut inputs = arguments.parts.iter().chain([&arguments.jobs]);
        if let Some(input) = inputs.find(|input| is_same(out, input)) {
            let text = format!("`{}` is merged; write the results elsewhere", input.display());
            return Err(UsageError(text).into());
        }
    }
    let mut parts = Parts::read(&arguments.parts)?;
    let mut lines = Lines::new(open(&arguments.jobs).await?);
    let mut order = Vec::new();
    let mut missing = Missing::new();
    while let Some(line) = lines.next().await.context("can't read jobs")? {
        let number = lines.number;
        let shards = parts.shards;
        let (found, shard) = match line {
            Ok(line) if line.trim_ascii().is_empty() => continue,
            Ok(line) => {
                (find(&mut parts, &line, number)?, shards.map(|count| Shard::of(&line, count)))
            }
            Err(_) => {
                let shard = shards.map(|count| Shard::of_too_long(number, count));
                (parts.take(&number.into(), None), shard)
            }
        };
        match found {
            Some(found) => order.push(found),
            None => missing.entry(shard).or_default().add(number),
        }
    }
    refuse_left(&parts, &arguments)?;
    report_missing(&missing, &parts, &arguments);
    if !missing.is_empty() && !arguments.partial {
        return Ok(Exit::Missing);
    }
    let mut tally = Tally::default();
    let reruns = order.iter().filter(|found| parts.count(**found, &mut tally)).count();
    write(&parts, &order, &arguments)?;
    if reruns > 0 {
        terminal::note(format_args!(
            "{reruns} of the results aren't final: --resume makes them again in their shards"
        ));
    }
    let exit = sum_up(&tally);
    Ok(if missing.is_empty() { exit } else { Exit::Missing })
}

/// Finds the result of a line: that of its job, or of its refusal or its mistake.
fn find(parts: &mut Parts, line: &[u8], number: usize) -> anyhow::Result<Option<usize>> {
    let (id, digest) = match line::parse(line, number, false, &Shared::default()) {
        Ok(Some(request)) => (request.id, Some(request.digest)),
        Ok(None) => (Value::from(number), None),
        Err(NoRequest::Bad(bad)) => (bad.id, None),
        Err(NoRequest::NoDescriptor(problem)) => anyhow::bail!("line {number}: {problem}"),
    };
    let of_job = digest.and_then(|digest| parts.take(&id, Some(&digest)));
    Ok(of_job.or_else(|| parts.take(&id, None)))
}

/// Fails if results are left that belong to no line, unless they are to be left out.
fn refuse_left(parts: &Parts, arguments: &MergeArguments) -> anyhow::Result<()> {
    let [twins, others] = parts.left();
    if let Left { count: count @ 1.., first } = twins {
        return Err(UsageError(format!(
            "{count} results are of lines that have another one, the first of them {first}: give \
             each part once, and each shard one part"
        ))
        .into());
    }
    match others {
        Left { count: 0, .. } => Ok(()),
        Left { count, .. } if arguments.drop_others => {
            terminal::note(format_args!("left out {count} results that belong to no line"));
            Ok(())
        }
        Left { count, first } => Err(UsageError(format!(
            "{count} results belong to no line of `{}`, the first of them {first}: the part is of \
             another batch, or the line or its program has changed since; --drop-others leaves such \
             results out",
            arguments.jobs.display()
        ))
        .into()),
    }
}

impl Lack {
    fn add(&mut self, number: usize) {
        self.count += 1;
        if self.first.len() < MOST_NAMED {
            self.first.push(number);
        }
    }
}

/// Says which lines have no result, and how to get them.
fn report_missing(missing: &Missing, parts: &Parts, arguments: &MergeArguments) {
    for (shard, Lack { count, first }) in missing.iter().take(MOST_NAMED) {
        let name = match shard {
            Some(shard) => format!("shard {shard}"),
            None => "the batch".to_owned(),
        };
        let what = if *count == 1 { "1 result".to_owned() } else { format!("{count} results") };
        let mut lines: Vec<String> = first.iter().map(usize::to_string).collect();
        if *count > first.len() {
            lines.push("…".to_owned());
        }
        let word = if *count == 1 { "line" } else { "lines" };
        let lines = lines.join(", ");
        let part = shard.and_then(|shard| parts.of_shard(shard));
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
    if missing.len() > MOST_NAMED {
        let (shards, more) = (missing.len(), missing.len() - MOST_NAMED);
        terminal::error(format_args!("{shards} shards lack results, {more} beside these"));
    }
}

/// Writes results in this order.
fn write(parts: &Parts, order: &[usize], arguments: &MergeArguments) -> anyhow::Result<()> {
    let all = |to: &mut dyn Write| -> io::Result<()> {
        let mut to = BufWriter::new(to);
        for found in order {
            to.write_all(parts.line(*found)?.as_bytes())?;
        }
        to.flush()
    };
    match &arguments.out {
        None => Ok(all(&mut io::stdout().lock())?),
        Some(out) => {
            let unwritable = || UsageError(format!("can't write `{}`", out.display()));
            // Such as a pipe or a device, which can't be replaced.
            if out.metadata().is_ok_and(|found| !found.is_file()) {
                let file = std::fs::OpenOptions::new().write(true).open(out);
                return all(&mut file.with_context(unwritable)?).context("can't write results");
            }
            let replaced = replace(&through_links(out), Access::AsBefore, |file| all(file));
            replaced.with_context(unwritable)
        }
    }
}
