//! Completion and colours at the prompt.
//!
//! Names come from the session, which looks them up while it is idle, without running code of the
//! program (`jupyter::assistance`).

use std::borrow::Cow;

use ::jupyter::assistance::lexer::{Part, is_word, parts};
use ::jupyter::assistance::{COMPLETE, ask, dotted_end};
use hatchery::{Limits, Session};
use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};
use tokio::runtime::Handle;

use super::command;

/// What Tab inserts where a line is empty so far.
const INDENTATION: &str = "    ";

/// Assists the line editor, if it knows the context of the line.
#[derive(Default)]
pub(super) struct Assistant {
    /// `None` while a program reads.
    pub(super) help: Option<Help>,
}

/// The context of the line being typed.
pub(super) struct Help {
    /// The previous lines of the input. Without any, the line can be a command.
    pub(super) before: String,
    pub(super) session: Session,
    /// The limits that our own jobs there start from.
    pub(super) limits: Limits,
    /// The names of all sessions.
    pub(super) sessions: Vec<String>,
}

impl Help {
    /// Returns completions of the last word before the cursor, and where that word starts.
    fn python(&self, before: &str) -> (usize, Vec<Pair>) {
        let code = format!("{}{before}", self.before);
        let Some(dotted) = dotted_end(&code) else { return (before.len(), Vec::new()) };
        // A name doesn't begin in an earlier line.
        let dotted = &dotted[dotted.len() - dotted.len().min(before.len())..];
        let word = dotted.rsplit('.').next().unwrap_or_default();
        (before.len() - word.len(), pairs(self.names(dotted)))
    }

    /// Returns the session's completions of a dotted name. Empty if the session doesn't answer in
    /// time.
    fn names(&self, dotted: &str) -> Vec<String> {
        let asked = ask(&self.session, &self.limits, COMPLETE, [dotted.into()]);
        let mut names: Vec<String> = Handle::current().block_on(asked).unwrap_or_default();
        // A program can return anything, and a terminal would obey escape sequences.
        names.retain(|name| name.chars().all(is_word));
        names
    }

    /// Returns the same for a line that is a command.
    fn command(
        &self,
        line: &str,
        position: usize,
        context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let before = &line[..position];
        let start = before.find(':').map_or(0, |colon| colon + 1);
        let Some((word, _)) = before[start..].split_once(char::is_whitespace) else {
            let begun = &before[start..];
            let words = command::words().filter(|word| word.starts_with(begun));
            return Ok((start, pairs(words)));
        };
        if word == "switch" {
            let start = before.rfind(char::is_whitespace).map_or(0, |at| at + 1);
            let names = self.sessions.iter().filter(|name| name.starts_with(&before[start..]));
            return Ok((start, pairs(names)));
        }
        if command::takes_file(word) {
            return FilenameCompleter::new().complete(line, position, context);
        }
        Ok((position, Vec::new()))
    }

    fn is_command(&self, line: &str) -> bool {
        self.before.is_empty() && line.trim_start().starts_with(':')
    }
}

fn pairs(words: impl IntoIterator<Item = impl Into<String>>) -> Vec<Pair> {
    let words = words.into_iter().map(Into::into);
    words.map(|word: String| Pair { display: word.clone(), replacement: word }).collect()
}

/// Colours source for a terminal, of which the user sees only what comes after `before`.
fn colored(before: &str, source: &str) -> String {
    let text = format!("{before}{source}");
    let mut colored = String::with_capacity(2 * source.len());
    let (mut present, mut at) = (Part::Other, 0);
    parts(&text, |part, piece| {
        at += piece.len();
        let seen = &piece[piece.len() - piece.len().min(at.saturating_sub(before.len()))..];
        if part != present && !seen.is_empty() {
            colored.push_str(color(part));
            present = part;
        }
        colored.push_str(seen);
    });
    if present != Part::Other {
        colored.push_str(color(Part::Other));
    }
    colored
}

/// Returns the colour that Python's own prompt uses, as the terminal's theme shows it.
fn color(part: Part) -> &'static str {
    match part {
        Part::Keyword => "\x1b[0;1;34m",
        Part::Number => "\x1b[0;33m",
        Part::String => "\x1b[0;32m",
        Part::Comment => "\x1b[0;31m",
        _ => "\x1b[0m",
    }
}

impl Completer for Assistant {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let Some(help) = &self.help else { return Ok((position, Vec::new())) };
        let before = &line[..position];
        if before.rsplit('\n').next().unwrap_or("").chars().all(|character| character == ' ') {
            return Ok((position, pairs([INDENTATION])));
        }
        if help.is_command(line) {
            return help.command(line, position, context);
        }
        Ok(help.python(before))
    }
}

impl Highlighter for Assistant {
    fn highlight<'l>(&self, line: &'l str, _position: usize) -> Cow<'l, str> {
        match &self.help {
            Some(help) if !help.is_command(line) => Cow::Owned(colored(&help.before, line)),
            _ => Cow::Borrowed(line),
        }
    }

    fn highlight_char(&self, _line: &str, _position: usize, kind: CmdKind) -> bool {
        self.help.is_some() && kind != CmdKind::MoveCursor
    }
}

impl Hinter for Assistant {
    type Hint = String;
}

impl Validator for Assistant {}

impl Helper for Assistant {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replaces colours by readable names.
    fn shown(before: &str, source: &str) -> String {
        let mut text = colored(before, source);
        for (part, mark) in [
            (Part::Keyword, "<k>"),
            (Part::Number, "<n>"),
            (Part::String, "<s>"),
            (Part::Comment, "<c>"),
            (Part::Other, "<>"),
        ] {
            text = text.replace(color(part), mark);
        }
        text
    }

    #[test]
    fn source_is_colored_as_far_as_it_goes() {
        for (before, source, expected) in [
            ("", "x", "x"),
            ("", "if x: # f", "<k>if<> x: <c># f<>"),
            ("", "f'{x} 1' + 2", "<s>f'{<>x}<s> 1'<> + <n>2<>"),
            ("", "x = '''a\n1''' in y", "x = <s>'''a<>\n<s>1'''<> <k>in<> y"),
            ("'''\n", "for ''' for", "<s>for '''<> <k>for<>"),
            ("(1\n", "or 2)", "<k>or<> <n>2<>)"),
        ] {
            assert_eq!(shown(before, source), expected);
        }
    }
}
