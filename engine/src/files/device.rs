//! Devices: what is in no file, and is read and written all the same.

use crate::errno::Errno;

/// A device of the guest. What is written to any of them is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Device {
    /// Ends at once.
    Null,
    /// Zeroes without end.
    Zero,
    /// Random bytes without end.
    Random,
}

impl Device {
    /// Reads into `buffer`, by `random` if they are random bytes; returns how much.
    pub(crate) fn read(
        self,
        buffer: &mut [u8],
        random: impl FnOnce(&mut [u8]) -> Result<(), Errno>,
    ) -> Result<usize, Errno> {
        match self {
            Self::Null => return Ok(0),
            Self::Zero => buffer.fill(0),
            Self::Random => random(buffer)?,
        }
        Ok(buffer.len())
    }
}
