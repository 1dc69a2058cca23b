//! Reads notebooks, and chooses the paths of their copies.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::notebook::parameters::{self, Parameter, Parameters, SetFile};
use ::notebook::{Error, Notebook, Places, Task, check_place};
use anyhow::Context;
use hatchery::{Hatchery, Job};
use replace::is_same;
use serde_json::json;

use super::summary::Told;
use crate::args::{NotebookArguments, ParameterArguments, ParametersArguments};
use crate::exit::{Exit, UsageError};
use crate::pool::start_pool;
use crate::{inputs, output, progress, terminal};

/// A notebook as it was read.
pub(super) struct NotebookFile {
    pub(super) path: PathBuf,
    pub(super) notebook: Notebook,
}

/// Reads every notebook.
pub(super) fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<NotebookFile>> {
    let mut sources: Vec<NotebookFile> = Vec::new();
    for path in paths {
        let notebook = read_one(path)?;
        if let Some(other) = sources.iter().find(|other| is_same(&other.path, path)) {
            let other = other.path.display();
            let problem = format!("it would have the same copy as `{other}`; rename one of them");
            return Err(refused(path, problem));
        }
        sources.push(NotebookFile { path: path.clone(), notebook });
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

/// Chooses the paths of the copies, before any cell runs. Each notebook has one for each set; without
/// sets, it has one.
pub(super) fn place(
    arguments: &NotebookArguments,
    sources: &[NotebookFile],
    sets: &[Parameters],
) -> anyhow::Result<Vec<(Task, Told)>> {
    let folder = arguments.output_dir.as_deref();
    let output = folder.map(output::open).transpose()?.map(Arc::new);
    let sets: Vec<Option<&Parameters>> = match sets {
        [] => vec![None],
        sets => sets.iter().map(Some).collect(),
    };
    let mut tasks: Vec<(Task, Told)> = Vec::new();
    for NotebookFile { path, notebook } in sources {
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
    sources: &[NotebookFile],
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

/// The column at which descriptions begin.
const DESCRIPTION_COLUMN: usize = 34;

/// The parameters that the user gave.
pub(super) struct GivenParameters {
    sources: Vec<parameters::Source>,
    pub(super) sets: Option<SetFile>,
}

impl GivenParameters {
    /// Reads the files that the options name. As in papermill, files come first, then YAML, then
    /// single values, whatever their order on the command line.
    pub(super) fn read(arguments: &ParameterArguments) -> anyhow::Result<Self> {
        let mut sources = Vec::new();
        for file in &arguments.files {
            let place = format!("`{}`", file.display());
            sources.push(parameters::Source::Yaml(place, text_of(file)?));
        }
        let yaml = |text: &String| parameters::Source::Yaml("`-y`".to_owned(), text.clone());
        sources.extend(arguments.yaml.iter().map(yaml));
        // clap sees to it that they come in pairs.
        for [name, text] in arguments.values.as_chunks().0.iter().cloned() {
            sources.push(parameters::Source::Value(name, text));
        }
        for [name, text] in arguments.raw.as_chunks().0.iter().cloned() {
            sources.push(parameters::Source::Raw(name, text));
        }
        let set_file = |file: &std::path::PathBuf| -> anyhow::Result<SetFile> {
            let ending = file.extension().unwrap_or_default().to_string_lossy();
            let (place, ending) = (format!("`{}`", file.display()), ending.to_ascii_lowercase());
            Ok(SetFile { place, ending, text: text_of(file)? })
        };
        let sets = arguments.sets.as_ref().map(set_file).transpose()?;
        Ok(Self { sources, sets })
    }

    /// Reads the parameters of each set; none if the user gave no parameters. Notes those that a
    /// notebook doesn't know.
    pub(super) async fn sets(
        &self,
        pool: &Hatchery,
        sources: &[NotebookFile],
    ) -> anyhow::Result<Vec<Parameters>> {
        let Self { sources: given, sets } = self;
        if given.is_empty() && sets.is_none() {
            return Ok(Vec::new());
        }
        let notebooks: Vec<&Notebook> = sources.iter().map(|source| &source.notebook).collect();
        let mut sets =
            parameters::read(pool, given, sets.as_ref(), &notebooks).await.map_err(usage)?;
        for (place, NotebookFile { path, notebook }) in sources.iter().enumerate() {
            let path = path.display();
            if notebook.parameters_source().is_none() {
                terminal::note(format_args!(
                    "{path}: no cell is tagged `parameters`, so the parameters come first"
                ));
            }
            let mut unknown: Vec<&str> = sets
                .iter()
                .filter_map(|set| set.unknown.get(place))
                .flatten()
                .map(String::as_str)
                .collect();
            unknown.sort_unstable();
            unknown.dedup();
            if !unknown.is_empty() {
                let unknown = unknown.join(", ");
                terminal::note(format_args!(
                    "{path}: the cell tagged `parameters` doesn't define {unknown}"
                ));
            }
        }
        // As in papermill, nothing is injected for no parameters.
        if let [only] = &sets[..]
            && only.set.is_none()
            && only.values.is_empty()
        {
            sets.clear();
        }
        Ok(sets)
    }
}

/// Lists the parameters of a notebook.
pub(crate) async fn list(arguments: ParametersArguments) -> anyhow::Result<Exit> {
    let notebook = read_one(&arguments.notebook)?;
    let name = arguments.notebook.display();
    let builder = Hatchery::builder().workers(1).progress(progress::sink());
    let pool = start_pool(builder).await?;
    let Some(found) = parameters::inspect(&pool, &notebook).await.map_err(usage)? else {
        terminal::error(format_args!("{name}: no cell is tagged `parameters`"));
        return Ok(Exit::Failed);
    };
    if arguments.json {
        terminal::print(json!(found))?;
        return Ok(Exit::Success);
    }
    for parameter in &found {
        terminal::print(described(parameter))?;
    }
    if found.is_empty() {
        terminal::note(format_args!("{name}: its cell tagged `parameters` defines none"));
    }
    Ok(Exit::Success)
}

/// Describes a parameter in a line, and in another one if its description has no place there.
fn described(parameter: &Parameter) -> String {
    let Parameter { name, type_name, default, help, .. } = parameter;
    let type_name = type_name.as_deref().unwrap_or("unknown type");
    let definition = format!("{name}: {type_name} (default {default})");
    if help.is_empty() {
        return definition;
    }
    let is_short = definition.chars().count() < DESCRIPTION_COLUMN;
    match is_short {
        true => format!("{definition:DESCRIPTION_COLUMN$}{help}"),
        false => format!("{definition}\n{:DESCRIPTION_COLUMN$}{help}", ""),
    }
}

fn text_of(file: &Path) -> anyhow::Result<String> {
    let unusable = || UsageError(format!("can't read the parameters in `{}`", file.display()));
    fs::read_to_string(file).with_context(unusable)
}

/// Returns the error of a command whose parameters can't be used.
fn usage(error: Error) -> anyhow::Error {
    match error {
        Error::Parameters(_) => UsageError(error.to_string()).into(),
        Error::Pool(error) => error.into(),
        error => error.into(),
    }
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
