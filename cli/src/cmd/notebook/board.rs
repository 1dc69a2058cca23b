//! Shows where notebooks are: a line for each that changes on a terminal, plain lines elsewhere.

use std::fmt::Display;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::terminal;

/// How often the time on a line moves on.
const TICK: Duration = Duration::from_millis(200);

/// The lines of all notebooks.
#[derive(Clone)]
pub(super) struct Board {
    /// `None` without a terminal.
    lines: Option<MultiProgress>,
}

/// The line of one notebook, which goes when this is dropped.
pub(super) struct Line {
    name: String,
    total: usize,
    bar: Option<ProgressBar>,
}

impl Board {
    pub(super) fn new() -> Self {
        let is_shown = std::io::stderr().is_terminal() && !terminal::is_quiet();
        Self { lines: is_shown.then(MultiProgress::new) }
    }

    /// Says something that stays.
    pub(super) fn note(&self, text: impl Display) {
        match &self.lines {
            Some(lines) => lines.suspend(|| terminal::note(text)),
            None => terminal::note(text),
        }
    }

    /// Says what went wrong, also if notes aren't wanted.
    pub(super) fn error(&self, text: impl Display) {
        match &self.lines {
            Some(lines) => lines.suspend(|| terminal::error(text)),
            None => terminal::error(text),
        }
    }

    /// A notebook begins that has so many cells.
    pub(super) fn begin(&self, name: &str, total: usize) -> Line {
        let bar = self.lines.as_ref().map(|lines| {
            let style = ProgressStyle::with_template("{msg} {pos}/{len} {wide_bar} {elapsed}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar = lines.add(ProgressBar::new(total as u64).with_style(style));
            bar.set_message(name.to_owned());
            bar.enable_steady_tick(TICK);
            bar
        });
        Line { name: name.to_owned(), total, bar }
    }
}

impl Line {
    /// This cell begins, counted from 1.
    pub(super) fn cell(&self, number: usize) {
        match &self.bar {
            Some(bar) => bar.set_position(number as u64 - 1),
            None => terminal::note(format_args!("{}: cell {number} of {}", self.name, self.total)),
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
