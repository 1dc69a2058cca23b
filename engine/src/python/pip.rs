//! Fetches wheels by package name through the machine's own pip.
//!
//! pip brings the user's index, proxy and certificate settings, which an own download would lack.
//! The hashes are given to pip and checked again by the caller.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How much of what pip said goes into an error, in bytes.
const DETAIL_BYTES: usize = 600;

/// Why pip brought nothing.
#[derive(Debug)]
pub(crate) enum PipFailure {
    /// There is no Python with pip on this machine.
    NotStarted { program: String, cause: io::Error },
    /// It ran and failed.
    Ended { status: String, detail: String },
}

/// Downloads the wheels that a file of requirements names, each with its hash, into `folder`, and
/// returns their files. Nothing is built, and no dependencies are looked for.
pub(crate) fn download(
    requirements: &Path,
    folder: &Path,
    options: &[String],
) -> Result<Vec<PathBuf>, PipFailure> {
    let program = "python3";
    let output = Command::new(program)
        .args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"])
        .args(["--require-hashes", "--disable-pip-version-check", "--no-input"])
        .args(options)
        .arg("--requirement")
        .arg(requirements)
        .arg("--dest")
        .arg(folder)
        // Whatever lies in the working directory is no part of pip (from Python 3.11 on).
        .env("PYTHONSAFEPATH", "1")
        .stdin(Stdio::null())
        .output()
        .map_err(|cause| PipFailure::NotStarted { program: program.to_owned(), cause })?;
    let status = output.status.to_string();
    if !output.status.success() {
        let detail = end_of(&String::from_utf8_lossy(&output.stderr));
        return Err(PipFailure::Ended { status, detail });
    }
    let entries = fs::read_dir(folder)
        .map_err(|error| PipFailure::Ended { status: status.clone(), detail: error.to_string() })?;
    let paths = entries.flatten().map(|entry| entry.path());
    let wheels: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "whl")).collect();
    if wheels.is_empty() {
        let detail = "it reported success and left no wheel".to_owned();
        return Err(PipFailure::Ended { status, detail });
    }
    Ok(wheels)
}

/// The last lines of `text`, as one line.
fn end_of(text: &str) -> String {
    let text = text.trim();
    let mut start = text.len().saturating_sub(DETAIL_BYTES);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text[start..].lines().map(str::trim).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_long_text_is_cut_at_a_character() {
        let text = "ä".repeat(DETAIL_BYTES);
        assert!(end_of(&text).len() <= DETAIL_BYTES);
        assert_eq!(end_of("  one\n  two \n"), "one; two");
    }
}
