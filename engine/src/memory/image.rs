//! The memory of an image: the bytes that every guest on it begins with.

use std::fs::File;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::runs::RunStore;
use super::sys::FileView;

/// The memory of an image, part of a file that is mapped once and shared.
#[derive(Debug)]
pub(crate) struct MemoryImage {
    view: FileView,
    /// Invariant E-7: a multiple of the page size at both ends, of the wasm page in length, and
    /// inside the file.
    range: Range<usize>,
    /// Made when the first session wants it.
    runs: OnceLock<Option<Arc<RunStore>>>,
}

impl MemoryImage {
    /// `range` of the file; `None` if it can't be mapped as a memory, which E-7 says.
    pub(crate) fn new(view: FileView, range: Range<usize>) -> Option<Self> {
        let len = range.end.checked_sub(range.start)?;
        let is_sound = range.start.is_multiple_of(rustix::param::page_size())
            && super::is_length(len)
            && range.end <= view.bytes().len();
        is_sound.then(|| Self { view, range, runs: OnceLock::new() })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.view.bytes()[self.range.clone()]
    }

    /// The file, and where the memory begins in it.
    pub(super) fn file(&self) -> (&File, u64) {
        (self.view.file(), self.range.start as u64)
    }

    /// Where sessions on this image keep long runs of pages, if the system has such a place.
    pub(super) fn runs(&self) -> Option<&Arc<RunStore>> {
        self.runs.get_or_init(RunStore::open).as_ref()
    }
}
