//! What runs in child processes: the helper, and the workers that it forks.

pub(crate) mod helper;
#[cfg(feature = "test-hook")]
pub(crate) mod test_hook;
#[cfg(not(feature = "test-hook"))]
#[path = "child/test_hook_disabled.rs"]
pub(crate) mod test_hook;
pub(crate) mod worker;
