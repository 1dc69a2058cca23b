//! Output to the user. A reader that is gone never causes a panic.
//!
//! Text of programs is made harmless for a terminal, and stays exact for a pipe.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytesize::ByteSize;
use console::{Alignment, measure_text_width, pad_str};
use hatchery::event::Stream;
use hatchery::terminal::{self, Escapes};
use indicatif::{MultiProgress, ProgressBar, ProgressFinish, ProgressStyle};

/// Whether terminals get output unchanged (`--raw-output`).
static IS_RAW: AtomicBool = AtomicBool::new(false);

/// Whether to print only results and errors (`--quiet`).
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// Whether to report each step (`--verbose`).
static IS_VERBOSE: AtomicBool = AtomicBool::new(false);

/// The progress bars of this process. Other output to standard error is written above them.
static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// Whether there have been any bars.
static HAS_BARS: AtomicBool = AtomicBool::new(false);

/// Between the columns of tables.
const GAP: &str = "  ";
/// The width up to which columns of tables stay whole, such as keys and ages. Wider ones can be cut to
/// the second.
const WHOLE_WIDTH: usize = 14;
const LEAST_WIDTH: usize = 5;

/// Prints a note to standard error, unless `--quiet` is given. Ignores write errors.
pub(crate) fn note(text: impl Display) {
    if !is_quiet() {
        error(text);
    }
}

/// Prints an error to standard error. Ignores write errors.
pub(crate) fn error(text: impl Display) {
    say(&format!("hatchery: {text}\n"));
}

/// Writes a text to standard error as it is. Ignores write errors.
pub(crate) fn say(text: &str) {
    let _ = AboveBars.write_all(harmless(Stream::Stderr, text).as_bytes());
}

/// Returns where to add progress bars. They aren't drawn if standard error is not a terminal.
pub(crate) fn bars() -> &'static MultiProgress {
    HAS_BARS.store(true, Ordering::Relaxed);
    &BARS
}

/// Returns a progress bar of this template and length, which is cleared when it is dropped.
pub(crate) fn bar(template: &str, length: Option<u64>) -> ProgressBar {
    let style = ProgressStyle::with_template(template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = length.map_or_else(ProgressBar::no_length, ProgressBar::new);
    bars().add(bar.with_style(style).with_finish(ProgressFinish::AndClear))
}

/// Standard error, written above the progress bars.
pub(crate) struct AboveBars;

impl Write for AboveBars {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let write = || io::stderr().lock().write_all(bytes);
        // Without bars, `BARS` stays untouched, so that a terminal that is gone causes no error.
        if HAS_BARS.load(Ordering::Relaxed) { BARS.suspend(write) } else { write() }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Prints each warning of the log as a message to the user.
pub(crate) struct Warnings;

impl Write for Warnings {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        error(String::from_utf8_lossy(line).trim_end());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns whether standard error may have colours: it is a terminal, and `NO_COLOR` isn't set.
pub(crate) fn has_colors() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Sets how much to print from now on.
pub(crate) fn set_verbosity(is_quiet: bool, is_verbose: bool) {
    IS_QUIET.store(is_quiet, Ordering::Relaxed);
    IS_VERBOSE.store(is_verbose, Ordering::Relaxed);
}

/// Returns whether `--verbose` was given.
pub(crate) fn is_verbose() -> bool {
    IS_VERBOSE.load(Ordering::Relaxed)
}

/// Returns whether `--quiet` was given.
pub(crate) fn is_quiet() -> bool {
    IS_QUIET.load(Ordering::Relaxed)
}

/// Writes a line to standard output.
pub(crate) fn print(text: impl Display) -> io::Result<()> {
    write(harmless(Stream::Stdout, &format!("{text}\n")).as_bytes())
}

/// Writes to standard output as it is.
pub(crate) fn write(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(unwritten)
}

/// Says what an error of standard output kept from happening.
pub(crate) fn unwritten(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("can't write the output: {error}"))
}

/// Sets whether terminals get output unchanged from now on.
pub(crate) fn set_raw(is_raw: bool) {
    IS_RAW.store(is_raw, Ordering::Relaxed);
}

/// Returns a filter that makes a program's output on this stream harmless; `None` if it stays
/// unchanged.
pub(crate) fn escapes(stream: Stream) -> Option<Escapes> {
    let is_terminal = match stream {
        Stream::Stdout => io::stdout().is_terminal(),
        Stream::Stderr => io::stderr().is_terminal(),
    };
    (is_terminal && !IS_RAW.load(Ordering::Relaxed)).then(Escapes::default)
}

fn harmless(stream: Stream, text: &str) -> String {
    match escapes(stream) {
        Some(_) => terminal::harmless(text),
        None => text.to_owned(),
    }
}

/// Prints rows as [`aligned`] formats them.
pub(crate) fn print_table<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> io::Result<()> {
    aligned(rows).into_iter().try_for_each(print)
}

/// Formats rows as lines with aligned columns; the first row holds the headings. On a terminal, the
/// widest cells are cut so that lines fit.
pub(crate) fn aligned<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> Vec<String> {
    aligned_within(rows, columns().unwrap_or(usize::MAX))
}

/// Returns the columns of the terminal that is standard output, if it is one and has some.
pub(crate) fn columns() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Returns its rows.
pub(crate) fn rows() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_row)).filter(|rows| *rows > 0)
}

fn aligned_within<const COLUMNS: usize>(rows: &[[String; COLUMNS]], columns: usize) -> Vec<String> {
    let mut widths: [usize; COLUMNS] = std::array::from_fn(|column| {
        rows.iter().map(|row| measure_text_width(&row[column])).max().unwrap_or(0)
    });
    let gaps = GAP.len() * COLUMNS.saturating_sub(1);
    let is_whole = widths.map(|width| width <= WHOLE_WIDTH);
    while widths.iter().sum::<usize>() + gaps > columns {
        let cuttable = widths.iter_mut().zip(is_whole).filter(|(_, is_whole)| !is_whole);
        let widest = cuttable.map(|(width, _)| width).max();
        let Some(widest) = widest.filter(|width| **width > LEAST_WIDTH) else { break };
        *widest -= 1;
    }
    let lines = rows.iter().map(|row| {
        let cells = row.iter().zip(widths);
        let cells = cells.map(|(cell, width)| pad_str(cell, width, Alignment::Left, Some("…")));
        cells.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
    });
    lines.collect()
}

/// Formats a number of bytes.
pub(crate) fn size(bytes: u64) -> String {
    ByteSize::b(bytes).to_string()
}

/// Formats a time in seconds with three digits.
pub(crate) fn time(seconds: f64) -> String {
    for (factor, unit) in [(1e6, "µs"), (1e3, "ms")] {
        if seconds * factor < 999.5 {
            return format!("{} {unit}", three_digits(seconds * factor));
        }
    }
    if seconds < 59.95 {
        return format!("{} s", three_digits(seconds));
    }
    let whole = Duration::try_from_secs_f64(seconds.round()).unwrap_or(Duration::MAX);
    // The two largest units; the rest is below three digits.
    let long = humantime::format_duration(whole).to_string();
    long.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// Formats a number with three digits, or more if they stand before the point.
pub(crate) fn three_digits(number: f64) -> String {
    match number {
        0.0 => "0".to_owned(),
        ..9.995 => format!("{number:.2}"),
        ..99.95 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_a_unit() {
        for (seconds, expected) in [
            (0.0, "0 µs"),
            (70.4e-6, "70.4 µs"),
            (999.6e-6, "1.00 ms"),
            (4.187e-3, "4.19 ms"),
            (0.2504, "250 ms"),
            (1.5, "1.50 s"),
            (59.94, "59.9 s"),
            (59.96, "1m"),
            (3723.4, "1h 2m"),
        ] {
            assert_eq!(time(seconds), expected, "{seconds}");
        }
        assert!(!time(f64::MAX).is_empty());
    }

    #[test]
    fn tables_fit_the_terminal() {
        let many = "numpy,pandas,matplotlib,scipy,".repeat(9);
        let rows = [["KEY", "PACKAGES", "CREATED"], ["0123456789ab", &many, "2 hours ago"]];
        let rows = rows.map(|row| row.map(str::to_owned));
        let lines = aligned_within(&rows, 80);
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:?}");
        let row = &lines[1];
        assert!(row.starts_with("0123456789ab  numpy,pandas,") && row.contains('…'), "{row}");
        assert!(row.ends_with("2 hours ago"), "{row}");
        assert_eq!(aligned_within(&rows, 1)[1], "0123456789ab  nump…  2 hours ago");
        assert!(aligned_within(&rows, usize::MAX)[1].contains(&many));
    }
}
