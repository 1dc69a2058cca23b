//! Files of JSON lines, which may be compressed by gzip.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use serde_json::{Map, Value};

use crate::error::{GradeError, InvalidLine};

/// The most bytes of a file once it is decompressed: all of EvalPlus takes a tenth of this, and a
/// small compressed file could otherwise fill the memory.
const MOST_BYTES: u64 = 4 << 30;

/// The first bytes of a file that gzip has compressed.
const GZIP: [u8; 2] = [0x1f, 0x8b];

type Object = Map<String, Value>;

/// What the lines of a file say.
#[derive(Debug)]
#[non_exhaustive]
pub struct Lines<T> {
    /// The lines that can be used, in their order.
    pub read: Vec<T>,
    /// Why others can't: an error for each.
    pub bad: Vec<GradeError>,
}

impl<T> Lines<T> {
    /// Returns the lines, if all of them can be used.
    pub(crate) fn all(self) -> Result<Vec<T>, GradeError> {
        self.bad.into_iter().next().map_or(Ok(self.read), Err)
    }

    /// Returns the lines, if any of them can be used.
    pub(crate) fn any(self, path: &Path) -> Result<Self, GradeError> {
        match (self.read.is_empty(), self.bad.is_empty()) {
            (false, _) => Ok(self),
            (true, true) => Err(GradeError::Empty(path.to_owned())),
            (true, false) => self.all().map(|read| Self { read, bad: Vec::new() }),
        }
    }
}

/// Reads a file of JSON objects, one a line, each with its number from 1. Empty lines don't count.
///
/// # Errors
/// The file can't be read or decompressed.
pub(crate) fn read<T>(
    path: &Path,
    mut parse: impl FnMut(usize, Object) -> Result<T, InvalidLine>,
) -> Result<Lines<T>, GradeError> {
    let unreadable = |source| GradeError::Read { path: path.to_owned(), source };
    let mut file = BufReader::new(File::open(path).map_err(unreadable)?);
    let is_compressed = file.fill_buf().map_err(unreadable)?.starts_with(&GZIP);
    let source: Box<dyn Read> = match is_compressed {
        true => Box::new(MultiGzDecoder::new(file)),
        false => Box::new(file),
    };
    let mut lines = Lines { read: Vec::new(), bad: Vec::new() };
    for (index, bytes) in BufReader::new(source.take(MOST_BYTES)).split(b'\n').enumerate() {
        let (line, bytes) = (index + 1, bytes.map_err(unreadable)?);
        // Some editors begin a file with a byte-order mark.
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes).trim_ascii();
        if bytes.is_empty() {
            continue;
        }
        let path = path.to_owned();
        let parsed = match serde_json::from_slice(bytes) {
            Ok(object) => {
                parse(line, object).map_err(|problem| GradeError::Line { path, line, problem })
            }
            Err(source) => Err(GradeError::NotJson { path, line, source }),
        };
        match parsed {
            Ok(parsed) => lines.read.push(parsed),
            Err(error) => lines.bad.push(error),
        }
    }
    Ok(lines)
}
