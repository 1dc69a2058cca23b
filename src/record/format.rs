//! The file of a recording: records, each sealed with all that stand before it.
//!
//! docs/recordings.md has the format. A record is a line of JSON, the blobs whose lengths its
//! `blobs` lists, a line end, and a line with its seal. The seal is the SHA-256 of the seal before
//! it and of everything of the record before its own line, in hexadecimal. So a changed byte breaks
//! the seals from there on, and a file that was cut off ends within a record or without the last.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value as Json};
use sha2::{Digest, Sha256};

/// A seal in bytes; the first record follows zeroes.
type Seal = [u8; 32];

/// Bytes of a line end, a seal and its line end.
const SEAL_LINES: usize = 2 + 2 * size_of::<Seal>();

/// The field of a record that lists the lengths of its blobs.
const BLOBS: &str = "blobs";

/// Writes records.
#[derive(Debug)]
pub(crate) struct RecordFile {
    file: BufWriter<File>,
    seal: Seal,
}

impl RecordFile {
    /// Creates the file, which only its owner can read.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        Ok(Self { file: BufWriter::new(file), seal: Seal::default() })
    }

    /// Appends a record.
    pub(crate) fn append(
        &mut self,
        mut head: Map<String, Json>,
        blobs: &[&[u8]],
    ) -> io::Result<()> {
        if !blobs.is_empty() {
            let lengths = blobs.iter().map(|blob| blob.len().into()).collect();
            head.insert(BLOBS.to_owned(), Json::Array(lengths));
        }
        let mut line = serde_json::to_vec(&head)?;
        line.push(b'\n');
        let mut hasher = Sha256::new();
        hasher.update(self.seal);
        for part in [&line[..]].iter().chain(blobs).chain(&[&b"\n"[..]]) {
            hasher.update(part);
            self.file.write_all(part)?;
        }
        self.seal = hasher.finalize().into();
        self.file.write_all(format!("{}\n", hex(&self.seal)).as_bytes())?;
        self.file.flush()
    }

    /// Ends the file: what was written is on the disk afterwards.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_data()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes in a file.
#[derive(Debug, Clone)]
pub(crate) struct Blob {
    file: Arc<File>,
    at: u64,
    length: usize,
}

impl Blob {
    /// Returns how many bytes it has.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    pub(crate) fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.length];
        self.file.read_exact_at(&mut bytes, self.at)?;
        Ok(bytes)
    }
}

/// A record whose seal is right.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) head: Map<String, Json>,
    pub(crate) blobs: Vec<Blob>,
}

/// What follows in a file.
#[derive(Debug)]
pub(crate) enum NextRecord {
    Whole(Record),
    /// The file ends behind the last record.
    End,
    /// The file ends within a record that begins at this byte.
    Cut(u64),
    /// The record at this byte was changed.
    Damaged {
        at: u64,
        bytes: u64,
        detail: &'static str,
    },
}

/// Reads records, and checks them.
#[derive(Debug)]
pub(crate) struct RecordReader {
    file: BufReader<File>,
    shared: Arc<File>,
    at: u64,
    length: u64,
    seal: Seal,
}

impl RecordReader {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("it isn't a regular file"));
        }
        let shared = Arc::new(file.try_clone()?);
        let (length, seal) = (metadata.len(), Seal::default());
        Ok(Self { file: BufReader::new(file), shared, at: 0, length, seal })
    }

    pub(crate) fn next(&mut self) -> io::Result<NextRecord> {
        let at = self.at;
        let rest = self.length - at;
        if rest == 0 {
            return Ok(NextRecord::End);
        }
        let damaged = |bytes, detail| Ok(NextRecord::Damaged { at, bytes, detail });
        let mut line = Vec::new();
        (&mut self.file).take(rest).read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            return Ok(NextRecord::Cut(at));
        }
        let Ok(head) = serde_json::from_slice::<Map<String, Json>>(&line) else {
            return damaged(line.len() as u64, "its line isn't a JSON object");
        };
        let Some(lengths) = lengths(&head) else {
            return damaged(line.len() as u64, "its blobs have no lengths");
        };
        let start = at + line.len() as u64;
        let end = lengths.iter().try_fold(start, |end, length| end.checked_add(*length as u64));
        let Some(end) = end
            .and_then(|end| end.checked_add(SEAL_LINES as u64))
            .filter(|end| *end <= self.length)
        else {
            return match self.ends_with_seal()? {
                true => damaged(rest, "its blobs are longer than the rest of the file"),
                false => Ok(NextRecord::Cut(at)),
            };
        };
        let mut hasher = Sha256::new();
        hasher.update(self.seal);
        hasher.update(&line);
        let mut blobs = Vec::with_capacity(lengths.len());
        let mut place = start;
        let mut bytes = [0; 64 << 10];
        for length in lengths {
            blobs.push(Blob { file: Arc::clone(&self.shared), at: place, length });
            place += length as u64;
            let mut left = length;
            while left > 0 {
                let part = &mut bytes[..left.min(64 << 10)];
                self.file.read_exact(part)?;
                hasher.update(&*part);
                left -= part.len();
            }
        }
        let mut last = [0; SEAL_LINES];
        self.file.read_exact(&mut last)?;
        hasher.update(b"\n");
        let seal: Seal = hasher.finalize().into();
        if last != *format!("\n{}\n", hex(&seal)).as_bytes() {
            return damaged(end - at, "its seal doesn't match");
        }
        (self.seal, self.at) = (seal, end);
        Ok(NextRecord::Whole(Record { head, blobs }))
    }

    /// Returns whether the file ends as a whole record does. One that was cut off doesn't.
    fn ends_with_seal(&self) -> io::Result<bool> {
        let Some(at) = self.length.checked_sub(SEAL_LINES as u64) else { return Ok(false) };
        let mut last = [0; SEAL_LINES];
        self.shared.read_exact_at(&mut last, at)?;
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let [b'\n', digits @ .., b'\n'] = &last else { return Ok(false) };
        Ok(digits.iter().all(is_digit))
    }
}

fn lengths(head: &Map<String, Json>) -> Option<Vec<usize>> {
    let Some(blobs) = head.get(BLOBS) else { return Some(Vec::new()) };
    let length = |blob: &Json| usize::try_from(blob.as_u64()?).ok();
    blobs.as_array()?.iter().map(length).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn written() -> (tempfile::TempDir, std::path::PathBuf, Vec<usize>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.recording");
        let mut file = RecordFile::create(&path).unwrap();
        let mut ends = vec![0];
        for (number, blobs) in
            [(0, &[][..]), (1, &[&b"ab\n{"[..], b""][..]), (2, &[&b"\n"[..]][..])]
        {
            let head =
                Map::from_iter([("type".to_owned(), "x".into()), ("n".to_owned(), number.into())]);
            file.append(head, blobs).unwrap();
            ends.push(fs::metadata(&path).unwrap().len() as usize);
        }
        (folder, path, ends)
    }

    /// Returns how many records are whole, and what follows them.
    fn read(path: &Path) -> (usize, NextRecord) {
        let mut reader = RecordReader::open(path).unwrap();
        let mut whole = 0;
        loop {
            match reader.next().unwrap() {
                NextRecord::Whole(_) => whole += 1,
                other => return (whole, other),
            }
        }
    }

    #[test]
    fn records_come_back() {
        let (_folder, path, _) = written();
        let mut reader = RecordReader::open(&path).unwrap();
        let mut blobs = Vec::new();
        while let NextRecord::Whole(record) = reader.next().unwrap() {
            blobs.extend(record.blobs.iter().map(|blob| blob.read().unwrap()));
        }
        assert_eq!(blobs, [&b"ab\n{"[..], b"", b"\n"]);
        let again = RecordFile::create(&path).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn a_file_cut_at_any_byte_ends_with_its_last_whole_record() {
        let (_folder, path, ends) = written();
        let bytes = fs::read(&path).unwrap();
        for cut in 0..bytes.len() {
            fs::write(&path, &bytes[..cut]).unwrap();
            let whole = ends.iter().filter(|end| **end <= cut).count() - 1;
            match read(&path) {
                (found, NextRecord::End) => assert_eq!((found, cut), (whole, ends[whole])),
                (found, NextRecord::Cut(at)) => {
                    assert_eq!((found, at), (whole, ends[whole] as u64))
                }
                other => panic!("{cut}: {other:?}"),
            }
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let (_folder, path, ends) = written();
        let bytes = fs::read(&path).unwrap();
        for (at, bit) in (0..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            fs::write(&path, &changed).unwrap();
            let (whole, next) = read(&path);
            assert!(matches!(next, NextRecord::Damaged { .. }), "byte {at}, bit {bit}: {next:?}");
            assert!(ends[whole] <= at, "byte {at}, bit {bit}: what is before it is unchanged");
        }
    }
}
