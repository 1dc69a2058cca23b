//! Devices: files without contents, such as `/dev/null`.

use crate::errno::Errno;

/// A device of the guest. Every device discards what is written to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Device {
    /// Reads as empty.
    Null,
    /// Reads as endless zeroes.
    Zero,
    /// Reads as endless random bytes.
    Random,
    /// The channel of a command build's agent (`host/door/device.rs`); here it reads as empty.
    Door,
}

impl Device {
    /// Reads into `buffer`, taking random bytes from `random`; returns the number of bytes read.
    pub(crate) fn read(
        self,
        buffer: &mut [u8],
        random: impl FnOnce(&mut [u8]) -> Result<(), Errno>,
    ) -> Result<usize, Errno> {
        match self {
            Self::Null | Self::Door => return Ok(0),
            Self::Zero => buffer.fill(0),
            Self::Random => random(buffer)?,
        }
        Ok(buffer.len())
    }
}
