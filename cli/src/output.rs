//! The folders of `--output-dir` and `--save-displays`, and messages about files.

use std::path::Path;

use anyhow::Context;
use hatchery::error::counted;
use hatchery::files::{ChangeKind, ChangedFile, LeftOutFiles, OutputFolder};

use crate::exit::UsageError;
use crate::terminal;

/// Opens a folder that the user named, and creates it if it doesn't exist.
pub(crate) fn open(path: &Path) -> anyhow::Result<OutputFolder> {
    OutputFolder::open(path)
        .with_context(|| UsageError(format!("can't create `{}`", path.display())))
}

/// Notes what isn't written to a folder that the user named, why, and what keeps it, if anything does.
pub(crate) fn mention_left_out(left_out: LeftOutFiles, keeping: &str) {
    if left_out.undone > 0 {
        let files = are(left_out.undone, "file");
        terminal::note(format_args!("the program failed, so {files} not kept{keeping}"));
    }
    if let Some(links) = links_left_out(left_out.links) {
        terminal::note(links);
    }
}

/// Returns that so many links aren't written, and what to do; `None` if there are none.
pub(crate) fn links_left_out(links: u64) -> Option<String> {
    let advice = "let the program copy the files to keep them";
    let links = (links > 0).then(|| are(links, "symbolic link"))?;
    Some(format!("{links} not kept, only files are; {advice}"))
}

fn are(count: u64, noun: &str) -> String {
    format!("{} {}", counted(count, noun), if count == 1 { "is" } else { "are" })
}

/// Lists the files but deleted ones, with their sizes; `None` if there are none.
pub(crate) fn list(files: &[ChangedFile]) -> Option<String> {
    let there = files.iter().filter(|file| file.kind != ChangeKind::Deleted);
    let listed: Vec<String> = there
        .map(|file| format!("{} ({})", file.path, counted(file.contents.len(), "byte")))
        .collect();
    (!listed.is_empty()).then(|| listed.join(", "))
}
