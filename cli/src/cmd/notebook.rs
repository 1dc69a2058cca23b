//! `hatchery notebook run`: Jupyter notebooks, each in a session, in parallel.
//!
//! The outputs go into a copy of each notebook. If a notebook fails or is interrupted, its session
//! is saved as it was before that cell, so that a later run can resume there.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use hatchery::{Hatchery, Job, Limits};
use replace::is_same;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use self::board::Board;
use self::document::Notebook;
use self::resume::Places;
use self::runner::{Settings, Task};
use crate::args::NotebookArguments;
use crate::exit::{Exit, UsageError};
use crate::output::OutputFolder;
use crate::pool::start_pool;
use crate::{inputs, progress, signals, terminal, threads};

mod board;
mod document;
mod guest;
mod outputs;
mod resume;
mod runner;

/// The most displays of one cell.
const MOST_DISPLAYS: usize = 100_000;

pub(crate) async fn run(arguments: NotebookArguments) -> anyhow::Result<Exit> {
    let tasks = tasks(&arguments)?;
    // Progress bars update their display again and again; the limit on bytes still bounds them.
    let limits = Limits { display_count: MOST_DISPLAYS, ..arguments.limits.limits() };
    let resume_job = inputs::add_mounts(guest::resume(&limits), &arguments.mount)?;
    let begin = inputs::add_mounts(guest::begin(&limits), &arguments.mount)?;
    let begin = inputs::add_named(begin, &arguments.input)?;
    let inputs = digest(&arguments.input)?;

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
    let image = pool.image().map(|image| image.key.clone()).unwrap_or_default();
    let board = Board::new();
    let settings = Arc::new(Settings {
        pool,
        limits,
        begin,
        resume_job,
        image,
        inputs,
        resumes: arguments.resume,
        allows_errors: arguments.allow_errors,
        board: board.clone(),
    });
    let tally = run_all(tasks, &settings, at_once).await?;
    if tally.count() > 1 {
        terminal::note(&tally);
    }
    Ok(tally.exit())
}

/// Runs the notebooks in the given order, `at_once` in parallel.
async fn run_all(
    tasks: Vec<Task>,
    settings: &Arc<Settings>,
    at_once: usize,
) -> anyhow::Result<Tally> {
    // The first interrupts the running cells, the second stops them, the third ends this process.
    let interrupts = signals::interrupts(3)?;
    let places = Arc::new(Semaphore::new(at_once));
    let mut running = JoinSet::new();
    let mut tally = Tally::default();
    for task in tasks {
        let (settings, interrupts) = (Arc::clone(settings), interrupts.clone());
        let places = Arc::clone(&places);
        running.spawn(async move {
            let _place = places.acquire_owned().await.expect("nobody closes it");
            runner::run(task, &settings, interrupts).await
        });
    }
    while let Some(ended) = running.join_next().await {
        let (exit, errors) = ended.context("a task of a notebook died")?;
        tally.add(exit, errors);
    }
    Ok(tally)
}

/// Counts of how the notebooks ended.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    completed: usize,
    failed: usize,
    interrupted: usize,
    /// Cells that raised and were allowed to.
    allowed_errors: usize,
    /// The exit of a notebook that failed because of the sandbox or the machine.
    broken: Option<Exit>,
}

impl Tally {
    fn add(&mut self, exit: Exit, allowed_errors: usize) {
        self.allowed_errors += allowed_errors;
        match exit {
            Exit::Success => self.completed += 1,
            Exit::Interrupted => self.interrupted += 1,
            Exit::Failed => self.failed += 1,
            exit => {
                self.failed += 1;
                self.broken = Some(exit);
            }
        }
    }

    fn count(&self) -> usize {
        self.completed + self.failed + self.interrupted
    }

    fn exit(&self) -> Exit {
        match self {
            Self { interrupted: 1.., .. } => Exit::Interrupted,
            Self { broken: Some(exit), .. } => *exit,
            Self { failed: 1.., .. } => Exit::Failed,
            Self { .. } => Exit::Success,
        }
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} of {} notebooks completed", self.completed, self.count())?;
        for (count, what) in [(self.failed, "failed"), (self.interrupted, "interrupted")] {
            if count > 0 {
                write!(formatter, ", {count} {what}")?;
            }
        }
        if self.allowed_errors > 0 {
            write!(formatter, "; {}", runner::allowed(self.allowed_errors))?;
        }
        Ok(())
    }
}

/// Reads every notebook and chooses the paths of the copies, before anything runs.
fn tasks(arguments: &NotebookArguments) -> anyhow::Result<Vec<Task>> {
    let output = arguments.output_dir.as_deref().map(OutputFolder::open).transpose()?;
    let output = output.map(Arc::new);
    let mut tasks: Vec<Task> = Vec::new();
    for source in &arguments.notebooks {
        let name = source.display().to_string();
        let unusable = || UsageError(format!("can't run `{name}`"));
        let refused = |problem: String| anyhow::Error::msg(problem).context(unusable());
        let bytes = fs::read(source).with_context(unusable)?;
        let text = String::from_utf8(bytes).map_err(|_| refused("it isn't UTF-8".to_owned()))?;
        let notebook = Notebook::read(&text).map_err(refused)?;
        let (copy, files) = places_of(source, arguments.output_dir.as_deref())
            .ok_or_else(|| refused("its path has no file name".to_owned()))?;
        let meets =
            |task: &&Task| task.places.copy == copy || is_same(Path::new(&task.name), source);
        if let Some(other) = tasks.iter().find(meets) {
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
        resume::check_place(&copy)
            .with_context(|| {
                let copy = copy.display();
                format!("its copy can't be written to `{copy}` (give an --output-dir)")
            })
            .with_context(unusable)?;
        let files = output.clone().zip(files);
        let beside = match arguments.beside {
            true => inputs::add_beside(Job::default(), source)?,
            false => Job::default(),
        };
        tasks.push(Task { name, notebook, places: Places::of(copy), files, beside });
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

/// Returns a digest of the names and contents of the input files.
fn digest(inputs: &[String]) -> anyhow::Result<String> {
    let mut hasher = blake3::Hasher::new();
    for (name, contents) in inputs::read_named(inputs)? {
        for part in [name.as_bytes(), &contents] {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
    }
    Ok(hasher.finalize().to_hex().to_string())
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

    #[test]
    fn the_exit_code_is_the_worst_of_all() {
        for (exits, expected) in [
            (&[Exit::Success, Exit::Success][..], Exit::Success),
            (&[Exit::Success, Exit::Failed], Exit::Failed),
            (&[Exit::Sandbox, Exit::Failed], Exit::Sandbox),
            (&[Exit::Sandbox, Exit::Interrupted], Exit::Interrupted),
        ] {
            let mut tally = Tally::default();
            exits.iter().for_each(|exit| tally.add(*exit, 0));
            assert_eq!((tally.exit(), tally.count()), (expected, exits.len()));
        }
        let tally = Tally { completed: 2, failed: 1, ..Tally::default() };
        assert_eq!(tally.to_string(), "2 of 3 notebooks completed, 1 failed");
        let tally = Tally { completed: 2, allowed_errors: 3, ..Tally::default() };
        let expected = "2 of 2 notebooks completed; 3 cells raised errors that were allowed";
        assert_eq!(tally.to_string(), expected);
    }

    #[test]
    fn inputs_differ_by_name_and_contents() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.csv").display().to_string();
        fs::write(&path, "1").unwrap();
        let (inputs, named) = ([path.clone()], [format!("{path}=y.csv")]);
        let one = digest(&inputs).unwrap();
        assert_eq!(one, digest(&inputs).unwrap());
        assert_ne!(one, digest(&named).unwrap());
        fs::write(&path, "2").unwrap();
        assert_ne!(one, digest(&inputs).unwrap());
        assert!(digest(&["missing".to_owned()]).is_err());
    }
}
