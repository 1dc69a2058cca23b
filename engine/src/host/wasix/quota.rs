//! Limits on a guest's files. The in-memory filesystem below has none and allocates any requested
//! size, which can abort the process.
//!
//! Every size is checked before the filesystem below sees it. Bytes and entries are counted over
//! the guest's life and never given back. A removed file stays in memory while it is open. So only
//! a count that never falls bounds the memory.

use std::io::{self, SeekFrom};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use wasmer_wasix::virtual_fs::mem_fs::FileSystem as MemoryFs;
use wasmer_wasix::virtual_fs::{
    AsyncRead, AsyncSeek, AsyncWrite, FileOpener, FileSystem, FsError, Metadata, OpenOptions,
    OpenOptionsConfig, ReadBuf, ReadDir, VirtualFile,
};

/// The most bytes by which all files of a guest may grow, together.
pub(super) const MOST_BYTES: u64 = 256 << 20;
/// The most files, folders and links that a guest may create.
pub(super) const MOST_ENTRIES: u64 = 10_000;
/// The most files that a guest may have open at once.
const MOST_OPEN: usize = 256;
/// The most folders in a path. Deeper trees cost time in the filesystem, and stack when they are
/// dropped.
const MOST_DEPTH: usize = 32;

/// A guest's filesystem with limits. Clones share the filesystem.
#[derive(Debug, Clone, Default)]
pub(super) struct QuotaFs {
    inner: MemoryFs,
    used: Arc<Used>,
}

#[derive(Debug, Default)]
struct Used {
    bytes: AtomicU64,
    entries: AtomicU64,
    /// Each open file has a clone.
    open: Arc<()>,
}

impl Used {
    /// Adds `amount` to a counter that may reach `most`.
    fn take(counter: &AtomicU64, amount: u64, most: u64) -> Result<(), FsError> {
        let add = |used: u64| used.checked_add(amount).filter(|used| *used <= most);
        let taken = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        taken.map(drop).map_err(|_| FsError::StorageFull)
    }

    /// Charges the growth of a file from `size` to `end` bytes.
    fn grow(&self, size: u64, end: u64) -> Result<(), FsError> {
        Self::take(&self.bytes, end.saturating_sub(size), MOST_BYTES)
    }
}

impl QuotaFs {
    /// Returns the filesystem without limits, for files that the host itself puts there.
    pub(super) fn unbounded(&self) -> &MemoryFs {
        &self.inner
    }

    /// Returns the number of folder levels below `path`, including `path` itself.
    fn height(&self, path: &Path) -> usize {
        let mut highest = 0;
        let mut folders = vec![(path.to_owned(), 1)];
        while let Some((folder, level)) = folders.pop() {
            highest = highest.max(level);
            let Ok(entries) = self.inner.read_dir(&folder) else { continue };
            for entry in entries.flatten() {
                if entry.metadata.as_ref().is_ok_and(|metadata| metadata.ft.dir) {
                    folders.push((entry.path.clone(), level + 1));
                }
            }
        }
        highest
    }
}

fn check_depth(path: &Path, below: usize) -> Result<(), FsError> {
    if path.components().count() + below > MOST_DEPTH {
        return Err(FsError::InvalidInput);
    }
    Ok(())
}

impl FileSystem for QuotaFs {
    fn readlink(&self, path: &Path) -> Result<PathBuf, FsError> {
        self.inner.readlink(path)
    }

    fn read_dir(&self, path: &Path) -> Result<ReadDir, FsError> {
        self.inner.read_dir(path)
    }

    fn create_dir(&self, path: &Path) -> Result<(), FsError> {
        check_depth(path, 0)?;
        Used::take(&self.used.entries, 1, MOST_ENTRIES)?;
        self.inner.create_dir(path)
    }

    fn create_symlink(&self, source: &Path, target: &Path) -> Result<(), FsError> {
        check_depth(target, 0)?;
        Used::take(&self.used.entries, 1, MOST_ENTRIES)?;
        FileSystem::create_symlink(&self.inner, source, target)
    }

    fn hard_link(&self, _source: &Path, _target: &Path) -> Result<(), FsError> {
        Err(FsError::Unsupported)
    }

    fn remove_dir(&self, path: &Path) -> Result<(), FsError> {
        self.inner.remove_dir(path)
    }

    fn rename<'a>(
        &'a self,
        from: &'a Path,
        to: &'a Path,
    ) -> Pin<Box<dyn Future<Output = Result<(), FsError>> + Send + 'a>> {
        match check_depth(to, self.height(from)) {
            Ok(()) => self.inner.rename(from, to),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn metadata(&self, path: &Path) -> Result<Metadata, FsError> {
        self.inner.metadata(path)
    }

    fn symlink_metadata(&self, path: &Path) -> Result<Metadata, FsError> {
        self.inner.symlink_metadata(path)
    }

    fn remove_file(&self, path: &Path) -> Result<(), FsError> {
        self.inner.remove_file(path)
    }

    fn new_open_options(&self) -> OpenOptions<'_> {
        OpenOptions::new(self)
    }
}

impl FileOpener for QuotaFs {
    fn open(
        &self,
        path: &Path,
        config: &OpenOptionsConfig,
    ) -> Result<Box<dyn VirtualFile + Send + Sync + 'static>, FsError> {
        check_depth(path, 0)?;
        let is_made = (config.create || config.create_new) && self.inner.metadata(path).is_err();
        if is_made {
            Used::take(&self.used.entries, 1, MOST_ENTRIES)?;
        }
        if Arc::strong_count(&self.used.open) > MOST_OPEN {
            return Err(FsError::StorageFull);
        }
        let (used, open) = (Arc::clone(&self.used), Arc::clone(&self.used.open));
        let file = FileOpener::open(&self.inner, path, config)?;
        Ok(Box::new(QuotaFile { file, cursor: 0, used, _open: open }))
    }
}

/// An open file whose growth is counted.
#[derive(Debug)]
struct QuotaFile {
    file: Box<dyn VirtualFile + Send + Sync + 'static>,
    /// Where the next write begins. Invariant: the position after the last completed operation.
    cursor: u64,
    used: Arc<Used>,
    _open: Arc<()>,
}

impl AsyncRead for QuotaFile {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.file).poll_read(context, buffer);
        self.cursor = self.cursor.saturating_add((buffer.filled().len() - before) as u64);
        polled
    }
}

impl AsyncWrite for QuotaFile {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let size = self.file.size();
        let end = self.cursor.saturating_add(bytes.len() as u64);
        if self.used.grow(size, end).is_err() {
            return Poll::Ready(Err(io::ErrorKind::StorageFull.into()));
        }
        let polled = Pin::new(&mut self.file).poll_write(context, bytes);
        if let Poll::Ready(Ok(written)) = polled {
            self.cursor = self.cursor.saturating_add(written as u64);
            // A file opened for appending grew by what was written, wherever the cursor was.
            let surplus = self.file.size().saturating_sub(end.max(size));
            self.used.bytes.fetch_add(surplus, Ordering::Relaxed);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.file).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.file).poll_shutdown(context)
    }
}

impl AsyncSeek for QuotaFile {
    fn start_seek(mut self: Pin<&mut Self>, position: SeekFrom) -> io::Result<()> {
        Pin::new(&mut self.file).start_seek(position)
    }

    fn poll_complete(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<u64>> {
        let polled = Pin::new(&mut self.file).poll_complete(context);
        if let Poll::Ready(Ok(cursor)) = polled {
            self.cursor = cursor;
        }
        polled
    }
}

impl VirtualFile for QuotaFile {
    fn last_accessed(&self) -> u64 {
        self.file.last_accessed()
    }

    fn last_modified(&self) -> u64 {
        self.file.last_modified()
    }

    fn created_time(&self) -> u64 {
        self.file.created_time()
    }

    fn set_times(&mut self, accessed: Option<u64>, modified: Option<u64>) -> Result<(), FsError> {
        self.file.set_times(accessed, modified)
    }

    fn size(&self) -> u64 {
        self.file.size()
    }

    fn set_len(&mut self, size: u64) -> Result<(), FsError> {
        self.used.grow(self.file.size(), size)?;
        self.file.set_len(size)
    }

    fn unlink(&mut self) -> Result<(), FsError> {
        self.file.unlink()
    }

    fn is_open(&self) -> bool {
        self.file.is_open()
    }

    fn poll_read_ready(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.file.as_mut()).poll_read_ready(context)
    }

    fn poll_write_ready(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.file.as_mut()).poll_write_ready(context)
    }
}
