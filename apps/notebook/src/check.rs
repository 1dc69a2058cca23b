//! Compares the outputs of a run with those in the notebook's file, as nbval does.
//!
//! Markers in comments and tags say what is compared. A file of patterns, as nbval reads it,
//! replaces what differs from run to run. Python's `re` applies them, in a fresh interpreter.

use std::collections::BTreeMap;

use hatchery::Hatchery;
use hatchery::error::counted;
use serde_json::{Value, json};

use crate::document::{Notebook, text_of};
use crate::error::Error;
use crate::guest::ask;
use crate::markers::Markers;

const SANITIZING: &str = include_str!("check/sanitizing.py");

/// What isn't compared: it differs from run to run, or another field says the same.
const SKIPPED: [&str; 8] = [
    "metadata",
    "traceback",
    "output_type",
    "name",
    "execution_count",
    "application/vnd.jupyter.widget-view+json",
    "image/png",
    "image/jpeg",
];
/// The field that says in which place a cell ran.
const NUMBER: &str = "execution_count";
/// The most lines of a difference that are reported.
const MOST_LINES: usize = 40;
/// The longest line that a message quotes, in characters.
const LONGEST_LINE: usize = 200;

/// What to compare in the cells that have no marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unmarked {
    /// Their outputs.
    Checked,
    /// Only that they don't fail.
    Ignored,
}

/// How a cell's outputs differ from those in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// The cell, counted from 1 among those that run.
    pub cell: usize,
    /// What differs: a MIME type, a stream, or a field of an error.
    pub field: String,
    /// Lines that begin with `-` for what is in the file, `+` for what the run gave, or a space.
    pub lines: Vec<String>,
}

/// Compares the notebook's outputs with those in its file. `patterns` is the text of a file of
/// patterns.
///
/// # Errors
/// A pattern isn't valid, or the pool failed.
pub async fn compare(
    pool: &Hatchery,
    notebook: &Notebook,
    unmarked: Unmarked,
    patterns: Option<&str>,
) -> Result<Vec<Difference>, Error> {
    let mut compared: Vec<(usize, Fields, Fields)> = Vec::new();
    let mut differences = Vec::new();
    for (number, cell) in (1..).zip(notebook.code()) {
        let checks = Markers::of(&cell.source, &cell.tags).checks;
        // If it never ran in the file, and has no outputs there, there is nothing to compare with.
        if !checks.unwrap_or(unmarked == Unmarked::Checked) || cell.execution_count.is_none() {
            continue;
        }
        if cell.was_run {
            compared.push((number, fields(&cell.recorded), fields(&cell.outputs)));
        } else if !cell.recorded.is_empty() {
            // As nbval has it: somebody has edited the file by hand, or reset its counts.
            let lines = vec!["  the file has outputs, but no execution count".to_owned()];
            differences.push(Difference { cell: number, field: NUMBER.to_owned(), lines });
        }
    }
    if let Some(patterns) = patterns {
        let mut texts: Vec<&mut String> = compared
            .iter_mut()
            .flat_map(|(_, one, other)| one.values_mut().chain(other.values_mut()))
            .flatten()
            .collect();
        let request = json!([patterns, texts]);
        let sanitized: Vec<String> = ask(pool, SANITIZING, &request, Error::Patterns).await?;
        for (text, sanitized) in texts.iter_mut().zip(sanitized) {
            **text = sanitized;
        }
    }
    differences.extend(compared.iter().filter_map(|(number, recorded, given)| {
        let (field, lines) = difference(recorded, given)?;
        Some(Difference { cell: *number, field, lines })
    }));
    differences.sort_by_key(|difference| difference.cell);
    Ok(differences)
}

/// Texts by what they are: a MIME type, a stream, or a field of an error.
type Fields = BTreeMap<String, Vec<String>>;

/// Returns what is compared of a cell's outputs. Outputs to a stream are joined, so that it doesn't
/// matter how they alternate. Those of one MIME type keep their order.
fn fields(outputs: &[Value]) -> Fields {
    let mut fields = Fields::new();
    for output in outputs {
        if output["output_type"] == "stream" {
            let name = output["name"].as_str().unwrap_or("stdout").to_owned();
            let texts = fields.entry(name).or_insert_with(|| vec![String::new()]);
            texts[0].push_str(&shown(&output["text"]));
            continue;
        }
        let own = output.as_object().into_iter().flatten().filter(|(name, _)| *name != "data");
        let data = output["data"].as_object().into_iter().flatten();
        for (name, value) in own.chain(data).filter(|(name, _)| !SKIPPED.contains(&name.as_str())) {
            fields.entry(name.clone()).or_default().push(shown(value));
        }
    }
    for name in ["stdout", "stderr"] {
        if let Some(text) = fields.get_mut(name).and_then(|texts| texts.first_mut()) {
            *text = overwritten(text);
        }
    }
    fields
}

/// Returns a value as text: lines joined, and JSON in one form.
fn shown(value: &Value) -> String {
    text_of(value).unwrap_or_else(|| value.to_string())
}

/// Returns what a terminal shows in the end of lines that a program overwrites with `\r`.
fn overwritten(text: &str) -> String {
    let lines = text.split_inclusive('\n').map(|line| {
        let content = line.trim_end_matches(['\r', '\n']);
        let shown = content.rsplit('\r').next().unwrap_or_default();
        format!("{shown}{}", &line[content.len()..])
    });
    lines.collect()
}

/// Returns the first field that differs, and how.
fn difference(recorded: &Fields, given: &Fields) -> Option<(String, Vec<String>)> {
    let names = recorded.keys().chain(given.keys().filter(|name| !recorded.contains_key(*name)));
    for name in names {
        let [one, other] = [recorded, given].map(|fields| fields.get(name).cloned());
        if one != other {
            let [one, other] = [one, other].map(Option::unwrap_or_default);
            return Some((name.clone(), lines_of(&one.concat(), &other.concat())));
        }
    }
    None
}

/// Returns the differing lines of two texts between those they begin and end with.
fn lines_of(recorded: &str, given: &str) -> Vec<String> {
    let [one, other]: [Vec<&str>; 2] = [recorded, given].map(|text| text.lines().collect());
    let begin = one.iter().zip(&other).take_while(|(one, other)| one == other).count();
    let ends = one[begin..].iter().rev().zip(other[begin..].iter().rev());
    let end = ends.take_while(|(one, other)| one == other).count();
    let marked = |mark: char, lines: &[&str]| -> Vec<String> {
        let shown =
            |line: &&str| format!("{mark} {}", line.chars().take(LONGEST_LINE).collect::<String>());
        let left_out = lines.len().saturating_sub(MOST_LINES / 2);
        let mut shown: Vec<String> = lines.iter().take(MOST_LINES / 2).map(shown).collect();
        if left_out > 0 {
            shown.push(format!("{mark} … and {} more", counted(left_out, "line")));
        }
        shown
    };
    let before = begin.checked_sub(1).map(|at| format!("  {}", one[at]));
    let removed = marked('-', &one[begin..one.len() - end]);
    let added = marked('+', &other[begin..other.len() - end]);
    let mut lines: Vec<String> = before.into_iter().chain(removed).chain(added).collect();
    if recorded.lines().eq(given.lines()) {
        lines.push("  they differ in their line endings".to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {

    use super::*;

    fn stream(name: &str, text: &str) -> Value {
        json!({ "output_type": "stream", "name": name, "text": [text] })
    }

    #[test]
    fn streams_are_joined_and_images_left_out() {
        let outputs = [
            stream("stdout", "10%\r50%"),
            stream("stderr", "e"),
            stream("stdout", "\r100%\nend\n"),
            json!({ "output_type": "display_data", "metadata": { "a": 1 },
                    "data": { "image/png": "iV", "text/plain": ["<Figure>"] } }),
            json!({ "output_type": "execute_result", "execution_count": 3, "metadata": {},
                    "data": { "text/plain": "3", "application/json": { "b": 1, "a": [] } } }),
        ];
        let fields = fields(&outputs);
        let expected = [
            ("application/json", vec![r#"{"a":[],"b":1}"#]),
            ("stderr", vec!["e"]),
            ("stdout", vec!["100%\nend\n"]),
            ("text/plain", vec!["<Figure>", "3"]),
        ];
        let expected: Fields = expected
            .into_iter()
            .map(|(name, texts)| (name.to_owned(), texts.into_iter().map(str::to_owned).collect()))
            .collect();
        assert_eq!(fields, expected);
    }

    #[test]
    fn a_difference_shows_the_lines() {
        let of = |one: &str, other: &str| {
            difference(&fields(&[stream("stdout", one)]), &fields(&[stream("stdout", other)]))
        };
        assert_eq!(of("a\n", "a\n"), None);
        let (field, lines) = of("a\nb\nc\nd\n", "a\nB\nd\n").unwrap();
        assert_eq!((field.as_str(), lines.join("|").as_str()), ("stdout", "  a|- b|- c|+ B"));
        let (_, lines) = of("a\n", "a").unwrap();
        assert!(lines.last().unwrap().contains("line endings"));
        let (_, lines) = of("", &"x\n".repeat(100)).unwrap();
        assert!(lines.len() == 21 && lines[20].contains("80 lines more"), "{lines:?}");
        let missing = difference(&fields(&[stream("stderr", "w\n")]), &Fields::new()).unwrap();
        assert_eq!(missing, ("stderr".to_owned(), vec!["- w".to_owned()]));
    }
}
