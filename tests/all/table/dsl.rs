//! A row of the table: a program and its complete expected outcome.
//!
//! Whatever a row doesn't name must be absent: output, representations, data, displays, notes,
//! causes. An exception passes only the last line of the program, unless the row says otherwise.
#![expect(clippy::unwrap_used, reason = "a table that can't be made fails")]

use std::fmt::Debug;

use hatchery::outcome::{MimeBundle, MimeData};
use hatchery::value::Column;
use hatchery::{Array, LimitKind, Outcome, Value, Verdict};
use serde_json::Value as Json;

use super::error::{Error, error};
use super::text::{lines, matches};
use crate::needs::{Build, Need};

/// A program, and how it must end.
pub(super) struct Row {
    pub(super) source: String,
    end: End,
    stdout: Vec<u8>,
    stderr: String,
    interleaved: Option<&'static str>,
    displays: Vec<Forms>,
    limits_met: Vec<LimitKind>,
    needs: Vec<Need>,
}

/// MIME types and their data, as text.
type Forms = &'static [(&'static str, &'static str)];

enum End {
    Completed { value: Option<Json>, repr: Option<&'static str>, forms: Forms, data: Option<Value> },
    Raised { error: Error, ending: Option<String>, traceback: Option<String> },
    Exited { code: u8, message: Option<&'static str> },
}

/// The program ends in an expression that JSON can represent.
pub(super) fn completes(source: &str, value: impl Into<Json>, repr: &'static str) -> Row {
    row(source, completed(Some(value.into()), Some(repr)))
}

/// The program ends in an expression that JSON can't represent.
pub(super) fn shows(source: &str, repr: &'static str) -> Row {
    row(source, completed(None, Some(repr)))
}

/// The program ends in an expression that is `None`.
pub(super) fn gives_none(source: &str) -> Row {
    row(source, completed(Some(Json::Null), None))
}

/// The program doesn't end in an expression.
pub(super) fn ends(source: &str) -> Row {
    row(source, completed(None, None))
}

/// A built-in exception without a cause, a context, notes and members, from the program's last
/// line.
pub(super) fn raises(source: &str, type_name: &'static str, message: &'static str) -> Row {
    fails(source, error(type_name, message))
}

/// The same for any other exception.
pub(super) fn fails(source: &str, error: Error) -> Row {
    row(source, End::Raised { error, ending: None, traceback: None })
}

/// The program isn't valid Python: the error, with its line, column and text.
pub(super) fn refuses(
    source: &str,
    type_name: &'static str,
    message: &str,
    (line, column, text): (u32, u32, &'static str),
) -> Row {
    let error = error(type_name, format!("{message} (<job>, line {line})"));
    fails(source, error.at(&[]).syntax("<job>", line, column, text))
}

/// The program exits with a code.
pub(super) fn exits(source: &str, code: u8) -> Row {
    row(source, End::Exited { code, message: None })
}

/// The program exits with a message, which is printed, and so with code 1.
pub(super) fn exits_saying(source: &str, message: &'static str) -> Row {
    Row { stderr: format!("{message}\n"), ..exits(source, 1).message(message) }
}

fn row(source: &str, end: End) -> Row {
    let block = lines(source);
    Row {
        // Like a file from an editor that adds no final newline.
        source: block.strip_suffix('\n').filter(|_| block != source).unwrap_or(&block).to_owned(),
        end,
        stdout: Vec::new(),
        stderr: String::new(),
        interleaved: None,
        displays: Vec::new(),
        limits_met: Vec::new(),
        needs: Vec::new(),
    }
}

fn completed(value: Option<Json>, repr: Option<&'static str>) -> End {
    End::Completed { value, repr, forms: &[], data: None }
}

/// An array of any type, from its bytes.
pub(super) fn array(dtype: &str, shape: &[usize], bytes: impl Into<Vec<u8>>) -> Array {
    Array::new(dtype, shape, bytes).unwrap()
}

/// A column of texts.
pub(super) fn texts<const N: usize>(texts: [Option<&str>; N]) -> Column {
    texts.into_iter().collect()
}

impl Row {
    pub(super) fn stdout(mut self, expected: impl AsRef<[u8]>) -> Self {
        self.stdout = expected.as_ref().to_vec();
        self
    }

    pub(super) fn stderr(mut self, expected: &str) -> Self {
        self.stderr = lines(expected);
        self
    }

    /// The output of both streams together, in order.
    pub(super) fn interleaved(mut self, expected: &'static str) -> Self {
        self.interleaved = Some(expected);
        self
    }

    pub(super) fn display(mut self, forms: Forms) -> Self {
        self.displays.push(forms);
        self
    }

    /// A limit that the program meets without being ended by it.
    pub(super) fn meets(mut self, limit: LimitKind) -> Self {
        self.limits_met.push(limit);
        self
    }

    /// What the row needs of a build besides the modules that its program imports.
    pub(super) fn needs(mut self, need: Need) -> Self {
        self.needs.push(need);
        self
    }

    /// Returns whether the row holds on this build.
    pub(super) fn holds_on(&self, build: &Build) -> bool {
        build.has(&self.source, &self.needs)
    }

    /// Representations of the value besides its `repr`.
    pub(super) fn forms(mut self, expected: Forms) -> Self {
        let End::Completed { forms, .. } = &mut self.end else { panic!("{}", self.source) };
        *forms = expected;
        self
    }

    pub(super) fn data(mut self, expected: impl Into<Value>) -> Self {
        let End::Completed { data, .. } = &mut self.end else { panic!("{}", self.source) };
        *data = Some(expected.into());
        self
    }

    pub(super) fn message(mut self, expected: &'static str) -> Self {
        let End::Exited { message, .. } = &mut self.end else { panic!("{}", self.source) };
        *message = Some(expected);
        self
    }

    /// The whole traceback.
    pub(super) fn traceback(mut self, expected: &str) -> Self {
        let End::Raised { traceback, .. } = &mut self.end else { panic!("{}", self.source) };
        *traceback = Some(lines(expected));
        self
    }

    /// Its last lines, where they aren't the type, the message and the notes.
    pub(super) fn ending(mut self, expected: &str) -> Self {
        let End::Raised { ending, .. } = &mut self.end else { panic!("{}", self.source) };
        *ending = Some(expected.to_owned());
        self
    }

    /// Returns the types of the expected exceptions.
    pub(super) fn exceptions(&self) -> Vec<&'static str> {
        match &self.end {
            End::Raised { error, .. } => error.type_names(),
            End::Completed { .. } | End::Exited { .. } => Vec::new(),
        }
    }

    /// Returns the differences from the expectation, a line each.
    pub(super) fn differences(&self, interleaved: &[u8], outcome: &Outcome) -> Vec<String> {
        let mut found = Differences::default();
        self.end.compare(&mut found, self.source.lines().count(), &outcome.verdict);
        found.equal("stdout", &text(&self.stdout), &text(&outcome.stdout));
        found.matching("stderr", &self.stderr, &outcome.stderr_text());
        if let Some(expected) = self.interleaved {
            found.equal("both streams", &text(expected.as_bytes()), &text(interleaved));
        }
        found.equal("displays", &self.displays.len(), &outcome.displays.len());
        for (forms, display) in self.displays.iter().zip(&outcome.displays) {
            found.forms("display", forms, display);
        }
        let met: Vec<_> = outcome.limits_met.iter().map(|hit| hit.limit).collect();
        found.equal("limits met", &self.limits_met, &met);
        found.equal("files", &0, &outcome.files.len());
        found.0
    }
}

impl End {
    fn compare(&self, found: &mut Differences, last_line: usize, verdict: &Verdict) {
        match (self, verdict) {
            (
                Self::Completed { value, repr, forms, data },
                Verdict::Completed {
                    value: its_value, repr: its_repr, bundle, data: its_data, ..
                },
            ) => {
                found.equal("value", value, its_value);
                found.equal("has a repr", &repr.is_some(), &its_repr.is_some());
                found.matching("repr", repr.unwrap_or(""), its_repr.as_deref().unwrap_or(""));
                found.forms("form", forms, bundle);
                // The tagged form is for clients in Python, whose tests have it.
                let its_data = its_data.as_ref().filter(|data| !matches!(data, Value::Tagged(_)));
                // Not by `==`, since NaN must equal NaN here.
                found.equal("data", &format!("{:?}", data.as_ref()), &format!("{its_data:?}"));
            }
            (Self::Raised { error, ending, traceback }, Verdict::Raised(exception)) => {
                error.compare(found, "exception", Some(last_line), exception);
                match (traceback, error.ending(ending.as_deref())) {
                    (Some(whole), _) => found.matching("traceback", whole, &exception.traceback),
                    (None, ending) => found.matching("traceback", &ending, &exception.traceback),
                }
            }
            (Self::Exited { code, message }, Verdict::Exited { code: its_code, message: its }) => {
                found.equal("code", code, its_code);
                found.equal("message", message, &its.as_deref());
            }
            (_, verdict) => found.0.push(format!("end: found {verdict:?}")),
        }
    }
}

/// Renders output that need not be UTF-8, without ambiguity.
fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// The differences between what was expected and what was found.
#[derive(Default)]
pub(super) struct Differences(Vec<String>);

impl Differences {
    pub(super) fn equal<T: Debug + PartialEq>(&mut self, what: &str, expected: &T, found: &T) {
        if expected != found {
            self.0.push(format!("{what}: expected {expected:?}\n{what}: found    {found:?}"));
        }
    }

    pub(super) fn matching(&mut self, what: &str, expected: &str, found: &str) {
        if !matches(expected, found) {
            self.equal(what, &expected, &found);
        }
    }

    fn forms(&mut self, what: &str, expected: Forms, found: &MimeBundle) {
        let mut types: Vec<_> = expected.iter().map(|(mime, _)| *mime).collect();
        let mut its_types: Vec<_> = found.iter().map(|(mime, _)| mime).collect();
        types.sort_unstable();
        its_types.sort_unstable();
        self.equal(&format!("types of {what}"), &types, &its_types);
        for (mime, expected) in expected {
            let data = found.get(mime).map_or(&[][..], MimeData::as_bytes);
            self.matching(&format!("{what} {mime}"), expected, &String::from_utf8_lossy(data));
        }
    }
}
