//! The memory of a worker process, as the kernel counts it.
//!
//! A confined process isn't dumpable, so other processes can't read its figures. It opens the file
//! with these numbers before it is confined, and sends the descriptor. The file can be read while
//! the process lives. The numbers are the kernel's: the worker can't change them.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::parent::exit_state::ExitState;

/// Where a process finds its own numbers.
const FILE: &str = "/proc/self/smaps_rollup";

/// How long numbers are used before the kernel is asked again, which walks all pages of the process.
const FRESH: Duration = Duration::from_secs(1);

/// The longest text that is read; it has some 25 lines.
const LONGEST: usize = 4096;

/// Opens the numbers of this process, for another one.
pub(crate) fn open() -> io::Result<OwnedFd> {
    Ok(File::open(FILE)?.into())
}

/// A worker process with the file of its numbers.
#[derive(Debug)]
pub(crate) struct Memory {
    file: File,
    life: Arc<ExitState>,
    last: Mutex<Option<(Instant, Option<u64>)>>,
}

impl Memory {
    /// Takes a file that the process opened.
    pub(crate) fn new(file: OwnedFd, life: Arc<ExitState>) -> Self {
        Self { file: File::from(file), life, last: Mutex::default() }
    }

    fn read(&self) -> Option<u64> {
        let mut text = [0; LONGEST];
        // The process may have ended.
        let length = self.file.read_at(&mut text, 0).ok().filter(|length| *length > 0)?;
        private_bytes(std::str::from_utf8(&text[..length]).ok()?)
    }
}

impl pool::WorkerProcess for Memory {
    fn has_ended(&self) -> bool {
        self.life.has_ended()
    }

    fn private_bytes(&self) -> Option<u64> {
        let mut last = self.last.lock();
        if let Some((until, bytes)) = *last
            && Instant::now() < until
        {
            return bytes;
        }
        let bytes = self.read();
        *last = Some((Instant::now() + FRESH, bytes));
        bytes
    }
}

/// Adds up the private pages of a text such as `Private_Clean: 12 kB`. `None` if there are no such
/// lines.
fn private_bytes(text: &str) -> Option<u64> {
    let private = text.lines().filter_map(|line| {
        let (name, amount) = line.split_once(':')?;
        let is_private = ["Private_Clean", "Private_Dirty", "Private_Hugetlb"].contains(&name);
        let kilobytes = amount.trim().strip_suffix(" kB")?.parse::<u64>().ok();
        kilobytes.filter(|_| is_private)
    });
    private.map(|kilobytes| kilobytes.saturating_mul(1024)).reduce(u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use channel::ChannelConfig;
    use pool::WorkerProcess as _;

    #[test]
    fn private_pages_are_added_up() {
        let text = "5581-7ffd [rollup]\nRss: 900 kB\nShared_Clean: 100 kB\nPrivate_Clean: 3 kB\n\
                    Private_Dirty:   20 kB\nPrivate_Hugetlb: 2048 kB\n";
        assert_eq!(private_bytes(text), Some((3 + 20 + 2048) * 1024));
        for text in ["", "Rss: 5 kB", "Private_Dirty: many kB"] {
            assert_eq!(private_bytes(text), None, "{text}");
        }
    }

    #[test]
    fn the_kernel_counts_what_a_process_wrote_to() {
        let closer = || channel::create(&ChannelConfig::default()).unwrap().0.closer;
        let life = Arc::new(ExitState::new([closer(), closer()]));
        let open = || Memory::new(super::open().unwrap(), Arc::clone(&life));
        let first = open();
        let before = first.private_bytes().unwrap();
        let written = std::hint::black_box(vec![7u8; 64 << 20]);
        let after = open().private_bytes().unwrap();
        assert!(after > before + (48 << 20), "{before} {after}");
        assert_eq!(first.private_bytes(), Some(before), "the last answer is used for a while");
        drop(written);
    }
}
