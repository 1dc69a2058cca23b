//! Compares the outputs of a run with those in the notebook's file, as nbval does.
//!
//! Markers in comments and tags say what is compared. A file of patterns, as nbval reads it, replaces
//! what differs from run to run; Python's `re` applies them, in a fresh interpreter.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use hatchery::error::{chain, counted};
use hatchery::{Hatchery, LimitHit, LimitKind, Outcome, Verdict};
use serde_json::{Value, json};

use crate::document::{CodeCell, Notebook};
use crate::guest::ask;
use crate::settings::Markers;

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
/// The most lines of a difference that are told.
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
        if !is_checked(cell, unmarked) {
            continue;
        }
        if cell.was_run {
            compared.push((number, fields(&cell.recorded), fields(&cell.outputs)));
        } else if !cell.recorded.is_empty() {
            // As nbval has it: somebody has edited the file by hand, or reset its counts.
            let lines = vec!["  the file has outputs, but no number of a run".to_owned()];
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

/// Returns whether a cell that ran is to be compared. If it never ran in the file, and has no outputs
/// there, there is nothing to compare with.
fn is_checked(cell: &CodeCell, unmarked: Unmarked) -> bool {
    let markers = Markers::of(&cell.source, &cell.tags);
    let checks = markers.checks.unwrap_or(unmarked == Unmarked::Checked);
    checks && cell.execution_count.is_some()
}

/// Returns what is compared of a cell's outputs. Outputs to a stream are joined, so that it doesn't
/// matter how they alternate; those of one MIME type keep their order.
fn fields(outputs: &[Value]) -> Fields {
    let mut fields = Fields::new();
    for output in outputs {
        if output["output_type"] == "stream" {
            let name = output["name"].as_str().unwrap_or("stdout").to_owned();
            let texts = fields.entry(name).or_insert_with(|| vec![String::new()]);
            texts[0].push_str(&text_of(&output["text"]));
            continue;
        }
        let own = output.as_object().into_iter().flatten().filter(|(name, _)| *name != "data");
        let data = output["data"].as_object().into_iter().flatten();
        for (name, value) in own.chain(data).filter(|(name, _)| !SKIPPED.contains(&name.as_str())) {
            fields.entry(name.clone()).or_default().push(text_of(value));
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
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(lines) if lines.iter().all(Value::is_string) => {
            lines.iter().filter_map(Value::as_str).collect()
        }
        value => value.to_string(),
    }
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
        lines.push("  they differ in the ends of their lines".to_owned());
    }
    lines
}

/// The longest message in one line, in characters.
const MOST_CHARACTERS: usize = 200;

/// Why a cell did not complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The name of an exception's class, without its module.
    pub name: String,
    /// The exception's message, or what a limit or the sandbox says.
    pub message: String,
    /// The traceback as CPython writes it, or the name and message without one.
    pub traceback: String,
}

impl Problem {
    /// Returns why a cell did not complete; `None` if it did.
    pub fn of(outcome: &Outcome) -> Option<Self> {
        let place = outcome.interrupted_at.as_ref().map_or("", |at| at.traceback.as_str());
        let problem = match &outcome.verdict {
            Verdict::Completed { .. } => return None,
            Verdict::Raised(exception) => Self {
                name: exception.type_name.rsplit('.').next().unwrap_or_default().to_owned(),
                message: exception.message.clone(),
                traceback: exception.traceback.clone(),
            },
            Verdict::Exited { code, message } => {
                let message = message.clone().unwrap_or_else(|| code.to_string());
                Self::new("SystemExit", message)
            }
            Verdict::Limit(hit) => {
                let problem = Self::new("LimitReached", hit.to_string());
                Self { traceback: format!("{place}{}", problem.traceback), ..problem }
            }
            Verdict::Cancelled => {
                let problem = Self::new("KeyboardInterrupt", String::new());
                Self { traceback: place.to_owned(), ..problem }
            }
            Verdict::Tampered(tampering) => Self::new("Tampered", tampering.to_string()),
            Verdict::SandboxFailed(failure) => {
                Self::new("SandboxFailed", chain(failure).to_string())
            }
            verdict => Self::new(verdict.name(), String::new()),
        };
        Some(problem)
    }

    /// Creates a problem without a traceback of the program.
    pub fn new(name: &str, message: String) -> Self {
        let traceback = match message.as_str() {
            "" => name.to_owned(),
            _ => format!("{name}: {message}"),
        };
        Self { name: name.to_owned(), message, traceback }
    }
}

impl std::fmt::Display for Problem {
    /// Formats one line of at most 200 characters. It contains whatever the program wrote, also
    /// sequences that a terminal would obey.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let line = self.message.lines().next().unwrap_or_default();
        let separator = if line.is_empty() { "" } else { ": " };
        let text = format!("{}{separator}{line}", self.name);
        let shown: String = text.chars().take(MOST_CHARACTERS).collect();
        formatter.write_str(&shown)
    }
}

/// Describes what limits cut without ending the cell, one line each.
pub fn remarks(outcome: &Outcome) -> Vec<String> {
    // Output is described below, and commands don't print raw data of a result.
    let is_told = |hit: &&LimitHit| !matches!(hit.limit, LimitKind::Output | LimitKind::ResultData);
    let hits = outcome.limits_met.iter().filter(is_told);
    let mut remarks: Vec<String> = hits.map(LimitHit::refusal).collect();
    if outcome.output_truncated {
        let kept = outcome.stdout.len() + outcome.stderr.len();
        let amount = |bytes| LimitKind::Output.amount(bytes);
        let hit = outcome.limits_met.iter().find(|hit| hit.limit == LimitKind::Output);
        let raises = hit.and_then(LimitHit::raised_by);
        let advice =
            raises.map_or_else(String::new, |raises| format!("; {raises} raises the limit"));
        remarks.push(format!(
            "the output was {}, of which {} were kept{advice}",
            amount(outcome.usage.output_bytes),
            amount(kept as u64)
        ));
    }
    remarks
}

/// A failure that isn't a cell's own.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The pool refused a job, lost the session, or can't save it.
    #[error(transparent)]
    Pool(#[from] hatchery::Error),
    /// The first job of the session failed.
    #[error("the session can't start: {problem}")]
    Begin {
        /// What happened in it.
        problem: Problem,
    },
    /// Parameters can't be used, and what to do.
    #[error("the parameters can't be used: {0}")]
    Parameters(String),
    /// Patterns can't be applied to outputs, and what to do.
    #[error("the outputs can't be compared: {0}")]
    Patterns(String),
    /// A file can't be written.
    #[error("can't write `{path}`")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file can't be removed.
    #[error("can't remove `{path}`")]
    Remove {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The session isn't saved for a later run.
    #[error("the session is not saved in `{path}`")]
    NotKept {
        /// The file that should have it.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<Error>,
    },
}

#[cfg(test)]
mod tests {
    use hatchery::Exception;

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
        assert!(lines.last().unwrap().contains("ends of their lines"));
        let (_, lines) = of("", &"x\n".repeat(100)).unwrap();
        assert!(lines.len() == 21 && lines[20].contains("80 lines more"), "{lines:?}");
        let missing = difference(&fields(&[stream("stderr", "w\n")]), &Fields::new()).unwrap();
        assert_eq!(missing, ("stderr".to_owned(), vec!["- w".to_owned()]));
    }

    #[test]
    fn problems_are_named_as_notebooks_name_them() {
        let exception = Exception::new("numpy.linalg.LinAlgError", "Singular\nmatrix", "Trace\n");
        let outcome = Outcome::not_run(Verdict::Raised(Box::new(exception)));
        let problem = Problem::of(&outcome).unwrap();
        assert_eq!(problem.to_string(), "LinAlgError: Singular");
        assert_eq!(
            (problem.message.as_str(), problem.traceback.as_str()),
            ("Singular\nmatrix", "Trace\n")
        );
        let long = Problem::new("E", "x".repeat(300));
        assert_eq!(long.to_string(), format!("E: {}", "x".repeat(197)));
        let left = Outcome::not_run(Verdict::Exited { code: 3, message: None });
        assert_eq!(Problem::of(&left).unwrap().to_string(), "SystemExit: 3");
        let cancelled = Problem::of(&Outcome::not_run(Verdict::Cancelled)).unwrap();
        assert_eq!(cancelled.to_string(), "KeyboardInterrupt");
        assert!(remarks(&left).is_empty());
    }
}
