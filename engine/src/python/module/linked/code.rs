//! The file of the code.
//!
//! ```text
//!  0  8  magic `HTCHCOD1`
//!  8  8  bytes of the header, little-endian
//! 16 32  BLAKE3 of all that follows, except for zeroes
//! 48  …  the header, in postcard's format
//!  …  …  zeroes
//!  …  …  whole pages with the code
//!  …  …  what the guest's memory begins with
//! ```
//!
//! The code has the same offset from a multiple of 2 MiB as in memory. So the system can map large
//! pages. Nothing here checks for damage; the seal beside the file does (`seal.rs`).

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::DataSegment;
use crate::cache::hash_into;
use crate::memory::sys::FileView;
use crate::memory::{GuestMemory, PAGE_BYTES};

const MAGIC: [u8; 8] = *b"HTCHCOD1";
/// The bytes of the hash that binds index and code to each other.
const BINDING_BYTES: usize = 32;
const PREFIX_BYTES: usize = 16 + BINDING_BYTES;
pub(super) const LARGE_PAGE_BYTES: u64 = 2 << 20;

/// Where the parts of the file are.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct CodeHeader {
    /// The address of the code in the image.
    text: Range<u64>,
    /// The address of the first function in the image.
    first_function: u64,
    /// Where the page with the first byte of the code is in the file.
    at: u64,
    /// The guest's address and the length of each segment; they follow the code in this order.
    segments: Vec<(u32, u32)>,
}

impl CodeHeader {
    /// Describes code at these addresses of the image.
    pub(super) fn new(text: &Range<u64>, first_function: u64, data: &[DataSegment]) -> Self {
        let segments: Vec<_> = data.iter().map(|part| (part.at, part.bytes.len() as u32)).collect();
        let mut header = Self { text: text.clone(), first_function, at: u64::MAX, segments };
        // The number above has the longest encoding.
        let header_bytes = postcard::to_stdvec(&header).map_or(0, |header| header.len());
        let least = (PREFIX_BYTES + header_bytes) as u64;
        let first_page = header.first_page();
        header.at = least.next_multiple_of(LARGE_PAGE_BYTES) + first_page % LARGE_PAGE_BYTES;
        header
    }

    pub(super) fn first_function(&self) -> usize {
        self.first_function as usize
    }

    /// Returns where the code is in the file.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Returns the address of the code's first page in the image, and the bytes of its pages.
    pub(super) fn pages(&self) -> (usize, usize) {
        (self.first_page() as usize, self.page_bytes() as usize)
    }

    fn first_page(&self) -> u64 {
        self.text.start - self.text.start % PAGE_BYTES as u64
    }

    fn page_bytes(&self) -> u64 {
        self.text.end.next_multiple_of(PAGE_BYTES as u64) - self.first_page()
    }
}

/// What the file of the code is made from.
pub(in super::super) struct Code {
    header: CodeHeader,
    text: Vec<u8>,
    data: Vec<DataSegment>,
    binding: [u8; BINDING_BYTES],
}

impl Code {
    pub(super) fn new(header: CodeHeader, text: Vec<u8>, data: Vec<DataSegment>) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&postcard::to_stdvec(&header).unwrap_or_default());
        hash_into(&mut hasher, &text);
        for segment in &data {
            hasher.update(&segment.bytes);
        }
        let binding = *hasher.finalize().as_bytes();
        Self { header, text, data, binding }
    }

    /// Returns the hash that the index must end with.
    pub(super) fn binding(&self) -> &[u8] {
        &self.binding
    }

    pub(in super::super) fn write(&self, file: &mut File) -> io::Result<()> {
        let header = postcard::to_stdvec(&self.header).map_err(io::Error::other)?;
        file.write_all(&MAGIC)?;
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(&self.binding)?;
        file.write_all(&header)?;
        // Zeroes and no holes: reading a hole of a full file system in memory is a fault.
        let text_at = self.header.at + self.header.text.start - self.header.first_page();
        pad(file, text_at)?;
        file.write_all(&self.text)?;
        pad(file, self.header.at + self.header.page_bytes())?;
        self.data.iter().try_for_each(|segment| file.write_all(&segment.bytes))
    }
}

/// Writes zeroes up to this place in the file.
fn pad(file: &mut File, to: u64) -> io::Result<()> {
    let zeroes = to.saturating_sub(file.stream_position()?);
    io::copy(&mut io::repeat(0).take(zeroes), file).map(drop)
}

/// What the memory of a new instance begins with. Keeps the file of the code open.
#[derive(Debug)]
pub(crate) struct InitialData {
    file: FileView,
    /// Where in the guest and where in the file.
    parts: Vec<(u32, Range<usize>)>,
}

impl InitialData {
    /// Fills the memory of a new instance; `None` if the memory is too small.
    pub(crate) fn put(&self, memory: &GuestMemory) -> Option<()> {
        for (at, range) in &self.parts {
            let bytes = &self.file.bytes()[range.clone()];
            memory.write(*at, bytes)?;
        }
        Some(())
    }

    pub(super) fn file(&self) -> &File {
        self.file.file()
    }

    pub(super) fn binding(&self) -> &[u8] {
        &self.file.bytes()[16..PREFIX_BYTES]
    }
}

/// Parses a file; `None` if it is none of this version.
pub(super) fn read(file: FileView) -> Option<(CodeHeader, InitialData)> {
    let bytes = file.bytes();
    let rest = bytes.strip_prefix(&MAGIC)?;
    let header_bytes = usize::try_from(u64::from_le_bytes(*rest.first_chunk()?)).ok()?;
    let header = bytes.get(PREFIX_BYTES..PREFIX_BYTES.checked_add(header_bytes)?)?;
    let header: CodeHeader = postcard::from_bytes(header).ok()?;
    let mut at = usize::try_from(header.at.checked_add(header.page_bytes())?).ok()?;
    let mut parts = Vec::with_capacity(header.segments.len());
    for (address, len) in &header.segments {
        let range = at..at.checked_add(*len as usize)?;
        at = range.end;
        parts.push((*address, range));
    }
    (at == bytes.len()).then_some((header, InitialData { file, parts }))
}

#[cfg(test)]
mod tests {
    use super::*;

    impl InitialData {
        pub(in crate::python::module) fn is_empty(&self) -> bool {
            self.parts.is_empty()
        }
    }
}
