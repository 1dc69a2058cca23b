//! The folders of `--output-dir` and `--save-displays`, and what is said of files.

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

/// Notes what isn't written to a folder that the user named, and why.
pub(crate) fn mention_left_out(left_out: LeftOutFiles) {
    let counted = |count, one: &str, many: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    };
    if left_out.undone > 0 {
        let files = counted(left_out.undone, "file is", "files are");
        let advice = "`--keep-files` keeps what a failed program wrote";
        terminal::note(format_args!("the program failed, so {files} not kept; {advice}"));
    }
    if left_out.links > 0 {
        let links = counted(left_out.links, "symbolic link is", "symbolic links are");
        let advice = "let the program copy the files to keep them";
        terminal::note(format_args!("{links} not kept, only files are; {advice}"));
    }
}

/// Lists the files but deleted ones, with their sizes; `None` if there are none.
pub(crate) fn list(files: &[ChangedFile]) -> Option<String> {
    let there = files.iter().filter(|file| file.kind != ChangeKind::Deleted);
    let listed: Vec<String> = there
        .map(|file| format!("{} ({})", file.path, counted(file.contents.len(), "byte")))
        .collect();
    (!listed.is_empty()).then(|| listed.join(", "))
}
