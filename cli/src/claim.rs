//! Locks a file that the user named against other processes of ours.

use std::fs::File;
use std::io;
use std::path::Path;

use anyhow::Context;

use crate::exit::UsageError;

/// Opens and locks a file, as [`replace::lock_current`] does. `verb` is what this process wants with
/// the file, and `busy` the error if another has the lock.
pub(crate) fn claim(
    path: &Path,
    verb: &str,
    busy: &str,
    open: impl FnMut() -> io::Result<File>,
) -> anyhow::Result<File> {
    let file = replace::lock_current(path, open)
        .with_context(|| UsageError(format!("can't {verb} `{}`", path.display())))?;
    file.ok_or_else(|| UsageError(busy.to_owned()).into())
}
