//! The folders of `--output-dir` and `--save-displays`, and what is said of files.

use std::path::Path;

use anyhow::Context;
use hatchery::files::{ChangeKind, ChangedFile, OutputFolder};

use crate::exit::UsageError;

/// Opens a folder that the user named, and creates it if it doesn't exist.
pub(crate) fn open(path: &Path) -> anyhow::Result<OutputFolder> {
    OutputFolder::open(path)
        .with_context(|| UsageError(format!("can't create `{}`", path.display())))
}

/// Lists the files but deleted ones, with their sizes; `None` if there are none.
pub(crate) fn list(files: &[ChangedFile]) -> Option<String> {
    let there = files.iter().filter(|file| file.kind != ChangeKind::Deleted);
    let listed: Vec<String> =
        there.map(|file| format!("{} ({} bytes)", file.path, file.contents.len())).collect();
    (!listed.is_empty()).then(|| listed.join(", "))
}
