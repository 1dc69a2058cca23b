//! `hatchery notebook run`: Jupyter notebooks, each in a session, in parallel.
//!
//! The crate `notebook` runs them. This command reads its arguments, chooses the paths of the copies,
//! and tells the user how it went.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use ::notebook::html::{Part, page};
use ::notebook::{
    Difference, Error, Observer, PrefixCache, Report, Settings, Task, Unmarked, compare,
};
use anyhow::Context;
use hatchery::cache::CacheDir;
use hatchery::image::ProgramImports;
use hatchery::record::RecordFolder;
use hatchery::{Hatchery, Interface, Job, Limits};
use replace::{Access, replace};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::image::cache_dir;
use crate::args::{KnownImports, NotebookArguments};
use crate::exit::{Exit, UsageError};
use crate::pool::{cpus, start_pool};
use crate::{inputs, signals, terminal};
use board::Board;
use summary::{Tally, Told, described};
use tasks::GivenParameters;

mod board;
mod summary;
pub(crate) mod tasks;

/// The variable that names the folder of the states which later runs take over. Empty: none. Default:
/// the folder `notebooks` in the cache.
const STATES_VARIABLE: &str = "HATCHERY_NOTEBOOK_STATES";

/// The most displays of one cell.
const MOST_DISPLAYS: usize = 100_000;

pub(crate) async fn run(arguments: NotebookArguments) -> anyhow::Result<Exit> {
    let sources = tasks::read(&arguments.notebooks)?;
    let parameters = GivenParameters::read(&arguments.parameters)?;
    // If their names are known, unsuitable ones are reported before anything starts.
    let placed = match parameters.sets.is_some() {
        true => None,
        false => Some(tasks::place(&arguments, &sources, &[])?),
    };
    // Progress bars update their display again and again; the limit on bytes still bounds them.
    let limits = Limits { display_count: MOST_DISPLAYS, ..arguments.programs.limits() };
    let mounts = inputs::add_mounts(Job::default(), &arguments.host.folders)?;
    let files = inputs::read_named(&arguments.host.input)?;

    let builder = arguments.programs.builder().limits(limits.clone());
    let image = &arguments.programs.image;
    let imports = || {
        let mut imports = ProgramImports::default();
        for source in &sources {
            let cells: Vec<_> = source.notebook.code().map(|cell| cell.source.as_str()).collect();
            imports.add(&cells.join("\n"));
        }
        imports
    };
    // Their saved states need the same image, so it isn't the default.
    let imports = match image.is_auto() {
        true => KnownImports::Ahead(&imports),
        false => KnownImports::Never,
    };
    let mut builder = image.apply_knowing(builder, imports)?.interface(Interface::Notebook);
    let mut at_once = cpus();
    if let Some(workers) = &arguments.workers {
        at_once = *workers.end();
        builder = builder.workers_between(workers.clone());
    } else {
        builder =
            builder.workers(placed.as_ref().map_or(at_once, |tasks| at_once.min(tasks.len())));
    }
    let pool = start_pool(builder).await?;
    let sets = parameters.sets(&pool, &sources).await?;
    let placed = match placed {
        Some(placed) if sets.is_empty() => placed,
        _ => tasks::place(&arguments, &sources, &sets)?,
    };
    let (tasks, told): (Vec<_>, Vec<_>) = placed.into_iter().unzip();
    let mut settings = Settings::new(pool, limits).inputs(files)?;
    settings.mounts = mounts;
    settings.resumes = arguments.resume;
    settings.allows_errors = arguments.allow_errors;
    settings.prefixes = prefixes(&arguments)?;
    settings.writes = tasks::writes(&arguments);
    settings.record = arguments.record.clone().map(RecordFolder::open).transpose()?;
    let names = told.iter().map(|told| told.name.clone()).collect();
    let board = Arc::new(Board::new(names, arguments.progress));
    settings.observer = Arc::clone(&board) as Arc<dyn Observer>;
    settings.announce(&tasks);
    let after = After::new(&arguments, settings.pool.clone())?;
    let tally = run_all(tasks, &told, settings, &board, after, at_once).await?;
    if tally.count() > 1 {
        terminal::note(&tally);
    }
    Ok(tally.exit())
}

/// Runs the notebooks in the given order, `at_once` in parallel, and reports each as it ends.
async fn run_all(
    tasks: Vec<Task>,
    told: &[Told],
    settings: Settings,
    board: &Board,
    mut after: After,
    at_once: usize,
) -> anyhow::Result<Tally> {
    // The first interrupts the running cells, the second stops them, the third ends this process.
    let interrupts = signals::interrupts(3)?;
    let (places, settings) = (Arc::new(Semaphore::new(at_once)), Arc::new(settings));
    let mut running = JoinSet::new();
    let mut tally = Tally::default();
    for task in tasks {
        let (settings, interrupts) = (Arc::clone(&settings), interrupts.counts());
        let places = Arc::clone(&places);
        running.spawn(async move {
            let _place = places.acquire_owned().await.expect("nobody closes it");
            let (index, total) = (task.index, task.notebook.code().count());
            (index, total, ::notebook::run(task, &settings, interrupts).await)
        });
    }
    while let Some(ended) = running.join_next().await {
        let (index, total, report) = ended.context("a task of a notebook died")?;
        let differences = after.differences(&report).await?;
        let exit = told[index].conclude(&report, total, differences.as_deref());
        after.add(index, &told[index].name, &report, differences.as_deref());
        board.ended(index, &report);
        tally.add(exit, &report);
    }
    after.write(&tally)?;
    Ok(tally)
}

/// Returns the states that notebooks share, unless all cells shall run.
fn prefixes(arguments: &NotebookArguments) -> anyhow::Result<Option<PrefixCache>> {
    if arguments.fresh || arguments.check.is_some() || arguments.record.is_some() {
        return Ok(None);
    }
    let folder = match std::env::var_os(STATES_VARIABLE) {
        Some(folder) if folder.is_empty() => return Ok(Some(PrefixCache::in_memory())),
        Some(folder) => PathBuf::from(folder),
        None => CacheDir::open(cache_dir().as_deref())?.root().join("notebooks"),
    };
    Ok(Some(PrefixCache::in_folder(folder, arguments.keep_states.as_u64())))
}

/// The comparison and the report, as far as the user wants them.
struct After {
    pool: Hatchery,
    check: Option<Unmarked>,
    /// The text of a file of patterns.
    patterns: Option<String>,
    html: Option<PathBuf>,
    /// The parts of the report, by the places of the notebooks.
    parts: BTreeMap<usize, Part>,
}

impl After {
    fn new(arguments: &NotebookArguments, pool: Hatchery) -> anyhow::Result<Self> {
        let patterns = arguments.sanitize_with.as_ref().map(|file| {
            let unusable =
                || UsageError(format!("can't read the patterns in `{}`", file.display()));
            fs::read_to_string(file).with_context(unusable)
        });
        let check = arguments.check;
        let html = arguments.html.clone();
        Ok(Self { pool, check, patterns: patterns.transpose()?, html, parts: BTreeMap::new() })
    }

    /// Compares the outputs of a notebook that didn't fail; `None` if the user doesn't want that.
    async fn differences(&self, report: &Report) -> anyhow::Result<Option<Vec<Difference>>> {
        let Some(unmarked) = self.check else { return Ok(None) };
        if !report.end.is_success() {
            return Ok(Some(Vec::new()));
        }
        let patterns = self.patterns.as_deref();
        match compare(&self.pool, &report.notebook, unmarked, patterns).await {
            Ok(differences) => Ok(Some(differences)),
            Err(Error::Pool(error)) => Err(error.into()),
            Err(error) => Err(UsageError(error.to_string()).into()),
        }
    }

    /// Adds a notebook to the report.
    fn add(
        &mut self,
        place: usize,
        name: &str,
        report: &Report,
        differences: Option<&[Difference]>,
    ) {
        if self.html.is_some() {
            let remarks: Vec<String> =
                differences.unwrap_or_default().iter().map(described).collect();
            self.parts.insert(place, Part::new(name, report, &remarks));
        }
    }

    /// Writes the report.
    fn write(&self, tally: &Tally) -> anyhow::Result<()> {
        let Some(file) = &self.html else { return Ok(()) };
        let page = page(&tally.to_string(), self.parts.values());
        replace(file, Access::AsBefore, |target| target.write_all(page.as_bytes()))
            .with_context(|| UsageError(format!("can't write the report `{}`", file.display())))
    }
}
