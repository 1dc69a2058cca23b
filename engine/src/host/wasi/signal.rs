//! Signals that a program sends to itself; nobody else can send it one.
//!
//! Numbers and default actions are those of Linux. WASIX's C library keeps the handlers, so the host
//! hands it every signal that can be handled, at once and on the same thread.

use super::process::PROCESS;
use crate::errno::Errno;

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

/// What comes of a signal.
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

/// Returns what comes of a signal to a process.
pub(crate) fn to_process(process: u32, signal: u32, can_handle: bool) -> Result<Effect, Errno> {
    match process {
        PROCESS | OWN_GROUP | EVERYBODY => to_self(signal, can_handle),
        _ => Err(Errno::NoProcess),
    }
}

/// Returns what comes of a signal to the calling thread. A program can't be suspended, so what would
/// suspend it ends it.
pub(crate) fn to_self(signal: u32, can_handle: bool) -> Result<Effect, Errno> {
    match signal {
        0 => Ok(Effect::Nothing),
        SIGNALS.. => Err(Errno::Invalid),
        KILL | STOP => Ok(Effect::Ends(exit_code(signal))),
        _ if can_handle => Ok(Effect::Handled),
        CHILD | CONTINUE | URGENT | WINDOW => Ok(Effect::Nothing),
        _ => Ok(Effect::Ends(exit_code(signal))),
    }
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
