//! A guest's files: a tree in memory that shares structure, with folders of the host mounted in it.
//!
//! Owns the tree, its quotas, looking paths up, mounted folders and what a run changed. It doesn't
//! know what an interpreter's files are (`host/layout.rs`) nor how a guest asks for them
//! (`host/wasi/`). May use `memory/` and what is beside it.

pub(crate) mod changes;
pub(crate) mod contents;
pub(crate) mod device;
#[cfg(target_os = "linux")]
pub(crate) mod mount;
#[cfg(not(target_os = "linux"))]
#[path = "files/mount_disabled.rs"]
pub(crate) mod mount;
pub(crate) mod path;
pub(crate) mod quota;
pub(crate) mod resolve;
pub(crate) mod tree;
pub(crate) mod workspace;
