//! `hatchery batch`: many programs, one JSON object per line in, one per line out.
//!
//! Results are written as jobs end or, with `--ordered`, in the order of the lines; `id` ties a
//! result to its line. Every line that isn't empty has exactly one result: a line that is not a
//! valid job gets one that says so.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use hatchery::{Builder, Hatchery, Job, TenantConfig};
use replace::is_same;
use tokio::fs::File;
use tokio::io::{AsyncBufRead, BufReader, BufWriter};
use tokio::task::JoinSet;

use crate::args::{BatchArguments, ProgressForm};
use crate::exit::{Exit, UsageError};
use crate::lines::Lines;
use crate::monitor::Monitor;
use crate::pool::start_pool;
use crate::shard::Shard;
use crate::threads::cpus;
use crate::{inputs, output, signals, terminal};

use self::attempts::Attempts;
use self::earlier::Earlier;
use self::folders::Folders;
use self::ids::Ids;
use self::line::{BadLine, Request, Shared};
use self::progress::Progress;
use self::requests::Requests;
use self::results::{Ending, Kept, Report, Results, Sink, Tally, line_of};
use self::stragglers::Stragglers;
#[cfg(feature = "nats")]
pub(crate) use self::submission::submit;

mod attempts;
mod clock;
mod earlier;
mod folders;
mod ids;
mod line;
pub(crate) mod merge;
mod parts;
mod progress;
mod requests;
mod results;
mod scripts;
mod stragglers;
#[cfg(feature = "nats")]
mod submission;

/// Jobs in the pool per worker, whatever their size: enough that no worker waits for the reader.
/// With `--ordered`, results that wait for an earlier one count as well, here and below.
const AHEAD: usize = 4;

/// Jobs in the pool per worker while all of them are small. Priorities and tenants' shares apply
/// among these, and their results fit in memory even if nobody reads them.
const SMALL_AHEAD: usize = 64;

/// Total bytes of lines, programs and files up to which the jobs in the pool count as small.
const SMALL_BYTES: usize = 64 << 20;

/// A line whose job has ended.
struct Ended {
    /// Index among the lines that get a result in this run.
    place: u64,
    /// Bytes that it took of `SMALL_BYTES`.
    bytes: usize,
    result: String,
    ending: Ending,
}

pub(crate) async fn run(arguments: BatchArguments) -> anyhow::Result<Exit> {
    let lines = Lines::new(open(&arguments.jobs).await?);
    let builder = builder(&arguments)?;
    let shared = shared(&arguments)?;
    let kept = kept(&arguments)?;
    let mut monitor = match &arguments.metrics {
        Some(address) => Some(Monitor::start(address).await?),
        None => None,
    };
    let (sink, earlier) =
        create(&arguments.jobs, arguments.out.as_deref(), arguments.resume, arguments.shard)
            .await?;
    if let Some(monitor) = &monitor {
        terminal::note(format_args!("metrics at http://{}/metrics", monitor.address()));
    }
    let hatchery = start_pool(builder).await?;
    if let Some(monitor) = &mut monitor {
        monitor.show(&hatchery);
    }
    let mut interrupts = signals::interrupts(2)?;
    let workers = arguments.workers.as_ref().map_or_else(cpus, |range| *range.end());
    let batch = Batch {
        workers,
        attempts: Attempts::new(hatchery.clone(), arguments.cut_stragglers.map(Stragglers::new)),
        has_contents: arguments.file_contents,
        kept,
        folders: Folders::default(),
        ids: Ids::default(),
        earlier,
        requests: Requests::new(lines, shared, workers, arguments.shard),
        shard: arguments.shard,
        results: Results::new(sink, arguments.ordered),
        jobs: JoinSet::new(),
        bytes_ahead: 0,
        place: 0,
        tally: Tally::default(),
        progress: Progress::begin(
            arguments.progress,
            &arguments.jobs,
            arguments.out.is_some(),
            arguments.shard,
        ),
    };
    let tally = tokio::select! {
        tally = batch.drive() => tally?,
        exit = interrupts.first() => {
            terminal::note(match arguments.out {
                Some(_) => "interrupted; written results are complete, --resume continues from them",
                None => "interrupted",
            });
            hatchery.abort().await;
            return Ok(exit);
        }
    };
    hatchery.drain().await;
    Ok(sum_up(&tally))
}

/// Says how a batch has ended, and returns how the command ends.
fn sum_up(tally: &Tally) -> Exit {
    let Tally { malformed, earlier, .. } = *tally;
    let (succeeded, failed) = (tally.succeeded(), tally.unsuccessful());
    let before = match earlier {
        0 => String::new(),
        count => format!("; {count} of these from an earlier run"),
    };
    terminal::note(format_args!(
        "{succeeded} succeeded, {failed} did not, {malformed} lines were invalid{before}"
    ));
    match (malformed, failed) {
        (1.., _) => Exit::Usage,
        (0, 1..) => Exit::Failed,
        (0, 0) => Exit::Success,
    }
}

/// Opens the folders that keep what lines produce.
fn kept(arguments: &BatchArguments) -> anyhow::Result<Kept> {
    let open = |path: &Option<PathBuf>| -> anyhow::Result<_> {
        Ok(path.as_deref().map(output::open).transpose()?.map(Arc::new))
    };
    Ok(Kept { files: open(&arguments.output_dir)?, displays: open(&arguments.save_displays)? })
}

/// Collects what the options give to every line. Reads files and opens folders once.
fn shared(arguments: &BatchArguments) -> anyhow::Result<Shared> {
    let files = inputs::add_named(Job::default(), &arguments.input)?;
    Ok(Shared {
        limits: arguments.limits.limits(),
        files: inputs::add_mounts(files, &arguments.mount)?,
        conduct: arguments.conduct.clone(),
    })
}

fn builder(arguments: &BatchArguments) -> anyhow::Result<Builder> {
    // The batch itself limits what waits, so the pool must not refuse large jobs.
    let start = match arguments.progress {
        ProgressForm::None => crate::progress::Display::Nothing,
        _ => crate::progress::sink(),
    };
    let builder = Hatchery::builder().queue_limit_bytes(usize::MAX).progress(start);
    let mut builder = arguments.image.apply_to_all(builder)?;
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
    let unreadable = || UsageError(format!("can't read `{}`", path.display()));
    let file = File::open(path).await.with_context(unreadable)?;
    if file.metadata().await.with_context(unreadable)?.is_dir() {
        return Err(anyhow::Error::msg("it is a directory").context(unreadable()));
    }
    Ok(Box::new(BufReader::new(file)))
}

/// Opens the sink for results, and reads the results of an earlier run.
async fn create(
    jobs: &Path,
    out: Option<&Path>,
    resumes: bool,
    shard: Option<Shard>,
) -> anyhow::Result<(Sink, Earlier)> {
    let Some(path) = out else {
        let stdout = BufWriter::new(tokio::io::stdout());
        return Ok((Sink::Stream(Box::new(stdout)), Earlier::default()));
    };
    if is_same(path, jobs) {
        let text = format!("`{}` holds the jobs; write the results elsewhere", path.display());
        return Err(UsageError(text).into());
    }
    if resumes {
        let (earlier, file) = earlier::resume(path, shard)?;
        return Ok((Sink::File(file), earlier));
    }
    let unwritable = || UsageError(format!("can't write `{}`", path.display()));
    // Not truncated before the lock shows that nobody else writes to it.
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    // Opening a pipe waits for its reader.
    let file =
        tokio::fs::OpenOptions::from(options.clone()).open(path).await.with_context(unwritable)?;
    if !file.metadata().await.with_context(unwritable)?.is_file() {
        // A pipe, whose reader may be slow.
        return Ok((Sink::Stream(Box::new(BufWriter::new(file))), Earlier::default()));
    }
    let file = earlier::claim(file.into_std().await, path, &options)?;
    file.set_len(0).with_context(unwritable)?;
    Ok((Sink::File(file), Earlier::default()))
}

/// A running batch.
struct Batch {
    workers: usize,
    attempts: Attempts,
    has_contents: bool,
    kept: Kept,
    /// Names of the lines' folders, if anything is kept.
    folders: Folders,
    ids: Ids,
    earlier: Earlier,
    requests: Requests,
    shard: Option<Shard>,
    results: Results,
    jobs: JoinSet<anyhow::Result<Ended>>,
    bytes_ahead: usize,
    /// Lines so far that get a result in this run.
    place: u64,
    tally: Tally,
    progress: Progress,
}

impl Batch {
    /// Keeps the pool supplied with jobs from the lines, and writes the results.
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
                    let ended = joined.context("a task of the batch died")??;
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
        let left = self.earlier.left();
        if left > 0 {
            terminal::note(format_args!(
                "{left} earlier results belong to lines that the input no longer has, or that have \
                 changed"
            ));
        }
        Ok(self.tally)
    }

    fn has_room(&self) -> bool {
        let ahead = self.jobs.len() + self.results.held();
        let has_room = ahead < self.workers * AHEAD
            || ahead < self.workers * SMALL_AHEAD && self.bytes_ahead < SMALL_BYTES;
        has_room && self.results.has_room()
    }

    /// Submits the job of a line, unless an earlier run has its result.
    async fn take(&mut self, request: Result<Request, BadLine>) -> anyhow::Result<()> {
        let number = self.requests.number();
        let request = match request {
            Ok(request) => request,
            Err(bad) => {
                self.tally.malformed += 1;
                self.ids.add(&bad.id, number);
                let place = self.next_place();
                let result = line_of(bad.result(number), self.shard);
                return self.results.put(place, result).await;
            }
        };
        let Request { id, digest, job, deadline, bytes } = request;
        self.ids.add(&id, number);
        // Names depend on all earlier lines, also on those that aren't run.
        let kept = self.kept.clone();
        let folder = if kept.is_any() { self.folders.name(&id, number) } else { String::new() };
        if let Some(was_success) = self.earlier.take(&id, &digest) {
            self.tally.earlier += 1;
            self.tally.count(if was_success { Ending::Succeeded } else { Ending::Failed });
            return Ok(());
        }
        let place = self.next_place();
        let outcome = self.attempts.outcome(job, deadline);
        let (has_contents, shard) = (self.has_contents, self.shard);
        let report = Report { id, digest, shard, has_contents, kept, folder };
        self.bytes_ahead += bytes;
        self.jobs.spawn(async move {
            let (result, ending) = report.line(outcome.await).await?;
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
