//! A session in transit to another process. It has its bytes, the numbers of its mounted folders,
//! and its open files in them.
//!
//! Layout, the number little-endian:
//!
//! ```text
//! 0  …  a saved session, whose descriptors may refer to what follows
//! …  …  the folders and the count of files, in postcard's format
//! …  8  the length of the part before this
//! ```
//!
//! The receiver checks it as it checks a saved session, which is untrusted input.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{SessionState, Unread};
use crate::error::SessionError;
use crate::files::mount::{FolderIdentity, Mount};
use crate::files::resolve::{Base, absolute};
use crate::interpreter::image::Image;
use crate::interpreter::image::format::SavedHost;

/// The length of the last field.
const LENGTH_BYTES: usize = size_of::<u64>();

/// A session that another process sent.
#[derive(Debug)]
pub struct SessionMessage {
    bytes: Vec<u8>,
    loans: Loans,
}

/// What a session has of the host's folders.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Loans {
    /// Where each folder is mounted, in the order in which descriptors refer to them.
    mounts: Vec<(String, Loan)>,
    files: u32,
}

/// A folder by its number in the process that granted it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Loan {
    number: u64,
    identity: FolderIdentity,
}

impl SessionState {
    /// Copies the session for another process: returns its bytes, and the open files that go beside
    /// them in this order. `lend` returns a folder's number; if one has none, the session goes
    /// without folders.
    #[tracing::instrument(level = "debug", name = "send_session", skip_all)]
    pub fn send(
        &self,
        mut lend: impl FnMut(&Arc<Mount>) -> Option<u64>,
    ) -> (Vec<u8>, Vec<Arc<File>>) {
        let tree = &self.inner.host.tree;
        let (saved, parts) = SavedHost::whole(&self.inner.host);
        let loans = parts.mounts.iter().map(|(node, mount)| {
            let path = absolute(tree, &Base::Node(*node)).ok()?;
            Some((path, Loan { number: lend(mount)?, identity: mount.identity()? }))
        });
        // Descriptors refer to places in the list, so a part of it is of no use.
        let (saved, loans, files) = match loans.collect() {
            Some(mounts) => {
                let files = parts.files.len() as u32;
                (saved, Loans { mounts, files }, parts.files)
            }
            None => (SavedHost::of(&self.inner.host), Loans::default(), Vec::new()),
        };
        let mut bytes = self.to_bytes(saved);
        let loans = postcard::to_stdvec(&loans).expect("plain data can be encoded");
        bytes.extend_from_slice(&loans);
        bytes.extend_from_slice(&(loans.len() as u64).to_le_bytes());
        (bytes, files)
    }
}

impl SessionMessage {
    /// Takes the bytes that another process sent.
    ///
    /// # Errors
    /// They aren't those of a session.
    pub fn new(mut bytes: Vec<u8>) -> Result<Self, SessionError> {
        let damaged = SessionError::Damaged("a part of it is missing");
        let Some((rest, length)) = bytes.split_last_chunk::<LENGTH_BYTES>() else {
            return Err(damaged);
        };
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let Some(at) = rest.len().checked_sub(length) else { return Err(damaged) };
        let loans = postcard::from_bytes(&rest[at..])
            .map_err(|_| SessionError::Damaged("its folders can't be read"))?;
        bytes.truncate(at);
        Ok(Self { bytes, loans })
    }

    /// Returns how many open files come beside it.
    pub fn file_count(&self) -> usize {
        self.loans.files as usize
    }

    /// Restores the session on its image. Its monotonic clock goes on. `folder` returns the folder
    /// with a number.
    ///
    /// # Errors
    /// It isn't a session on this image, or it refers to missing files or to a folder that wasn't
    /// lent.
    #[tracing::instrument(level = "debug", name = "receive_session", skip_all)]
    pub fn state(
        self,
        image: &Image,
        files: Vec<OwnedFd>,
        mut folder: impl FnMut(u64, FolderIdentity) -> Option<Arc<Mount>>,
    ) -> Result<SessionState, SessionError> {
        let mounts = self.loans.mounts.into_iter().map(|(path, Loan { number, identity })| {
            let is_absolute = path.starts_with('/') && path.len() > 1;
            Some((path, folder(number, identity).filter(|_| is_absolute)?))
        });
        let mounts: Option<Vec<_>> = mounts.collect();
        let mounts =
            mounts.ok_or(SessionError::Damaged("it refers to a folder that isn't mounted"))?;
        let files = files.into_iter().map(|file| Arc::new(File::from(file))).collect();
        let revive = |host: SavedHost| host.revive_with(&image.inner.layout, &mounts, files);
        SessionState::decoded(image, &self.bytes, revive).map_err(Unread::for_process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_session_is_refused() {
        let loans = postcard::to_stdvec(&Loans::default()).unwrap();
        let with_length = |loans: &[u8], length: u64| {
            SessionMessage::new([b"session", loans, &length.to_le_bytes()].concat())
        };
        let sent = with_length(&loans, loans.len() as u64).unwrap();
        assert_eq!((sent.bytes.as_slice(), sent.file_count()), (&b"session"[..], 0));
        for length in [3, 1000, u64::MAX] {
            assert!(with_length(&[255; 3], length).is_err(), "{length}");
        }
        for length in 0..LENGTH_BYTES {
            assert!(SessionMessage::new(vec![0; length]).is_err(), "{length}");
        }
    }
}
