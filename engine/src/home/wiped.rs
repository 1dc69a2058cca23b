//! A number that is zero again in each child process.
#![expect(unsafe_code, reason = "maps a page, and lends a number in it")]

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

#[cfg(target_os = "linux")]
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Returns a number of this process that is zero at first, and again in each child that is forked
/// from it, however that is done. `None` where the system can't set it back, as Linux can from
/// version 4.14 on. It waits for no other thread, which a child may lack.
pub(super) fn zero_in_children() -> Option<&'static AtomicU32> {
    /// Null at first.
    static NUMBER: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
    /// Stands for a number that can't be had.
    static NONE: AtomicU32 = AtomicU32::new(0);
    let none = ptr::from_ref(&NONE).cast_mut();
    let mut number = NUMBER.load(Ordering::Acquire);
    if number.is_null() {
        let new = map_zero_in_children().unwrap_or(none);
        // If another thread was faster, this page is left unused.
        let was =
            NUMBER.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire);
        number = was.map_or_else(|faster| faster, |_| new);
    }
    // SAFETY: not null; `NONE` or a page that stays mapped, aligned and readable. In a child as well.
    (number != none).then(|| unsafe { &*number })
}

#[cfg(target_os = "linux")]
fn map_zero_in_children() -> io::Result<*mut AtomicU32> {
    let (flags, len) = (ProtFlags::READ | ProtFlags::WRITE, size_of::<AtomicU32>());
    // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
    let page = unsafe { mmap_anonymous(ptr::null_mut(), len, flags, MapFlags::PRIVATE) }?;
    // SAFETY: the page was just mapped, and nothing is in it.
    let advised = unsafe { madvise(page, len, Advice::LinuxWipeOnFork) };
    // SAFETY: as above. No system knows this advice, but some emulators take any and do nothing.
    let takes_any = unsafe { libc::madvise(page, len, -1) } == 0;
    let advised = match takes_any {
        true => Err(io::ErrorKind::Unsupported.into()),
        false => advised.map_err(io::Error::from),
    };
    if let Err(error) = advised {
        // SAFETY: as above, and nobody knows of it.
        let _ = unsafe { munmap(page, len) };
        return Err(error);
    }
    Ok(page.cast())
}

#[cfg(not(target_os = "linux"))]
fn map_zero_in_children() -> io::Result<*mut AtomicU32> {
    Err(io::ErrorKind::Unsupported.into())
}
