//! The functions of WASIX about processes and the terminal, for a guest that is one process without
//! children, and has no terminal.

use super::Wasi;
use super::bytes::GuestBytes;
use crate::errno::Errno;

/// The number of the guest's process and of its first thread.
pub(super) const PROCESS: u32 = 1;
/// What stands for the parent of a process that has none.
const NO_PROCESS: u32 = 0;

/// The size of the terminal that a program is told, in characters.
const COLUMNS: u32 = 80;
const ROWS: u32 = 25;
/// The length of a terminal's description: four numbers and five booleans, padded.
const TERMINAL_BYTES: usize = 24;

impl Wasi {
    pub(crate) fn proc_id(&mut self, guest: GuestBytes<'_>, out: u32) -> Result<(), Errno> {
        guest.write_u32(out, PROCESS)
    }

    pub(crate) fn proc_parent(
        &mut self,
        guest: GuestBytes<'_>,
        process: u32,
        out: u32,
    ) -> Result<(), Errno> {
        if process != PROCESS {
            return Err(Errno::NoProcess);
        }
        guest.write_u32(out, NO_PROCESS)
    }

    /// A signal after a while would need a second thread, so only turning it off is served.
    pub(crate) fn proc_raise_interval(
        &mut self,
        _guest: GuestBytes<'_>,
        _signal: u32,
        interval: u64,
        _repeats: u32,
    ) -> Result<(), Errno> {
        if interval == 0 { Ok(()) } else { Err(Errno::NotSupported) }
    }

    /// Writes how many signals don't begin with their default action: none.
    pub(crate) fn proc_signals_sizes_get(
        &mut self,
        guest: GuestBytes<'_>,
        out: u32,
    ) -> Result<(), Errno> {
        guest.write_u32(out, 0)
    }

    /// Writes none of these signals.
    pub(crate) fn proc_signals_get(
        &mut self,
        _guest: GuestBytes<'_>,
        _out: u32,
    ) -> Result<(), Errno> {
        Ok(())
    }

    /// Python's lock lets one thread compute at a time, so the number of processors, which a guest
    /// shall not learn, would be of little use.
    pub(crate) fn thread_parallelism(
        &mut self,
        guest: GuestBytes<'_>,
        out: u32,
    ) -> Result<(), Errno> {
        guest.write_u32(out, 1)
    }

    pub(crate) fn tty_get(&mut self, guest: GuestBytes<'_>, out: u32) -> Result<(), Errno> {
        let mut terminal = [0; TERMINAL_BYTES];
        terminal[..4].copy_from_slice(&COLUMNS.to_le_bytes());
        terminal[4..8].copy_from_slice(&ROWS.to_le_bytes());
        guest.write(out, &terminal)
    }
}
