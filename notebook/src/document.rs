//! A notebook's file: reads and writes nbformat 4.
//!
//! Whatever a run doesn't change stays as it was, byte for byte: unknown fields, their order, and
//! the spelling of numbers. A run replaces the outputs and execution counts of code cells.

use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::ser::PrettyFormatter;
use serde_json::value::RawValue;

pub use self::cell::CodeCell;
use self::cell::{Cell, Field, Fields, parsed, written};

mod cell;

/// The names of Python in notebooks.
const LANGUAGES: [&str; 3] = ["python", "python3", "ipython"];

/// Jupyter's indentation.
const INDENTATION: &str = " ";

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
    cells: Vec<Cell>,
    indentation: String,
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
            Cell::read(cell).map_err(|problem| format!("its cell {number} is invalid: {problem}"))
        });
        let cells = cells.collect::<Result<_, _>>()?;
        Ok(Self { fields, cells, indentation: indentation_of(text) })
    }

    /// Returns the cells that are run, in order.
    pub fn code(&self) -> impl Iterator<Item = &CodeCell> {
        self.cells.iter().filter_map(|cell| match cell {
            Cell::Code(cell) => Some(cell),
            Cell::Other(_) => None,
        })
    }

    /// Returns the same cells, to put outputs into them.
    pub fn code_mut(&mut self) -> impl Iterator<Item = &mut CodeCell> {
        self.cells.iter_mut().filter_map(|cell| match cell {
            Cell::Code(cell) => Some(cell),
            Cell::Other(_) => None,
        })
    }

    /// Returns the text of the notebook's file.
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let formatter = PrettyFormatter::with_indent(self.indentation.as_bytes());
        let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
        self.serialize(&mut serializer).expect("strings and JSON always serialize");
        bytes.push(b'\n');
        bytes
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
        written(&self.fields, [("cells", Field::Cells(&self.cells))]).serialize(serializer)
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
    use super::*;
    use serde_json::json;

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
