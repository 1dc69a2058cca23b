//! Lets the kernel note which pages of a memory are written to.
//!
//! A session that is suspended after each turn holds a thousand pages, of which a turn writes to a
//! hundred. The write protection of userfaultfd in asynchronous mode finds these (Linux 6.7,
//! `Documentation/admin-guide/mm/userfaultfd.rst`). The kernel itself serves the fault of the first
//! write to a marked page. Without it, `patch` compares every copied page.
#![expect(unsafe_code, reason = "two ioctls, which have no safe form")]

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use linux_raw_sys::general::{
    UFFD_API, UFFD_FEATURE_WP_ASYNC, UFFD_FEATURE_WP_UNPOPULATED, UFFD_USER_MODE_ONLY,
    UFFDIO_REGISTER_MODE_WP, uffdio_api, uffdio_range, uffdio_register,
};
use linux_raw_sys::ioctl::{UFFDIO_API, UFFDIO_REGISTER};
use rustix::ioctl::{Opcode, Updater, ioctl};
use rustix::mm::{UserfaultfdFlags, userfaultfd};

use super::sys::Reservation;

/// Has the kernel note writes to reservations. It forgets one that is given back.
#[derive(Debug, Clone)]
pub(super) struct WriteWatch {
    fault: Arc<OwnedFd>,
}

impl WriteWatch {
    /// Asks the kernel for a descriptor to watch writes with.
    ///
    /// # Errors
    /// This kernel doesn't support it, or this process may not use it.
    pub(super) fn open() -> io::Result<Self> {
        let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
        // Without this flag the system call is a privilege.
        let flags = flags | UserfaultfdFlags::from_bits_retain(UFFD_USER_MODE_ONLY);
        // SAFETY: registered ranges are ours, and the kernel itself serves every fault in them.
        let fault = unsafe { userfaultfd(flags) }?;
        let features = u64::from(UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_UNPOPULATED);
        let mut argument = uffdio_api { api: UFFD_API.into(), features, ioctls: 0 };
        // SAFETY: this request reads and writes this structure, and nothing else.
        unsafe { ioctl(&fault, Updater::<{ UFFDIO_API as Opcode }, _>::new(&mut argument)) }?;
        Ok(Self { fault: Arc::new(fault) })
    }

    /// Has the kernel note writes to what is mapped in the first `len` bytes of the reservation
    /// now. It keeps what it already watches.
    pub(super) fn register(&self, reservation: &Reservation, len: usize) -> io::Result<()> {
        let start = reservation.base().addr().get() as u64;
        let range = uffdio_range { start, len: len as u64 };
        let mode = UFFDIO_REGISTER_MODE_WP.into();
        let mut argument = uffdio_register { range, mode, ioctls: 0 };
        let request = Updater::<{ UFFDIO_REGISTER as Opcode }, _>::new;
        // SAFETY: this request reads and writes this structure. The range is the reservation's, and
        // writes to it go on as before.
        Ok(unsafe { ioctl(&self.fault, request(&mut argument)) }?)
    }
}
