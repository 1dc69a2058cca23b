//! A prompt on a terminal, with editing and history by rustyline.
//!
//! The editor holds the terminal only while it reads. So Ctrl-C is a key at the prompt, and a
//! signal while a program runs. Text typed or pasted beyond one line stays for the next.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, IsTerminal, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use batch::Lines;
use replace::Access;
use rustyline::error::ReadlineError;
use rustyline::history::{History as _, MemHistory};
use rustyline::{ColorMode, CompletionType, Config, Editor};
use serde_json::Value;
use tokio::io::BufReader;
use tokio::task::JoinHandle;

use super::assistant::{Assistant, Help};
use crate::exit::UsageError;
use crate::settings::in_folder;
use crate::signals::Interrupts;
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
    history: Option<File>,
}

impl Terminal {
    pub(super) fn open() -> anyhow::Result<Self> {
        let has_colors = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let config = Config::builder()
            .max_history_size(2 * KEPT_COUNT)?
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

    /// Resets the terminal to a sane state if a thread still reads from it. That thread can't be
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
        let editor = self.editor.as_mut();
        let is_new = editor.is_some_and(|it| it.history_mut().add(input).unwrap_or(false));
        if let Some(history) = self.history.as_ref().filter(|_| is_new)
            && let Err(error) = add(history, input)
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
fn open_history() -> Option<(File, Vec<String>)> {
    let variable = |name: &str| std::env::var_os(name);
    let path = in_folder(variable, "XDG_STATE_HOME", ".local/state", "hatchery/history")?;
    open_at(&path)
        .inspect_err(|error| {
            note(format_args!("can't use the history in `{}`: {error}", path.display()));
        })
        .ok()
}

// The prompt's history, in a private file that all prompts share.
//
// Each entry is a JSON string on one line. Entries are appended at once, so that concurrent prompts
// lose none. Only shortening the file, when a prompt starts, may lose an entry that another prompt
// adds at that moment.

/// Entries to keep.
const KEPT_COUNT: usize = 1_000;

/// The longest entry to keep: pasted files would crowd out the rest.
const LONGEST_ENTRY_BYTES: usize = 16 << 10;

/// A larger file isn't a history, and isn't read.
const LARGEST_FILE_BYTES: u64 = 64 << 20;

/// Opens the file, creates it if it is missing, and returns its entries, oldest first.
fn open_at(path: &Path) -> io::Result<(File, Vec<String>)> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut file = append_to(path)?;
    if file.metadata()?.len() > LARGEST_FILE_BYTES {
        return Err(io::Error::other("it is too large for a history"));
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    let mut entries: Vec<String> =
        text.lines().filter(|line| !line.is_empty()).map(entry).collect();
    // Only at twice the size, so that it happens rarely.
    if entries.len() > 2 * KEPT_COUNT {
        entries.drain(..entries.len() - KEPT_COUNT);
        file = shorten(path, &entries)?;
    }
    Ok((file, entries))
}

/// Adds an entry.
fn add(mut history: &File, entry: &str) -> io::Result<()> {
    if entry.len() > LONGEST_ENTRY_BYTES {
        return Ok(());
    }
    // A single write, so that concurrent prompts don't mix their entries.
    history.write_all(line(entry).as_bytes())
}

fn append_to(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    // Something else may have created it; what was typed must stay private.
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// Writes the entries to a new file, replaces the old one with it and opens it.
fn shorten(path: &Path, entries: &[String]) -> io::Result<File> {
    let text: String = entries.iter().map(|entry| line(entry)).collect();
    let path = replace::through_links(path);
    replace::replace(&path, Access::Private, |file| file.write_all(text.as_bytes()))?;
    append_to(&path)
}

fn line(entry: &str) -> String {
    format!("{}\n", Value::from(entry))
}

/// Reads an entry. Anything but a string of JSON is an entry as it is.
fn entry(line: &str) -> String {
    serde_json::from_str(line).unwrap_or_else(|_| line.to_owned())
}

/// A source of lines.
pub(super) enum Reader {
    Terminal(Box<Terminal>),
    /// Standard input that is not a terminal.
    Pipe(Lines),
}

impl Reader {
    /// Opens a prompt if there is a terminal, else a plain reader.
    pub(super) fn open() -> anyhow::Result<Self> {
        if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() {
            return Ok(Self::Terminal(Box::new(Terminal::open()?)));
        }
        Ok(Self::Pipe(Lines::new(BufReader::new(tokio::io::stdin()))))
    }

    pub(super) fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    /// Waits for the next line or event.
    pub(super) async fn read(
        &mut self,
        prompt: &str,
        help: Help,
        interrupts: &mut Interrupts,
    ) -> anyhow::Result<Heard> {
        match self {
            Self::Terminal(terminal) => {
                let mut reading = std::pin::pin!(terminal.read(prompt, help));
                loop {
                    tokio::select! {
                        heard = &mut reading => return heard,
                        // Another process sent it: the terminal sends none while this reads.
                        _ = interrupts.more_than(0) => interrupts.forget(),
                    }
                }
            }
            Self::Pipe(pipe) => tokio::select! {
                line = next(pipe) => line,
                _ = interrupts.more_than(0) => Ok(Heard::Interrupt),
            },
        }
    }

    /// Waits for a line for a program that has written `shown` on the current line.
    pub(super) async fn read_for_program(&mut self, shown: &str) -> anyhow::Result<Heard> {
        match self {
            Self::Terminal(terminal) => terminal.read_for_program(shown).await,
            Self::Pipe(pipe) => next(pipe).await,
        }
    }

    /// Restores the terminal, even if something still reads from it.
    pub(super) fn give_up(&self) {
        if let Self::Terminal(terminal) = self {
            terminal.give_up();
        }
    }

    /// Adds an input to the history.
    pub(super) fn remember(&mut self, input: &str) {
        if let Self::Terminal(terminal) = self {
            terminal.remember(input);
        }
    }
}

/// Reads the next line. Cancel-safe.
async fn next(pipe: &mut Lines) -> anyhow::Result<Heard> {
    let Some(line) = pipe.next().await? else { return Ok(Heard::End) };
    let line = line.map_err(|long| UsageError(format!("a line of the input is {long}")))?;
    let mut line = String::from_utf8(line)
        .map_err(|_| UsageError("the input isn't UTF-8, as Python source must be".into()))?;
    if pipe.number() == 1 && line.starts_with('\u{feff}') {
        // The byte order mark that some editors write.
        line.remove(0);
    }
    Ok(Heard::Line(line))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_last_row_of_a_prompt_is_drawn_again() {
        for (prompt, expected) in
            [("", ""), ("name? ", "name? "), ("12345678", "12345678"), ("123456789é", "9é")]
        {
            assert_eq!(last_row(prompt, 8), expected);
        }
    }

    #[test]
    fn entries_come_back_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state").join("history");
        let entries = ["x", "def f():\n    return '\\n'", "\\", "é\\\\n"];
        let (history, before) = open_at(&path).unwrap();
        assert!(before.is_empty());
        for entry in entries {
            add(&history, entry).unwrap();
        }
        add(&history, &"x".repeat(LONGEST_ENTRY_BYTES + 1)).unwrap();
        assert_eq!(open_at(&path).unwrap().1, entries);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(path.parent().unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_file_that_others_can_read_becomes_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        fs::write(&path, "\"x\"\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(open_at(&path).unwrap().1, ["x"]);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_long_history_is_shortened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let lines: String = (0..=2 * KEPT_COUNT).map(|number| format!("\"{number}\"\n")).collect();
        // A link to where the user keeps such files.
        fs::write(folder.path().join("kept"), lines).unwrap();
        std::os::unix::fs::symlink(folder.path().join("kept"), &path).unwrap();
        let (history, entries) = open_at(&path).unwrap();
        assert_eq!((entries.len(), entries[0].as_str()), (KEPT_COUNT, "1001"));
        add(&history, "new").unwrap();
        let again = open_at(&path).unwrap().1;
        assert_eq!((again.len(), again[KEPT_COUNT].as_str()), (KEPT_COUNT + 1, "new"));
        assert!(path.is_symlink());
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn an_invalid_history_causes_no_panic() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        fs::write(&path, b"\"\xff\"\n\n1\n\"x\n").unwrap();
        assert_eq!(open_at(&path).unwrap().1, ["\u{fffd}", "1", "\"x"]);
        assert!(open_at(&folder.path().join("history").join("x")).is_err());
    }
}
