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
