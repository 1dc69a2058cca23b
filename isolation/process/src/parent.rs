//! What runs in the embedding process: the pool's seam, and a handle of each helper and worker.

pub(crate) mod control;
pub(crate) mod exit_state;
pub(crate) mod groups;
pub(crate) mod handle;
pub(crate) mod interpreter;
pub(crate) mod offloader;
pub(crate) mod remote;
pub(crate) mod snapshot;
pub(crate) mod source;
