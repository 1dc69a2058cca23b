//! Asks a terminal what it is able to: its Primary Device Attributes, among which 4 says that it shows
//! sixels.
//!
//! The answer comes as if it were typed. So nothing is asked while something typed waits to be read,
//! nor by a process in the background.

use std::fs::File;
use std::io::{Read, Write};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcsetattr,
};

/// The question: `CSI c`.
const QUESTION: &[u8] = b"\x1b[c";
/// The attribute of a terminal that shows sixels.
const SIXEL: &str = "4";
/// How long a terminal may take for each part of its answer. All common ones answer within
/// milliseconds, over a network within some hundred.
const PATIENCE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// The longest answer, in bytes.
const MOST_BYTES: usize = 256;

/// Returns whether this process's terminal shows sixels; `None` if it can't be asked now.
pub(super) fn has_sixel() -> Option<bool> {
    let terminal = File::options().read(true).write(true).open("/dev/tty").ok()?;
    let is_in_front = tcgetpgrp(&terminal).ok()? == rustix::process::getpgrp();
    if !is_in_front || is_readable(&terminal, &NOW) {
        return None;
    }
    let asking = Asking::begin(&terminal)?;
    (&terminal).write_all(QUESTION).ok()?;
    let mut answer = Vec::new();
    while answer.len() < MOST_BYTES
        && attributes(&answer).is_none()
        && is_readable(&terminal, &PATIENCE)
    {
        let mut bytes = [0; 32];
        match (&terminal).read(&mut bytes) {
            Ok(0) | Err(_) => break,
            Ok(count) => answer.extend(&bytes[..count]),
        }
    }
    drop(asking);
    Some(attributes(&answer).is_some_and(|all| all.contains(&SIXEL)))
}

fn is_readable(terminal: &File, patience: &Timespec) -> bool {
    let mut polled = [PollFd::new(terminal, PollFlags::IN)];
    poll(&mut polled, Some(patience)).is_ok_and(|count| count > 0)
}

/// Returns the attributes of an answer, `CSI ? … c`; `None` if it hasn't come to its end.
fn attributes(answer: &[u8]) -> Option<Vec<&str>> {
    let answer = str::from_utf8(answer).ok()?;
    let (_, answer) = answer.split_once("\x1b[?")?;
    let (attributes, _) = answer.split_once('c')?;
    Some(attributes.split(';').collect())
}

/// The terminal without echo and lines, as the answer has neither. As before once it is dropped.
struct Asking<'a> {
    terminal: &'a File,
    before: Termios,
}

impl<'a> Asking<'a> {
    fn begin(terminal: &'a File) -> Option<Self> {
        let before = tcgetattr(terminal).ok()?;
        let mut during = before.clone();
        during.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        during.special_codes[SpecialCodeIndex::VMIN] = 1;
        during.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(terminal, OptionalActions::Now, &during).ok()?;
        Some(Self { terminal, before })
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        // A terminal that is gone has no state.
        let _ = tcsetattr(self.terminal, OptionalActions::Now, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_lists_attributes() {
        for (answer, expected) in [
            ("\x1b[?62;4;22c", Some(true)),
            ("\x1b[?4c", Some(true)),
            ("\x1b[?64;1;2;6;9;15;18;21;22c", Some(false)),
            ("\x1b[?14;44c", Some(false)),
            ("x\x1b[?4;6cy", Some(true)),
            ("\x1b[?62;4", None),
            ("", None),
        ] {
            let found = attributes(answer.as_bytes());
            assert_eq!(found.map(|all| all.contains(&SIXEL)), expected, "{answer:?}");
        }
    }
}
