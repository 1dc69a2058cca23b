//! Lets the kernel note which pages of a memory are written to.
//!
//! A session that is parked after each turn holds a thousand pages, of which a turn writes to a
//! hundred. userfaultfd's write protection in asynchronous mode (Linux 6.7,
//! `Documentation/admin-guide/mm/userfaultfd.rst`) finds these: the first write to a marked page
//! takes a fault, which nobody has to serve. Without it, `patch` compares every copied page.
#![expect(unsafe_code, reason = "two ioctls, which have no safe form")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::mm::{UserfaultfdFlags, userfaultfd};

use super::sys::Reservation;

/// Values of `include/uapi/linux/userfaultfd.h`.
const API: u64 = 0xaa;
const FEATURE_WP_UNPOPULATED: u64 = 1 << 13;
const FEATURE_WP_ASYNC: u64 = 1 << 15;
const REGISTER_MODE_WP: u64 = 1 << 1;
/// `UFFD_USER_MODE_ONLY`, without which the system call is a privilege.
const USER_MODE_ONLY: u32 = 1;

/// `struct uffdio_api`.
#[repr(C)]
#[derive(Debug)]
struct ApiArgument {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_register`.
#[repr(C)]
#[derive(Debug)]
struct RegisterArgument {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

/// `_IOWR(0xaa, number, size)`.
const fn request(number: u64, size: usize) -> u64 {
    (3 << 30) | ((size as u64) << 16) | (0xaa << 8) | number
}

/// Has the kernel note writes to one reservation.
#[derive(Debug)]
pub(super) struct WriteWatch {
    fault: OwnedFd,
}

impl WriteWatch {
    /// Asks the kernel for a descriptor to watch writes with.
    ///
    /// # Errors
    /// This kernel doesn't support it, or this process may not use it.
    pub(super) fn open() -> io::Result<Self> {
        let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
        let flags = flags | UserfaultfdFlags::from_bits_retain(USER_MODE_ONLY);
        // SAFETY: registered ranges are ours, and the kernel itself serves every fault in them.
        let fault = unsafe { userfaultfd(flags) }?;
        let watch = Self { fault };
        let features = FEATURE_WP_ASYNC | FEATURE_WP_UNPOPULATED;
        let mut argument = ApiArgument { api: API, features, ioctls: 0 };
        // SAFETY: the argument has the layout that the kernel reads and writes.
        unsafe { watch.ioctl(request(0x3f, size_of::<ApiArgument>()), &mut argument) }?;
        Ok(watch)
    }

    /// Has the kernel note writes to whatever is mapped in the first `len` bytes of the reservation
    /// now, in addition to what it already watches.
    pub(super) fn register(&self, reservation: &Reservation, len: usize) -> io::Result<()> {
        let start = reservation.base().addr().get() as u64;
        let mut argument =
            RegisterArgument { start, len: len as u64, mode: REGISTER_MODE_WP, ioctls: 0 };
        // SAFETY: the argument has the layout that the kernel reads and writes. The range is the
        // reservation's, and writes to it go on as before.
        unsafe { self.ioctl(request(0, size_of::<RegisterArgument>()), &mut argument) }
    }

    /// # Safety
    /// The request takes a `T`, and what it does to this process's memory is sound.
    unsafe fn ioctl<T>(&self, request: u64, argument: &mut T) -> io::Result<()> {
        // SAFETY: the caller's word.
        let result = unsafe {
            let argument = std::ptr::from_mut(argument);
            libc::ioctl(self.fault.as_raw_fd(), request as libc::Ioctl, argument)
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}
