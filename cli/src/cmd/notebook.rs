//! `hatchery notebook run`: Jupyter notebooks, each in a session, in parallel.
//!
//! The crate `notebook` runs them. This command reads its arguments, chooses the paths of the copies,
//! and tells the user how it went.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::notebook::{Notebook, Places, Settings, Task, check_place};
use anyhow::Context;
use hatchery::{Hatchery, Job, Limits};
use replace::is_same;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use self::board::Board;
use self::summary::{Tally, Told};
use crate::args::NotebookArguments;
use crate::exit::{Exit, UsageError};
use crate::output::OutputFolder;
use crate::pool::start_pool;
use crate::{inputs, progress, signals, terminal, threads};

mod board;
mod summary;

/// The most displays of one cell.
const MOST_DISPLAYS: usize = 100_000;

pub(crate) async fn run(arguments: NotebookArguments) -> anyhow::Result<Exit> {
    let (tasks, told): (Vec<_>, Vec<_>) = tasks(&arguments)?.into_iter().unzip();
    // Progress bars update their display again and again; the limit on bytes still bounds them.
    let limits = Limits { display_count: MOST_DISPLAYS, ..arguments.limits.limits() };
    let mounts = inputs::add_mounts(Job::default(), &arguments.mount)?;
    let files = inputs::read_named(&arguments.input)?;

    let builder = Hatchery::builder().limits(limits.clone()).progress(progress::sink());
    let mut builder = arguments.image.apply(builder)?;
    let mut at_once = threads::cpus();
    if let Some(workers) = &arguments.workers {
        at_once = *workers.end();
        builder = builder.workers_between(workers.clone());
    } else {
        builder = builder.workers(at_once.min(tasks.len()));
    }
    let pool = start_pool(builder).await?;
    let mut settings = Settings::new(pool, limits).inputs(files)?;
    settings.mounts = mounts;
    settings.resumes = arguments.resume;
    settings.allows_errors = arguments.allow_errors;
    settings.observer = Arc::new(Board::new(told.iter().map(|told| told.name.clone()).collect()));
    let tally = run_all(tasks, &told, settings, at_once).await?;
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
        let exit = told[index].conclude(&report, total);
        tally.add(exit, report.allowed_errors);
    }
    Ok(tally)
}

/// Reads every notebook and chooses the paths of the copies, before anything runs.
fn tasks(arguments: &NotebookArguments) -> anyhow::Result<Vec<(Task, Told)>> {
    let output = arguments.output_dir.as_deref().map(OutputFolder::open).transpose()?;
    let output = output.map(Arc::new);
    let mut tasks: Vec<(Task, Told)> = Vec::new();
    for source in &arguments.notebooks {
        let name = source.display().to_string();
        let unusable = || UsageError(format!("can't run `{name}`"));
        let refused = |problem: String| anyhow::Error::msg(problem).context(unusable());
        let bytes = fs::read(source).with_context(unusable)?;
        let text = String::from_utf8(bytes).map_err(|_| refused("it isn't UTF-8".to_owned()))?;
        let notebook = Notebook::read(&text).map_err(|problem| refused(problem.to_string()))?;
        let (copy, files) = places_of(source, arguments.output_dir.as_deref())
            .ok_or_else(|| refused("its path has no file name".to_owned()))?;
        let meets = |(task, told): &&(Task, Told)| {
            task.places.copy == copy || is_same(Path::new(&told.name), source)
        };
        if let Some((_, other)) = tasks.iter().find(meets) {
            return Err(refused(format!(
                "it would have the same copy as `{}`, {}; rename one of them",
                other.name,
                copy.display()
            )));
        }
        if let Some(source) = arguments.notebooks.iter().find(|source| is_same(source, &copy)) {
            return Err(refused(format!(
                "its copy would overwrite `{}`; give another --output-dir",
                source.display()
            )));
        }
        check_place(&copy)
            .with_context(|| {
                let copy = copy.display();
                format!("its copy can't be written to `{copy}` (give an --output-dir)")
            })
            .with_context(unusable)?;
        let files = output.clone().zip(files);
        let mut task = Task::new(tasks.len(), notebook, Places::of(copy.clone()));
        if arguments.beside {
            task.folders = inputs::add_beside(Job::default(), source)?;
        }
        tasks.push((task, Told { name, copy, files }));
    }
    Ok(tasks)
}

/// Returns the path of a notebook's copy, and the subfolder for the files of its cells.
fn places_of(source: &Path, folder: Option<&Path>) -> Option<(PathBuf, Option<String>)> {
    let stem = source.file_stem()?;
    let mut name = stem.to_owned();
    let Some(folder) = folder else {
        name.push(".executed.ipynb");
        return Some((source.with_file_name(name), None));
    };
    name.push(".ipynb");
    Some((folder.join(name), Some(stem.to_string_lossy().into_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_go_beside_the_notebook_or_into_the_folder() {
        let of = |source: &str, folder: Option<&str>| {
            let (copy, files) = places_of(Path::new(source), folder.map(Path::new))?;
            Some((copy.display().to_string(), files))
        };
        assert_eq!(of("a/b.c.ipynb", None), Some(("a/b.c.executed.ipynb".to_owned(), None)));
        assert_eq!(
            of("a/b.ipynb", Some("out")),
            Some(("out/b.ipynb".to_owned(), Some("b".to_owned())))
        );
        assert_eq!(of("/", None), None);
    }
}
