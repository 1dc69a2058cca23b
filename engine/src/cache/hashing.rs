//! Hashes large contents, on all cores unless the process is to have no further threads.

use std::sync::atomic::{AtomicBool, Ordering};

static ON_ONE_THREAD: AtomicBool = AtomicBool::new(false);

/// From now on, this process hashes what it loads on the thread that loads it.
///
/// The threads that would share the work never end, and a process that is to fork must have none.
pub fn hash_on_one_thread() {
    ON_ONE_THREAD.store(true, Ordering::Relaxed);
}

/// Adds these bytes to a hash.
pub(crate) fn update(hasher: &mut blake3::Hasher, bytes: &[u8]) {
    if ON_ONE_THREAD.load(Ordering::Relaxed) {
        hasher.update(bytes);
    } else {
        hasher.update_rayon(bytes);
    }
}
