//! Shows where notebooks are: on a terminal a bar for each that runs, elsewhere one line for each as
//! it ends, and with `--verbose` one for each cell.

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
    /// `None` without a terminal, and if nothing is to be shown there.
    lines: Option<MultiProgress>,
    /// Only what went wrong is said.
    is_quiet: bool,
    /// Each cell is told of.
    tells_cells: bool,
}

/// The line of one notebook, which goes when this is dropped.
pub(super) struct Line {
    name: String,
    total: usize,
    bar: Option<ProgressBar>,
    board: Board,
}

impl Board {
    pub(super) fn new(is_quiet: bool, tells_cells: bool) -> Self {
        let has_bars = std::io::stderr().is_terminal() && !is_quiet;
        Self { lines: has_bars.then(MultiProgress::new), is_quiet, tells_cells }
    }

    /// Says something that is good to know.
    pub(super) fn note(&self, text: impl Display) {
        if !self.is_quiet {
            self.error(text);
        }
    }

    /// Says what went wrong, also if notes aren't wanted.
    pub(super) fn error(&self, text: impl Display) {
        match &self.lines {
            Some(lines) => lines.suspend(|| terminal::note(text)),
            None => terminal::note(text),
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
        Line { name: name.to_owned(), total, bar, board: self.clone() }
    }
}

impl Line {
    /// This cell begins, counted from 1.
    pub(super) fn cell(&self, number: usize) {
        if let Some(bar) = &self.bar {
            bar.set_position(number as u64 - 1);
        }
        if self.board.tells_cells {
            self.board.note(format_args!("{}: cell {number} of {}", self.name, self.total));
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
