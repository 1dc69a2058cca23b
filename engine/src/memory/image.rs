//! The memory of an image: the bytes that every guest on it begins with.

use std::fs::File;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::address_space::is_length;
use super::segments::SegmentStore;
use super::sys::FileView;

/// The memory of an image, part of a file that is mapped once and shared.
#[derive(Debug)]
pub(crate) struct MemoryImage {
    view: FileView,
    /// Invariant E-7: begins and ends at a multiple of the page size, and lies inside the file. Its
    /// length is one that a memory can have.
    range: Range<usize>,
    /// Opened when the first session needs it.
    segments: OnceLock<Option<Arc<SegmentStore>>>,
}

impl MemoryImage {
    /// Takes `range` of the file as a memory; `None` if E-7 doesn't hold for it.
    pub(crate) fn new(view: FileView, range: Range<usize>) -> Option<Self> {
        let len = range.end.checked_sub(range.start)?;
        let is_sound = range.start.is_multiple_of(rustix::param::page_size())
            && is_length(len)
            && range.end <= view.bytes().len();
        is_sound.then(|| Self { view, range, segments: OnceLock::new() })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.view.bytes()[self.range.clone()]
    }

    pub(super) fn file(&self) -> (&File, u64) {
        (self.view.file(), self.range.start as u64)
    }

    /// Returns the store for segments of sessions on this image, if the system supports one.
    pub(super) fn segment_store(&self) -> Option<&Arc<SegmentStore>> {
        self.segments.get_or_init(SegmentStore::open).as_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::memory::{PAGE_BYTES, WASM_PAGE_BYTES};

    #[test]
    fn an_image_that_is_no_memory_or_not_in_its_file_is_refused() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 3 * WASM_PAGE_BYTES]).unwrap();
        let image = |range| {
            let view = FileView::new(file.try_clone().unwrap()).unwrap();
            MemoryImage::new(view, range)
        };
        let page = rustix::param::page_size();
        for sound in [0..3 * WASM_PAGE_BYTES, page..page + 2 * WASM_PAGE_BYTES, page..page] {
            let image = image(sound.clone()).expect("E-7 holds");
            assert_eq!(image.bytes().len(), sound.len());
            assert_eq!(image.file().1, sound.start as u64);
        }
        for (why, range) in [
            ("begins inside a page", 16..16 + WASM_PAGE_BYTES),
            ("ends inside a wasm page", 0..WASM_PAGE_BYTES + PAGE_BYTES),
            ("ends beyond the file", 0..4 * WASM_PAGE_BYTES),
            ("begins beyond the file", 4 * WASM_PAGE_BYTES..5 * WASM_PAGE_BYTES),
            ("is longer than any memory", 0..(4 << 30) + WASM_PAGE_BYTES),
            ("ends before it begins", Range { start: WASM_PAGE_BYTES, end: 0 }),
        ] {
            assert!(image(range).is_none(), "{why}");
        }
    }
}
