//! Where a batch writes its results, and what an earlier run left there.

use std::fmt;
use std::fs::OpenOptions;
use std::path::Path;

use tokio::io::{AsyncWrite, BufWriter};

use crate::earlier::{self, Earlier, Resumed};
use crate::error::Error;
use crate::results::Sink;
use crate::shard::Shard;

/// The destination of a batch's results. If it belongs to a [`Shard`], the batch runs the lines of
/// that shard alone, and each result names it.
///
/// A file is locked: no other batch writes to it until this is dropped.
#[must_use = "a batch writes its results there"]
pub struct Output {
    pub(crate) sink: Sink,
    pub(crate) earlier: Earlier,
    pub(crate) shard: Option<Shard>,
    resumed: Option<Resumed>,
}

impl Output {
    /// Writes results to a stream, such as standard output. Those that have come by then are written
    /// together, and flushed.
    ///
    /// ```
    /// let output = batch::Output::stream(tokio::io::sink(), None);
    /// assert!(output.resumed().is_none());
    /// ```
    pub fn stream(stream: impl AsyncWrite + Unpin + Send + 'static, shard: Option<Shard>) -> Self {
        let sink = Sink::Stream(Box::new(BufWriter::new(stream)));
        Self { sink, earlier: Earlier::default(), shard, resumed: None }
    }

    /// Writes results to a file, which is created or emptied; or to a pipe that has a name, whose
    /// reader this waits for.
    ///
    /// # Errors
    /// The file can't be written, or another batch writes to it.
    pub async fn create(path: &Path, shard: Option<Shard>) -> Result<Self, Error> {
        let unwritable = |source| Error::Create { path: path.to_owned(), source };
        // Not truncated before the lock shows that nobody else writes to it.
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        // Opening a pipe waits for its reader.
        let opening = tokio::fs::OpenOptions::from(options.clone());
        let file = opening.open(path).await.map_err(unwritable)?;
        if !file.metadata().await.map_err(unwritable)?.is_file() {
            // A pipe, whose reader may be slow.
            return Ok(Self::stream(file, shard));
        }
        let file = earlier::claim(file.into_std().await, path, &options)?;
        file.set_len(0).map_err(unwritable)?;
        let earlier = Earlier::default();
        Ok(Self { sink: Sink::File(file), earlier, shard, resumed: None })
    }

    /// Writes results to a file behind those that an earlier run of the batch left there, if it
    /// exists. Lines that have a final result in it don't run again.
    ///
    /// Removed from the file, so that their lines run again, are results of invalid or refused lines,
    /// of lines whose files couldn't be kept, and of jobs that the sandbox or a deadline ended; also
    /// an incomplete last result. Blocks.
    ///
    /// # Errors
    /// The file holds anything else but results of this shard, can't be read or written, or another
    /// batch writes to it.
    pub fn resume(path: &Path, shard: Option<Shard>) -> Result<Self, Error> {
        let (earlier, file, resumed) = earlier::resume(path, shard)?;
        Ok(Self { sink: Sink::File(file), earlier, shard, resumed: Some(resumed) })
    }

    /// Returns what an earlier run left; `None` if this doesn't resume.
    pub fn resumed(&self) -> Option<Resumed> {
        self.resumed
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shard, resumed) = (&self.shard, &self.resumed);
        let mut output = formatter.debug_struct("Output");
        output.field("shard", shard).field("resumed", resumed).finish_non_exhaustive()
    }
}
