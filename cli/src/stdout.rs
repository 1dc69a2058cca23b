//! Checks whether standard output was open when this process started.
//!
//! Before `main`, Rust opens `/dev/null` in place of a closed standard stream, so that no other
//! file gets its number. Output there is lost, and every write succeeds. So the check runs earlier,
//! when the loader calls the binary's initializers.
#![expect(unsafe_code, reason = "what runs before `main` is listed in a section of the binary")]

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use crate::exit::UsageError;

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Fails if standard output was closed, since all results would be lost.
pub(crate) fn check() -> Result<(), UsageError> {
    if !WAS_CLOSED.load(Ordering::Relaxed) {
        return Ok(());
    }
    let text = "standard output is closed, so the results would be lost and nothing was run; \
                redirect it to a file, or to /dev/null to discard them";
    Err(UsageError(text.to_owned()))
}

// SAFETY: the loader calls each function in this section once, with C's calling convention, after
// the C library is initialized and before any other code of Hatchery. This one makes system calls and
// sets a flag, and uses no state of Rust's standard library.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    let is_missing = |path: &std::ffi::CStr| rustix::fs::lstat(path).err() == Some(Errno::NOENT);
    // Without `/proc` nothing is known.
    let is_closed = is_missing(c"/proc/self/fd/1") && !is_missing(c"/proc/self/fd");
    WAS_CLOSED.store(is_closed, Ordering::Relaxed);
}
