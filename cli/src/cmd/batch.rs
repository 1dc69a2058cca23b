//! `hatchery batch`: many programs, one JSON object per line in, one per line out. The crate
//! `batch` runs them; this file turns options into a batch, and shows its progress and end.

pub(crate) use submission::submit;

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use batch::{Batch, Lines, Output, PoolRunner, Shard, Summary, Tally};
use hatchery::error::counted;
use hatchery::image::ProgramImports;
use hatchery::record::{RecordFolder, Recorder};
use hatchery::{Builder, Hatchery, Job};
use progress::Progress;
use replace::is_same;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::io::BufReader;

use crate::args::{BatchArguments, KnownImports, ProgressForm};
use crate::exit::{Exit, UsageError};
use crate::pool::{start_metrics, start_pool, weighted};
use crate::{inputs, output, signals, terminal};

pub(crate) mod merge;
mod progress;
mod submission;

pub(crate) async fn run(arguments: BatchArguments) -> anyhow::Result<Exit> {
    let lines = open(&arguments.jobs).await?;
    let builder = builder(&arguments)?;
    let give = give(&arguments)?;
    let folder = |path: Option<&Path>| path.map(output::open).transpose();
    let files = folder(arguments.output_dir.as_deref())?;
    let displays = folder(arguments.save_displays.as_deref())?;
    let mut monitor = start_metrics(arguments.metrics.as_deref(), None).await?;
    let output =
        create(&arguments.jobs, arguments.out.as_deref(), arguments.resume, arguments.shard)
            .await?;
    let hatchery = start_pool(builder).await?;
    if let Some(monitor) = &mut monitor {
        monitor.show(&hatchery);
    }
    let mut interrupts = signals::interrupts(2)?;
    let mut runner = PoolRunner::new(hatchery.clone(), arguments.size.workers.most()).give(give);
    if let Some(factor) = arguments.cut_stragglers {
        runner = runner.cut_stragglers(factor);
    }
    if arguments.file_contents {
        runner = runner.file_contents();
    }
    if let Some(folder) = files {
        runner = runner.keep_files(folder);
    }
    if let Some(folder) = displays {
        runner = runner.keep_displays(folder);
    }
    let recorder = match arguments.record {
        Some(folder) => {
            Some(Arc::new(RecordFolder::open(folder)?.recorder(&hatchery, "batch").await?))
        }
        None => None,
    };
    let runner = recorder.iter().cloned().fold(runner, PoolRunner::record);
    let batch = Batch::new(runner);
    let batch = if arguments.ordered { batch.ordered() } else { batch };
    let has_out = arguments.out.is_some();
    let progress = Progress::begin(arguments.progress, &arguments.jobs, has_out, arguments.shard);
    let summary = tokio::select! {
        summary = progress.following(|observe| batch.run(lines, output, observe)) => summary?,
        exit = interrupts.first() => {
            terminal::note(match arguments.out {
                Some(_) => "interrupted; written results are complete, --resume continues from them",
                None => "interrupted",
            });
            hatchery.abort().await;
            finish(recorder).await?;
            return Ok(exit);
        }
    };
    hatchery.drain().await;
    finish(recorder).await?;
    Ok(sum_up(&summary))
}

async fn finish(recorder: Option<Arc<Recorder>>) -> Result<(), hatchery::Error> {
    match recorder {
        Some(recorder) => recorder.finish().await,
        None => Ok(()),
    }
}

/// Says how a batch has ended, and returns how the command ends.
fn sum_up(summary: &Summary) -> Exit {
    let Summary { tally, repeated_ids, unclaimed, .. } = summary;
    repeated_ids.iter().for_each(terminal::note);
    if *unclaimed > 0 {
        terminal::note(format_args!(
            "{unclaimed} earlier results belong to lines that the input no longer has, or that have \
             changed"
        ));
    }
    exit_of(tally)
}

/// Says how lines have ended, and returns how the command ends.
fn exit_of(tally: &Tally) -> Exit {
    let (succeeded, failed) = (tally.succeeded(), tally.unsuccessful());
    let (malformed, earlier) = (tally.malformed(), tally.earlier());
    let before = match earlier {
        0 => String::new(),
        count => format!("; {count} of these from an earlier run"),
    };
    terminal::note(format_args!(
        "{succeeded} succeeded, {failed} did not, {} invalid{before}",
        counted(malformed, "line")
    ));
    match (malformed, failed) {
        (1.., _) => Exit::Usage,
        (0, 1..) => Exit::Failed,
        (0, 0) => Exit::Success,
    }
}

/// Returns what gives to every line what the options say. Reads files and opens folders once.
fn give(arguments: &BatchArguments) -> anyhow::Result<impl Fn(Job) -> Job + use<>> {
    let files = inputs::add_all(Job::default(), &arguments.host)?;
    let (limits, conduct) = (arguments.programs.limits(), arguments.conduct.clone());
    Ok(move |job: Job| conduct.apply(job.with_files_of(&files)).limits(limits.clone()))
}

fn builder(arguments: &BatchArguments) -> anyhow::Result<Builder> {
    // The batch itself limits what waits, so the pool must not refuse large jobs.
    let start = match arguments.progress {
        ProgressForm::None => crate::progress::Display::Nothing,
        _ => crate::progress::sink(),
    };
    let builder = Hatchery::builder().queue_limit_bytes(usize::MAX).progress(start);
    // Random numbers of deterministic runs differ with the modules of the image.
    let is_free = arguments.record.is_none() && !arguments.conduct.is_deterministic();
    let imports = || if is_free { imports(&arguments.jobs) } else { ProgramImports::default() };
    let builder =
        arguments.programs.image.apply_to_all_knowing(builder, KnownImports::Ahead(&imports))?;
    Ok(weighted(arguments.size.set(builder), &arguments.tenant)?)
}

/// What is read of the jobs to learn what they import, in bytes; and of a program's file.
const READ_AHEAD_BYTES: u64 = 64 << 20;
const PROGRAM_BYTES: u64 = 1 << 20;

/// What a line says about its program.
#[derive(Deserialize)]
struct LineProgram {
    code: Option<String>,
    file: Option<PathBuf>,
    deterministic: Option<IgnoredAny>,
}

/// Counts what the programs of a file import, as far as it can be read.
fn imports(jobs: &Path) -> ProgramImports {
    let mut imports = ProgramImports::default();
    let is_file = |path: &Path| path.metadata().is_ok_and(|metadata| metadata.is_file());
    let Some(file) = Some(jobs).filter(|path| is_file(path)).and_then(|path| File::open(path).ok())
    else {
        return imports;
    };
    for line in io::BufReader::new(file.take(READ_AHEAD_BYTES)).split(b'\n').map_while(Result::ok) {
        let Ok(line) = serde_json::from_slice::<LineProgram>(&line) else { continue };
        if line.deterministic.is_some() {
            return ProgramImports::default();
        }
        let source = line.code.or_else(|| {
            let path = line.file.filter(|path| is_file(path))?;
            let mut source = Vec::new();
            File::open(path).ok()?.take(PROGRAM_BYTES).read_to_end(&mut source).ok()?;
            Some(String::from_utf8_lossy(&source).into_owned())
        });
        source.iter().for_each(|source| imports.add(source));
    }
    imports
}

/// Opens the jobs; `-` is standard input.
async fn open(jobs: &Path) -> anyhow::Result<Lines> {
    if jobs == Path::new("-") {
        return Ok(Lines::new(BufReader::new(tokio::io::stdin())));
    }
    Ok(Lines::open(jobs).await?)
}

/// Opens where the results go, and says what an earlier run left there.
async fn create(
    jobs: &Path,
    out: Option<&Path>,
    resumes: bool,
    shard: Option<Shard>,
) -> anyhow::Result<Output> {
    let Some(path) = out else { return Ok(Output::stream(tokio::io::stdout(), shard)) };
    if is_same(path, jobs) {
        let text = format!("`{}` holds the jobs; write the results elsewhere", path.display());
        return Err(UsageError(text).into());
    }
    if !resumes {
        return Ok(Output::create(path, shard).await?);
    }
    let output = Output::resume(path, shard)?;
    if let Some(resumed) = &output.resumed {
        let (path, results, removed) = (path.display(), resumed.results, resumed.removed);
        terminal::note(format_args!("`{path}` has {}", counted(results, "final result")));
        if removed > 0 {
            terminal::note(format_args!("removed {} to run again", counted(removed, "result")));
        }
        if resumed.was_cut_off {
            terminal::note("removed an incomplete result");
        }
    }
    Ok(output)
}
