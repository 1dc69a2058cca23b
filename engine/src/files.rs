//! A guest's files: an in-memory tree that shares structure, and host folders mounted in it.
//!
//! Owns the tree, its quotas, path resolution, mounted folders and the changes of a run. It knows
//! neither which files an interpreter starts with (`host/layout.rs`) nor how a guest accesses them
//! (`host/wasi/`). May use `memory/` and the wings beside it.

pub(crate) mod changes;
pub(crate) mod contents;
pub(crate) mod digest;
pub(crate) mod mount;
pub(crate) mod path;
pub(crate) mod quota;
pub(crate) mod resolve;
pub(crate) mod tree;
