//! The prompt's history, in a private file that all prompts share.
//!
//! Each entry is a JSON string on one line. Entries are appended at once, so that concurrent prompts
//! lose none. Only shortening the file, when a prompt starts, may lose an entry that another prompt
//! adds at that moment.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use replace::Access;
use serde_json::Value;

/// Entries to keep.
pub(super) const KEPT_COUNT: usize = 1_000;

/// The longest entry to keep: pasted files would crowd out the rest.
const LONGEST_ENTRY_BYTES: usize = 16 << 10;

/// A larger file is no history of ours, and isn't read.
const LARGEST_FILE_BYTES: u64 = 64 << 20;

/// An open history file.
#[derive(Debug)]
pub(super) struct History {
    file: File,
}

impl History {
    /// Opens the file, creates it if it is missing, and returns its entries, oldest first.
    pub(super) fn open(path: &Path) -> io::Result<(Self, Vec<String>)> {
        if let Some(folder) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let mut file = append_to(path)?;
        if file.metadata()?.len() > LARGEST_FILE_BYTES {
            return Err(io::Error::other("it is too large for a history"));
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        let text = String::from_utf8_lossy(&text);
        let lines = text.lines().filter(|line| !line.is_empty());
        let mut entries: Vec<String> = lines.map(entry).collect();
        // Only at twice the size, so that it happens rarely.
        if entries.len() > 2 * KEPT_COUNT {
            entries.drain(..entries.len() - KEPT_COUNT);
            file = shorten(path, &entries)?;
        }
        Ok((Self { file }, entries))
    }

    /// Adds an entry.
    pub(super) fn add(&mut self, entry: &str) -> io::Result<()> {
        if entry.len() > LONGEST_ENTRY_BYTES {
            return Ok(());
        }
        // A single write, so that concurrent prompts don't mix their entries.
        self.file.write_all(line(entry).as_bytes())
    }
}

/// Returns `$XDG_STATE_HOME/hatchery/history`, else `~/.local/state/hatchery/history`; `None`
/// without a home directory.
pub(super) fn default_path() -> Option<PathBuf> {
    let folder = |variable: &str| {
        // The standard says to ignore relative paths.
        std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
    };
    let state =
        folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local").join("state")))?;
    Some(state.join("hatchery").join("history"))
}

fn append_to(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    // Something else may have created it; what was typed must stay private.
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// Writes the entries to a new file, replaces the old one with it and opens it.
fn shorten(path: &Path, entries: &[String]) -> io::Result<File> {
    let text: String = entries.iter().map(|entry| line(entry)).collect();
    let path = replace::through_links(path);
    replace::replace(&path, Access::Private, |file| file.write_all(text.as_bytes()))?;
    append_to(&path)
}

fn line(entry: &str) -> String {
    format!("{}\n", Value::from(entry))
}

/// Reads an entry. Anything but a string of JSON is an entry as it is.
fn entry(line: &str) -> String {
    serde_json::from_str(line).unwrap_or_else(|_| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn entries_come_back_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state").join("history");
        let entries = ["x", "def f():\n    return '\\n'", "\\", "é\\\\n"];
        let (mut history, before) = History::open(&path).unwrap();
        assert!(before.is_empty());
        for entry in entries {
            history.add(entry).unwrap();
        }
        history.add(&"x".repeat(LONGEST_ENTRY_BYTES + 1)).unwrap();
        assert_eq!(History::open(&path).unwrap().1, entries);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(path.parent().unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_file_that_others_can_read_becomes_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        fs::write(&path, "\"x\"\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(History::open(&path).unwrap().1, ["x"]);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_long_history_is_shortened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        let lines: String = (0..=2 * KEPT_COUNT).map(|number| format!("\"{number}\"\n")).collect();
        // A link to where the user keeps such files.
        fs::write(folder.path().join("kept"), lines).unwrap();
        std::os::unix::fs::symlink(folder.path().join("kept"), &path).unwrap();
        let (mut history, entries) = History::open(&path).unwrap();
        assert_eq!((entries.len(), entries[0].as_str()), (KEPT_COUNT, "1001"));
        history.add("new").unwrap();
        let again = History::open(&path).unwrap().1;
        assert_eq!((again.len(), again[KEPT_COUNT].as_str()), (KEPT_COUNT + 1, "new"));
        assert!(path.is_symlink());
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn an_invalid_history_causes_no_panic() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history");
        fs::write(&path, b"\"\xff\"\n\n1\n\"x\n").unwrap();
        assert_eq!(History::open(&path).unwrap().1, ["\u{fffd}", "1", "\"x"]);
        assert!(History::open(&folder.path().join("history").join("x")).is_err());
    }
}
