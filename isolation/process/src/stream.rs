//! Messages over a stream between processes, each with its length before it.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest message, in bytes.
const LONGEST: u32 = 64 << 20;

/// Writes a message with its length before it.
pub(crate) fn write<T: Serialize>(stream: &mut UnixStream, message: &T) -> io::Result<()> {
    let bytes = postcard::to_stdvec(message).map_err(io::Error::other)?;
    let length = u32::try_from(bytes.len()).ok().filter(|length| *length <= LONGEST);
    let length = length.ok_or_else(|| io::Error::other("a message is too long"))?;
    stream.write_all(&[&length.to_le_bytes()[..], &bytes].concat())
}

/// Reads a message; `None` at the end of the stream.
pub(crate) fn read<T: DeserializeOwned>(stream: &mut UnixStream) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        result => result?,
    }
    let length = u32::from_le_bytes(length);
    if length > LONGEST {
        return Err(io::Error::other("a message is too long"));
    }
    let mut bytes = Vec::new();
    stream.take(u64::from(length)).read_to_end(&mut bytes)?;
    postcard::from_bytes(&bytes).map(Some).map_err(io::Error::other)
}
