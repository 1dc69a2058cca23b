//! A compiled module in one file, for machines that shouldn't compile it.
//!
//! Loading it runs its native code. So a file is used only if it has the SHA-256 that its user
//! pins.
//!
//! ```text
//!  0  8  magic `HTCHPKM1`
//!  8 32  the module's key in hexadecimal (`key.rs`)
//! 40  8  bytes of the index, little-endian
//! 48  …  a Zstandard frame: the index, then the file of the code
//! ```

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

const MAGIC: [u8; 8] = *b"HTCHPKM1";
const KEY_BYTES: usize = 32;
const HEADER_BYTES: usize = MAGIC.len() + KEY_BYTES + 8;
/// Of Zstandard: 168 MB become 35 MB in 13 s. Level 19 takes 170 s for 31 MB.
const LEVEL: i32 = 12;
/// The window's size as a power of two: 128 MiB, so that similar functions far from each other are
/// found.
const WINDOW_BITS: u32 = 27;

/// A packed module whose hash was checked.
pub(super) struct Packed {
    bytes: Vec<u8>,
}

/// Why a file is no packed module that its user pinned.
pub(super) enum Unpinned {
    /// It has another hash, in hexadecimal.
    OtherHash(String),
    /// It can't be read.
    Unreadable(io::Error),
}

impl Packed {
    /// Reads a file that has this SHA-256, in hexadecimal.
    pub(super) fn read(path: &Path, sha256: &str) -> Result<Self, Unpinned> {
        let bytes = std::fs::read(path).map_err(Unpinned::Unreadable)?;
        let found = hex::encode(Sha256::digest(&bytes));
        if !found.eq_ignore_ascii_case(sha256) {
            return Err(Unpinned::OtherHash(found));
        }
        if bytes.len() < HEADER_BYTES || !bytes.starts_with(&MAGIC) {
            let text = "`hatchery python precompile` didn't write it";
            return Err(Unpinned::Unreadable(io::Error::other(text)));
        }
        Ok(Self { bytes })
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.bytes[MAGIC.len()..MAGIC.len() + KEY_BYTES]
    }

    /// Returns the index, and what the file of the code is to be read from.
    pub(super) fn unpack(&self) -> io::Result<(Vec<u8>, impl Read)> {
        let (header, frame) = self.bytes.split_at(HEADER_BYTES);
        let length = header[MAGIC.len() + KEY_BYTES..].try_into().map_err(io::Error::other)?;
        let mut contents = zstd::Decoder::with_buffer(frame)?;
        contents.window_log_max(WINDOW_BITS)?;
        let mut index = Vec::new();
        contents.by_ref().take(u64::from_le_bytes(length)).read_to_end(&mut index)?;
        Ok((index, contents))
    }
}

/// Packs a module into an empty file, which can be read too, and returns its SHA-256 in hexadecimal.
pub(super) fn pack(file: &mut File, key: &str, index: &[u8], code: &[u8]) -> io::Result<String> {
    let mut out = BufWriter::new(&mut *file);
    out.write_all(&MAGIC)?;
    out.write_all(key.as_bytes())?;
    out.write_all(&(index.len() as u64).to_le_bytes())?;
    let mut frame = zstd::Encoder::new(out, LEVEL)?;
    frame.long_distance_matching(true)?;
    frame.window_log(WINDOW_BITS)?;
    frame.write_all(index)?;
    frame.write_all(code)?;
    frame.finish()?.flush()?;
    let mut packed = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut packed)?;
    Ok(hex::encode(Sha256::digest(&packed)))
}
