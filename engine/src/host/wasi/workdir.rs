//! The current folder.

use super::Wasi;
use super::bytes::{Buffer, GuestBytes};
use crate::errno::Errno;
use crate::files::quota::MOST_PATH_BYTES;
use crate::files::resolve::{Base, Links, Place, absolute, resolve};
use crate::files::tree::NodeId;

/// Returns whether a guest's current folder can have this path; it needn't exist.
pub(crate) fn is_workdir(path: &str) -> bool {
    path.starts_with('/') && path.len() <= MOST_PATH_BYTES
}

impl Wasi {
    pub(crate) fn chdir(
        &mut self,
        guest: GuestBytes<'_>,
        path: u32,
        len: u32,
    ) -> Result<(), Errno> {
        let path = guest.text(Buffer { at: path, len }, MOST_PATH_BYTES)?;
        let from = if path.starts_with('/') { Base::Node(NodeId::ROOT) } else { self.workdir()? };
        let path = absolute(&self.tree, &self.folder(from, &path)?)?;
        if path.len() > MOST_PATH_BYTES {
            return Err(Errno::NameTooLong);
        }
        self.workdir = path.into();
        Ok(())
    }

    /// Writes the path with a NUL at its end, and its length without. If it doesn't fit, writes the
    /// length that it needs.
    pub(crate) fn getcwd(
        &mut self,
        guest: GuestBytes<'_>,
        path: u32,
        len: u32,
    ) -> Result<(), Errno> {
        self.workdir()?;
        let room = u32::from_le_bytes(guest.read(len)?) as usize;
        if self.workdir.len() >= room {
            guest.write_u32(len, self.workdir.len() as u32 + 1)?;
            return Err(Errno::Range);
        }
        guest.write(path, &[self.workdir.as_bytes(), &[0]].concat())?;
        guest.write_u32(len, self.workdir.len() as u32)
    }

    /// Returns the current folder, if it still exists.
    fn workdir(&self) -> Result<Base, Errno> {
        self.folder(Base::Node(NodeId::ROOT), &self.workdir)
    }

    fn folder(&self, from: Base, path: &str) -> Result<Base, Errno> {
        match resolve(&self.tree, from, path, Links::Follow)? {
            Place::Node(node) => {
                self.tree.entries(node)?;
                Ok(Base::Node(node))
            }
            Place::Host(place) if place.mount.stat(&place.path())?.is_folder => {
                Ok(Base::Host(place))
            }
            Place::Host(_) => Err(Errno::NotFolder),
            Place::Vacant { .. } => Err(Errno::NoEntry),
        }
    }
}
