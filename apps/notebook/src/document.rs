//! A notebook's file: reads and writes nbformat 4.
//!
//! A run changes no other byte: unknown fields, their order, and the spelling of numbers stay. A
//! run replaces the outputs and execution counts of code cells.

pub use self::cell::CodeCell;
pub(crate) use self::cell::{View, text_of};

use std::borrow::Cow;

use indexmap::IndexMap;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::ser::PrettyFormatter;
use serde_json::value::RawValue;

use self::cell::{DocumentCell, Field, Fields, parsed, written};
use crate::markers::Markers;

mod cell;

/// The names of Python in notebooks.
const LANGUAGES: [&str; 3] = ["python", "python3", "ipython"];

/// The tag of the cell that assigns parameters.
const INJECTED: &str = "injected-parameters";

/// Jupyter's indentation.
const INDENTATION: &str = " ";

/// Numbers that Python's `json` reads and writes. The longer one comes first.
const BEYOND_JSON: [&str; 3] = ["-Infinity", "Infinity", "NaN"];

/// What a string begins with that stands for one of them: a character that no text contains.
const SHIELD: &str = "\u{fdd0}";

/// A notebook.
///
/// ```
/// use notebook::Notebook;
///
/// let text = r#"{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [
///     {"cell_type": "code", "id": "a", "metadata": {}, "source": ["6 * 7"],
///      "execution_count": null, "outputs": []}]}"#;
/// let notebook = Notebook::read(text)?;
/// assert_eq!(notebook.code().next().map(|cell| cell.source.as_str()), Some("6 * 7"));
/// # Ok::<(), notebook::InvalidNotebook>(())
/// ```
#[derive(Debug, Clone)]
pub struct Notebook {
    fields: Fields,
    cells: Vec<DocumentCell>,
    indentation: String,
    /// The parameters that were injected, for the metadata.
    parameters: Option<IndexMap<String, Value>>,
}

/// Why a file can't be run as a notebook, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidNotebook(String);

impl Notebook {
    /// Parses the text of a notebook file.
    ///
    /// # Errors
    /// It is no notebook of version 4 in Python.
    pub fn read(text: &str) -> Result<Self, InvalidNotebook> {
        Self::parse(text).map_err(InvalidNotebook)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let no_notebook = "it is not a notebook";
        let shielded = shielded(text);
        let text = shielded.as_ref();
        let fields: Fields =
            serde_json::from_str(text).map_err(|error| match error.classify() {
                serde_json::error::Category::Data => no_notebook.to_owned(),
                _ => format!("{no_notebook}, because it is not valid JSON: {error}"),
            })?;
        let version: Option<u64> = parsed(&fields, "nbformat");
        match version {
            Some(4) => {}
            Some(version) => {
                return Err(format!(
                    "it has version {version} of the format, and only version 4 can be run; \
                     convert it with `jupyter nbconvert --to notebook --nbformat 4`, or save it in \
                     Jupyter"
                ));
            }
            None => return Err(format!("{no_notebook}: it has no `nbformat`")),
        }
        if let Some(language) = language(&fields)
            && !LANGUAGES.contains(&language.to_ascii_lowercase().as_str())
        {
            return Err(format!("it is written in {language}, and only Python can be run"));
        }
        let cells: Vec<Box<RawValue>> = parsed(&fields, "cells")
            .ok_or_else(|| format!("{no_notebook}: it has no array of `cells`"))?;
        let cells = cells.into_iter().zip(1..).map(|(cell, number)| {
            DocumentCell::read(cell)
                .map_err(|problem| format!("its cell {number} is invalid: {problem}"))
        });
        let cells = cells.collect::<Result<_, _>>()?;
        Ok(Self { fields, cells, indentation: indentation_of(text), parameters: None })
    }

    /// Returns the cells that are run, in order.
    pub fn code(&self) -> impl Iterator<Item = &CodeCell> {
        self.cells.iter().filter_map(|cell| match cell {
            DocumentCell::Code(cell) => Some(cell),
            DocumentCell::Other(_) => None,
        })
    }

    /// Returns the same cells, to put outputs into them.
    pub fn code_mut(&mut self) -> impl Iterator<Item = &mut CodeCell> {
        self.cells.iter_mut().filter_map(|cell| match cell {
            DocumentCell::Code(cell) => Some(cell),
            DocumentCell::Other(_) => None,
        })
    }

    /// Prepares the notebook for a comparison of its outputs: cells that nbval's markers leave out
    /// aren't run and keep their outputs, and those that may raise do so.
    pub fn heed_markers(&mut self) {
        for cell in &mut self.cells {
            let DocumentCell::Code(code) = cell else { continue };
            let markers = Markers::of(&code.source, &code.tags);
            if markers.is_skipped {
                *cell = code.unchanged();
            } else if markers.may_raise {
                code.tags.push("raises-exception".to_owned());
            }
        }
    }

    /// Returns all cells as a reader sees them.
    pub(crate) fn views(&self) -> impl Iterator<Item = View> {
        self.cells.iter().map(DocumentCell::view)
    }

    /// Returns the source of the first cell with the tag `parameters`, if it is a code cell.
    pub fn parameters_source(&self) -> Option<&str> {
        match &self.cells[self.tagged("parameters")?] {
            DocumentCell::Code(cell) => Some(&cell.source),
            DocumentCell::Other(_) => None,
        }
    }

    /// Inserts a cell that assigns parameters, tagged `injected-parameters`, as papermill does. It
    /// replaces an earlier one, follows the cell tagged `parameters`, or comes first. The metadata
    /// get the values.
    pub fn inject(&mut self, code: &str, values: IndexMap<String, Value>) {
        let injected = self.tagged(INJECTED);
        let at = injected.or_else(|| Some(self.tagged("parameters")? + 1)).unwrap_or(0);
        let minor: Option<u64> = parsed(&self.fields, "nbformat_minor");
        let has_ids = minor.is_some_and(|minor| minor >= 5);
        let cell = DocumentCell::Code(CodeCell::injected(
            code,
            INJECTED,
            has_ids.then(|| self.new_id(code)),
        ));
        match injected {
            Some(at) => self.cells[at] = cell,
            None => self.cells.insert(at, cell),
        }
        self.parameters = Some(values);
    }

    /// Returns the index of the first cell with this tag, also of text.
    fn tagged(&self, tag: &str) -> Option<usize> {
        self.cells.iter().position(|cell| cell.has_tag(tag))
    }

    /// Returns an id that no cell has. It is the same whenever this is called, so that copies of the
    /// same notebook with the same parameters are the same.
    fn new_id(&self, code: &str) -> String {
        let digest = blake3::hash(code.as_bytes()).to_hex();
        let is_free = |id: &&str| !self.cells.iter().any(|cell| cell.has_id(id));
        let ids = (8..=digest.len()).map(|length| &digest[..length]);
        ids.into_iter().find(is_free).unwrap_or(&digest).to_owned()
    }

    /// Returns the text of the notebook's file.
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let formatter = PrettyFormatter::with_indent(self.indentation.as_bytes());
        let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
        self.serialize(&mut serializer).expect("strings and JSON always serialize");
        bytes.push(b'\n');
        unshielded(bytes)
    }
}

/// Returns the text with strings in the places of Python's numbers that JSON lacks, which papermill and
/// Jupyter read and write.
fn shielded(text: &str) -> Cow<'_, str> {
    if !BEYOND_JSON.iter().any(|number| text.contains(number)) {
        return text.into();
    }
    let (mut shielded, mut is_string, mut is_escaped) = (String::new(), false, false);
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let number = BEYOND_JSON.iter().find(|number| !is_string && rest.starts_with(**number));
        if let Some(number) = number {
            shielded.extend(["\"", SHIELD, number, "\""]);
            rest = &rest[number.len()..];
            continue;
        }
        is_string ^= next == '"' && !is_escaped;
        is_escaped = is_string && next == '\\' && !is_escaped;
        shielded.push(next);
        rest = &rest[next.len_utf8()..];
    }
    shielded.into()
}

/// Undoes [`shielded`].
fn unshielded(text: Vec<u8>) -> Vec<u8> {
    match String::from_utf8(text) {
        Ok(text) if text.contains(SHIELD) => {
            let one = |text: String, number: &&str| {
                text.replace(&format!("\"{SHIELD}{number}\""), number)
            };
            BEYOND_JSON.iter().fold(text, one).into_bytes()
        }
        Ok(text) => text.into_bytes(),
        Err(error) => error.into_bytes(),
    }
}

/// Returns the language that a notebook's metadata names.
fn language(fields: &Fields) -> Option<String> {
    let metadata: Value = parsed(fields, "metadata")?;
    let named = [&metadata["kernelspec"]["language"], &metadata["language_info"]["name"]];
    let mut named = named.iter().filter_map(|name| name.as_str());
    named.find(|name| !name.is_empty()).map(str::to_owned)
}

impl Serialize for Notebook {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let cells = ("cells", Field::Cells(&self.cells));
        let Some(parameters) = &self.parameters else {
            return written(&self.fields, [cells]).serialize(serializer);
        };
        // As papermill has it.
        let metadata: Fields = parsed(&self.fields, "metadata").unwrap_or_default();
        let papermill: Fields = parsed(&metadata, "papermill").unwrap_or_default();
        let parameters = ("parameters", Field::Values(parameters));
        let papermill = ("papermill", Field::Fields(written(&papermill, [parameters])));
        let metadata = ("metadata", Field::Fields(written(&metadata, [papermill])));
        written(&self.fields, [cells, metadata]).serialize(serializer)
    }
}

/// Returns the indentation of the file's first field, so that new parts match the old ones.
fn indentation_of(text: &str) -> String {
    let line = text.lines().skip_while(|line| line.trim() != "{").nth(1).unwrap_or_default();
    let blank = &line[..line.len() - line.trim_start_matches([' ', '\t']).len()];
    if blank.is_empty() { INDENTATION.to_owned() } else { blank.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// As Jupyter writes it, with fields and numbers unknown to this code.
    const WRITTEN: &str = r#"{
 "zeta": {"b": 1.50, "a": 12345678901234567890123},
 "cells": [
  {
   "cell_type": "markdown",
   "id": "m",
   "metadata": {},
   "source": [
    "é"
   ]
  },
  {
   "source": [
    "x = 1\n",
    "x"
   ],
   "outputs": [],
   "unknown": [1e2],
   "metadata": {
    "tags": [
     "raises-exception"
    ]
   },
   "id": "c",
   "execution_count": null,
   "cell_type": "code"
  },
  {
   "cell_type": "code",
   "execution_count": null,
   "id": "empty",
   "metadata": {},
   "outputs": [],
   "source": []
  }
 ],
 "metadata": {
  "kernelspec": {
   "language": "python"
  }
 },
 "nbformat": 4,
 "nbformat_minor": 5
}
"#;

    #[test]
    fn numbers_that_json_lacks_are_read_and_written_as_by_python() {
        let text =
            WRITTEN.replace("[1e2]", r#"[NaN, -Infinity, {"a\"NaN": Infinity}, "Infinity"]"#);
        let mut notebook = Notebook::read(&text).unwrap();
        assert_eq!(String::from_utf8(notebook.write()).unwrap(), text);
        notebook.inject("x = 1", IndexMap::new());
        let written = String::from_utf8(notebook.write()).unwrap();
        assert!(written.contains(r#"{"a\"NaN": Infinity}, "Infinity"]"#), "{written}");
        assert!(Notebook::read(&text.replace("NaN,", "nan,")).is_err());
    }

    #[test]
    fn what_is_not_run_is_kept_as_it_was() {
        let notebook = Notebook::read(WRITTEN).unwrap();
        assert_eq!(String::from_utf8(notebook.write()).unwrap(), WRITTEN);
        let by_four = WRITTEN.lines().map(|line| {
            let content = line.trim_start();
            format!("{}{content}\n", " ".repeat(4 * (line.len() - content.len())))
        });
        let by_four: String = by_four.collect();
        assert_eq!(String::from_utf8(Notebook::read(&by_four).unwrap().write()).unwrap(), by_four);
    }

    #[test]
    fn outputs_and_counts_take_the_place_of_the_old_ones() {
        let mut notebook = Notebook::read(WRITTEN).unwrap();
        let cell = notebook.code_mut().next().unwrap();
        assert_eq!((cell.source.as_str(), cell.may_raise()), ("x = 1\nx", true));
        cell.execution_count = Some(1);
        cell.outputs.push(json!({ "output_type": "stream" }));
        let written = String::from_utf8(notebook.write()).unwrap();
        let expected = WRITTEN
            .replacen(
                "\"outputs\": []",
                "\"outputs\": [\n    {\n     \"output_type\": \"stream\"\n    }\n   ]",
                1,
            )
            .replacen("\"execution_count\": null", "\"execution_count\": 1", 1);
        assert_eq!(written, expected);
        // The outputs of an earlier run say nothing about this one.
        let again = Notebook::read(&written).unwrap();
        assert_eq!(String::from_utf8(again.write()).unwrap(), WRITTEN);
    }

    #[test]
    fn required_fields_are_added() {
        let text = r#"{"nbformat": 4, "nbformat_minor": 2, "metadata": {}, "cells":
            [{"cell_type": "code", "source": "1"}]}"#;
        let written = Notebook::read(text).unwrap().write();
        let written: Value = serde_json::from_slice(&written).unwrap();
        let cell =
            json!({ "cell_type": "code", "source": "1", "execution_count": null, "outputs": [] });
        assert_eq!(written["cells"][0], cell);
    }

    fn with_cells(cells: &[(&str, &str)]) -> Notebook {
        let cells: Vec<Value> = cells
            .iter()
            .map(|(source, tag)| {
                json!({ "cell_type": "code", "id": source, "source": source,
                        "metadata": { "tags": [tag] } })
            })
            .collect();
        let text = json!({ "nbformat": 4, "nbformat_minor": 5, "cells": cells,
            "metadata": { "a": 1, "papermill": { "parameters": { "old": 1 }, "version": "2" } } });
        Notebook::read(&text.to_string()).unwrap()
    }

    #[test]
    fn parameters_are_injected_where_papermill_does() {
        let x = || IndexMap::from([("x".to_owned(), json!(2)), ("a".to_owned(), json!("t"))]);
        for (cells, expected) in [
            (
                &[("a", ""), ("x = 1", "parameters"), ("b", "")][..],
                &["a", "x = 1", "x = 2", "b"][..],
            ),
            (
                &[("a", ""), ("x = 1", "injected-parameters"), ("x = 0", "parameters")],
                &["a", "x = 2", "x = 0"],
            ),
            (&[("a", "")], &["x = 2", "a"]),
        ] {
            let mut notebook = with_cells(cells);
            notebook.inject("x = 2", x());
            let written: Value = serde_json::from_slice(&notebook.write()).unwrap();
            let found = written["cells"].as_array().unwrap();
            let sources: Vec<&str> = notebook.code().map(|cell| cell.source.as_str()).collect();
            assert_eq!(sources, expected);
            let injected = &found[sources.iter().position(|source| *source == "x = 2").unwrap()];
            assert_eq!(injected["metadata"], json!({ "tags": ["injected-parameters"] }));
            assert_eq!(injected["source"], json!(["x = 2"]));
            assert_eq!(injected["id"].as_str().unwrap().len(), 8);
            let papermill = json!({ "parameters": { "x": 2, "a": "t" }, "version": "2" });
            assert_eq!(written["metadata"], json!({ "a": 1, "papermill": papermill }));
            // As read again, and with other parameters.
            let mut again = Notebook::read(&String::from_utf8(notebook.write()).unwrap()).unwrap();
            again.inject("x = 3", IndexMap::new());
            assert_eq!(again.code().count(), expected.len());
        }
    }

    #[test]
    fn what_can_not_be_run_says_why() {
        for (text, expected) in [
            ("", "not a notebook"),
            ("{", "JSON"),
            ("[]", "not a notebook"),
            ("{}", "no `nbformat`"),
            (r#"{"nbformat": 3, "worksheets": []}"#, "nbconvert"),
            (r#"{"nbformat": 4}"#, "`cells`"),
            (r#"{"nbformat": 4, "cells": [1]}"#, "its cell 1 is invalid"),
            (r#"{"nbformat": 4, "cells": [{"cell_type": "code", "source": 1}]}"#, "`source`"),
            (
                r#"{"nbformat": 4, "cells": [], "metadata": {"kernelspec": {"language": "R"}}}"#,
                "it is written in R",
            ),
            (
                r#"{"nbformat": 4, "cells": [], "metadata": {"language_info": {"name": "julia"}}}"#,
                "only Python",
            ),
        ] {
            let problem = Notebook::read(text).unwrap_err().to_string();
            assert!(problem.contains(expected), "{text}: {problem}");
        }
    }

    #[test]
    fn cells_can_be_left_out() {
        let text = r#"{"nbformat": 4, "cells": [{"cell_type": "code", "source": ["1"],
            "metadata": {"tags": ["skip-execution"]}}]}"#;
        assert_eq!(Notebook::read(text).unwrap().code().count(), 0);
    }
}
