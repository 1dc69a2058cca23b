//! The loop of a batch: keeps a runner supplied with jobs from the lines, and writes the results.

use std::sync::Arc;

use tokio::task::{JoinError, JoinSet};

use crate::error::Error;
use crate::line::{self, BadLine, Folders, Ids, RepeatedIds, Request};
use crate::lines::Lines;
use crate::merge::Shard;
use crate::output::{Earlier, Output, Results, line_of};
use crate::requests::Requests;
use crate::runner::{Ahead, Line, Ran, Runner};
use crate::tally::{Ending, Event, Tally};

#[cfg(test)]
mod tests;

/// A batch that hasn't begun.
#[derive(Debug)]
#[must_use = "nothing runs before `run`"]
pub struct Batch<R> {
    runner: R,
    is_ordered: bool,
}

/// How a batch has ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct Summary {
    /// The lines by how they ended.
    pub tally: Tally,
    /// Lines with the id of an earlier line, if there are any.
    pub repeated_ids: Option<RepeatedIds>,
    /// How many results of an earlier run belong to lines that the input no longer has, or that have
    /// changed.
    pub unclaimed: usize,
}

impl<R: Runner> Batch<R> {
    /// Creates a batch whose jobs this runs.
    pub fn new(runner: R) -> Self {
        Self { runner, is_ordered: false }
    }

    /// Writes results in the order of the lines, not as jobs end. Results that wait for earlier ones
    /// count as jobs that haven't ended; while 64 MiB of them wait, no further line is read.
    pub fn ordered(mut self) -> Self {
        self.is_ordered = true;
        self
    }

    /// Runs the lines, and returns when every one of them has its result. `observe` receives each
    /// step, between two others, so it should return soon.
    ///
    /// Dropping the future cancels the jobs that run. What was written to a file then is whole
    /// results; [`Output::resume`] goes on from there.
    ///
    /// # Errors
    /// The lines can't be read (those before have their results), the results can't be written, or
    /// the runner has failed.
    pub async fn run(
        self,
        lines: Lines,
        output: Output,
        observe: impl FnMut(Event<'_>),
    ) -> Result<Summary, Error> {
        let runner = Arc::new(self.runner);
        let workers = runner.workers();
        let preparer = Arc::clone(&runner);
        let parse = move |line: &[u8], number, is_ahead| {
            line::parse(line, number, is_ahead, R::FIELDS, |line| preparer.prepare(line))
        };
        let running = Running {
            folders: runner.names_folders().then(Folders::default),
            runner,
            requests: Requests::new(lines, parse, workers, output.shard),
            ids: Ids::default(),
            earlier: output.earlier,
            shard: output.shard,
            results: Results::new(output.sink, self.is_ordered),
            jobs: JoinSet::new(),
            bytes_ahead: 0,
            place: 0,
            tally: Tally::default(),
            observe,
        };
        running.drive().await
    }
}

/// A running batch.
struct Running<R: Runner, O> {
    runner: Arc<R>,
    requests: Requests<Request<R::Job>>,
    /// Names of the lines' folders, if they are wanted.
    folders: Option<Folders>,
    ids: Ids,
    earlier: Earlier,
    shard: Option<Shard>,
    results: Results,
    jobs: JoinSet<Result<Ended, Error>>,
    bytes_ahead: usize,
    /// Lines so far that get a result in this run.
    place: u64,
    tally: Tally,
    observe: O,
}

/// How the task of a line has ended.
type Joined = Result<Result<Ended, Error>, JoinError>;

/// A line whose job has ended.
struct Ended {
    /// Index among the lines that get a result in this run.
    place: u64,
    id: serde_json::Value,
    /// Bytes that it took of what may be ahead.
    bytes: usize,
    result: String,
    ending: Ending,
    not_kept: Option<String>,
}

impl<R: Runner, O: FnMut(Event<'_>)> Running<R, O> {
    /// Keeps the runner supplied with jobs from the lines, and writes the results.
    async fn drive(mut self) -> Result<Summary, Error> {
        // How reading the lines has ended, once it has.
        let mut end: Option<Result<(), Error>> = None;
        loop {
            let wants_more = end.is_none() && self.has_room();
            let others = self.jobs.len();
            tokio::select! {
                request = self.requests.next(others), if wants_more => match request {
                    Ok(Some(request)) => {
                        let taken = self.take(request).await;
                        self.results.flush().await?;
                        taken?;
                    }
                    Ok(None) => {
                        let lines = self.place + self.tally.earlier() as u64;
                        (self.observe)(Event::AllRead { lines });
                        end = Some(Ok(()));
                    }
                    // The lines read so far still get their results.
                    Err(error) => end = Some(Err(error)),
                },
                Some(joined) = self.jobs.join_next() => {
                    let finished = self.finish_all(joined).await;
                    self.results.flush().await?;
                    finished?;
                }
                else => break,
            }
        }
        end.transpose()?;
        let Self { tally, ids, earlier, .. } = self;
        Ok(Summary { tally, repeated_ids: ids.repeated(), unclaimed: earlier.left() })
    }

    fn has_room(&self) -> bool {
        let jobs = self.jobs.len() + self.results.held();
        self.runner.has_room(Ahead { jobs, bytes: self.bytes_ahead }) && self.results.has_room()
    }

    /// Has the job of a line run, unless an earlier run has its result.
    async fn take(&mut self, request: Result<Request<R::Job>, BadLine>) -> Result<(), Error> {
        let number = self.requests.number();
        let Request { id, digest, job, bytes } = match request {
            Ok(request) => request,
            Err(bad) => return self.reject(bad, number).await,
        };
        self.ids.add(&id, number);
        // Names depend on all earlier lines, also on those that aren't run.
        let folder = self.folders.as_mut().map(|folders| folders.name(&id, number));
        if let Some(was_success) = self.earlier.take(&id, &digest) {
            let ending = if was_success { Ending::Succeeded } else { Ending::Failed };
            self.tally.count_earlier(ending);
            (self.observe)(Event::Done { id: &id, ending, is_earlier: true, tally: &self.tally });
            return Ok(());
        }
        let place = self.next_place();
        let shard = self.shard;
        self.bytes_ahead += bytes;
        let running = self.runner.run(Line { number, id: id.clone(), folder, job });
        self.jobs.spawn(async move {
            let ran = match running.await {
                Ok(ran) => ran,
                Err(source) => return Err(Error::Run { id, source }),
            };
            let Ran { mut result, ending, not_kept } = ran;
            if ending != Ending::Refused {
                result.insert("digest".to_owned(), digest.into());
            }
            result.insert("id".to_owned(), id.clone());
            let result = line_of(result.into(), shard);
            Ok(Ended { place, id, bytes, result, ending, not_kept })
        });
        Ok(())
    }

    /// Writes the result of a line that is no valid job.
    async fn reject(&mut self, bad: BadLine, number: usize) -> Result<(), Error> {
        self.ids.add(&bad.id, number);
        let (place, ending) = (self.next_place(), Ending::Malformed);
        self.tally.count(ending);
        let id = bad.id.clone();
        (self.observe)(Event::Done { id: &id, ending, is_earlier: false, tally: &self.tally });
        self.results.put(place, line_of(bad.result(number), self.shard)).await
    }

    /// Takes the result of a line whose job has ended, and of those that have ended since.
    async fn finish_all(&mut self, first: Joined) -> Result<(), Error> {
        let mut next = Some(first);
        while let Some(joined) = next {
            self.finish(joined).await?;
            next = self.jobs.try_join_next();
        }
        Ok(())
    }

    /// Writes the result of a line whose job has ended.
    async fn finish(&mut self, joined: Joined) -> Result<(), Error> {
        let Ended { place, id, bytes, result, ending, not_kept } =
            joined.map_err(Error::Task)??;
        self.bytes_ahead -= bytes;
        if let Some(problem) = &not_kept {
            (self.observe)(Event::NotKept { id: &id, problem });
        }
        self.tally.count(ending);
        (self.observe)(Event::Done { id: &id, ending, is_earlier: false, tally: &self.tally });
        self.results.put(place, result).await
    }

    fn next_place(&mut self) -> u64 {
        let place = self.place;
        self.place += 1;
        place
    }
}
