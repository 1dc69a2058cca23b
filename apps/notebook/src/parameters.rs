//! Parameters of notebooks: reads them as papermill does, and finds those that a notebook has.
//!
//! A fresh interpreter of the pool reads the texts, so values have their meaning in Python. The
//! build's PyYAML reads YAML.

use hatchery::Hatchery;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::document::Notebook;
use crate::error::Error;
use crate::guest::ask;

const READING: &str = include_str!("parameters/reading.py");

/// The most sets of one command.
const MOST_SETS: usize = 10_000;
/// The longest name of a set, in bytes: it becomes part of a file's name.
const LONGEST_NAME: usize = 64;

/// Where parameters come from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// The value of the parameter of this name, as papermill's `-p` reads it: `None`, `True`, `False`,
    /// an int, a float, or text.
    Value(String, String),
    /// The value of the parameter of this name: a text, whatever it looks like.
    Raw(String, String),
    /// The option or the file, and its mapping in YAML, of which JSON is a subset.
    Yaml(String, String),
}

/// A file of parameter sets: CSV with a row for each, JSON lines, or a list or a mapping of sets in
/// JSON or YAML. The field `@name`, or the key in the mapping, names a set; otherwise its number
/// does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetFile {
    /// The file, for messages.
    pub place: String,
    /// How its name ends: `csv`, `jsonl`, `ndjson`, or anything else for JSON and YAML.
    pub ending: String,
    /// Its contents.
    pub text: String,
}

/// The parameters of one run of a notebook.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Parameters {
    /// The set's name, if they come from one. It can be part of a file's name.
    pub set: Option<String>,
    /// The source of the cell that assigns them.
    pub code: String,
    /// Their values, in their order.
    pub values: IndexMap<String, Value>,
    /// For each of the notebooks, the parameters that its cell of parameters doesn't define. Empty
    /// for one without such a cell.
    pub unknown: Vec<Vec<String>>,
}

/// A parameter that a notebook's cell of parameters defines.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[non_exhaustive]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// The annotation, or the type in a comment `# type: …`.
    #[serde(rename = "type")]
    pub type_name: Option<String>,
    /// The source of its default.
    pub default: String,
    /// The comment at the end of its definition; empty without one.
    pub help: String,
}

/// A set, as the guest describes it.
type ReadSet = (Option<String>, String, Vec<(String, Value)>, Vec<Vec<String>>);

/// Reads the parameters of each set; of the only one without a file of sets. Later sources overwrite
/// earlier ones, and a set overwrites them all.
///
/// # Errors
/// The texts can't be read, a name isn't one of Python, or names of sets are unsuitable; or the pool
/// failed.
pub async fn read(
    pool: &Hatchery,
    sources: &[Source],
    sets: Option<&SetFile>,
    notebooks: &[&Notebook],
) -> Result<Vec<Parameters>, Error> {
    let sources: Vec<Value> = sources.iter().map(Source::request).collect();
    let cells: Vec<Option<&str>> =
        notebooks.iter().map(|notebook| notebook.parameters_source()).collect();
    let file = sets.map_or(json!([]), |file| json!([file.place, file.ending, file.text]));
    let read: Vec<ReadSet> =
        ask(pool, READING, &json!(["read", sources, file, cells]), Error::Parameters).await?;
    if read.len() > MOST_SETS {
        let count = read.len();
        let text =
            format!("there are {count} sets of parameters, and at most {MOST_SETS} are allowed");
        return Err(Error::Parameters(text));
    }
    let mut sets: Vec<Parameters> = Vec::new();
    let mut names = std::collections::HashSet::new();
    for (set, code, values, unknown) in read {
        if let Some(name) = &set {
            check_name(name)?;
            if !names.insert(name.to_ascii_lowercase()) {
                let text = format!("two sets of parameters have the name `{name}`; rename one");
                return Err(Error::Parameters(text));
            }
        }
        sets.push(Parameters { set, code, values: values.into_iter().collect(), unknown });
    }
    Ok(sets)
}

/// Returns the parameters that the notebook's cell tagged `parameters` defines; `None` if it has no
/// such cell.
///
/// # Errors
/// The pool failed.
pub async fn inspect(
    pool: &Hatchery,
    notebook: &Notebook,
) -> Result<Option<Vec<Parameter>>, Error> {
    match notebook.parameters_source() {
        Some(source) => {
            let request = json!(["inspect", source]);
            Ok(Some(ask(pool, READING, &request, Error::Parameters).await?))
        }
        None => Ok(None),
    }
}

/// Checks whether a set's name can be part of a file's name.
fn check_name(name: &str) -> Result<(), Error> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_fit = (1..=LONGEST_NAME).contains(&name.len())
        && name.bytes().all(is_plain)
        && !name.starts_with(['.', '-']);
    match is_fit {
        true => Ok(()),
        false => Err(Error::Parameters(format!(
            "`{name}` can't name a set of parameters, since its outputs have that name: use at most \
             {LONGEST_NAME} ASCII letters, digits, `-`, `_` and `.`, and begin with a letter, a \
             digit or `_`"
        ))),
    }
}

impl Source {
    fn request(&self) -> Value {
        match self {
            Self::Value(name, text) => json!(["value", name, text]),
            Self::Raw(name, text) => json!(["raw", name, text]),
            Self::Yaml(place, text) => json!(["yaml", place, text]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_sets_are_names_of_files() {
        for name in ["1", "north-east", "v1.2_x", "_"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        let long = "x".repeat(LONGEST_NAME + 1);
        for name in ["", ".", "..", "-x", "a/b", "a b", "é", "a\0", &long] {
            let problem = check_name(name).unwrap_err().to_string();
            assert!(problem.contains("can't name a set"), "{problem}");
        }
    }
}
