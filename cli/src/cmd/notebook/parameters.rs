//! `hatchery notebook parameters`, and the options that assign parameters.

use std::fs;
use std::path::Path;

use ::notebook::parameters::{self, Parameter, Parameters, SetFile};
use ::notebook::{Error, Notebook};
use anyhow::Context;
use hatchery::Hatchery;
use serde_json::{Value, json};

use super::tasks::{Source, read_one};
use crate::args::{ParameterArguments, ParametersArguments};
use crate::exit::{Exit, UsageError};
use crate::pool::start_pool;
use crate::{progress, terminal};

/// The column at which descriptions begin.
const DESCRIPTION_COLUMN: usize = 34;

/// The parameters that the user gave.
pub(super) struct Given {
    sources: Vec<parameters::Source>,
    sets: Option<SetFile>,
}

impl Given {
    /// Reads the files that the options name. As in papermill, files come first, then YAML, then
    /// single values, whatever their order on the command line.
    pub(super) fn read(arguments: &ParameterArguments) -> anyhow::Result<Self> {
        let mut sources = Vec::new();
        for file in &arguments.files {
            let place = format!("`{}`", file.display());
            sources.push(parameters::Source::Yaml { place, text: text_of(file)? });
        }
        let place = "`-y`";
        sources.extend(
            arguments.yaml.iter().map(|text| parameters::Source::Yaml {
                place: place.to_owned(),
                text: text.clone(),
            }),
        );
        for pair in arguments.values.chunks(2) {
            if let [name, text] = pair {
                let (name, text) = (name.clone(), text.clone());
                sources.push(parameters::Source::Value { name, text });
            }
        }
        for pair in arguments.raw.chunks(2) {
            if let [name, text] = pair {
                sources.push(parameters::Source::Raw { name: name.clone(), text: text.clone() });
            }
        }
        let set_file = |file: &std::path::PathBuf| -> anyhow::Result<SetFile> {
            let ending = file.extension().unwrap_or_default().to_string_lossy();
            let place = format!("`{}`", file.display());
            Ok(SetFile::new(place, ending.to_ascii_lowercase(), text_of(file)?))
        };
        let sets = arguments.sets.as_ref().map(set_file).transpose()?;
        Ok(Self { sources, sets })
    }

    pub(super) fn has_sets(&self) -> bool {
        self.sets.is_some()
    }

    /// Reads the parameters of each set; none if the user gave no parameters. Notes those that a
    /// notebook doesn't know.
    pub(super) async fn sets(
        &self,
        pool: &Hatchery,
        sources: &[Source],
    ) -> anyhow::Result<Vec<Parameters>> {
        let Self { sources: given, sets } = self;
        if given.is_empty() && sets.is_none() {
            return Ok(Vec::new());
        }
        let notebooks: Vec<&Notebook> = sources.iter().map(|source| &source.notebook).collect();
        let mut sets =
            parameters::read(pool, given, sets.as_ref(), &notebooks).await.map_err(usage)?;
        for (place, Source { path, notebook }) in sources.iter().enumerate() {
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
        terminal::print(Value::from_iter(found.iter().map(as_json)))?;
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

fn as_json(parameter: &Parameter) -> Value {
    let Parameter { name, type_name, default, help, .. } = parameter;
    json!({ "name": name, "type": type_name, "default": default, "help": help })
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
