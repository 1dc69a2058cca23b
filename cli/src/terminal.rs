//! What is said to the user. A reader that went away is never a reason to panic.

use std::fmt::Display;
use std::io::{self, Write};

/// Says something on standard error. Nobody to hear it is no failure.
pub(crate) fn note(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "hatchery: {text}");
}

/// Writes a line to standard output.
pub(crate) fn print(text: impl Display) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}").and_then(|()| stdout.flush())
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
