//! DS-1000, whose tests put a snippet into a program and execute that themselves.
//!
//! Here the candidate's interpreter executes it: the tests' `exec` sends it the program with the
//! variables, and gets the result. So a snippet never runs where its tests do.

use serde_json::Value;

use super::Suite;
use crate::error::InvalidLine;

/// What the tests have in place of Python's `exec`.
const EXECUTE: &str =
    "def exec(source, names):\n    names.update(hatchery_execute(source, names))\n\n";

/// What the candidate's interpreter has beside the snippet. All of DS-1000's tests only read `result`.
/// Where tests and candidate share an interpreter, `exec` is that of the tests.
const EXECUTED: &str = "def hatchery_execute(source, names):\n    import builtins\n    \
    names = dict(names)\n    builtins.exec(source, names)\n    \
    return {name: names[name] for name in ('result',) if name in names}\n";

/// Returns the tests of a `code_context`.
pub(super) fn suite(context: &str) -> Result<Suite, InvalidLine> {
    let mut called = vec!["test_execution", "test_string"];
    called.retain(|check| context.contains(&format!("def {check}(")));
    let tests: Vec<_> = called.iter().map(|check| format!("{check}(hatchery_snippet)")).collect();
    if tests.is_empty() {
        let form = "code that defines `test_execution` or `test_string`";
        return Err(InvalidLine::Field("code_context", form));
    }
    // Their names are those of tests of pytest, which they aren't.
    let unmarked: String =
        called.iter().map(|check| format!("\n{check}.__test__ = False")).collect();
    Ok(Suite::Code { tests, setup: format!("{EXECUTE}{context}{unmarked}\n"), check: None })
}

/// Returns the program that holds a snippet, without the marks that models put around it, as DS-1000 removes
/// them.
pub(super) fn program(snippet: &str) -> String {
    let before = |text: &str, mark: &str| {
        text.split_once(mark).map_or(text, |(before, _)| before).to_owned()
    };
    let snippet = before(snippet, "</code>").replace("```python", "");
    let snippet = before(&before(&snippet, "```"), "\nEND SOLUTION").replace("<code>", "");
    // A text of JSON is one of Python.
    format!("hatchery_snippet = {}\n\n{EXECUTED}", Value::from(snippet))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_around_a_snippet_are_removed() {
        for given in [
            "x = '\u{e9}'\n",
            "<code>\nx = '\u{e9}'\n</code>\nEND",
            "```python\nx = '\u{e9}'\n```\nis it",
            "x = '\u{e9}'\nEND SOLUTION\ny",
        ] {
            let program = program(given);
            let literal = program.lines().next().and_then(|line| line.split_once(" = "));
            let snippet = literal.and_then(|(_, text)| serde_json::from_str::<String>(text).ok());
            assert_eq!(snippet.as_deref().map(str::trim), Some("x = '\u{e9}'"), "{program}");
        }
    }
}
