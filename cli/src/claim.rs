//! Locks a file that the user named against other processes of ours.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::exit::UsageError;

/// Opens and locks a file, as [`replace::lock_current`] does. `verb` is what this process wants with
/// the file, and `busy` the error if another has the lock.
pub(crate) fn claim(
    path: &Path,
    verb: &str,
    busy: &str,
    open: impl FnMut() -> io::Result<File>,
) -> Result<File, UsageError> {
    match replace::lock_current(path, open) {
        Ok(Some(file)) => Ok(file),
        Ok(None) => Err(UsageError(busy.to_owned())),
        Err(error) => Err(UsageError(format!("can't {verb} `{}`: {error}", path.display()))),
    }
}
