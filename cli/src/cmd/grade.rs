//! `hatchery grade`: grades samples of generated code against the tests of their tasks.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use bytesize::ByteSize;
use grade::{
    Comparison, Earlier, GradeError, Graded, Grader, Report, ResultsFile, Sample, Settings, Suite,
    Task, TaskOptions, VerdictRecorder, grade_all, own_samples, read_results, read_samples,
    read_tasks,
};
use hatchery::error::{chain, counted};
use hatchery::image::ProgramImports;
use hatchery::record::RecordFolder;
use hatchery::{Hatchery, Interface, Limits};
use serde::Serialize;

use crate::args::{GradeArguments, KnownImports, RecordedSamples};
use crate::exit::{Exit, UsageError};
use crate::pool::cpus;
use crate::{progress, signals, terminal};

pub(super) mod shared;

/// Modules that most samples and tests import, so that they are imported once for all.
const PRELOAD: &str = "ast bisect collections contextlib copy datetime decimal fractions functools heapq \
     importlib inspect itertools json math operator random re statistics string typing unittest";

/// Returns the modules that a grader's interpreters import first.
pub(super) fn preload() -> impl Iterator<Item = &'static str> {
    PRELOAD.split(' ')
}

pub(crate) async fn run(arguments: GradeArguments) -> anyhow::Result<Exit> {
    if let Some(files) = &arguments.compare {
        return compare(files, &arguments);
    }
    let Some(tasks_file) = &arguments.tasks else {
        return Err(UsageError("give a file of tasks, or `--compare A B`".to_owned()).into());
    };
    let options = TaskOptions { challenge: arguments.challenge };
    let tasks = read_tasks(tasks_file, options).map_err(usage)?;
    let (samples, bad_samples) = match &arguments.samples {
        Some(file) => {
            let lines = read_samples(file, &tasks.read).map_err(usage)?;
            (lines.read, lines.bad)
        }
        None => (own_samples(&tasks.read).map_err(usage)?, Vec::new()),
    };
    let bad: Vec<String> =
        tasks.bad.iter().chain(&bad_samples).map(|error| chain(error).to_string()).collect();
    bad.iter().for_each(terminal::error);
    let (out, earlier) = match &arguments.out {
        None => (None, Earlier::default()),
        Some(path) if arguments.resume => {
            let (file, earlier) = ResultsFile::resume(path).map_err(usage)?;
            (Some(file), earlier)
        }
        Some(path) => (Some(ResultsFile::create(path).map_err(usage)?), Earlier::default()),
    };
    let settings = Settings {
        cpu_time: arguments.cpu_time,
        wall_time: arguments.timeout,
        memory_bytes: bytes(arguments.memory),
        value_bytes: bytes(arguments.value_bytes),
        limits: arguments
            .files
            .set(Limits { output_bytes: bytes(arguments.output), ..Limits::default() }),
        allow_shared: arguments.allow_shared,
        check_solutions: !arguments.no_solutions,
        is_deterministic: arguments.record.is_some(),
        at_once: match (arguments.at_once, &arguments.workers) {
            (Some(at_once), _) => at_once,
            (None, Some(workers)) => (workers.end() / 2).max(1),
            (None, None) => cpus(),
        },
    };
    let recorder = match arguments.record {
        Some(folder) => {
            let keeps_all = arguments.record_samples == RecordedSamples::All;
            Some(VerdictRecorder::new(RecordFolder::open(folder)?, keeps_all))
        }
        None => None,
    };
    let builder = Hatchery::builder().preload(preload()).progress(progress::sink());
    let imports = || match recorder {
        // A replay needs the same image.
        Some(_) => ProgramImports::default(),
        None => imports(&tasks.read, &samples),
    };
    let builder = arguments
        .image
        .apply_knowing(builder, KnownImports::Ahead(&imports))?
        .interface(Interface::Grade);
    let grader = Arc::new(Grader::start(builder, settings).await?);
    let pool = grader.pool().clone();
    let mut interrupts = signals::interrupts(1)?;
    let mut kept = 0;
    let tell = |_: &Graded, is_new: bool| kept += usize::from(!is_new);
    let grading = grade_all(grader, tasks.read.into(), samples, out, earlier, recorder, tell);
    let results = tokio::select! {
        results = grading => results?,
        exit = interrupts.first() => {
            terminal::note(match arguments.out {
                Some(_) => "interrupted; written results are complete, --resume continues from them",
                None => "interrupted",
            });
            pool.abort().await;
            return Ok(exit);
        }
    };
    pool.drain().await;
    if kept > 0 {
        terminal::note(format_args!("{} known already", counted(kept, "result")));
    }
    let report = Report::new(&results, &arguments.k);
    terminal::print(report.text())?;
    let title = arguments.samples.as_ref().unwrap_or(tasks_file).display().to_string();
    write_json(arguments.json.as_deref(), &report)?;
    if let Some(path) = &arguments.html {
        write(path, &report.html(&title, &results))?;
    }
    if !bad.is_empty() {
        let count = bad.len();
        let lines = if count == 1 { "line was" } else { "lines were" };
        terminal::error(format_args!("{count} {lines} left out, for the reasons above"));
        return Ok(Exit::Usage);
    }
    Ok(if results.iter().all(Graded::passed) { Exit::Success } else { Exit::Failed })
}

/// Counts what samples and their tests import.
fn imports(tasks: &[Task], samples: &[Sample]) -> ProgramImports {
    let mut imports = ProgramImports::default();
    for sample in samples {
        imports.add(&sample.code);
        if let Some(Suite::Code { tests, setup, .. }) =
            tasks.get(sample.task).map(|task| &task.suite)
        {
            imports.add(&[setup.as_str(), &tests.join("\n")].join("\n"));
        }
    }
    imports
}

fn bytes(size: ByteSize) -> usize {
    usize::try_from(size.as_u64()).unwrap_or(usize::MAX)
}

fn compare(files: &[std::path::PathBuf], arguments: &GradeArguments) -> anyhow::Result<Exit> {
    let [first, second] = files else {
        return Err(UsageError("give `--compare` two files of results".to_owned()).into());
    };
    let results = [read_results(first).map_err(usage)?, read_results(second).map_err(usage)?];
    let names = [first.display().to_string(), second.display().to_string()];
    let comparison = Comparison::new((&names[0], &results[0]), (&names[1], &results[1]));
    terminal::print(comparison.text())?;
    write_json(arguments.json.as_deref(), &comparison)?;
    Ok(Exit::Success)
}

fn usage(error: GradeError) -> anyhow::Error {
    let text = error.to_string();
    match std::error::Error::source(&error) {
        Some(cause) => anyhow::anyhow!(cause.to_string()).context(UsageError(text)),
        None => UsageError(text).into(),
    }
}

fn write_json(path: Option<&Path>, report: &impl Serialize) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    let mut text = serde_json::to_string_pretty(report)?;
    text.push('\n');
    write(path, &text)
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let unwritable = || UsageError(format!("can't write `{}`", path.display()));
    std::fs::write(path, text).with_context(unwritable)
}
