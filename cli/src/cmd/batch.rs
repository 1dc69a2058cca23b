//! `hatchery batch`: many programs, one JSON object a line in, one a line out.
//!
//! Results come in the order in which jobs end; `id` ties them to their lines. A line that is no
//! job gets a result that says so: every line that isn't empty has exactly one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use hatchery::{Hatchery, Job, Outcome};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::fs::File;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt, BufReader, BufWriter};
use tokio::task::JoinSet;

use crate::args::BatchArguments;
use crate::exit::{Exit, UsageError};
use crate::{progress, signals};

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
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    stdin: String,
    /// Seconds.
    timeout: Option<f64>,
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
    let reader = open(&arguments.jobs).await?;
    let writer = create(arguments.out.as_deref()).await?;
    let mut builder = Hatchery::builder().progress(progress::sink());
    if let Some(workers) = arguments.workers {
        builder = builder.workers(usize::from(workers));
    }
    let hatchery = builder.start().await?;
    let mut interrupts = signals::interrupts()?;
    let batch = drive(&hatchery, reader, writer, &arguments);
    let tally = tokio::select! {
        tally = batch => tally?,
        exit = signals::interrupted(&mut interrupts) => {
            eprintln!("hatchery: interrupted; results written so far are complete");
            hatchery.abort().await;
            return Ok(exit);
        }
    };
    hatchery.drain().await;
    eprintln!(
        "hatchery: {} succeeded, {} did not, {} lines were no jobs",
        tally.succeeded, tally.failed, tally.malformed
    );
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
    let file = File::open(path)
        .await
        .map_err(|error| UsageError(format!("can't read `{}`: {error}", path.display())))?;
    Ok(Box::new(BufReader::new(file)))
}

async fn create(path: Option<&Path>) -> anyhow::Result<Box<dyn AsyncWrite + Unpin + Send>> {
    let Some(path) = path else { return Ok(Box::new(BufWriter::new(tokio::io::stdout()))) };
    let file = File::create(path)
        .await
        .map_err(|error| UsageError(format!("can't write `{}`: {error}", path.display())))?;
    Ok(Box::new(BufWriter::new(file)))
}

/// Keeps the pool busy from `reader` and writes each result as its job ends.
async fn drive(
    hatchery: &Hatchery,
    mut reader: Box<dyn AsyncBufRead + Unpin + Send>,
    mut writer: Box<dyn AsyncWrite + Unpin + Send>,
    arguments: &BatchArguments,
) -> anyhow::Result<Tally> {
    let workers = arguments.workers.map_or_else(default_workers, usize::from);
    let mut results: Results = JoinSet::new();
    let mut tally = Tally::default();
    let mut number = 0;
    while let Some(text) = next_line(&mut reader).await? {
        number += 1;
        if text.trim().is_empty() {
            continue;
        }
        match parse(&text, number, arguments.timeout) {
            Ok((id, job)) => {
                while results.len() >= workers * AHEAD {
                    write_next(&mut results, &mut writer, &mut tally).await?;
                }
                let hatchery = hatchery.clone();
                results.spawn(async move { (id, hatchery.run(job).await) });
            }
            Err((id, problem)) => {
                tally.malformed += 1;
                let message = format!("line {number}: {problem}");
                let error = json!({ "kind": "usage", "message": message });
                let result = json!({ "id": id, "success": false, "error": error });
                write_line(&mut writer, &result).await?;
            }
        }
    }
    while !results.is_empty() {
        write_next(&mut results, &mut writer, &mut tally).await?;
    }
    writer.flush().await.context("can't write results")?;
    Ok(tally)
}

fn default_workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The next line without its end; `None` at the end of the input.
async fn next_line(
    reader: &mut (dyn AsyncBufRead + Unpin + Send),
) -> anyhow::Result<Option<String>> {
    let mut line = Vec::new();
    loop {
        let buffer = reader.fill_buf().await.context("can't read jobs")?;
        if buffer.is_empty() {
            break;
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(buffer.len(), |end| end + 1);
        line.extend_from_slice(&buffer[..taken]);
        reader.consume(taken);
        if line.len() > LONGEST_LINE_BYTES {
            let text = format!("a line of the input is longer than {LONGEST_LINE_BYTES} bytes");
            return Err(UsageError(text).into());
        }
        if end.is_some() {
            return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
        }
    }
    Ok((!line.is_empty()).then(|| String::from_utf8_lossy(&line).into_owned()))
}

/// The job of a line, with its id; a line without one is known by its number.
fn parse(
    text: &str,
    number: usize,
    default_timeout: Duration,
) -> Result<(Value, Job), (Value, String)> {
    let by_number = Value::from(number);
    let value: Value =
        serde_json::from_str(text).map_err(|error| (by_number.clone(), error.to_string()))?;
    let id = value.get("id").filter(|id| !id.is_null()).cloned().unwrap_or(by_number);
    let line: Line =
        serde_json::from_value(value).map_err(|error| (id.clone(), error.to_string()))?;
    let job = line.job(default_timeout).map_err(|problem| (id.clone(), problem))?;
    Ok((id, job))
}

impl Line {
    fn job(self, default_timeout: Duration) -> Result<Job, String> {
        let job = match (self.code, self.file) {
            (Some(code), None) => Job::code(code),
            (None, Some(file)) => Job::file(file).map_err(|error| error.to_string())?,
            (Some(_), Some(_)) => return Err("give `code` or `file`, not both".to_owned()),
            (None, None) => return Err("give the program as `code` or `file`".to_owned()),
        };
        let timeout = match self.timeout {
            None => default_timeout,
            Some(seconds) => Duration::try_from_secs_f64(seconds)
                .ok()
                .filter(|timeout| !timeout.is_zero())
                .ok_or_else(|| format!("`timeout` is {seconds}; give seconds above 0"))?,
        };
        let job = self.env.into_iter().fold(job, |job, (name, value)| job.env(name, value));
        Ok(job.args(self.args).stdin(self.stdin).timeout(timeout))
    }
}

/// Waits for a job to end and writes its result.
async fn write_next(
    results: &mut Results,
    writer: &mut (dyn AsyncWrite + Unpin + Send),
    tally: &mut Tally,
) -> anyhow::Result<()> {
    let Some(joined) = results.join_next().await else { return Ok(()) };
    let (id, outcome) = joined.context("a task of the batch died")?;
    let result = match outcome {
        Ok(outcome) => {
            let counter =
                if outcome.is_success() { &mut tally.succeeded } else { &mut tally.failed };
            *counter += 1;
            with_id(id, outcome.to_tool_json())
        }
        Err(error) => {
            tally.failed += 1;
            let error = json!({ "kind": "refused", "message": error.to_string() });
            json!({ "id": id, "success": false, "error": error })
        }
    };
    write_line(writer, &result).await
}

/// The result with its id in front.
fn with_id(id: Value, result: Value) -> Value {
    let mut object = serde_json::Map::new();
    object.insert("id".to_owned(), id);
    if let Value::Object(fields) = result {
        object.extend(fields);
    }
    Value::Object(object)
}

async fn write_line(
    writer: &mut (dyn AsyncWrite + Unpin + Send),
    result: &Value,
) -> anyhow::Result<()> {
    let mut line = result.to_string();
    line.push('\n');
    writer.write_all(line.as_bytes()).await.context("can't write results")?;
    // Readers of a pipe and of a file that is being followed see each result as it comes.
    writer.flush().await.context("can't write results")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> (Value, String) {
        parse(text, 7, Duration::from_secs(1)).unwrap_err()
    }

    #[test]
    fn ids_are_kept_as_they_are() {
        let id = |text: &str| parse(text, 7, Duration::from_secs(1)).unwrap().0;
        assert_eq!(id(r#"{"id": "a", "code": "1"}"#), json!("a"));
        assert_eq!(id(r#"{"id": [1], "code": "1"}"#), json!([1]));
        assert_eq!(id(r#"{"code": "1"}"#), json!(7));
    }

    #[test]
    fn malformed_lines_say_what_is_wrong() {
        assert_eq!(problem("{").0, json!(7));
        assert_eq!(
            problem(r#"{"id": 3}"#),
            (json!(3), "give the program as `code` or `file`".to_owned())
        );
        assert!(problem(r#"{"id": 3, "code": "", "file": "x"}"#).1.contains("not both"));
        assert!(problem(r#"{"id": 3, "cod": ""}"#).1.contains("cod"));
        assert!(problem(r#"{"code": "", "timeout": -1}"#).1.contains("timeout"));
        assert!(problem("[]").1.contains("struct Line"));
    }

    #[tokio::test]
    async fn lines_end_at_their_ends_and_at_the_end_of_the_input() {
        let mut reader: Box<dyn AsyncBufRead + Unpin + Send> =
            Box::new(BufReader::new(&b"a\n\nb"[..]));
        let mut lines = Vec::new();
        while let Some(line) = next_line(&mut reader).await.unwrap() {
            lines.push(line);
        }
        assert_eq!(lines, ["a\n", "\n", "b"]);
    }
}
