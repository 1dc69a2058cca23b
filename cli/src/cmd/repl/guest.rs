//! The prompt's helpers in each session: for completion, for the end of an input, `%time` and
//! `%timeit`.

use ::jupyter::assistance::{self, lexer};
use hatchery::{HostError, HostFunction};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::terminal::{Heard, Reader};
use crate::follow::Lines;

/// The module of `%time` and `%timeit`.
const TIMING: &str = "hatchery_timing";

/// Returns the source that installs the helpers. Running it again changes nothing.
pub(super) fn begin() -> String {
    assistance::install(TIMING, ::notebook::guest::TIMING)
}

/// Translates an input that begins with `%`, or asks for help by `?`, to Python; `None` if it is
/// Python already. The error lists what is available.
pub(super) fn magic(input: &str) -> Option<Result<String, String>> {
    let input = input.trim();
    if let Some(name) = input.strip_prefix('?').or_else(|| input.strip_suffix('?')) {
        return question(name.trim());
    }
    let text = input.strip_prefix('%')?;
    let (name, code) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let function = match name {
        "time" => "timed",
        "timeit" => "timeit",
        _ => return Some(Err(format!("there is no `%{name}` here, only `%time` and `%timeit`"))),
    };
    // A string of JSON is one of Python.
    let code = Value::from(code.trim());
    Some(Ok(format!("__import__('{TIMING}').{function}({code})\n")))
}

/// Translates what stands beside a `?`: the name of a value, a keyword or nothing. Anything else may
/// be Python that happens to end in `?`, as a comment does.
fn question(name: &str) -> Option<Result<String, String>> {
    let is_word = |word: &str| {
        word.chars().all(lexer::is_word) && !word.is_empty() && !word.starts_with(char::is_numeric)
    };
    let about = match name {
        "" => return Some(Err("write `?NAME` or `help(NAME)`; `:help` lists commands".to_owned())),
        name if lexer::is_keyword(name) => format!("'{name}'"),
        name if name.split('.').all(is_word) => name.to_owned(),
        _ => return None,
    };
    Some(Ok(format!("__import__('pydoc').help({about})\n")))
}

// Standard input of programs at the prompt: the lines that the user types while they run.
//
// The programs' standard input comes from a host function (`Job::stdin_from`). Each call of it
// waits here until the reader has a line.

/// The function that provides standard input.
pub(super) const READ_LINE: &str = "read_line";

/// A line with its end; empty at the end of input, `None` at Ctrl-C.
type Answer = Option<String>;

/// Calls of the function that wait for a line.
pub(super) struct Calls {
    received: mpsc::Receiver<oneshot::Sender<Answer>>,
    /// The latest call. It gets no answer if its line is given up, since its program is being
    /// interrupted.
    last: Option<oneshot::Sender<Answer>>,
}

/// Returns the function, and the receiver of its calls.
pub(super) fn read_line() -> (HostFunction, Calls) {
    let (sender, received) = mpsc::channel::<oneshot::Sender<Answer>>(1);
    let function = HostFunction::future(READ_LINE, move |(): ()| {
        let sender = sender.clone();
        async move {
            let (answer, answered) = oneshot::channel();
            let _ = sender.send(answer).await;
            answered.await.map_err(|_| HostError::new("EOFError", "standard input has ended"))
        }
    });
    let function = function
        .doc("Reads a typed line, for standard input.")
        .no_parameters()
        .returns("str | None");
    (function, Calls { received, last: None })
}

/// Reads lines for a program while it runs.
pub(super) struct Typed<'a> {
    pub(super) calls: &'a mut Calls,
    pub(super) reader: &'a mut Reader,
    /// Output since the last line end, which precedes the next typed line on the screen.
    pub(super) unfinished: Vec<u8>,
}

impl Lines for Typed<'_> {
    fn shown(&mut self, bytes: &[u8]) {
        match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => self.unfinished = bytes[end + 1..].to_vec(),
            None => self.unfinished.extend_from_slice(bytes),
        }
    }

    async fn wanted(&mut self) {
        match self.calls.received.recv().await {
            Some(call) => self.calls.last = Some(call),
            None => std::future::pending().await,
        }
    }

    async fn give(&mut self) -> anyhow::Result<()> {
        if self.calls.last.as_ref().is_none_or(oneshot::Sender::is_closed) {
            // Its program has ended meanwhile.
            return Ok(());
        }
        let shown = String::from_utf8_lossy(&self.unfinished);
        let shown = shown.rsplit('\r').next().unwrap_or_default().to_owned();
        let heard = self.reader.read_for_program(&shown).await?;
        if self.reader.is_terminal() {
            // Enter ends the row on the screen.
            self.unfinished.clear();
        }
        if let Some(call) = self.calls.last.take() {
            let _ = call.send(match heard {
                Heard::Line(line) => Some(line + "\n"),
                Heard::End => Some(String::new()),
                Heard::Discard | Heard::Interrupt => None,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magics_become_calls() {
        for (input, expected) in [
            ("%time x = f('a')\n", "timed(\"x = f('a')\")"),
            ("%timeit  -n 3 x\n", "timeit(\"-n 3 x\")"),
            ("%time for x in y:\n    z\n", "timed(\"for x in y:\\n    z\")"),
            ("%time", "timed(\"\")"),
        ] {
            let python = magic(input).unwrap().unwrap();
            assert_eq!(python, format!("__import__('hatchery_timing').{expected}\n"));
        }
        assert_eq!(magic("x % time\n"), None);
        for (input, about) in [("?x\n", "x"), ("a.b?\n", "a.b"), ("? if\n", "'if'")] {
            let python = magic(input).unwrap().unwrap();
            assert_eq!(python, format!("__import__('pydoc').help({about})\n"));
        }
        for python in ["x # why?\n", "'?'\n", "f(x)?\n", "a..b?\n", "1?\n"] {
            assert_eq!(magic(python), None, "{python}");
        }
        assert!(magic("?\n").unwrap().unwrap_err().contains("?NAME"));
        assert!(magic("%cd /\n").unwrap().unwrap_err().contains("no `%cd`"));
    }
}
