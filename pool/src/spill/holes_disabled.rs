//! The fallback where files can't have holes: space is freed when no spilled session is left.

use std::fs::File;
use std::io;

/// Returns an error: holes are unsupported here.
pub(super) fn punch(_file: &File, _at: u64, _len: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
