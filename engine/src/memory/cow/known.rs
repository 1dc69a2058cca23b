//! The result of a scan for copied pages, and how long it is valid.
//!
//! Copying a page is a page fault of the thread that writes, and the kernel counts those. While the
//! count doesn't change, no other page was copied.
#![expect(unsafe_code, reason = "the faults of a thread, and pages to cause some")]

use std::io;
use std::ops::Range;
use std::thread::ThreadId;

use crate::memory::sys::Reservation;

/// The result of a scan. Invariant E-9: it stays valid as long as this thread alone writes and has
/// had no more faults. A write from another thread ends that by `forget`.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) pages: Vec<Range<usize>>,
    pub(super) at: Reading,
}

impl Known {
    /// Returns whether at most `count` pages can have been copied since.
    pub(super) fn lacks_at_most(&self, count: u64) -> bool {
        let now = Reading::now();
        self.at.thread == now.thread && now.faults <= self.at.faults + count
    }
}

/// A thread's number of page faults since it began.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    thread: ThreadId,
    faults: u64,
}

impl Reading {
    pub(super) fn now() -> Self {
        Self { thread: std::thread::current().id(), faults: faults() }
    }
}

/// Returns the number of page faults of this thread since it began.
fn faults() -> u64 {
    // SAFETY: all zeroes are a value of this plain structure.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is ours to write.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    assert_eq!(result, 0, "a thread may ask for its own usage");
    (usage.ru_minflt + usage.ru_majflt).cast_unsigned()
}

/// Returns whether the kernel counts the faults of this thread, by causing some: some kernels that
/// look like Linux count none.
pub(super) fn counts_faults() -> io::Result<bool> {
    let page = rustix::param::page_size();
    let reservation = Reservation::new(0, page)?;
    reservation.make_accessible(0, page)?;
    let before = faults();
    // SAFETY: accessible, and nobody else has it.
    let is_zero = unsafe {
        reservation.with_bytes(0, page, |bytes| {
            let is_zero = std::hint::black_box(&*bytes)[0] == 0;
            std::hint::black_box(bytes)[0] = 1;
            is_zero
        })
    };
    Ok(is_zero && faults() >= before + 2)
}
