//! Whether standard output was open when this process began.
//!
//! Before `main`, Rust opens `/dev/null` in place of a standard stream that is closed, so that no
//! other file gets its number. What is written there is lost, and every write succeeds. So this is
//! looked at earlier, where the system loader calls what the binary lists for that.
#![expect(unsafe_code, reason = "what runs before `main` is listed in a section of the binary")]

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use crate::exit::UsageError;

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// # Errors
/// Standard output was closed, so that all results would be lost.
pub(crate) fn check() -> Result<(), UsageError> {
    if !WAS_CLOSED.load(Ordering::Relaxed) {
        return Ok(());
    }
    let text = "standard output is closed, so there is no place for the results and nothing was \
                run; redirect it to a file, or to /dev/null if nobody wants them";
    Err(UsageError(text.to_owned()))
}

// SAFETY: the loader calls each function that is listed in this section once, by C's convention,
// when the C library is up and before any other code of ours; this one asks the system and sets a
// flag, without any state of Rust's library.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    let is_missing = |path: &std::ffi::CStr| rustix::fs::lstat(path).err() == Some(Errno::NOENT);
    // Without `/proc` nothing is known.
    let is_closed = is_missing(c"/proc/self/fd/1") && !is_missing(c"/proc/self/fd");
    WAS_CLOSED.store(is_closed, Ordering::Relaxed);
}
