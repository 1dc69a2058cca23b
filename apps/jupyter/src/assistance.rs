//! Assistance while a user types: completions, descriptions of names, and whether an input is
//! complete.
//!
//! A session answers by the module `hatchery_prompt`, which looks names up without running the
//! program's code. `hatchery repl` and the kernel use it.

use std::time::Duration;

use hatchery::{Job, Limits, Session, Verdict};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use self::lexer::{Part, is_word, parts};

pub mod lexer;

/// The source of the module `hatchery_prompt`.
const SOURCE: &str = include_str!("assistance/guest.py");

/// Returns source that installs the module that answers, and another one by its name and source, for
/// import. It leaves no other trace, and running it again changes nothing. Tracebacks omit the
/// modules' frames.
pub fn install(name: &str, source: &str) -> String {
    // JSON strings are valid in Python, since serde_json leaves non-ASCII characters as they are.
    let modules = json!([["hatchery_prompt", SOURCE], [name, source]]);
    format!(
        "def _hatchery_begin(modules):\n    import sys, types\n    \
         for name, source in modules:\n        \
         module = sys.modules[name] = types.ModuleType(name)\n        \
         exec(compile(source, f\"<hatchery/{{name}}.py>\", \"exec\"), module.__dict__)\n\
         _hatchery_begin({modules})\ndel _hatchery_begin\n"
    )
}

/// The function that lists the names that a dotted name could become.
pub const COMPLETE: &str = "hatchery_prompt:complete";
/// The function that says what a typed line makes of the lines before it.
pub(crate) const JUDGE: &str = "hatchery_prompt:judge";
/// The function that describes what a name refers to.
pub(crate) const DESCRIBE: &str = "hatchery_prompt:describe";
/// The function that says whether a cell is complete.
pub(crate) const IS_COMPLETE: &str = "hatchery_prompt:is_complete";
/// The function that lists magics.
pub(crate) const MAGICS: &str = "hatchery_prompt:magics";
/// The function that lists modules.
pub(crate) const MODULES: &str = "hatchery_prompt:modules";

/// How long the session may take to answer. Nobody waits longer for Tab.
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// Calls one of these functions in an idle session. `None` if there is no answer in time, or not the
/// right one.
pub async fn ask<T: DeserializeOwned>(
    session: &Session,
    limits: &Limits,
    function: &str,
    arguments: impl IntoIterator<Item = Value>,
) -> Option<T> {
    let (wall_time, cpu_time) = (LONGEST_LOOK, Some(LONGEST_LOOK));
    let limits = Limits { wall_time, cpu_time, ..limits.clone() };
    let job = Job::call(function, arguments).limits(limits);
    let asked = tokio::time::timeout(2 * LONGEST_LOOK, session.run(job)).await;
    match asked.ok()?.ok()?.verdict {
        Verdict::Completed { value, .. } => serde_json::from_value(value?).ok(),
        _ => None,
    }
}

/// Returns the dotted name at the end of code, as in `print(a.b`; `None` if there is none, as in a
/// string.
pub fn dotted_end(code: &str) -> Option<&str> {
    let is_dotted = |character| is_word(character) || character == '.';
    let start = code.trim_end_matches(is_dotted).len();
    let dotted = &code[start..];
    let is_name = !dotted.is_empty() && !dotted.starts_with(char::is_numeric);
    (is_name && parts(code, |_, _| {}) == Part::Other).then_some(dotted)
}

// The lines of one input.
//
// Python itself decides when they are complete: it is asked about each line, so a prompt knows no
// Python. A session of its own answers, which no program can mislead or fill, and in
// which no task of a program would run. Wrong code counts as complete, since Python then reports the
// error: so an unclosed bracket doesn't swallow everything that follows.

/// The lines of one input, as far as they have been typed.
///
/// ```
/// use jupyter::assistance::{Input, Judgement};
///
/// // `Input::judge` says of each line how the input goes on.
/// let mut input = Input::default();
/// input.push("def f():", Judgement::Open);
/// input.push("    return 1", Judgement::Block);
/// input.push("", Judgement::Whole);
/// assert_eq!(input.take(), "def f():\n    return 1\n");
/// assert!(input.is_empty());
/// ```
#[derive(Debug, Default)]
pub struct Input {
    text: String,
    /// What the last line made of them.
    last: Option<Judgement>,
}

/// What a line makes of the input before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Judgement {
    /// The input goes on, as in a bracket.
    Open,
    /// The input goes on until an empty line.
    Block,
    /// The input is complete, or wrong.
    Whole,
    /// The input has ended before this line.
    Apart,
}

impl Input {
    /// Judges what was typed up to a line end: one line, or several that were pasted or come from the
    /// history. Without an answer from the session of the judge, it ends the input.
    pub async fn judge(&self, typed: &str, judge: &Session, limits: &Limits) -> Judgement {
        let is_blank = typed.trim().is_empty();
        if self.is_empty() && (is_blank || typed.trim_start().starts_with(':')) {
            return Judgement::Whole;
        }
        // Lines that can only go on with the input aren't a reason to parse all of it again.
        match self.last {
            Some(Judgement::Block)
                if !is_blank && typed.starts_with([' ', '\t']) && !typed.contains('\n') =>
            {
                return Judgement::Block;
            }
            Some(Judgement::Open) if !self.text.ends_with("\\\n") && closes_nothing(typed) => {
                return Judgement::Open;
            }
            _ => {}
        }
        let judged = ask(judge, limits, JUDGE, [self.text.as_str().into(), typed.into()]).await;
        judged.unwrap_or(Judgement::Whole)
    }

    /// Adds what was typed and judged.
    pub fn push(&mut self, typed: &str, judgement: Judgement) {
        self.text.push_str(typed);
        self.text.push('\n');
        self.last = Some(judgement);
    }

    /// Returns whether nothing was typed.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns what was typed, with its line ends.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Takes this input, complete or not, without the blank lines that ended it, and begins the
    /// next one.
    pub fn take(&mut self) -> String {
        let mut text = std::mem::take(self).text;
        text.truncate(text.trim_end_matches([' ', '\t', '\n']).len());
        if !text.is_empty() {
            text.push('\n');
        }
        text
    }
}

/// Returns whether indented lines leave an open bracket or string open: they close only what they
/// open. Lines that aren't indented may show that a bracket was forgotten.
fn closes_nothing(lines: &str) -> bool {
    let (mut depth, mut least) = (0_i32, 0_i32);
    let end = parts(lines, |part, text| {
        if part == Part::Other {
            for character in text.chars() {
                depth +=
                    i32::from("([{".contains(character)) - i32::from(")]}".contains(character));
                least = least.min(depth);
            }
        }
    });
    let is_indented = lines.lines().all(|line| line.starts_with([' ', '\t']));
    is_indented && !lines.trim().is_empty() && end != Part::String && least == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_at_the_end_of_code() {
        for (code, expected) in [
            ("print(a.b", Some("a.b")),
            ("é.x", Some("é.x")),
            ("x = 1\nx.", Some("x.")),
            ("f'{a.b", Some("a.b")),
            ("1.5", None),
            ("'a", None),
            ("# a", None),
            ("x ", None),
            ("", None),
        ] {
            assert_eq!(dotted_end(code), expected, "{code}");
        }
    }

    #[test]
    fn lines_that_close_nothing_are_told_from_those_that_might() {
        for line in ["  1, 2,", "  {'a': [1]},", "\tf(", "  # )", "  ')',", " x"] {
            assert!(closes_nothing(line), "{line}");
        }
        for line in ["", "  ", "x", "  2]", " } + {", " it's", " \"\"\"", " [1], 2)"] {
            assert!(!closes_nothing(line), "{line}");
        }
    }

    #[test]
    fn taking_an_input_begins_the_next_one() {
        let mut input = Input::default();
        for line in ["def f():", "    return 1  ", ""] {
            input.push(line, Judgement::Block);
        }
        assert_eq!(input.take(), "def f():\n    return 1\n");
        assert!(input.is_empty() && input.last.is_none());
        input.push(" \t", Judgement::Whole);
        assert_eq!(input.take(), "");
        input.push("((", Judgement::Open);
        assert_eq!(input.take(), "((\n");
    }
}
