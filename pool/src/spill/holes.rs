//! Frees space inside a file.

use std::fs::File;
use std::io;

use rustix::fs::{FallocateFlags, fallocate};

/// Makes the range a hole, which takes no disk space.
pub(super) fn punch(file: &File, at: u64, len: u64) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(fallocate(file, flags, at, len)?)
}
