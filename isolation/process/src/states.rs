//! States as memory files: complete, read once, and never mapped by a process that doesn't trust
//! the sender. A state's open files in folders of the host follow it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use channel::{Descriptors, Error, MOST_DESCRIPTORS};
use engine::{Cause, FolderIdentity, Image, Mount, SessionError, SessionMessage, SessionState};
use pool::{Suspended, SuspendedState};
use rustix::fs::{MemfdFlags, memfd_create};

/// The longest state that is taken: the guest's largest memory, twice, for its files.
pub(crate) const LONGEST: u64 = 8 << 30;

/// The most open files of a state, as many as a worker may have.
pub(crate) const MOST_FILES: usize = 1 << 10;

/// The bytes of a block, in which the system counts what a file has.
const BLOCK: u64 = 512;

/// A state from another process.
#[derive(Debug)]
pub(crate) struct Arrived {
    session: SessionMessage,
    files: Vec<OwnedFd>,
}

/// Sends a state. `lend` numbers the folders of the host in it.
pub(crate) fn send(
    over: &Descriptors,
    state: &SessionState,
    lend: impl FnMut(&Arc<Mount>) -> Option<u64>,
) -> Result<(), Error> {
    let (bytes, files) = state.send(lend);
    let memory = file_of(&bytes)?;
    let all: Vec<BorrowedFd<'_>> =
        [memory.as_fd()].into_iter().chain(files.iter().map(AsFd::as_fd)).collect();
    all.chunks(MOST_DESCRIPTORS).try_for_each(|some| over.send(some))
}

/// Receives a state. `next` receives the descriptors of one message.
pub(crate) fn receive(
    mut next: impl FnMut() -> Result<Vec<OwnedFd>, Error>,
) -> Result<Arrived, Error> {
    let mut files = next()?;
    if files.is_empty() {
        return Err(invalid("no state").into());
    }
    let session = SessionMessage::new(read(files.remove(0))?).map_err(invalid)?;
    if session.file_count() > MOST_FILES {
        return Err(invalid("the state has too many open files").into());
    }
    while files.len() < session.file_count() {
        files.append(&mut next()?);
    }
    Ok(Arrived { session, files })
}

fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl Arrived {
    /// Restores the state. `folder` returns the folder of a number.
    pub(crate) fn state(
        self,
        image: &Image,
        folder: impl FnMut(u64, FolderIdentity) -> Option<Arc<Mount>>,
    ) -> Result<SessionState, SessionError> {
        self.session.state(image, self.files, folder)
    }
}

/// Writes a state into a memory file.
fn file_of(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("hatchery-state", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file.into())
}

/// Reads a state from a memory file that another process made.
fn read(file: OwnedFd) -> io::Result<Vec<u8>> {
    // Sealing it would need the maker's help; reading it as a file needs none.
    let stat = rustix::fs::fstat(file.as_fd())?;
    let length = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
    if length > LONGEST {
        return Err(invalid("the state is too long"));
    }
    // A hole costs its maker nothing, and its reader all of its length.
    if u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(BLOCK) < length {
        return Err(invalid("the state has holes"));
    }
    let mut file = File::from(file);
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    file.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A state that was lost with the worker that kept it.
pub(crate) struct GoneState(pub(crate) Cause);

impl SuspendedState for GoneState {
    fn bytes(&self) -> u64 {
        0
    }

    fn fork(&self) -> Suspended {
        Suspended::new(Self(self.0.clone()))
    }

    fn is_gone(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_from_its_beginning() {
        for bytes in [Vec::new(), vec![1], vec![7; 3 << 20]] {
            assert_eq!(read(file_of(&bytes).unwrap()).unwrap(), bytes);
        }
    }

    #[test]
    fn a_file_that_only_says_it_is_large_is_refused() {
        for (bytes, why) in [(LONGEST + 1, "too long"), (LONGEST, "holes"), (1 << 20, "holes")] {
            let file = memfd_create("large", MemfdFlags::CLOEXEC).unwrap();
            rustix::fs::ftruncate(&file, bytes).unwrap();
            let error = read(file).unwrap_err().to_string();
            assert!(error.contains(why), "{bytes}: {error}");
        }
    }

    #[test]
    fn a_state_of_countless_files_is_refused_before_they_come() {
        // The list of folders is empty, and 2^32 - 1 files are announced.
        let loans = [0, 0xff, 0xff, 0xff, 0xff, 0x0f];
        let bytes = [&loans[..], &(loans.len() as u64).to_le_bytes()].concat();
        let mut asked = 0;
        let received = receive(|| {
            asked += 1;
            Ok(vec![file_of(&bytes).unwrap()])
        });
        assert!(received.unwrap_err().to_string().len() > 1 && asked == 1, "{asked}");
    }
}
