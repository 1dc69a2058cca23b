//! The offload file: one unnamed file for all offloaded sessions, which disappears with the process,
//! however that ends.
//!
//! ```text
//!  0                8192            12288                     end
//!  | extent, padded | hole          | extent, padded | ...    |
//! ```
//!
//! P-5: no two extents overlap, and without extents the file is empty.
//!
//! Extents begin at multiples of 4 KiB and are never rewritten. Each goes into the smallest hole
//! that fits, or to the end of the file. A dropped extent becomes a hole. When no extent is left
//! the file is truncated to zero bytes. The map of the file is kept in memory only.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::OwnerProcess;
use parking_lot::Mutex;
use range_alloc::RangeAllocator;
use rustix::fs::{FallocateFlags, fallocate};

/// Holes are whole disk blocks, and common filesystems have blocks of this size.
const BLOCK_BYTES: u64 = 4096;
/// File offsets are signed.
const MOST_BLOCKS: u64 = i64::MAX as u64 / BLOCK_BYTES;

/// The offload file, opened when it is first needed.
#[derive(Debug, Default)]
pub(crate) struct OffloadFile {
    folder: Option<PathBuf>,
    heap: Mutex<Option<Arc<Heap>>>,
}

#[derive(Debug)]
struct Heap {
    file: File,
    /// The blocks without an extent.
    blocks: Mutex<RangeAllocator<u64>>,
    has_failed_to_punch: AtomicBool,
    owner: OwnerProcess,
}

/// Bytes on disk. Dropping it frees their space.
#[derive(Debug)]
pub(crate) struct Extent {
    heap: Arc<Heap>,
    blocks: Range<u64>,
    len: u64,
}

impl OffloadFile {
    /// Offloads into this folder; without one, nothing can be offloaded.
    pub(crate) fn new(folder: Option<PathBuf>) -> Self {
        Self { folder, heap: Mutex::new(None) }
    }

    /// Writes `bytes` to disk.
    ///
    /// # Errors
    /// No offload folder is configured, or its disk has no space left.
    pub(crate) fn put(&self, bytes: &[u8]) -> io::Result<Extent> {
        let heap = self.heap()?;
        let len = bytes.len() as u64;
        let blocks = heap.blocks.lock().allocate_range(len.div_ceil(BLOCK_BYTES).max(1));
        let blocks = blocks.map_err(|_| io::ErrorKind::FileTooLarge)?;
        let extent = Extent { heap: Arc::clone(&heap), blocks, len };
        // If this fails, the extent is dropped, and whatever was written becomes a hole.
        heap.file.write_all_at(bytes, extent.at())?;
        Ok(extent)
    }

    fn heap(&self) -> io::Result<Arc<Heap>> {
        let mut heap = self.heap.lock();
        if let Some(heap) = &*heap {
            return Ok(Arc::clone(heap));
        }
        let no_folder = || io::Error::other("the pool has no folder to offload sessions to");
        let file = tempfile::tempfile_in(self.folder.as_ref().ok_or_else(no_folder)?)?;
        let blocks = Mutex::new(RangeAllocator::new(0..MOST_BLOCKS));
        let opened = Heap {
            file,
            blocks,
            has_failed_to_punch: false.into(),
            owner: OwnerProcess::current(),
        };
        Ok(Arc::clone(heap.insert(Arc::new(opened))))
    }
}

impl Extent {
    fn at(&self) -> u64 {
        self.blocks.start * BLOCK_BYTES
    }

    /// Returns the number of bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Reads the bytes.
    ///
    /// # Errors
    /// The disk fails.
    pub(crate) fn read(&self) -> io::Result<Vec<u8>> {
        let len = usize::try_from(self.len).expect("it was a slice");
        let mut bytes = vec![0; len];
        self.heap.file.read_exact_at(&mut bytes, self.at())?;
        Ok(bytes)
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        let heap = &self.heap;
        if !heap.owner.is_current() {
            // A copy that a fork made. The file's blocks are the parent's.
            return;
        }
        // Punch the hole before another extent may take these blocks.
        let len = self.blocks.end * BLOCK_BYTES - self.at();
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if let Err(error) = fallocate(&heap.file, flags, self.at(), len)
            && !heap.has_failed_to_punch.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(%error, "the disk only gets space back once no session is offloaded");
        }
        let mut blocks = heap.blocks.lock();
        blocks.free_range(self.blocks.clone());
        if blocks.is_empty()
            && let Err(error) = heap.file.set_len(0)
        {
            tracing::warn!(%error, "the file of offloaded sessions can't be truncated");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn disk() -> (tempfile::TempDir, OffloadFile) {
        let folder = tempfile::tempdir().unwrap();
        let disk = OffloadFile::new(Some(folder.path().to_owned()));
        (folder, disk)
    }

    fn metadata(disk: &OffloadFile) -> std::fs::Metadata {
        disk.heap().unwrap().file.metadata().unwrap()
    }

    #[test]
    fn extents_hold_what_was_put_and_do_not_overlap() {
        let (folder, disk) = disk();
        let texts: [&[u8]; 4] = [b"one", b"", &[2; 10_000], b"three"];
        let extents = texts.map(|text| disk.put(text).unwrap());
        for (extent, text) in extents.iter().zip(texts) {
            assert_eq!(extent.read().unwrap(), text);
        }
        assert_eq!(folder.path().read_dir().unwrap().count(), 0, "the file has a name");
    }

    #[test]
    fn dropped_extents_free_their_space_and_the_last_one_empties_the_file() {
        let (_folder, disk) = disk();
        let first = disk.put(&[1; 1 << 20]).unwrap();
        let second = disk.put(&[2; 1 << 20]).unwrap();
        let before = metadata(&disk);
        drop(first);
        let after = metadata(&disk);
        assert_eq!(after.len(), before.len(), "holes leave the size as it is");
        assert!(
            disk.heap().unwrap().has_failed_to_punch.load(Ordering::Relaxed)
                || after.blocks() < before.blocks(),
            "{} blocks",
            after.blocks()
        );
        assert_eq!(second.read().unwrap(), [2; 1 << 20]);
        drop(second);
        assert_eq!(metadata(&disk).len(), 0);
        let third = disk.put(b"3").unwrap();
        assert_eq!((third.at(), third.read().unwrap()), (0, b"3".to_vec()));
    }

    #[test]
    fn freed_space_is_reused() {
        let (_folder, disk) = disk();
        let lives = disk.put(&[1; 10]).unwrap();
        let mut last = disk.put(&[0; 9_000]).unwrap();
        for round in 1..100_u8 {
            let next = disk.put(&[round; 9_000]).unwrap();
            last = next;
            assert_eq!(last.read().unwrap(), [round; 9_000]);
        }
        assert_eq!(metadata(&disk).len(), (1 + 3) * BLOCK_BYTES + 9_000);
        // The two adjacent holes are merged.
        drop(last);
        let large = disk.put(&[2; 7 * BLOCK_BYTES as usize]).unwrap();
        assert_eq!((large.at(), lives.read().unwrap()), (BLOCK_BYTES, vec![1; 10]));
    }

    #[test]
    fn without_a_folder_nothing_is_offloaded() {
        let error = OffloadFile::default().put(b"1").unwrap_err();
        assert!(error.to_string().contains("no folder"), "{error}");
        assert!(OffloadFile::new(Some("/nonexistent/folder".into())).put(b"1").is_err());
    }

    #[test]
    fn extents_are_put_and_dropped_from_many_threads() {
        let (_folder, disk) = disk();
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let disk = &disk;
                scope.spawn(move || {
                    for round in 0..50 {
                        let text = vec![thread; 1 + round * 97];
                        let extent = disk.put(&text).unwrap();
                        assert_eq!(extent.read().unwrap(), text);
                    }
                });
            }
        });
        assert_eq!(metadata(&disk).len(), 0);
    }
}
