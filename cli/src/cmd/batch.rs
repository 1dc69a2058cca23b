//! `hatchery batch`: many programs, one JSON object a line in, one a line out.
//!
//! Results come in the order in which jobs end; `id` ties them to their lines. A line that is no
//! job gets a result that says so: every line that isn't empty has exactly one.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::Context;
use hatchery::{Builder, Hatchery, Outcome, TenantConfig};
use serde_json::{Value, json};
use tokio::fs::File;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt, BufReader, BufWriter};
use tokio::task::JoinSet;

use crate::args::BatchArguments;
use crate::exit::{Exit, UsageError};
use crate::monitor::Monitor;
use crate::{progress, signals, terminal};

use self::attempts::Attempts;
use self::line::{BadLine, Request};

mod attempts;
mod line;

/// The longest line, so that a file without line ends doesn't fill the memory.
const LONGEST_LINE_BYTES: usize = 64 << 20;

/// Jobs in the pool for each worker, however large: enough that none waits for the reader.
const AHEAD: usize = 4;

/// Jobs in the pool for each worker if they are small: priorities and shares of tenants hold among
/// these, and all their results fit in memory should nobody read them.
const SMALL_AHEAD: usize = 64;

/// Bytes of lines and programs up to which jobs count as small, all together.
const SMALL_BYTES: usize = 64 << 20;

/// What became of the lines.
#[derive(Debug, Default)]
struct Tally {
    succeeded: usize,
    failed: usize,
    malformed: usize,
}

/// What became of a job, with the size of its line.
struct Ended {
    id: Value,
    bytes: usize,
    outcome: Result<Outcome, hatchery::Error>,
}

pub(crate) async fn run(arguments: BatchArguments) -> anyhow::Result<Exit> {
    let lines = Lines::new(open(&arguments.jobs).await?);
    let builder = builder(&arguments)?;
    let monitor = match &arguments.metrics {
        Some(address) => Some(Monitor::start(address).await?),
        None => None,
    };
    let writer = create(arguments.out.as_deref(), &arguments.jobs).await?;
    if let Some(monitor) = &monitor {
        terminal::note(format_args!("metrics at http://{}/metrics", monitor.address()));
    }
    let hatchery = builder.start().await?;
    if let Some(monitor) = &monitor {
        monitor.show(&hatchery);
    }
    let mut interrupts = signals::interrupts(2)?;
    let batch = drive(&hatchery, lines, writer, &arguments);
    let tally = tokio::select! {
        tally = batch => tally?,
        exit = interrupts.first() => {
            terminal::note("interrupted; results written so far are complete");
            hatchery.abort().await;
            return Ok(exit);
        }
    };
    hatchery.drain().await;
    terminal::note(format_args!(
        "{} succeeded, {} did not, {} lines were no jobs",
        tally.succeeded, tally.failed, tally.malformed
    ));
    Ok(match tally {
        Tally { malformed: 1.., .. } => Exit::Usage,
        Tally { failed: 1.., .. } => Exit::Failed,
        Tally { .. } => Exit::Success,
    })
}

fn builder(arguments: &BatchArguments) -> anyhow::Result<Builder> {
    // What waits is bounded here, so the pool must not refuse large jobs.
    let builder = Hatchery::builder().queue_limit_bytes(usize::MAX).progress(progress::sink());
    let mut builder = arguments.image.apply(builder)?;
    if let Some(workers) = &arguments.workers {
        builder = builder.workers_between(workers.clone());
    }
    if let Some(count) = arguments.queue {
        builder = builder.queue_limit(count);
    }
    let mut tenants = BTreeMap::new();
    for (name, weight) in &arguments.tenant {
        if tenants.insert(name, weight).is_some() {
            return Err(UsageError(format!("tenant `{name}` is given twice")).into());
        }
        let tenant = TenantConfig { weight: *weight, ..TenantConfig::default() };
        builder = builder.tenant(name.as_str(), tenant);
    }
    Ok(builder)
}

async fn open(path: &Path) -> anyhow::Result<Box<dyn AsyncBufRead + Unpin + Send>> {
    if path == Path::new("-") {
        return Ok(Box::new(BufReader::new(tokio::io::stdin())));
    }
    let unreadable =
        |problem: &dyn Display| UsageError(format!("can't read `{}`: {problem}", path.display()));
    let file = File::open(path).await.map_err(|error| unreadable(&error))?;
    if file.metadata().await.map_err(|error| unreadable(&error))?.is_dir() {
        return Err(unreadable(&"it is a directory").into());
    }
    Ok(Box::new(BufReader::new(file)))
}

async fn create(
    path: Option<&Path>,
    jobs: &Path,
) -> anyhow::Result<Box<dyn AsyncWrite + Unpin + Send>> {
    let Some(path) = path else { return Ok(Box::new(BufWriter::new(tokio::io::stdout()))) };
    if let (Ok(out), Ok(jobs)) = (path.metadata(), jobs.metadata())
        && (out.dev(), out.ino()) == (jobs.dev(), jobs.ino())
    {
        let text = format!("`{}` holds the jobs; write the results elsewhere", path.display());
        return Err(UsageError(text).into());
    }
    let file = File::create(path)
        .await
        .map_err(|error| UsageError(format!("can't write `{}`: {error}", path.display())))?;
    Ok(Box::new(BufWriter::new(file)))
}

/// Keeps the pool busy from `lines` and writes each result as its job ends.
async fn drive(
    hatchery: &Hatchery,
    mut lines: Lines,
    mut writer: Box<dyn AsyncWrite + Unpin + Send>,
    arguments: &BatchArguments,
) -> anyhow::Result<Tally> {
    let workers = arguments.workers.as_ref().map_or_else(default_workers, |range| *range.end());
    let attempts = Attempts::new(hatchery.clone());
    let limits = arguments.limits.limits();
    let mut results: JoinSet<Ended> = JoinSet::new();
    let mut bytes_ahead = 0;
    let mut tally = Tally::default();
    let mut reading = Ok(Reading::Goes);
    loop {
        let has_room = results.len() < workers * AHEAD
            || results.len() < workers * SMALL_AHEAD && bytes_ahead < SMALL_BYTES;
        let wants_more = matches!(reading, Ok(Reading::Goes)) && has_room;
        tokio::select! {
            line = lines.next(), if wants_more => match line {
                Ok(Some(line)) => match line.and_then(|line| line::parse(&line, lines.number, &limits)) {
                    Ok(None) => {}
                    Ok(Some(Request { id, job, deadline, bytes })) => {
                        let outcome = attempts.outcome(job, deadline);
                        bytes_ahead += bytes;
                        results.spawn(async move { Ended { id, bytes, outcome: outcome.await } });
                    }
                    Err(bad) => {
                        tally.malformed += 1;
                        write_line(&mut writer, &bad.result(lines.number)).await?;
                    }
                },
                Ok(None) => reading = Ok(Reading::Over),
                // What was read before still has its results.
                Err(error) => reading = Err(error),
            },
            Some(joined) = results.join_next() => {
                let Ended { id, bytes, outcome } = joined.context("a task of the batch died")?;
                bytes_ahead -= bytes;
                write_line(&mut writer, &tally.result(id, outcome)).await?;
            }
            else => break,
        }
    }
    writer.flush().await?;
    reading.context("can't read jobs")?;
    Ok(tally)
}

/// Whether there may be further lines.
enum Reading {
    Goes,
    Over,
}

fn default_workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The lines of the input.
struct Lines {
    reader: Box<dyn AsyncBufRead + Unpin + Send>,
    /// What was read of the present line. Here, so that dropping `next` loses nothing.
    partial: Vec<u8>,
    /// The present line is too long; its rest is skipped.
    is_too_long: bool,
    /// Of the last line that was returned, from 1.
    number: usize,
}

impl Lines {
    fn new(reader: Box<dyn AsyncBufRead + Unpin + Send>) -> Self {
        Self { reader, partial: Vec::new(), is_too_long: false, number: 0 }
    }

    /// The next line without its end; `None` at the end of the input. Cancel-safe.
    async fn next(&mut self) -> std::io::Result<Option<Result<Vec<u8>, BadLine>>> {
        loop {
            let buffer = self.reader.fill_buf().await?;
            if buffer.is_empty() {
                let is_empty = self.partial.is_empty() && !self.is_too_long;
                return Ok((!is_empty).then(|| self.finish()));
            }
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let content = &buffer[..end.unwrap_or(buffer.len())];
            if self.partial.len() + content.len() > LONGEST_LINE_BYTES {
                self.is_too_long = true;
                self.partial.clear();
            }
            if !self.is_too_long {
                self.partial.extend_from_slice(content);
            }
            let taken = end.map_or(buffer.len(), |end| end + 1);
            self.reader.consume(taken);
            if end.is_some() {
                return Ok(Some(self.finish()));
            }
        }
    }

    fn finish(&mut self) -> Result<Vec<u8>, BadLine> {
        self.number += 1;
        let line = std::mem::take(&mut self.partial);
        if std::mem::take(&mut self.is_too_long) {
            let problem = format!("the line is longer than {LONGEST_LINE_BYTES} bytes");
            return Err(BadLine { id: Value::from(self.number), problem });
        }
        Ok(line)
    }
}

impl Tally {
    /// Counts how a job ended, and makes the line for it.
    fn result(&mut self, id: Value, outcome: Result<Outcome, hatchery::Error>) -> Value {
        let (counter, mut result) = match outcome {
            Ok(outcome) if outcome.is_success() => (&mut self.succeeded, outcome.to_tool_json()),
            Ok(outcome) => (&mut self.failed, outcome.to_tool_json()),
            Err(error) => {
                let reason = match &error {
                    hatchery::Error::Refused(refusal) => Some(refusal.name()),
                    _ => None,
                };
                let message = error.to_string();
                let error = json!({ "kind": "refused", "reason": reason, "message": message });
                (&mut self.failed, json!({ "success": false, "error": error }))
            }
        };
        *counter += 1;
        result["id"] = id;
        result
    }
}

async fn write_line(
    writer: &mut (dyn AsyncWrite + Unpin + Send),
    result: &Value,
) -> anyhow::Result<()> {
    let mut line = result.to_string();
    line.push('\n');
    writer.write_all(line.as_bytes()).await?;
    // Readers of a pipe and of a file that is being followed see each result as it comes.
    Ok(writer.flush().await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_end_at_their_ends_and_at_the_end_of_the_input() {
        let mut lines = Lines::new(Box::new(BufReader::new(&b"a\n\nb"[..])));
        let mut read = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            read.push(line.unwrap());
        }
        assert_eq!(read, [&b"a"[..], b"", b"b"]);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_skipped_and_told() {
        let mut text = vec![b'x'; LONGEST_LINE_BYTES + 1];
        text.extend_from_slice(b"\nnext");
        let mut lines = Lines::new(Box::new(BufReader::new(std::io::Cursor::new(text))));
        assert!(lines.next().await.unwrap().unwrap().is_err());
        assert_eq!(lines.next().await.unwrap().unwrap().unwrap(), b"next");
        assert!(lines.next().await.unwrap().is_none());
    }
}
