//! Devices: files without contents, such as `/dev/null`.

use crate::errno::Errno;

/// A device of the guest. Every device but the streams discards what is written to it.
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
    /// Opening it opens standard input; the position is shared, as with a pipe.
    Stdin,
    /// Opening it opens standard output.
    Stdout,
    /// Opening it opens standard error.
    Stderr,
}

impl Device {
    /// Reads into `buffer`, taking random bytes from `random`; returns the number of bytes read.
    pub(crate) fn read(
        self,
        buffer: &mut [u8],
        random: impl FnOnce(&mut [u8]) -> Result<(), Errno>,
    ) -> Result<usize, Errno> {
        match self {
            Self::Null | Self::Door | Self::Stdin | Self::Stdout | Self::Stderr => return Ok(0),
            Self::Zero => buffer.fill(0),
            Self::Random => random(buffer)?,
        }
        Ok(buffer.len())
    }
}
