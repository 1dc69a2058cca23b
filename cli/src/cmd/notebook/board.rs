//! Shows the progress of notebooks: on a terminal a bar for each running one, elsewhere a line for
//! each as it ends, and with `--verbose` a line for each cell.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::terminal;

/// How often the elapsed time is updated.
const TICK: Duration = Duration::from_millis(200);

/// The bars of all notebooks.
#[derive(Clone)]
pub(super) struct Board {
    /// `None` without a terminal, or with `--quiet`.
    lines: Option<&'static MultiProgress>,
}

/// The bar of one notebook, removed on drop.
pub(super) struct Line {
    name: String,
    total: usize,
    bar: Option<ProgressBar>,
}

impl Board {
    pub(super) fn new() -> Self {
        let is_shown = std::io::stderr().is_terminal() && !terminal::is_quiet();
        Self { lines: is_shown.then(terminal::bars) }
    }

    /// Starts a notebook with `total` cells.
    pub(super) fn begin(&self, name: &str, total: usize) -> Line {
        let bar = self.lines.map(|lines| {
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
    /// Starts a cell, counted from 1.
    pub(super) fn cell(&self, number: usize) {
        if let Some(bar) = &self.bar {
            bar.set_position(number as u64 - 1);
        }
        if terminal::is_verbose() {
            terminal::note(format_args!("{}: cell {number} of {}", self.name, self.total));
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
