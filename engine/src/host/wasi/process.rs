//! The functions of WASIX about processes and the terminal, for a guest without child processes and
//! terminal.

use std::time::Duration;

use super::Wasi;
use super::bytes::GuestBytes;
use crate::errno::{Errno, Result};
use crate::memory::tunables::Waited;

/// The number of the guest's process and of its first thread.
pub(super) const PROCESS: u32 = 1;
/// What stands for the parent of a process that has none.
const NO_PROCESS: u32 = 0;

/// The reported size of the terminal, in characters.
const COLUMNS: u32 = 80;
const ROWS: u32 = 25;
/// The length of a terminal's description: four numbers and five booleans, padded.
const TERMINAL_BYTES: usize = 24;

impl Wasi {
    pub(crate) fn proc_id(&mut self, out: u32) -> Result {
        self.guest.write_u32(out, PROCESS)
    }

    pub(crate) fn proc_parent(&mut self, process: u32, out: u32) -> Result {
        if process != PROCESS {
            return Err(Errno::NoProcess);
        }
        self.guest.write_u32(out, NO_PROCESS)
    }

    /// A signal after a while would need a second thread, so only turning it off is served.
    pub(crate) fn proc_raise_interval(
        &mut self,
        _signal: u32,
        interval: u64,
        _repeats: u32,
    ) -> Result {
        if interval == 0 { Ok(()) } else { Err(Errno::NotSupported) }
    }

    /// Writes how many signals don't begin with their default action: none.
    pub(crate) fn proc_signals_sizes_get(&mut self, out: u32) -> Result {
        self.guest.write_u32(out, 0)
    }

    pub(crate) fn proc_signals_get(&mut self, _out: u32) -> Result {
        Ok(())
    }

    /// Python's lock lets one thread compute at a time. So the number of processors, which a guest
    /// shall not learn, would be of little use.
    pub(crate) fn thread_parallelism(&mut self, out: u32) -> Result {
        self.guest.write_u32(out, 1)
    }

    pub(crate) fn tty_get(&mut self, out: u32) -> Result {
        let mut terminal = [0; TERMINAL_BYTES];
        terminal[..4].copy_from_slice(&COLUMNS.to_le_bytes());
        terminal[4..8].copy_from_slice(&ROWS.to_le_bytes());
        self.guest.write(out, &terminal)
    }
}

/// The function of WASIX's C library that handles a signal.
pub(crate) const HANDLER: &str = "__wasm_signal";

/// The group of the sender, as `kill` names it.
const OWN_GROUP: u32 = 0;
/// Everybody that the sender may signal, `-1`.
const EVERYBODY: u32 = u32::MAX;

/// The signal that `abort` raises.
pub(crate) const ABORT: u32 = 6;
const KILL: u32 = 9;
const CHILD: u32 = 17;
const CONTINUE: u32 = 18;
const STOP: u32 = 19;
const URGENT: u32 = 23;
const WINDOW: u32 = 28;
/// The signals are smaller than this number.
const SIGNALS: u32 = 65;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Nothing,
    /// The guest's handler decides.
    Handled,
    /// The guest ends with this exit code.
    Ends(u32),
}

/// Returns the exit code of a program that a signal ended, as shells give it.
pub(crate) fn exit_code(signal: u32) -> u32 {
    128 + signal
}

pub(crate) fn to_process(process: u32, signal: u32, can_handle: bool) -> Result<Effect> {
    match process {
        PROCESS | OWN_GROUP | EVERYBODY => to_self(signal, can_handle),
        _ => Err(Errno::NoProcess),
    }
}

/// Returns what comes of a signal to the calling thread. A program can't be suspended, so what
/// would suspend it ends it.
pub(crate) fn to_self(signal: u32, can_handle: bool) -> Result<Effect> {
    match signal {
        0 => Ok(Effect::Nothing),
        SIGNALS.. => Err(Errno::Invalid),
        KILL | STOP => Ok(Effect::Ends(exit_code(signal))),
        _ if can_handle => Ok(Effect::Handled),
        CHILD | CONTINUE | URGENT | WINDOW => Ok(Effect::Nothing),
        _ => Ok(Effect::Ends(exit_code(signal))),
    }
}

/// The size of the word that threads wait for, and its alignment.
const WORD_BYTES: u32 = 4;

impl Wasi {
    /// Checks the address of a futex, and reads the timeout: a tag and nanoseconds, 8 bytes each.
    /// Returns the part of it that the caller must wait; `None` to wait without a timeout.
    pub(crate) fn futex_begin(
        &mut self,
        at: u32,
        timeout: u32,
        out_woken: u32,
    ) -> Result<Option<Duration>> {
        if !at.is_multiple_of(WORD_BYTES) {
            return Err(Errno::Invalid);
        }
        self.guest.read::<{ WORD_BYTES as usize }>(at)?;
        self.guest.write(out_woken, &[0])?;
        let timeout: [u8; 16] = self.guest.read(timeout)?;
        let (tag, nanoseconds) = timeout.split_at(8);
        if tag[0] == 0 {
            return Ok(None);
        }
        let nanoseconds = nanoseconds.try_into().expect("eight bytes");
        let timeout = Duration::from_nanos(u64::from_le_bytes(nanoseconds));
        Ok(Some(self.clock.sleep(timeout)))
    }
}

/// Tells the guest whether it was woken, or the value had changed.
pub(crate) fn futex_end(guest: &GuestBytes, waited: Waited, out_woken: u32) -> Result {
    guest.write(out_woken, &[u8::from(matches!(waited, Waited::Notified | Waited::Changed))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_does_what_it_does_elsewhere() {
        for (process, signal, can_handle, expected) in [
            (PROCESS, 0, true, Ok(Effect::Nothing)),
            (PROCESS, 9, true, Ok(Effect::Ends(137))),
            (OWN_GROUP, 9, false, Ok(Effect::Ends(137))),
            (PROCESS, 15, true, Ok(Effect::Handled)),
            (PROCESS, 15, false, Ok(Effect::Ends(143))),
            (EVERYBODY, 17, false, Ok(Effect::Nothing)),
            (PROCESS, 19, true, Ok(Effect::Ends(147))),
            (PROCESS, 65, true, Err(Errno::Invalid)),
            (2, 9, true, Err(Errno::NoProcess)),
        ] {
            assert_eq!(to_process(process, signal, can_handle), expected, "{process} {signal}");
        }
    }
}
