//! The process that something belongs to.
//!
//! A fork copies a process's memory, but of its threads only the one that forks. So in the child a
//! pool has no threads, whatever its memory says, and the locks of those threads stay locked; and
//! its files are still the parent's, too. Whoever could wait for a thread, or change such a file,
//! asks here first.
#![expect(unsafe_code, reason = "a word in a page of its own, which lives as long as the process")]

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

/// The process in which something was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Home {
    process: u32,
}

impl Home {
    /// Returns this process. The first call makes a page, for which a process that may call no more
    /// than a few functions of its system has to ask early.
    pub fn here() -> Self {
        Self { process: this_process() }
    }

    /// Returns another process than this one.
    #[cfg(test)]
    pub(crate) fn elsewhere() -> Self {
        Self { process: 0 }
    }

    /// Returns whether this is still that process.
    pub fn is_here(self) -> bool {
        self == Self::here()
    }

    /// Returns the process's id.
    pub fn process(self) -> u32 {
        self.process
    }
}

/// The id of this process, in a page that the kernel clears in every child; null before it is first
/// needed, or where the kernel has no such pages. So jobs need no system call for it, which takes
/// 0.14 µs.
static NOTED: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());

/// Cleared once the kernel is found to have no such pages.
static CAN_NOTE: AtomicBool = AtomicBool::new(true);

fn this_process() -> u32 {
    let noted = NOTED.load(Ordering::Acquire);
    // SAFETY: null, or a word that `note` has made, which is never unmapped.
    let noted = unsafe { noted.as_ref() };
    let make = || CAN_NOTE.load(Ordering::Relaxed).then(note).flatten();
    let Some(noted) = noted.or_else(make) else { return std::process::id() };
    match noted.load(Ordering::Relaxed) {
        0 => {
            let own = std::process::id();
            noted.store(own, Ordering::Relaxed);
            own
        }
        own => own,
    }
}

/// Makes the page. Takes no lock, since a child could find it locked for ever.
#[cold]
#[cfg(target_os = "linux")]
fn note() -> Option<&'static AtomicU32> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    let length = rustix::param::page_size();
    // SAFETY: new memory, of which nobody knows.
    let page = unsafe {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        mmap_anonymous(null_mut(), length, access, MapFlags::PRIVATE)
    };
    let page = page.ok()?;
    // Versions of QEMU that run programs of other processors accept any advice and follow none; so
    // BoringSSL looks whether nonsense is refused (`fork_detect.c`).
    // SAFETY: the mapping above. Its content is still zero.
    let is_cleared = unsafe {
        libc::madvise(page, length, -1) != 0
            && madvise(page, length, Advice::LinuxWipeOnFork).is_ok()
    };
    CAN_NOTE.fetch_and(is_cleared, Ordering::Relaxed);
    let (word, order) = (page.cast::<AtomicU32>(), Ordering::AcqRel);
    let noted = match is_cleared {
        true => NOTED.compare_exchange(null_mut(), word, order, Ordering::Acquire),
        false => Err(null_mut()),
    };
    let kept = noted.map_or_else(|other| other, |_| word);
    if kept != word {
        // SAFETY: the mapping above, which was given to nobody.
        let _ = unsafe { munmap(page, length) };
    }
    // SAFETY: as in `this_process`.
    unsafe { kept.as_ref() }
}

#[cfg(not(target_os = "linux"))]
fn note() -> Option<&'static AtomicU32> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_another_process() {
        let home = Home::here();
        assert!(home.is_here() && home.process() == std::process::id());
        assert!(!Home::elsewhere().is_here());
        // SAFETY: the child only loads and stores a word, asks for its id and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_elsewhere = !home.is_here() && Home::here().process() == std::process::id();
            // SAFETY: ends the child without running anything of the parent's.
            unsafe { libc::_exit(i32::from(!is_elsewhere)) };
        }
        let mut status = 0;
        // SAFETY: waits for that child.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        assert!(home.is_here());
    }
}
