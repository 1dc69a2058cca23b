//! Shows where notebooks are: a line for each that changes on a terminal, plain lines elsewhere.

use std::fmt::Display;
use std::io::IsTerminal;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::terminal;

/// The lines of all notebooks.
#[derive(Clone)]
pub(super) struct Board {
    /// `None` without a terminal.
    lines: Option<MultiProgress>,
}

/// The line of one notebook, which goes when this is dropped.
pub(super) struct Line {
    bar: Option<ProgressBar>,
}

impl Board {
    pub(super) fn new() -> Self {
        Self { lines: std::io::stderr().is_terminal().then(MultiProgress::new) }
    }

    /// Says something that stays.
    pub(super) fn note(&self, text: impl Display) {
        match &self.lines {
            Some(lines) => lines.suspend(|| terminal::note(text)),
            None => terminal::note(text),
        }
    }

    /// A notebook begins, of whose cells so many are done already.
    pub(super) fn begin(&self, name: &str, done: usize, total: usize) -> Line {
        let Some(lines) = &self.lines else {
            match done {
                0 => self.note(format_args!("{name}: running {total} cells")),
                _ => self.note(format_args!("{name}: going on at cell {} of {total}", done + 1)),
            }
            return Line { bar: None };
        };
        let style = ProgressStyle::with_template("{msg} {pos}/{len} {wide_bar} {elapsed}");
        let bar = ProgressBar::new(total as u64).with_position(done as u64);
        let bar = lines.add(bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())));
        bar.set_message(name.to_owned());
        bar.tick();
        Line { bar: Some(bar) }
    }
}

impl Line {
    /// So many cells are done.
    pub(super) fn advance(&self, done: usize) {
        if let Some(bar) = &self.bar {
            bar.set_position(done as u64);
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
