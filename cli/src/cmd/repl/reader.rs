//! Reads the lines of `hatchery repl`: from a terminal with a prompt, or from anything else without
//! one.

use std::io::IsTerminal;

use batch::Lines;
use tokio::io::BufReader;

use super::assistant::Help;
use super::terminal::{Heard, Terminal};
use crate::exit::UsageError;
use crate::signals::Interrupts;

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
