//! `hatchery submit`: a batch whose jobs run on other machines.
//!
//! Lines and results are those of a batch. Until the submission has ended, a file beside the
//! results names it on the server. A resumed submission finds what is there, and submits only the
//! rest.

use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::Context;
use batch::{Ahead, Batch, Line, NoJob, Parsed, Prepared, Ran, RunError, Runner};
use cluster::{BatchName, Client, Ticket, Wants};
use hatchery::wire::{self, Intake};
use replace::{Access, replace};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::progress::Progress;
use super::{create, open, sum_up};
use crate::args::SubmitArguments;
use crate::cmd::nats;
use crate::exit::{Exit, UsageError};
use crate::{signals, terminal};

/// Bytes of jobs that have no result yet, which are kept here so that they can be sent again.
const MOST_BYTES: usize = 256 << 20;
/// Lines may open folders as long as this many jobs are in progress.
const FEW_JOBS: usize = 64;

/// What the file beside the results says.
#[derive(Debug, Serialize, Deserialize)]
struct Submission {
    pool: String,
    batch: String,
}

/// Submits the lines, and writes their results.
pub(crate) async fn submit(arguments: SubmitArguments) -> anyhow::Result<Exit> {
    let mut interrupts = signals::interrupts(2)?;
    let lines = open(&arguments.jobs).await?;
    let (connection, pool) =
        nats::connection(&arguments.nats.nats, &arguments.nats.access, "submit")?;
    let output = create(&arguments.jobs, Some(&arguments.out), arguments.resume, None).await?;
    let note = beside(&arguments.out);
    let submission = submission(&note, pool.as_str(), arguments.resume)?;
    let settings = nats::settings(&arguments.nats);
    let connecting = Client::open(&connection, pool, &settings, submission);
    let client = tokio::select! {
        client = connecting => client.map_err(nats::explained)?,
        exit = interrupts.first() => return Ok(exit),
    };
    let wants = match arguments.file_contents {
        true => Wants::default().files(),
        false => Wants::default(),
    };
    let most_ahead = arguments.ahead as usize;
    let batch = Batch::new(Submitter { client: client.clone(), wants, most_ahead });
    let batch = if arguments.ordered { batch.ordered() } else { batch };
    let progress = Progress::begin(arguments.progress, &arguments.jobs, true, None);
    let summary = tokio::select! {
        summary = progress.following(|observe| batch.run(lines, output, observe)) => summary?,
        exit = interrupts.first() => {
            terminal::note(
                "interrupted; submitted jobs keep running, --resume fetches their results and \
                 continues",
            );
            return Ok(exit);
        }
    };
    end(&arguments.out, &note)?;
    // They would be dropped by their age.
    if let Err(error) = client.forget_results().await {
        terminal::note(format_args!("the results stay on the server for a while: {error}"));
    }
    Ok(sum_up(&summary))
}

/// Returns the path of the file that names the submission.
fn beside(out: &Path) -> PathBuf {
    let mut name = out.file_name().unwrap_or_default().to_owned();
    name.push(".submission");
    out.with_file_name(name)
}

/// Returns the submission that is to be continued, or begins one.
fn submission(note: &Path, pool: &str, resumes: bool) -> anyhow::Result<cluster::Batch> {
    let unusable = || UsageError(format!("can't use `{}`", note.display()));
    match fs::read_to_string(note) {
        Ok(text) if resumes => {
            let submission: Submission = serde_json::from_str(&text).with_context(unusable)?;
            if submission.pool != pool {
                return Err(UsageError(format!(
                    "`{}` says that this was submitted to the pool `{}`; give it to --pool, or \
                     remove that file to submit everything again",
                    note.display(),
                    submission.pool
                ))
                .into());
            }
            let name = BatchName::parse(&submission.batch).context("it names no submission");
            return Ok(cluster::Batch::resume(name.with_context(unusable)?));
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(unusable),
    }
    let name = BatchName::random();
    let submission = Submission { pool: pool.to_owned(), batch: name.as_str().to_owned() };
    let text = serde_json::to_string(&submission)?;
    // Before anything is submitted.
    let write = |file: &mut fs::File| io::Write::write_all(file, text.as_bytes());
    replace(note, Access::AsBefore, write).with_context(unusable)?;
    Ok(cluster::Batch::begin(name))
}

/// Ends the submission: resuming begins another one, for lines without a final result.
fn end(out: &Path, note: &Path) -> anyhow::Result<()> {
    let file = fs::File::open(out).and_then(|file| file.sync_all());
    file.with_context(|| format!("can't write `{}`", out.display()))?;
    fs::remove_file(note).with_context(|| format!("can't remove `{}`", note.display()))
}

/// Has the jobs of a batch run by workers that share a queue.
struct Submitter {
    client: Client,
    wants: Wants,
    /// The most jobs that are in the queue or run at once.
    most_ahead: usize,
}

/// A line's job, and the name of the session whose turn it is.
struct Outgoing {
    job: wire::Job,
    session: Option<String>,
}

impl Runner for Submitter {
    type Job = Outgoing;

    const FIELDS: &'static [&'static str] = &["session"];

    /// Checks the line as if it were run here. The text of a script is sent, without what is beside
    /// it.
    fn prepare(&self, line: Parsed) -> Result<Prepared<Outgoing>, NoJob> {
        let Parsed { job: mut line, script, mut fields, .. } = line;
        let session = match fields.remove("session") {
            None | Some(Value::Null) => None,
            Some(Value::String(name)) => Some(name),
            Some(_) => return Err(NoJob::Bad("`session` must be a text".to_owned())),
        };
        let is_script = script.is_some();
        let job = script.unwrap_or_default().with_wire(line.clone(), &Intake::BATCH)?;
        if is_script {
            line.code = Some(job.source().to_owned());
        }
        Ok(Prepared { job: Outgoing { job: line, session }, bytes: job.source().len() })
    }

    fn workers(&self) -> usize {
        FEW_JOBS
    }

    fn has_room(&self, ahead: Ahead) -> bool {
        ahead.jobs == 0 || ahead.jobs < self.most_ahead && ahead.bytes < MOST_BYTES
    }

    fn run(
        &self,
        line: Line<Outgoing>,
    ) -> impl Future<Output = Result<Ran, RunError>> + Send + 'static + use<> {
        let (client, wants) = (self.client.clone(), self.wants);
        let Outgoing { job, session } = line.job;
        let job = wire::Job { id: Some(line.id), ..job };
        // Here, since turns have their places in the order of the lines.
        let turn = session.map(|name| self.turn(&name, &job));
        async move {
            let submitted = match turn {
                Some(Ok(turn)) => turn.await,
                Some(Err(error)) => Err(error),
                None => client.submit_wanting(&job, wants).await,
            };
            match submitted {
                Ok(ticket) => Ok(Ran::from_elsewhere(ticket.await?.into_json())),
                Err(error) if is_of_job(&error) => {
                    Ok(Ran::invalid(line.number, &error.to_string()))
                }
                Err(error) => Err(error.into()),
            }
        }
    }
}

impl Submitter {
    /// Takes the next place among the turns of a session of the job's tenant.
    fn turn(
        &self,
        name: &str,
        job: &wire::Job,
    ) -> Result<impl Future<Output = Result<Ticket, cluster::Error>> + Send + use<>, cluster::Error>
    {
        let mut session = self.client.session(name)?;
        if let Some(tenant) = &job.tenant {
            session = session.tenant(tenant)?;
        }
        Ok(session.submit_wanting(job.clone(), self.wants))
    }
}

/// Returns whether an error is about the job alone, so that others can be submitted.
fn is_of_job(error: &cluster::Error) -> bool {
    use cluster::Error;
    matches!(
        error,
        Error::Name { .. }
            | Error::SessionName { .. }
            | Error::TooLarge { .. }
            | Error::MaxPayload
            | Error::File
    )
}
