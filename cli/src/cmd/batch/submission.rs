//! `hatchery submit`: a batch whose jobs run on other machines.
//!
//! Lines and results are those of a batch. Beside the file of results is one that names the
//! submission on the server, until that has ended: whoever resumes it finds what is there, and
//! submits only what isn't.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use remote::{Batch, BatchName, Client, JobResult, Wants};
use replace::{Access, replace};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::args::SubmitArguments;
use crate::cmd::nats;
use crate::exit::{Exit, UsageError};
use crate::lines::Lines;
use crate::{signals, terminal};

use super::earlier::Earlier;
use super::ids::Ids;
use super::line::{BadLine, Outgoing, parse_outgoing};
use super::progress::Progress;
use super::requests::Requests;
use super::results::{Ending, Results, Tally, line_of};
use super::{create, open, sum_up};

/// Bytes of jobs that have no result yet, which are kept here so that they can be sent again.
const MOST_BYTES: usize = 256 << 20;
/// Lines may open folders as long as this many jobs are under way.
const FEW_JOBS: usize = 64;

/// What the file beside the results says.
#[derive(Debug, Serialize, Deserialize)]
struct Submission {
    pool: String,
    batch: String,
}

/// A line whose job has ended.
struct Ended {
    place: u64,
    bytes: usize,
    result: String,
    ending: Ending,
}

/// Submits the lines, and writes their results.
pub(crate) async fn submit(arguments: SubmitArguments) -> anyhow::Result<Exit> {
    let mut interrupts = signals::interrupts(2)?;
    let lines = Lines::new(open(&arguments.jobs).await?);
    let (connection, pool) =
        nats::connection(&arguments.nats.nats, &arguments.nats.access, "submit")?;
    let (sink, earlier) =
        create(&arguments.jobs, Some(&arguments.out), arguments.resume, None).await?;
    let note = beside(&arguments.out);
    let batch = batch(&note, pool.as_str(), arguments.resume)?;
    let settings = nats::settings(&arguments.nats);
    let connecting = Client::open(&connection, pool, &settings, batch);
    let client = tokio::select! {
        client = connecting => client.map_err(nats::explained)?,
        exit = interrupts.first() => return Ok(exit),
    };
    let wants = match arguments.file_contents {
        true => Wants::default().files(),
        false => Wants::default(),
    };
    let submitting = Submitting {
        client: client.clone(),
        wants,
        most_ahead: arguments.ahead as usize,
        ids: Ids::default(),
        earlier,
        requests: Requests::parsed_by(lines, parse_outgoing, FEW_JOBS),
        results: Results::new(sink, arguments.ordered),
        jobs: JoinSet::new(),
        bytes_ahead: 0,
        place: 0,
        tally: Tally::default(),
        progress: Progress::begin(arguments.progress, &arguments.jobs, true, None),
    };
    let tally = tokio::select! {
        tally = submitting.drive() => tally?,
        exit = interrupts.first() => {
            terminal::note(
                "interrupted; jobs that were submitted go on, --resume fetches their results and \
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
    Ok(sum_up(&tally))
}

/// Returns the path of the file that names the submission.
fn beside(out: &Path) -> PathBuf {
    let mut name = out.file_name().unwrap_or_default().to_owned();
    name.push(".submission");
    out.with_file_name(name)
}

/// Returns the submission that is to be continued, or begins one.
fn batch(note: &Path, pool: &str, resumes: bool) -> anyhow::Result<Batch> {
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
            return Ok(Batch::resume(name.with_context(unusable)?));
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
    Ok(Batch::begin(name))
}

/// Ends the submission: whoever resumes begins another one, for lines without a final result.
fn end(out: &Path, note: &Path) -> anyhow::Result<()> {
    let file = fs::File::open(out).and_then(|file| file.sync_all());
    file.with_context(|| format!("can't write `{}`", out.display()))?;
    fs::remove_file(note).with_context(|| format!("can't remove `{}`", note.display()))
}

/// A running submission.
struct Submitting {
    client: Client,
    wants: Wants,
    most_ahead: usize,
    ids: Ids,
    earlier: Earlier,
    requests: Requests<Outgoing>,
    results: Results,
    jobs: JoinSet<anyhow::Result<Ended>>,
    bytes_ahead: usize,
    /// Lines so far that get a result in this run.
    place: u64,
    tally: Tally,
    progress: Progress,
}

impl Submitting {
    /// Keeps jobs under way, and writes their results.
    async fn drive(mut self) -> anyhow::Result<Tally> {
        // How reading the lines has ended, once it has.
        let mut end: Option<anyhow::Result<()>> = None;
        loop {
            let wants_more = end.is_none() && self.has_room();
            let others = self.jobs.len();
            tokio::select! {
                request = self.requests.next(others), if wants_more => match request {
                    Ok(Some(request)) => self.take(request).await?,
                    Ok(None) => {
                        self.progress.set_total(self.place + self.tally.earlier as u64);
                        end = Some(Ok(()));
                    }
                    // The lines read so far still get their results.
                    Err(error) => end = Some(Err(error)),
                },
                Some(joined) = self.jobs.join_next() => {
                    let ended = joined.context("a task of the submission died")??;
                    self.bytes_ahead -= ended.bytes;
                    self.tally.count(ended.ending);
                    self.results.put(ended.place, ended.result).await?;
                }
                () = self.progress.due(), if wants_more || others > 0 => {
                    self.progress.show(&self.tally, false);
                }
                else => break,
            }
        }
        self.progress.show(&self.tally, true);
        end.transpose()?;
        self.ids.remark().iter().for_each(terminal::note);
        Ok(self.tally)
    }

    fn has_room(&self) -> bool {
        let ahead = self.jobs.len() + self.results.held();
        let has_room = ahead < self.most_ahead && self.bytes_ahead < MOST_BYTES;
        (has_room || ahead == 0) && self.results.has_room()
    }

    /// Submits the job of a line, unless an earlier run has its result.
    async fn take(&mut self, request: Result<Outgoing, BadLine>) -> anyhow::Result<()> {
        let number = self.requests.number();
        let Outgoing { id, digest, job, session, bytes } = match request {
            Ok(request) => request,
            Err(bad) => {
                self.tally.malformed += 1;
                self.ids.add(&bad.id, number);
                let place = self.next_place();
                return self.results.put(place, line_of(bad.result(number), None)).await;
            }
        };
        self.ids.add(&id, number);
        if let Some(was_success) = self.earlier.take(&id, &digest) {
            self.tally.earlier += 1;
            self.tally.count(if was_success { Ending::Succeeded } else { Ending::Failed });
            return Ok(());
        }
        let place = self.next_place();
        self.bytes_ahead += bytes;
        let (client, wants) = (self.client.clone(), self.wants);
        // Here, since turns have their places in the order of the lines.
        let turn = session.map(|name| {
            let session = client.session(&name)?;
            let session = match &job.tenant {
                Some(tenant) => session.tenant(tenant)?,
                None => session,
            };
            Ok(session.submit_wanting(job.clone(), wants))
        });
        self.jobs.spawn(async move {
            let submitted = match turn {
                Some(Ok(turn)) => turn.await,
                Some(Err(error)) => Err(error),
                None => client.submit_wanting(&job, wants).await,
            };
            let (result, ending) = match submitted {
                Ok(ticket) => line(ticket.await?, id, digest),
                Err(error) if is_of_job(&error) => {
                    let bad = BadLine { id, problem: error.to_string() };
                    (line_of(bad.result(number), None), Ending::Refused)
                }
                Err(error) => {
                    return Err(error).context(format!("can't submit the line with id {id}"));
                }
            };
            Ok(Ended { place, bytes, result, ending })
        });
        Ok(())
    }

    fn next_place(&mut self) -> u64 {
        let place = self.place;
        self.place += 1;
        place
    }
}

/// Returns whether an error is about the job alone, so that others can be submitted.
fn is_of_job(error: &remote::Error) -> bool {
    use remote::Error;
    matches!(
        error,
        Error::Name { .. }
            | Error::SessionName { .. }
            | Error::TooLarge { .. }
            | Error::MaxPayload
            | Error::File
    )
}

/// Returns the line of a result, as a batch writes it.
fn line(result: JobResult, id: Value, digest: String) -> (String, Ending) {
    let ending = Ending::of_result(result.json());
    let mut result = result.into_json();
    if ending != Ending::Refused {
        result["digest"] = digest.into();
    }
    result["id"] = id;
    (line_of(result, None), ending)
}
