//! The functions that duplicate descriptors, and the flag that only `exec` reads.

use super::Wasi;
use super::bytes::GuestBytes;
use crate::errno::Errno;

/// The flag of descriptors that close when the guest starts another program, which it can't.
pub(super) const CLOSES_ON_EXEC: u32 = 1;

impl Wasi {
    /// WASIX's `fcntl(F_DUPFD)`.
    pub(crate) fn fd_dup2(
        &mut self,
        guest: GuestBytes<'_>,
        fd: u32,
        least: u32,
        closes_on_exec: u32,
        out: u32,
    ) -> Result<(), Errno> {
        self.open.get(fd)?;
        self.admit_descriptors(1)?;
        let most = self.tree.quota().open;
        let copy = self.open.duplicate(fd, least, closes_on_exec != 0, most)?;
        guest.write_u32(out, copy)
    }

    /// WASIX's meaning of `fd_renumber`, which is `dup2`: both descriptors stay open.
    pub(crate) fn fd_renumber(
        &mut self,
        _guest: GuestBytes<'_>,
        fd: u32,
        to: u32,
    ) -> Result<(), Errno> {
        self.open.get(fd)?;
        if self.open.is_free(to) {
            self.admit_descriptors(1)?;
        }
        let most = self.tree.quota().open;
        if let Some(file) = self.open.replace(fd, to, most)? {
            self.tree.drop_if_nameless(file);
        }
        Ok(())
    }

    /// Preview 1's meaning of `fd_renumber`: the first descriptor becomes the second.
    pub(crate) fn fd_move(&mut self, guest: GuestBytes<'_>, fd: u32, to: u32) -> Result<(), Errno> {
        // Preview 1 replaces only what is open.
        self.open.get(to)?;
        self.fd_renumber(guest, fd, to)?;
        if fd == to { Ok(()) } else { self.fd_close(guest, fd) }
    }

    pub(crate) fn fd_fdflags_get(
        &mut self,
        guest: GuestBytes<'_>,
        fd: u32,
        out: u32,
    ) -> Result<(), Errno> {
        let flags = if self.open.closes_on_exec(fd)? { CLOSES_ON_EXEC as u16 } else { 0 };
        guest.write(out, &flags.to_le_bytes())
    }

    pub(crate) fn fd_fdflags_set(
        &mut self,
        _guest: GuestBytes<'_>,
        fd: u32,
        flags: u32,
    ) -> Result<(), Errno> {
        self.open.set_closes_on_exec(fd, flags & CLOSES_ON_EXEC != 0)
    }
}
