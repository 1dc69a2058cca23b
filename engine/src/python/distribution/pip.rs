//! Fetches wheels by package name through the machine's own pip.
//!
//! pip knows the user's index, proxy and certificate settings. pip checks the hashes, and the
//! caller checks them again.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use crate::error::PipError;

/// The most bytes of pip's output in an error: its last lines, whole.
const DETAIL_BYTES: usize = 2000;
/// The most bytes of one line. A longer line begins with the problem and goes on with lists of
/// versions or candidates.
const LINE_BYTES: usize = 500;

/// Downloads the wheels of a requirements file, each with its hash, into `folder`, and returns
/// the paths of all in it. Builds nothing and resolves no dependencies. Paths in the file are
/// relative to `base`.
pub(crate) fn download(
    requirements: &Path,
    base: Option<&Path>,
    folder: &Path,
    options: &[String],
) -> Result<Vec<PathBuf>, PipError> {
    let program = env::current_exe().ok();
    let output = Command::new(python_of(program.as_deref()))
        .args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"])
        .args(["--require-hashes", "--disable-pip-version-check", "--no-input"])
        .args(options)
        .arg("--requirement")
        .arg(requirements)
        .arg("--dest")
        .arg(folder)
        .current_dir(base.filter(|base| !base.as_os_str().is_empty()).unwrap_or(Path::new(".")))
        // Keeps modules in the working directory from replacing pip's (from Python 3.11 on).
        .env("PYTHONSAFEPATH", "1")
        .stdin(Stdio::null())
        .output()
        .map_err(PipError::NotStarted)?;
    let status = output.status;
    if !status.success() {
        let detail = end_of(&String::from_utf8_lossy(&output.stderr));
        return Err(PipError::Failed(format!("{status}: {detail}")));
    }
    let entries = fs::read_dir(folder).map_err(|error| PipError::Failed(error.to_string()))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let wheels: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "whl")).collect();
    if wheels.is_empty() {
        return Err(PipError::Failed("it reported success and left no wheel".to_owned()));
    }
    Ok(wheels)
}

/// Returns the Python whose pip fetches: that of the virtual environment in which this program is
/// installed, which needn't be activated, or else the machine's.
fn python_of(program: Option<&Path>) -> PathBuf {
    let own =
        program.and_then(Path::parent).filter(|folder| folder.join("../pyvenv.cfg").is_file());
    own.map_or_else(|| "python3".into(), |folder| folder.join("python3"))
}

/// Returns the last lines of `text` as one line. `…` marks what is left out.
fn end_of(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut kept: Vec<String> = Vec::new();
    let mut bytes = 0;
    for line in lines.rev() {
        let line = match line.len() {
            0..=LINE_BYTES => line.to_owned(),
            _ => format!("{} …", &line[..line.floor_char_boundary(LINE_BYTES)]),
        };
        bytes += line.len();
        if bytes > DETAIL_BYTES {
            kept.push("…".to_owned());
            break;
        }
        kept.push(line);
    }
    kept.reverse();
    kept.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_in_a_virtual_environment_has_the_python_of_that() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("bin/hatchery");
        fs::create_dir(folder.path().join("bin")).unwrap();
        for program in [None, Some(program.as_path())] {
            assert_eq!(python_of(program), Path::new("python3"));
        }
        fs::write(folder.path().join("pyvenv.cfg"), "").unwrap();
        assert_eq!(python_of(Some(&program)), folder.path().join("bin/python3"));
    }

    #[test]
    fn no_line_loses_its_beginning() {
        assert_eq!(end_of("  one\n\n  two \n"), "one; two");
        let versions = "1.0, ".repeat(1000);
        let said = format!("WARNING: x\nERROR: no version of ä==9 (from {versions})\nERROR: none");
        let end = end_of(&said);
        assert!(end.starts_with("WARNING: x; ERROR: no version of ä==9 (from 1.0, "), "{end}");
        assert!(end.ends_with(" …; ERROR: none"), "{end}");
        assert!(end.len() < LINE_BYTES + 100);
        let lines: Vec<String> = (0..500).map(|number| format!("line {number}")).collect();
        let end = end_of(&lines.join("\n"));
        assert!(end.starts_with("…; line ") && end.ends_with("; line 499"), "{end}");
        assert!(end.len() < 2 * DETAIL_BYTES);
    }
}
