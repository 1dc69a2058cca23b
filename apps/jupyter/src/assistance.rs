//! Assistance while somebody types: completions, descriptions of names, and whether an input is
//! complete.
//!
//! A session answers by the module `hatchery_prompt`, which looks names up without running the
//! program's code. `hatchery repl` uses it as well as the kernel.

use std::time::Duration;

use hatchery::{Job, Limits, Session, Verdict};
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::lexer::{Part, is_word, parts};

pub use self::input::{Input, Judgement};

mod input;
pub mod lexer;

/// The name of the module that a session installs.
pub const MODULE: &str = "hatchery_prompt";
/// The source of that module.
pub const SOURCE: &str = include_str!("assistance/guest.py");

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
}
