//! Files of JSON lines, which may be compressed by gzip.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use serde_json::{Map, Value};

use crate::error::GradeError;

/// The most bytes of a file once it is decompressed: all of EvalPlus takes a tenth of this, and a
/// small compressed file could otherwise fill the memory.
const MOST_BYTES: u64 = 4 << 30;

/// The first bytes of a file that gzip has compressed.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// An object, and the number of its line, from 1.
pub(crate) type Line = (usize, Map<String, Value>);

/// Reads a file of JSON objects, one a line. Empty lines don't count.
///
/// # Errors
/// The file can't be read or decompressed, or a line isn't a JSON object.
pub(crate) fn read(path: &Path) -> Result<Vec<Line>, GradeError> {
    let unreadable = |source| GradeError::Read { path: path.to_owned(), source };
    let mut file = BufReader::new(File::open(path).map_err(unreadable)?);
    let is_compressed = file.fill_buf().map_err(unreadable)?.starts_with(&GZIP);
    let source: Box<dyn Read> = match is_compressed {
        true => Box::new(MultiGzDecoder::new(file)),
        false => Box::new(file),
    };
    let mut read = Vec::new();
    for (index, line) in BufReader::new(source.take(MOST_BYTES)).lines().enumerate() {
        let (line, text) = (index + 1, line.map_err(unreadable)?);
        if text.trim().is_empty() {
            continue;
        }
        let object = serde_json::from_str(&text).map_err(|source| GradeError::NotJson {
            path: path.to_owned(),
            line,
            source,
        })?;
        read.push((line, object));
    }
    Ok(read)
}
