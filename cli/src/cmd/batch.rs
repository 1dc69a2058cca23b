//! `hatchery batch`: many programs, one JSON object a line in, one a line out.
//!
//! Results come in the order in which jobs end; `id` ties them to their lines. A line that is no
//! job gets a result that says so: every line that isn't empty has exactly one.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use hatchery::{Call, Hatchery, Job, Limits, Outcome};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::fs::File;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt, BufReader, BufWriter};
use tokio::task::JoinSet;

use crate::args::BatchArguments;
use crate::exit::{Exit, UsageError};
use crate::{progress, signals, terminal};

/// The longest line, so that a file without line ends doesn't fill the memory.
const LONGEST_LINE_BYTES: usize = 64 << 20;

/// Jobs in the pool for each worker: enough that none waits for the reader.
const AHEAD: usize = 4;

/// One line of the input.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    /// Any JSON value; read before the rest, so that it is known when the rest is malformed.
    #[serde(rename = "id")]
    _id: Option<Value>,
    code: Option<String>,
    file: Option<PathBuf>,
    call: Option<CallLine>,
    #[serde(default)]
    variables: BTreeMap<String, Value>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    stdin: String,
    /// Seconds.
    timeout: Option<f64>,
}

/// A function in place of a program.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallLine {
    /// `module:function`.
    function: String,
    #[serde(default)]
    args: Vec<Value>,
    #[serde(default)]
    keywords: BTreeMap<String, Value>,
}

/// What became of the lines.
#[derive(Debug, Default)]
struct Tally {
    succeeded: usize,
    failed: usize,
    malformed: usize,
}

type Results = JoinSet<(Value, Result<Outcome, hatchery::Error>)>;

pub(crate) async fn run(arguments: BatchArguments) -> anyhow::Result<Exit> {
    let lines = Lines::new(open(&arguments.jobs).await?);
    let writer = create(arguments.out.as_deref(), &arguments.jobs).await?;
    // What waits is bounded here, by lines, so the pool must not refuse large ones.
    let builder = Hatchery::builder().queue_limit_bytes(usize::MAX).progress(progress::sink());
    let mut builder = arguments.image.apply(builder)?;
    if let Some(workers) = arguments.workers {
        builder = builder.workers(usize::from(workers));
    }
    let hatchery = builder.start().await?;
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
    let workers = arguments.workers.map_or_else(default_workers, usize::from);
    let limits = arguments.limits.limits();
    let mut results: Results = JoinSet::new();
    let mut tally = Tally::default();
    let mut reading = Ok(Reading::Goes);
    loop {
        let wants_more = matches!(reading, Ok(Reading::Goes)) && results.len() < workers * AHEAD;
        tokio::select! {
            line = lines.next(), if wants_more => match line {
                Ok(Some(line)) => match line.and_then(|bytes| parse(&bytes, lines.number, &limits)) {
                    Ok(None) => {}
                    Ok(Some((id, job))) => {
                        let hatchery = hatchery.clone();
                        results.spawn(async move { (id, hatchery.run(job).await) });
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
                let (id, outcome) = joined.context("a task of the batch died")?;
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

/// A line that is no job.
#[derive(Debug, PartialEq)]
struct BadLine {
    id: Value,
    problem: String,
}

impl BadLine {
    fn result(self, number: usize) -> Value {
        let message = format!("line {number}: {}", self.problem);
        json!({
            "id": self.id,
            "success": false,
            "error": { "kind": "usage", "message": message },
        })
    }
}

/// The job of a line, with its id; a line without one is known by its number. `None` if the line
/// is empty.
fn parse(bytes: &[u8], number: usize, limits: &Limits) -> Result<Option<(Value, Job)>, BadLine> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if bytes.trim_ascii().is_empty() {
        return Ok(None);
    }
    let by_number = Value::from(number);
    let value: Value = serde_json::from_slice(bytes)
        .map_err(|error| BadLine { id: by_number.clone(), problem: error.to_string() })?;
    let id = value.get("id").filter(|id| !id.is_null()).cloned().unwrap_or(by_number);
    let job = serde_json::from_value::<Line>(value)
        .map_err(|error| error.to_string())
        .and_then(|line| line.job(limits));
    match job {
        Ok(job) => Ok(Some((id, job))),
        Err(problem) => Err(BadLine { id, problem }),
    }
}

impl Line {
    fn job(self, limits: &Limits) -> Result<Job, String> {
        let job = match (self.code, self.file, self.call) {
            (Some(code), None, None) => Job::code(code),
            (None, Some(file), None) => Job::file(file).map_err(|error| error.to_string())?,
            (None, None, Some(call)) => call.job(),
            (None, None, None) => {
                return Err("give the program as `code` or `file`, or a `call`".to_owned());
            }
            _ => return Err("give one of `code`, `file` and `call`".to_owned()),
        };
        let variables = self.variables.into_iter();
        let job = variables.fold(job, |job, (name, value)| job.variable(name, value));
        let mut limits = limits.clone();
        if let Some(seconds) = self.timeout {
            limits.wall_time = Duration::try_from_secs_f64(seconds)
                .ok()
                .filter(|timeout| !timeout.is_zero())
                .ok_or_else(|| {
                    format!(
                        "`timeout` is {seconds}; give a number of seconds above 0 and below 1e19"
                    )
                })?;
        }
        let job = self.env.into_iter().fold(job, |job, (name, value)| job.env(name, value));
        Ok(job.args(self.args).stdin(self.stdin).limits(limits))
    }
}

impl CallLine {
    fn job(self) -> Job {
        let call = self.args.into_iter().fold(Call::new(&self.function), Call::arg);
        let keywords = self.keywords.into_iter();
        keywords.fold(call, |call, (name, value)| call.keyword(name, value)).into()
    }
}

impl Tally {
    /// Counts how a job ended, and makes the line for it.
    fn result(&mut self, id: Value, outcome: Result<Outcome, hatchery::Error>) -> Value {
        let (counter, mut result) = match outcome {
            Ok(outcome) if outcome.is_success() => (&mut self.succeeded, outcome.to_tool_json()),
            Ok(outcome) => (&mut self.failed, outcome.to_tool_json()),
            Err(error) => {
                let error = json!({ "kind": "refused", "message": error.to_string() });
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

    fn parsed(text: &[u8]) -> Result<Option<(Value, Job)>, BadLine> {
        parse(text, 7, &Limits::default())
    }

    fn problem(text: &str) -> BadLine {
        parsed(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn ids_are_kept_as_they_are() {
        let id = |text: &str| parsed(text.as_bytes()).unwrap().unwrap().0;
        assert_eq!(id(r#"{"id": "a", "code": "1"}"#), json!("a"));
        assert_eq!(id(r#"{"id": [1], "code": "1"}"#), json!([1]));
        assert_eq!(id(r#"{"code": "1"}"#), json!(7));
        assert_eq!(id("\u{feff}{\"code\": \"1\"}\r"), json!(7));
        assert!(parsed(b" \r").unwrap().is_none());
    }

    #[test]
    fn malformed_lines_say_what_is_wrong() {
        assert_eq!(problem("{").id, json!(7));
        let bad = BadLine {
            id: json!(3),
            problem: "give the program as `code` or `file`, or a `call`".to_owned(),
        };
        assert_eq!(problem(r#"{"id": 3}"#), bad);
        assert!(problem(r#"{"id": 3, "code": "", "file": "x"}"#).problem.contains("one of"));
        assert!(problem(r#"{"call": {"function": "a:b", "arg": 1}}"#).problem.contains("arg"));
        assert!(problem(r#"{"id": 3, "cod": ""}"#).problem.contains("cod"));
        assert!(problem(r#"{"code": "", "timeout": -1}"#).problem.contains("timeout"));
        assert!(problem("[]").problem.contains("struct Line"));
        let not_text = parsed(b"{\"code\": \"\xff\"}").unwrap_err();
        assert!(not_text.problem.contains("unicode"), "{not_text:?}");
    }

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
