//! A prompt on a terminal, with editing and history by rustyline.
//!
//! The editor holds the terminal only while it reads: so Ctrl-C is a key at the prompt, and a
//! signal while a program runs. Text typed or pasted beyond one line stays for the next.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use rustyline::error::ReadlineError;
use rustyline::history::{History as _, MemHistory};
use rustyline::{ColorMode, CompletionType, Config, Editor};
use tokio::task::JoinHandle;

use super::assistant::{Assistant, Help};
use super::history::{self, History};
use crate::terminal::note;

type LineEditor = Editor<Assistant, MemHistory>;

/// What came from the user.
#[derive(Debug)]
pub(super) enum Heard {
    /// A line without its end; from a terminal perhaps several.
    Line(String),
    /// Ctrl-C at the prompt: discards what was typed so far.
    Discard,
    /// Ctrl-C without a prompt.
    Interrupt,
    /// The end for now: Ctrl-D, or the end of standard input.
    End,
}

/// The terminal and its history.
pub(super) struct Terminal {
    /// `None` while a thread reads.
    editor: Option<LineEditor>,
    /// The thread that reads.
    reading: Option<JoinHandle<(LineEditor, rustyline::Result<String>)>>,
    /// Lines pasted to a program beyond the one that it read.
    pasted: Option<String>,
    /// `None` if there is no file for it.
    history: Option<History>,
}

impl Terminal {
    pub(super) fn open() -> anyhow::Result<Self> {
        let has_colors = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let config = Config::builder()
            .max_history_size(2 * history::KEPT_COUNT)?
            .auto_add_history(false)
            .completion_type(CompletionType::List)
            .color_mode(if has_colors { ColorMode::Enabled } else { ColorMode::Disabled })
            .build();
        let entries = MemHistory::with_config(&config);
        let mut editor = Editor::with_history(config, entries)?;
        editor.set_helper(Some(Assistant::default()));
        let history = open_history().map(|(history, entries)| {
            for entry in entries {
                let _ = editor.history_mut().add_owned(entry);
            }
            history
        });
        Ok(Self { editor: Some(editor), reading: None, pasted: None, history })
    }

    /// Reads a line of Python, or several that were pasted or come from the history.
    pub(super) async fn read(&mut self, prompt: &str, help: Help) -> anyhow::Result<Heard> {
        if let Some(pasted) = self.pasted.take() {
            crate::terminal::print(format_args!("{prompt}{pasted}"))?;
            return Ok(Heard::Line(pasted));
        }
        self.begin(prompt, Some(help)).await?;
        self.finish().await
    }

    /// Reads a line for a program, after what the current row of the screen already shows. If this
    /// is cancelled, the next call waits until the user has ended the current line, and drops that
    /// line.
    pub(super) async fn read_for_program(&mut self, shown: &str) -> anyhow::Result<Heard> {
        let text = match self.pasted.take() {
            Some(pasted) => {
                crate::terminal::print(pasted.split('\n').next().unwrap_or_default())?;
                pasted
            }
            None => {
                self.begin(shown, None).await?;
                match self.finish().await? {
                    Heard::Line(text) => text,
                    heard => return Ok(heard),
                }
            }
        };
        Ok(Heard::Line(match text.split_once('\n') {
            Some((first, rest)) => {
                self.pasted = (!rest.is_empty()).then(|| rest.to_owned());
                first.to_owned()
            }
            None => text,
        }))
    }

    /// Starts a thread that reads.
    async fn begin(&mut self, prompt: &str, help: Option<Help>) -> anyhow::Result<()> {
        if self.reading.is_some() {
            note("the program no longer waits for input; press Enter to continue");
            self.finish().await?;
        }
        let mut editor = self.editor.take().context("the prompt was given up")?;
        if let Some(assistant) = editor.helper_mut() {
            assistant.help = help;
        }
        let columns = editor.dimensions().map_or(80, |(columns, _)| usize::from(columns));
        let prompt = last_row(prompt, columns).to_owned();
        self.reading = Some(tokio::task::spawn_blocking(move || {
            let read = editor.readline(&prompt);
            (editor, read)
        }));
        Ok(())
    }

    /// Waits for the reading thread. Cancel-safe.
    async fn finish(&mut self) -> anyhow::Result<Heard> {
        let reading = self.reading.as_mut().context("no thread reads from the terminal")?;
        let (editor, read) = reading.await.context("the thread of the prompt died")?;
        self.reading = None;
        self.editor = Some(editor);
        match read {
            Ok(line) => Ok(Heard::Line(line)),
            Err(ReadlineError::Interrupted) => Ok(Heard::Discard),
            Err(ReadlineError::Eof) => Ok(Heard::End),
            Err(error) => Err(error).context("can't read from the terminal"),
        }
    }

    /// Resets the terminal to a sane state if a thread still reads from it: that thread can't be
    /// stopped, and so doesn't restore the terminal itself.
    pub(super) fn give_up(&self) {
        if self.editor.is_some() {
            return;
        }
        let mut stty = Command::new("stty");
        let _ = stty.arg("sane").stdout(Stdio::null()).stderr(Stdio::null()).status();
        // Ends bracketed paste, and moves the shell's prompt to a line of its own.
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
            note(format_args!("the history is no longer saved: {error}"));
            self.history = None;
        }
    }
}

/// Returns the part of a prompt on its last row of the screen, which the editor redraws.
fn last_row(prompt: &str, columns: usize) -> &str {
    let count = prompt.chars().count();
    let above = count.saturating_sub(1) / columns.max(1) * columns.max(1);
    let start = prompt.char_indices().nth(above).map_or(prompt.len(), |(start, _)| start);
    &prompt[start..]
}

/// Opens the history. A prompt without one is better than no prompt.
fn open_history() -> Option<(History, Vec<String>)> {
    let path = history::default_path()?;
    History::open(&path)
        .inspect_err(|error| {
            note(format_args!("can't use the history in `{}`: {error}", path.display()));
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_row_of_a_prompt_is_drawn_anew() {
        for (prompt, expected) in
            [("", ""), ("name? ", "name? "), ("12345678", "12345678"), ("123456789é", "9é")]
        {
            assert_eq!(last_row(prompt, 8), expected);
        }
    }
}
