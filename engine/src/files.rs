//! A guest's files: an in-memory tree that shares structure, and host folders mounted in it.
//!
//! Owns the tree, its quotas, path resolution, mounted folders and the changes of a run. It knows
//! neither which files an interpreter starts with (`host/layout.rs`) nor how a guest accesses them
//! (`host/wasi/`). May use `memory/` and the wings beside it.

use quota::{MOST_DEPTH, MOST_NAME_BYTES};

pub(crate) mod changes;
pub(crate) mod contents;
pub(crate) mod digest;
pub(crate) mod mount;
pub(crate) mod quota;
pub(crate) mod resolve;
pub(crate) mod tree;

/// The error for a path that can't name a file of the workspace, or the working directory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{path}` can't {} path without `..`, empty parts or NUL, of at most {MAX_PATH_BYTES} bytes, \
     {MOST_PARTS} parts, and {MOST_NAME_BYTES} bytes in each",
    match is_workdir {
        true => "be the working directory: use a relative or absolute",
        false => "name a file in the workspace: use a relative",
    }
)]
#[non_exhaustive]
pub struct InvalidPath {
    /// The path that was given.
    pub path: String,
    pub(crate) is_workdir: bool,
}

/// The longest path in a workspace, in bytes.
pub const MAX_PATH_BYTES: usize = 1024;

/// The most parts of a path: one folder is above the workspace, and the file itself is no folder.
const MOST_PARTS: usize = MOST_DEPTH - 2;

/// Checks that `path` names a file inside the workspace, wherever the workspace is.
///
/// # Errors
/// The path is empty, absolute, too long, or has a part that is empty, `.` or `..`.
pub fn check_path(path: &str) -> Result<(), InvalidPath> {
    let plain = |part: &str| !matches!(part, "" | "." | "..") && part.len() <= MOST_NAME_BYTES;
    let is_short = path.len() <= MAX_PATH_BYTES && path.split('/').count() <= MOST_PARTS;
    if !is_short || path.contains('\0') || !path.split('/').all(plain) {
        return Err(InvalidPath { path: path.to_owned(), is_workdir: false });
    }
    Ok(())
}
