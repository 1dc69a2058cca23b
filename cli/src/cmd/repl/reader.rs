//! Reads the lines of `hatchery repl`: from a terminal with a prompt, or from anything else without
//! one.

use std::io::IsTerminal;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Stdin};

use super::assistant::Help;
use super::terminal::{Heard, Terminal};
use crate::exit::UsageError;
use crate::signals::Interrupts;

/// The longest line, so that input without line ends doesn't fill the memory.
const LONGEST_LINE_BYTES: u64 = 64 << 20;

/// A source of lines.
pub(super) enum Reader {
    Terminal(Box<Terminal>),
    Pipe(Pipe),
}

/// Standard input that is not a terminal.
pub(super) struct Pipe {
    stdin: BufReader<Stdin>,
    /// The part of the current line read so far.
    begun: Vec<u8>,
    /// Whether nothing was read yet.
    is_new: bool,
}

impl Reader {
    /// Opens a prompt if there is a terminal, else a plain reader.
    pub(super) fn open() -> anyhow::Result<Self> {
        if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() {
            return Ok(Self::Terminal(Box::new(Terminal::open()?)));
        }
        let stdin = BufReader::new(tokio::io::stdin());
        Ok(Self::Pipe(Pipe { stdin, begun: Vec::new(), is_new: true }))
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
                line = pipe.line() => line,
                _ = interrupts.more_than(0) => Ok(Heard::Interrupt),
            },
        }
    }

    /// Waits for a line for a program that has written `shown` on the current line.
    pub(super) async fn read_for_program(&mut self, shown: &str) -> anyhow::Result<Heard> {
        match self {
            Self::Terminal(terminal) => terminal.read_for_program(shown).await,
            Self::Pipe(pipe) => pipe.line().await,
        }
    }

    /// Restores the terminal, even if something still reads from it.
    pub(super) fn give_up(&self) {
        match self {
            Self::Terminal(terminal) => terminal.give_up(),
            Self::Pipe(_) => {}
        }
    }

    /// Adds an input to the history.
    pub(super) fn remember(&mut self, input: &str) {
        match self {
            Self::Terminal(terminal) => terminal.remember(input),
            Self::Pipe(_) => {}
        }
    }
}

impl Pipe {
    /// Reads the next line. Cancel-safe.
    async fn line(&mut self) -> anyhow::Result<Heard> {
        let room = LONGEST_LINE_BYTES.saturating_sub(self.begun.len() as u64);
        let mut limited = (&mut self.stdin).take(room);
        limited.read_until(b'\n', &mut self.begun).await?;
        let mut bytes = std::mem::take(&mut self.begun);
        let count = bytes.len();
        if count == 0 {
            return Ok(Heard::End);
        }
        let has_end = bytes.ends_with(b"\n");
        if !has_end && count as u64 == LONGEST_LINE_BYTES {
            let text = format!("a line of the input is longer than {LONGEST_LINE_BYTES} bytes");
            return Err(UsageError(text).into());
        }
        if has_end {
            bytes.pop();
        }
        let mut line = String::from_utf8(bytes)
            .map_err(|_| UsageError("the input isn't UTF-8, as Python source must be".into()))?;
        if std::mem::take(&mut self.is_new) && line.starts_with('\u{feff}') {
            // The byte order mark that some editors write.
            line.remove(0);
        }
        Ok(Heard::Line(line))
    }
}
