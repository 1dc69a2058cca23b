//! Reads the lines of a file or a stream, each up to a length.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use tokio::io::{AsyncBufRead, AsyncBufReadExt};

use crate::error::Error;
use crate::shard::Shard;

/// The longest line, so that a file without line ends doesn't fill the memory.
const LONGEST_LINE_BYTES: usize = 64 << 20;

/// A line is too long to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("longer than {LONGEST_LINE_BYTES} bytes")]
#[non_exhaustive]
pub struct TooLong;

/// Reads one line at a time, each up to 64 MiB.
///
/// ```
/// use batch::Lines;
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let mut lines = Lines::new(&b"{\"code\": \"1\"}\n"[..]);
/// let line = lines.next().await?.expect("there is one").expect("it is short");
/// assert_eq!((line.as_slice(), lines.number()), (&b"{\"code\": \"1\"}"[..], 1));
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(derive_more::Debug)]
#[debug("Lines({number})")]
pub struct Lines {
    reader: Box<dyn AsyncBufRead + Unpin + Send>,
    /// The part of the current line read so far. Kept here, so that dropping `next` loses nothing.
    partial: Vec<u8>,
    /// The current line is too long; its rest is skipped.
    is_too_long: bool,
    /// Number of the last line that was returned, from 1.
    number: usize,
}

impl Lines {
    /// Reads the lines of a stream, such as standard input.
    pub fn new(reader: impl AsyncBufRead + Unpin + Send + 'static) -> Self {
        let reader = Box::new(reader);
        Self { reader, partial: Vec::new(), is_too_long: false, number: 0 }
    }

    /// Reads the lines of a file, or of a pipe that has a name.
    ///
    /// # Errors
    /// It can't be opened, or is a folder.
    pub async fn open(path: &Path) -> Result<Self, Error> {
        let opening = async {
            let file = tokio::fs::File::open(path).await?;
            if file.metadata().await?.is_dir() {
                return Err(io::Error::other("it is a directory"));
            }
            Ok(file)
        };
        let file = opening.await.map_err(|source| Error::Open(path.to_owned(), source))?;
        Ok(Self::new(tokio::io::BufReader::new(file)))
    }

    /// Returns the number of the last line that was returned, from 1; 0 before the first.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Returns the next line without its end; `None` at the end of the input. Cancel-safe.
    ///
    /// # Errors
    /// The input can't be read.
    pub async fn next(&mut self) -> io::Result<Option<Result<Vec<u8>, TooLong>>> {
        loop {
            let buffer = self.reader.fill_buf().await?;
            if buffer.is_empty() {
                let is_empty = self.partial.is_empty() && !self.is_too_long;
                return Ok((!is_empty).then(|| self.finish()));
            }
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let content = &buffer[..end.unwrap_or(buffer.len())];
            if self.partial.len() + content.len() > LONGEST_LINE_BYTES {
                self.is_too_long = true;
                self.partial.clear();
            }
            if !self.is_too_long {
                self.partial.extend_from_slice(content);
            }
            let taken = end.map_or(buffer.len(), |end| end + 1);
            self.reader.consume(taken);
            if end.is_some() {
                return Ok(Some(self.finish()));
            }
        }
    }

    fn finish(&mut self) -> Result<Vec<u8>, TooLong> {
        self.number += 1;
        let line = std::mem::take(&mut self.partial);
        if std::mem::take(&mut self.is_too_long) { Err(TooLong) } else { Ok(line) }
    }
}

/// Counts the lines of a file that get a result: those that aren't empty and, with a shard, belong to
/// it. Blocks.
///
/// # Errors
/// The file can't be read.
pub fn count_lines(path: &Path, shard: Option<Shard>) -> io::Result<u64> {
    let mut reader = BufReader::with_capacity(1 << 16, File::open(path)?);
    let mut count = 0;
    let mut line = Vec::new();
    while reader.by_ref().take(LONGEST_LINE_BYTES as u64).read_until(b'\n', &mut line)? > 0 {
        if !line.trim_ascii().is_empty() && shard.is_none_or(|shard| shard.has(&line)) {
            count += 1;
        }
        line.clear();
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use tokio::io::BufReader;

    use super::*;

    #[tokio::test]
    async fn lines_end_at_their_ends_and_at_the_end_of_the_input() {
        let mut lines = Lines::new(BufReader::new(&b"a\n\nb"[..]));
        let mut read = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            read.push(line.unwrap());
        }
        assert_eq!(read, [&b"a"[..], b"", b"b"]);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_skipped_and_reported() {
        let mut text = vec![b'x'; LONGEST_LINE_BYTES + 1];
        text.extend_from_slice(b"\nnext");
        let mut lines = Lines::new(BufReader::new(std::io::Cursor::new(text)));
        assert!(lines.next().await.unwrap().unwrap().is_err());
        assert_eq!(lines.next().await.unwrap().unwrap().unwrap(), b"next");
        assert!(lines.next().await.unwrap().is_none());
    }

    #[test]
    fn lines_with_something_in_them_are_counted() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (text, expected) in [("", 0), ("a", 1), ("\n \r\n", 0), ("a\n\n b\n{}", 3)] {
            std::fs::write(file.path(), text).unwrap();
            assert_eq!(count_lines(file.path(), None).unwrap(), expected, "{text:?}");
        }
        let of = |shard: &str| count_lines(file.path(), Some(shard.parse().unwrap())).unwrap();
        assert_eq!(of("1/2") + of("2/2"), 3);
    }
}
