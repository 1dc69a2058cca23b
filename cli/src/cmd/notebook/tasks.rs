//! Reads notebooks, and chooses the paths of their copies.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::notebook::parameters::Parameters;
use ::notebook::{Notebook, Places, Task, check_place};
use anyhow::Context;
use hatchery::Job;
use replace::is_same;

use super::summary::Told;
use crate::args::NotebookArguments;
use crate::exit::UsageError;
use crate::{inputs, output};

/// A notebook as it was read.
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) notebook: Notebook,
}

/// Reads every notebook.
pub(super) fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<Source>> {
    let mut sources: Vec<Source> = Vec::new();
    for path in paths {
        let notebook = read_one(path)?;
        if let Some(other) = sources.iter().find(|other| is_same(&other.path, path)) {
            let other = other.path.display();
            let problem = format!("it would have the same copy as `{other}`; rename one of them");
            return Err(refused(path, problem));
        }
        sources.push(Source { path: path.clone(), notebook });
    }
    Ok(sources)
}

/// Reads a notebook.
pub(super) fn read_one(path: &Path) -> anyhow::Result<Notebook> {
    let bytes = fs::read(path).with_context(|| unusable(path))?;
    let text = String::from_utf8(bytes).map_err(|_| refused(path, "it isn't UTF-8".to_owned()))?;
    Notebook::read(&text).map_err(|problem| refused(path, problem.to_string()))
}

fn unusable(path: &Path) -> UsageError {
    UsageError(format!("can't run `{}`", path.display()))
}

fn refused(path: &Path, problem: String) -> anyhow::Error {
    anyhow::Error::msg(problem).context(unusable(path))
}

/// Chooses the paths of the copies, before any cell runs: one for each notebook with each of the
/// sets, or for each notebook as it is if there are none.
pub(super) fn place(
    arguments: &NotebookArguments,
    sources: &[Source],
    sets: &[Parameters],
) -> anyhow::Result<Vec<(Task, Told)>> {
    let folder = arguments.output_dir.as_deref();
    let output = folder.map(output::open).transpose()?.map(Arc::new);
    let sets: Vec<Option<&Parameters>> = match sets {
        [] => vec![None],
        sets => sets.iter().map(Some).collect(),
    };
    let mut tasks: Vec<(Task, Told)> = Vec::new();
    for Source { path, notebook } in sources {
        let folders = match arguments.beside {
            true => inputs::add_beside(Job::default(), path)?,
            false => Job::default(),
        };
        for parameters in &sets {
            let set = parameters.and_then(|parameters| parameters.set.as_deref());
            let (copy, files) = places_of(path, set, folder)
                .ok_or_else(|| refused(path, "its path has no file name".to_owned()))?;
            if writes(arguments) {
                check(path, &copy, sources, &tasks)?;
            }
            let mut notebook = notebook.clone();
            if let Some(Parameters { code, values, .. }) = parameters {
                notebook.inject(code, values.clone());
            }
            if arguments.check.is_some() {
                notebook.heed_markers();
            }
            let mut task = Task::new(tasks.len(), notebook, Places::of(copy.clone()));
            task.folders = folders.clone();
            let name = path.display().to_string();
            let name = set.map_or(name.clone(), |set| format!("{name} with {set}"));
            tasks.push((task, Told { name, copy, files: output.clone().zip(files) }));
        }
    }
    Ok(tasks)
}

/// Returns whether copies are written.
pub(super) fn writes(arguments: &NotebookArguments) -> bool {
    arguments.check.is_none() || arguments.output_dir.is_some()
}

/// Checks whether the copy can be written, and overwrites nothing of this command.
fn check(
    path: &Path,
    copy: &Path,
    sources: &[Source],
    tasks: &[(Task, Told)],
) -> anyhow::Result<()> {
    let shown = copy.display();
    if let Some((_, other)) = tasks.iter().find(|(_, other)| other.copy == copy) {
        let other = &other.name;
        let problem =
            format!("it would have the same copy as `{other}`, {shown}; rename one of them");
        return Err(refused(path, problem));
    }
    if let Some(source) = sources.iter().find(|source| is_same(&source.path, copy)) {
        let source = source.path.display();
        let problem = format!("its copy would overwrite `{source}`; give another --output-dir");
        return Err(refused(path, problem));
    }
    check_place(copy)
        .with_context(|| format!("its copy can't be written to `{shown}` (give an --output-dir)"))
        .with_context(|| unusable(path))
}

/// Returns the path of a notebook's copy, and the subfolder for the files of its cells.
fn places_of(
    source: &Path,
    set: Option<&str>,
    folder: Option<&Path>,
) -> Option<(PathBuf, Option<String>)> {
    let mut name = source.file_stem()?.to_owned();
    if let Some(set) = set {
        name.push(format!(".{set}"));
    }
    let files = name.to_string_lossy().into_owned();
    let Some(folder) = folder else {
        name.push(".executed.ipynb");
        return Some((source.with_file_name(name), None));
    };
    name.push(".ipynb");
    Some((folder.join(name), Some(files)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_go_beside_the_notebook_or_into_the_folder() {
        let of = |source: &str, set: Option<&str>, folder: Option<&str>| {
            let (copy, files) = places_of(Path::new(source), set, folder.map(Path::new))?;
            Some((copy.display().to_string(), files))
        };
        assert_eq!(of("a/b.c.ipynb", None, None), Some(("a/b.c.executed.ipynb".to_owned(), None)));
        assert_eq!(
            of("a/b.ipynb", None, Some("out")),
            Some(("out/b.ipynb".to_owned(), Some("b".to_owned())))
        );
        assert_eq!(
            of("a/b.ipynb", Some("north"), Some("out")),
            Some(("out/b.north.ipynb".to_owned(), Some("b.north".to_owned())))
        );
        assert_eq!(of("/", None, None), None);
    }
}
