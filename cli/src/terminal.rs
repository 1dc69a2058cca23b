//! What is said to the user. A reader that went away is never a reason to panic.
//!
//! Much of it comes from programs: at a terminal it is made harmless, through pipes it stays exact.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use hatchery::Stream;
use indicatif::MultiProgress;

use crate::escapes::{self, Escapes};

/// Whether terminals are given everything as it is.
static IS_RAW: AtomicBool = AtomicBool::new(false);

/// Whether only results and errors are wanted.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// Whether what is done is told step by step.
static IS_VERBOSE: AtomicBool = AtomicBool::new(false);

/// The progress bars of this process. Whatever else goes to standard error is written above them.
static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// Whether there were any.
static HAS_BARS: AtomicBool = AtomicBool::new(false);

/// Says something on standard error that is good to know, unless `--quiet` is given. Nobody to hear
/// it is no failure.
pub(crate) fn note(text: impl Display) {
    if !is_quiet() {
        error(text);
    }
}

/// Says on standard error what went wrong, in any case. Nobody to hear it is no failure.
pub(crate) fn error(text: impl Display) {
    say(&format!("hatchery: {text}\n"));
}

/// Writes a text to standard error as it is. Nobody to hear it is no failure.
pub(crate) fn say(text: &str) {
    let _ = AboveBars.write_all(harmless(Stream::Stderr, text).as_bytes());
}

/// Where bars are added that are to be drawn. Nothing is drawn where standard error is no terminal.
pub(crate) fn bars() -> &'static MultiProgress {
    HAS_BARS.store(true, Ordering::Relaxed);
    &BARS
}

/// Standard error, written to above the progress bars.
pub(crate) struct AboveBars;

impl Write for AboveBars {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let write = || io::stderr().lock().write_all(bytes);
        // A terminal that went away is an error for nobody before there is something to draw.
        if HAS_BARS.load(Ordering::Relaxed) { BARS.suspend(write) } else { write() }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether standard error may have colours: it is a terminal, and `NO_COLOR` isn't set.
pub(crate) fn has_colors() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// From now on nothing but results and errors is said, or each step, if that is wanted.
pub(crate) fn set_manner(is_quiet: bool, is_verbose: bool) {
    IS_QUIET.store(is_quiet, Ordering::Relaxed);
    IS_VERBOSE.store(is_verbose, Ordering::Relaxed);
}

/// Whether `--verbose` was given.
pub(crate) fn is_verbose() -> bool {
    IS_VERBOSE.load(Ordering::Relaxed)
}

/// Whether only results and errors are wanted.
pub(crate) fn is_quiet() -> bool {
    IS_QUIET.load(Ordering::Relaxed)
}

/// Writes a line to standard output.
pub(crate) fn print(text: impl Display) -> io::Result<()> {
    let text = harmless(Stream::Stdout, &format!("{text}\n"));
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
}

/// From now on terminals are given everything as it is, if that is wanted.
pub(crate) fn set_raw(is_raw: bool) {
    IS_RAW.store(is_raw, Ordering::Relaxed);
}

/// What makes the output of a program on this stream harmless; `None` if it stays as it is.
pub(crate) fn escapes(stream: Stream) -> Option<Escapes> {
    let is_terminal = match stream {
        Stream::Stdout => io::stdout().is_terminal(),
        Stream::Stderr => io::stderr().is_terminal(),
    };
    (is_terminal && !IS_RAW.load(Ordering::Relaxed)).then(Escapes::default)
}

fn harmless(stream: Stream, text: &str) -> String {
    match escapes(stream) {
        Some(_) => escapes::harmless(text),
        None => text.to_owned(),
    }
}

/// A line for each row, columns aligned; the first row has the headings.
pub(crate) fn aligned<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> Vec<String> {
    let widths: [usize; COLUMNS] = std::array::from_fn(|column| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
    });
    let lines = rows.iter().map(|row| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    lines.collect()
}
