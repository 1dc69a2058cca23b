//! A prompt on a terminal: editing and history, by rustyline.
//!
//! It has the terminal only while it reads, so that Ctrl-C at the prompt is a key and while a
//! program runs a signal.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::{History as _, MemHistory};
use rustyline::validate::Validator;
use rustyline::{Config, Context, Editor, Helper};

use super::history::{self, History};
use super::reader::Heard;
use crate::signals::Interrupts;
use crate::terminal::note;

/// What Tab inserts, and an indentation is.
const INDENTATION: &str = "    ";

/// The terminal, and the history that it goes through.
pub(super) struct Terminal {
    /// `None` while a thread reads.
    editor: Option<Editor<Indenter, MemHistory>>,
    /// `None` if there is no file to keep it in.
    history: Option<History>,
}

impl Terminal {
    pub(super) fn open() -> anyhow::Result<Self> {
        let config = Config::builder()
            .max_history_size(2 * history::KEPT_COUNT)?
            .auto_add_history(false)
            .build();
        let entries = MemHistory::with_config(&config);
        let mut editor = Editor::with_history(config, entries)?;
        editor.set_helper(Some(Indenter));
        let history = open_history().map(|(history, entries)| {
            for entry in entries {
                let _ = editor.history_mut().add_owned(entry);
            }
            history
        });
        Ok(Self { editor: Some(editor), history })
    }

    /// Reads a line, or several that were pasted or come from the history.
    pub(super) async fn read(
        &mut self,
        prompt: &str,
        interrupts: &mut Interrupts,
    ) -> anyhow::Result<Heard> {
        let mut editor = self.editor.take().context("the prompt was given up")?;
        let prompt = prompt.to_owned();
        let mut reading = tokio::task::spawn_blocking(move || {
            let read = editor.readline(&prompt);
            (editor, read)
        });
        let (editor, read) = loop {
            tokio::select! {
                read = &mut reading => break read.context("the prompt died")?,
                // Sent by somebody else, since the terminal sends none while this reads.
                _ = interrupts.more_than(0) => interrupts.forget(),
            }
        };
        self.editor = Some(editor);
        match read {
            Ok(line) => Ok(Heard::Line(line)),
            Err(ReadlineError::Interrupted) => Ok(Heard::Discard),
            Err(ReadlineError::Eof) => Ok(Heard::End),
            Err(error) => Err(error).context("can't read from the terminal"),
        }
    }

    /// Leaves the terminal as shells want it, if a thread still reads from it: that can't be ended,
    /// and would have put it back.
    pub(super) fn give_up(&self) {
        if self.editor.is_some() {
            return;
        }
        let mut stty = Command::new("stty");
        let _ = stty.arg("sane").stdout(Stdio::null()).stderr(Stdio::null()).status();
        // No more marks around what is pasted, and the shell's prompt on a line of its own.
        let _ = std::io::stdout().lock().write_all(b"\x1b[?2004l\r\n");
    }

    /// Adds an input to the history.
    pub(super) fn remember(&mut self, input: &str) {
        let input = input.trim_end();
        if input.is_empty() {
            return;
        }
        let is_new = match &mut self.editor {
            Some(editor) => editor.history_mut().add(input).unwrap_or(false),
            None => false,
        };
        if let Some(history) = self.history.as_mut().filter(|_| is_new)
            && let Err(error) = history.add(input)
        {
            note(format_args!("the history is no longer kept: {error}"));
            self.history = None;
        }
    }
}

/// A prompt without a history is better than none.
fn open_history() -> Option<(History, Vec<String>)> {
    let path = history::default_path()?;
    History::open(&path)
        .inspect_err(|error| {
            note(format_args!("the history in `{}` can't be used: {error}", path.display()));
        })
        .ok()
}

/// Makes Tab indent where a line has nothing yet. Of names it knows none: they are the guest's.
struct Indenter;

impl Completer for Indenter {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let before = line[..position].rsplit('\n').next().unwrap_or("");
        let is_indentation = before.chars().all(|character| character == ' ');
        let candidates = if is_indentation { vec![INDENTATION.to_owned()] } else { Vec::new() };
        Ok((position, candidates))
    }
}

impl Hinter for Indenter {
    type Hint = String;
}

impl Highlighter for Indenter {}

impl Validator for Indenter {}

impl Helper for Indenter {}
