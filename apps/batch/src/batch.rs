//! The loop of a batch: keeps a runner supplied with jobs from the lines, and writes the results.

use std::sync::Arc;

use tokio::task::{JoinError, JoinHandle, JoinSet};

use crate::error::Error;
use crate::line::{self, BadLine, Folders, Ids, NoRequest, RepeatedIds, Request};
use crate::lines::Lines;
use crate::output::{Earlier, Output, Results, line_of};
use crate::pool_runner::{PAUSE, TRIES_ALONE, sleep};
use crate::runner::{Ahead, Line, Ran, Runner};
use crate::shard::Shard;
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

    /// Writes results in the order of the lines, not as jobs end. Results that wait for earlier
    /// ones count as unfinished jobs. While 64 MiB of them wait, no further line is read.
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
                        (self.observe)(Event::AllRead(lines));
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
                Err(source) => return Err(Error::Run(id, source)),
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

// The requests of the lines, in order.
//
// Long lines, and those that may name a program, are parsed on another thread: parsing them can take
// long, or never end if the program is on a hanging file system. The batch still hears Ctrl-C and
// writes results meanwhile. Other lines are parsed at once, in less time than a hand-over takes.

/// The longest line that is parsed at once, in bytes. Parsing it takes about 10 µs.
const SHORT_BYTES: usize = 4 << 10;

pub(crate) type Parsed<T> = Result<Option<T>, NoRequest>;
/// Parses the line of this number; the flag says whether it is ahead of what the workers need.
type Parse<T> = dyn Fn(&[u8], usize, bool) -> Parsed<T> + Send + Sync;

/// Reads lines, and parses them into requests of one kind.
pub(crate) struct Requests<T> {
    lines: Lines,
    parse: Arc<Parse<T>>,
    workers: usize,
    /// The shard whose lines are returned; without one, all are.
    shard: Option<Shard>,
    /// The last line read, until it is returned. Kept here, so that dropping `next` loses nothing.
    present: Option<Arc<[u8]>>,
    parsing: Option<JoinHandle<Parsed<T>>>,
}

impl<T: Send + 'static> Requests<T> {
    /// Parses lines in this way; its flag says whether a line is ahead of what the workers need.
    pub(crate) fn new(
        lines: Lines,
        parse: impl Fn(&[u8], usize, bool) -> Parsed<T> + Send + Sync + 'static,
        workers: usize,
        shard: Option<Shard>,
    ) -> Self {
        Self { lines, parse: Arc::new(parse), workers, shard, present: None, parsing: None }
    }

    /// Returns the number of the last returned line, from 1.
    pub(crate) fn number(&self) -> usize {
        self.lines.number()
    }

    /// Returns the request of the next line that isn't empty; `None` at the end of the input.
    /// `others` is the number of earlier jobs that haven't ended. If this is dropped and called
    /// again after one has ended, a line that waits for descriptors is retried at once. Cancel-safe.
    /// Fails if the input can't be read, or if a line gets no descriptor although no job runs.
    pub(crate) async fn next(
        &mut self,
        others: usize,
    ) -> Result<Option<Result<T, BadLine>>, Error> {
        let mut tries = 0;
        loop {
            let line = match &self.present {
                Some(line) => Arc::clone(line),
                None => match self.lines.next().await.map_err(Error::Read)? {
                    Some(Ok(line)) if self.shard.is_some_and(|shard| !shard.has(&line)) => continue,
                    Some(Ok(line)) => Arc::clone(self.present.insert(line.into())),
                    Some(Err(_)) if self.shard.is_some_and(|shard| self.is_beyond(shard)) => {
                        continue;
                    }
                    Some(Err(too_long)) => {
                        let problem = format!("the line is {too_long}");
                        return Ok(Some(Err(BadLine { id: self.number().into(), problem })));
                    }
                    None => return Ok(None),
                },
            };
            let request = match self.parsed(line, others >= self.workers).await? {
                Err(NoRequest::NoDescriptor(problem)) => {
                    tries += 1;
                    if others == 0 && tries >= TRIES_ALONE {
                        return Err(Error::NoDescriptor(self.number(), problem));
                    }
                    // The worker of a job that has ended may still hold some.
                    sleep(PAUSE).await;
                    continue;
                }
                Ok(request) => request.map(Ok),
                Err(NoRequest::Bad(bad)) => Some(Err(bad)),
            };
            self.present = None;
            if request.is_some() {
                return Ok(request);
            }
        }
    }

    /// Returns whether the present line, which is too long, belongs to another shard.
    fn is_beyond(&self, shard: Shard) -> bool {
        Shard::of_too_long(self.number(), shard.count()) != shard
    }

    async fn parsed(&mut self, line: Arc<[u8]>, is_ahead: bool) -> Result<Parsed<T>, Error> {
        if self.parsing.is_none() && is_parsed_at_once(&line) {
            return Ok((self.parse)(&line, self.lines.number(), is_ahead));
        }
        let parsing = self.parsing.get_or_insert_with(|| {
            let (parse, number) = (Arc::clone(&self.parse), self.lines.number());
            tokio::task::spawn_blocking(move || parse(&line, number, is_ahead))
        });
        let parsed = parsing.await;
        self.parsing = None;
        parsed.map_err(Error::Task)
    }
}

/// Returns whether a line is short and doesn't name a program, whose key may be written with escapes.
fn is_parsed_at_once(line: &[u8]) -> bool {
    let has = |text: &[u8]| line.windows(text.len()).any(|part| part == text);
    line.len() <= SHORT_BYTES && !has(b"file") && !has(b"\\u")
}

#[cfg(test)]
mod requests_tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::io::BufReader;

    use super::*;
    use crate::line::{self, Request};
    use crate::pool_runner::{LineJob, prepare};

    fn requests(
        text: &'static str,
        parse: impl Fn(&[u8], usize, bool) -> Parsed<Request<LineJob>> + Send + Sync + 'static,
    ) -> Requests<Request<LineJob>> {
        Requests::new(Lines::new(BufReader::new(text.as_bytes())), parse, 2, None)
    }

    fn parse(line: &[u8], number: usize) -> Parsed<Request<LineJob>> {
        line::parse(line, number, false, &[], |line| prepare(line, |job| job))
    }

    /// Finds no descriptor `of` times, then parses.
    fn short(
        of: u32,
    ) -> impl Fn(&[u8], usize, bool) -> Parsed<Request<LineJob>> + Send + Sync + 'static {
        let tries = AtomicU32::new(0);
        move |line, number, _| match tries.fetch_add(1, Ordering::Relaxed) {
            tried if tried < of => Err(NoRequest::NoDescriptor("none is left".to_owned())),
            _ => parse(line, number),
        }
    }

    #[test]
    fn only_short_lines_without_programs_are_parsed_at_once() {
        assert!(is_parsed_at_once(br#"{"code": "x = 1\n"}"#));
        assert!(!is_parsed_at_once(br#"{"file": "x.py"}"#));
        assert!(!is_parsed_at_once(br#"{"\u0066ile": "x.py"}"#));
        assert!(!is_parsed_at_once(&[b' '; SHORT_BYTES + 1]));
    }

    #[tokio::test]
    async fn lines_come_in_their_order_with_their_numbers() {
        let text = "{\"code\": \"1\"}\n\n{}\n{\"code\": \"2\"}";
        let mut requests = requests(text, |line, number, _| parse(line, number));
        let mut come = Vec::new();
        while let Some(request) = requests.next(0).await.unwrap() {
            let source = request.map(|request| request.job.job.source().to_owned());
            come.push((requests.number(), source.map_err(|bad| bad.id)));
        }
        let source = |text: &str| Ok(text.to_owned());
        assert_eq!(come, [(1, source("1")), (3, Err(3.into())), (4, source("2"))]);
    }

    #[tokio::test]
    async fn dropping_a_wait_for_a_line_loses_none() {
        let (goes_on, waits) = std::sync::mpsc::channel();
        let waits = Mutex::new(waits);
        let line = "{\"code\": \"'may name a file'\"}\n";
        let mut requests = requests(line, move |line, number, _| {
            waits.lock().unwrap().recv().unwrap();
            parse(line, number)
        });
        // Parsing doesn't block the task.
        for _ in 0..3 {
            tokio::select! {
                biased;
                _ = requests.next(0) => panic!("nothing let it go on"),
                () = tokio::task::yield_now() => {}
            }
        }
        goes_on.send(()).unwrap();
        assert!(requests.next(0).await.unwrap().unwrap().is_ok());
        assert!(requests.next(0).await.unwrap().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_waits_for_descriptors_as_long_as_jobs_run() {
        let line = "{\"code\": \"1\"}\n";
        let mut many = requests(line, short(3 * TRIES_ALONE));
        assert!(many.next(1).await.unwrap().unwrap().is_ok());
        let mut few = requests(line, short(TRIES_ALONE - 1));
        assert!(few.next(0).await.unwrap().unwrap().is_ok());
        let mut alone = requests(line, short(TRIES_ALONE));
        let problem = alone.next(0).await.unwrap_err().to_string();
        assert!(problem.starts_with("line 1: none is left"), "{problem}");
        assert!(problem.contains("ulimit -n"), "{problem}");
    }

    #[tokio::test]
    async fn lines_are_ahead_once_each_worker_has_a_job() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sees = Arc::clone(&seen);
        let text = "{\"code\": \"\"}\n{\"code\": \"\"}\n";
        let mut requests = requests(text, move |line, number, is_ahead| {
            sees.lock().unwrap().push(is_ahead);
            parse(line, number)
        });
        for others in [1, 2] {
            assert!(requests.next(others).await.unwrap().is_some());
        }
        assert_eq!(*seen.lock().unwrap(), [false, true]);
    }
}
