//! The linear memory of one guest: an address-space reservation of which a prefix is accessible.
//!
//! Owns growth, the limit on it, what differs from the image, going back to that, and revoking
//! (taking every page away from a running guest, which is how a hard stop works). It doesn't know
//! about wasmer; `tunables.rs` adapts it.
//!
//! ```text
//!   2 GiB     image     grown    len       8 GiB + 64 KiB
//! |-------|-----------|----------|---------------------------|
//!  guard   copy-on-    zeroes     no access
//!          write
//!          ^ base      ^ end of the image
//! ```
//!
//! A session that was put aside has runs of pages of its own, which are mapped copy-on-write in
//! place of the image and of zeroes.
//!
//! wasmer compiles accesses to such a memory **without bounds checks**: a 32-bit index plus a
//! 32-bit offset plus the width of the access always lands inside the reservation. Reserving less
//! would be an escape from the sandbox (`MemoryStyle::Static` in wasmer-types 7.4.2,
//! `memory.rs`). The guard before the base costs nothing and catches a miscomputed negative
//! address.
#![expect(unsafe_code, reason = "lends bytes of a mapping; the lock is what makes that sound")]

use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use parking_lot::Mutex;

use cow::Tracker;
use image::MemoryImage;
use patch::{MemoryPatch, PAGE_BYTES, PagePatch, base_page, differing, page_in};
use runs::PageRun;

#[cfg(target_os = "linux")]
mod cow;
#[cfg(not(target_os = "linux"))]
#[path = "memory/cow_disabled.rs"]
mod cow;
pub(crate) mod image;
pub(crate) mod patch;
mod runs;
pub(crate) mod sys;

/// Bytes of a WebAssembly page.
pub(crate) const WASM_PAGE_BYTES: usize = 1 << 16;
/// The most bytes that a 32-bit memory has.
pub(crate) const MOST_BYTES: usize = 4 << 30;
/// What must follow the base: 4 GiB that an index can reach, 4 GiB that an offset can add, and
/// one page for the width of the access.
pub(crate) const RESERVED_BYTES: usize = (8 << 30) + WASM_PAGE_BYTES;
/// Inaccessible bytes before the base.
const GUARD_BEFORE_BYTES: usize = 2 << 30;
/// Copied pages that a memory keeps when it goes back to its image. They don't fault again, but
/// each is copied back every time: 1,024 take 0.3 ms, and simple programs touch 100 to 200.
const MOST_KEPT_PAGES: usize = 1024;
/// A page that no run has written to in this many runs is kept no longer.
const MOST_IDLE_RUNS: u8 = 16;
/// Restores between two looks at whether a page changed that had at the last one.
const RUNS_PER_LOOK: usize = 8;
/// A page is filled if this many of its 64 blocks differ from the image.
const FILLED_BLOCKS: u32 = 32;

/// The linear memory of one guest.
#[derive(Debug)]
pub(crate) struct GuestMemory {
    reservation: sys::Reservation,
    image: Option<Arc<MemoryImage>>,
    state: Mutex<MemoryState>,
}

#[derive(Debug)]
struct MemoryState {
    /// Accessible bytes from the base. Invariant E-1: a multiple of the wasm page, at most 4 GiB,
    /// and never grown beyond the `limit` of the time.
    len: usize,
    /// Growth beyond this is refused.
    limit: usize,
    /// The most that was asked for and refused since the run began.
    refused: Option<usize>,
    /// Invariant E-2: once true, nothing is accessible and nothing ever is again.
    revoked: bool,
    /// Knows which pages of the image were copied; without it, each may have changed.
    tracker: Option<Tracker>,
    /// For each page of the image, how often in a row it was looked at and had not changed.
    idle_runs: Vec<u8>,
    /// How often the memory was restored.
    restored: u32,
    /// Runs of a session that are mapped, in order and apart; only with a tracker.
    mapped: Vec<PageRun>,
}

impl MemoryState {
    fn new(len: usize, tracker: Option<Tracker>) -> Self {
        let idle_runs = vec![0; if tracker.is_some() { len / PAGE_BYTES } else { 0 }];
        Self {
            len,
            limit: MOST_BYTES,
            refused: None,
            revoked: false,
            tracker,
            idle_runs,
            restored: 0,
            mapped: Vec::new(),
        }
    }
}

/// Whether a memory can have this many bytes: E-1.
pub(crate) fn is_length(bytes: usize) -> bool {
    bytes.is_multiple_of(WASM_PAGE_BYTES) && bytes <= MOST_BYTES
}

fn pages_of(run: Range<usize>) -> Range<usize> {
    run.start / PAGE_BYTES..run.end / PAGE_BYTES
}

/// Runs of consecutive pages that were filled, each outside of `kept` ones; `pages` are in order,
/// with the blocks that differ.
fn filled_runs(pages: &[(usize, u64)], kept: &[PageRun]) -> Vec<Range<usize>> {
    let mut filled: Vec<Range<usize>> = Vec::new();
    for (page, blocks) in pages {
        if blocks.count_ones() < FILLED_BLOCKS || page_in(kept, *page).is_some() {
            continue;
        }
        match filled.last_mut() {
            Some(last) if last.end == *page => last.end += 1,
            _ => filled.push(*page..page + 1),
        }
    }
    filled.retain(|run| run.len() >= runs::LEAST_PAGES);
    filled
}

/// Growth was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GrowthRefused;

impl GuestMemory {
    /// Reserves the address space and makes the first `len` bytes accessible, zeroed.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        assert!(is_length(len), "E-1");
        let reservation = sys::Reservation::new(GUARD_BEFORE_BYTES, RESERVED_BYTES)?;
        reservation.make_accessible(0, len)?;
        Ok(Self { reservation, image: None, state: Mutex::new(MemoryState::new(len, None)) })
    }

    /// Reserves the address space for a memory that begins as `image`: a copy-on-write mapping of
    /// it if `is_mapped` and the system can do that, else a copy.
    pub(crate) fn over(image: Arc<MemoryImage>, is_mapped: bool) -> io::Result<Self> {
        let reservation = sys::Reservation::new(GUARD_BEFORE_BYTES, RESERVED_BYTES)?;
        let len = image.bytes().len();
        let tracker =
            if is_mapped { Tracker::open() } else { Err(io::ErrorKind::Unsupported.into()) };
        let tracker = match tracker {
            Ok(tracker) => {
                Tracker::map(&reservation, &image)?;
                Some(tracker)
            }
            Err(error) => {
                tracing::debug!(%error, "no copy-on-write here: the image is copied");
                reservation.make_accessible(0, len)?;
                // SAFETY: accessible, as of the last line, and nobody else knows of it yet.
                unsafe { reservation.with_bytes(0, len, |to| to.copy_from_slice(image.bytes())) };
                None
            }
        };
        let state = Mutex::new(MemoryState::new(len, tracker));
        Ok(Self { reservation, image: Some(image), state })
    }

    /// The address of the first byte.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.reservation.base()
    }

    /// Accessible bytes. A guest never gives memory back, so this is also its peak.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().len
    }

    /// Starts a run that may grow the memory to `limit` bytes.
    pub(crate) fn begin_run(&self, limit: usize) {
        let mut state = self.state.lock();
        state.limit = limit;
        state.refused = None;
    }

    /// What the run asked for at most and was refused, in bytes.
    pub(crate) fn refused(&self) -> Option<usize> {
        self.state.lock().refused
    }

    /// Makes `delta` more bytes accessible and returns the length before.
    pub(crate) fn grow(&self, delta: usize) -> Result<usize, GrowthRefused> {
        let mut state = self.state.lock();
        let len = state.len.checked_add(delta).ok_or(GrowthRefused)?;
        if state.revoked || len > state.limit || len > MOST_BYTES {
            state.refused = state.refused.max(Some(len));
            return Err(GrowthRefused);
        }
        self.reservation.make_accessible(state.len, delta).map_err(|error| {
            tracing::warn!(%error, len, "the system refused memory for a guest");
            GrowthRefused
        })?;
        Ok(std::mem::replace(&mut state.len, len))
    }

    /// Lends the bytes at `at` to `work`; `None` if they aren't all accessible.
    ///
    /// Only for host functions, on the thread of the guest that called them: the guest waits
    /// meanwhile. `work` must not use this memory in another way.
    pub(crate) fn with_bytes<T>(
        &self,
        at: u32,
        len: u32,
        work: impl FnOnce(&mut [u8]) -> T,
    ) -> Option<T> {
        let state = self.state.lock();
        let (at, len) = (at as usize, len as usize);
        if state.revoked || at + len > state.len {
            return None;
        }
        // SAFETY: accessible, as just checked, for as long as the lock is held. The guest waits for
        // the host function that calls this, and whoever else reaches in takes the same lock.
        Some(unsafe { self.reservation.with_bytes(at, len, work) })
    }

    /// Lends all bytes to `work`; `None` if the memory was taken away.
    ///
    /// For the thread of the guest, between runs.
    pub(crate) fn with_all<T>(&self, work: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let state = self.state.lock();
        if state.revoked {
            return None;
        }
        // SAFETY: as in `with_bytes`, and no guest runs.
        Some(unsafe { self.reservation.with_bytes(0, state.len, |bytes| work(bytes)) })
    }

    /// Lends the word at `at`, which the guest may be changing; `None` if it isn't accessible or
    /// aligned.
    pub(crate) fn with_word<T>(&self, at: u32, work: impl FnOnce(&AtomicU32) -> T) -> Option<T> {
        let mut state = self.state.lock();
        let at = at as usize;
        if let Some(tracker) = &mut state.tracker {
            // This may be another thread than the guest's, and copies the page.
            tracker.forget();
        }
        if state.revoked || at + 4 > state.len || !at.is_multiple_of(4) {
            return None;
        }
        // SAFETY: accessible, as just checked, for as long as the lock is held.
        Some(unsafe { self.reservation.with_word(at, work) })
    }

    /// What differs from the image. Pages that are as in `before` share what that holds of them.
    /// Long runs of pages that were filled go to where other memories can map them from, and this
    /// one does from now on.
    ///
    /// For the thread of the guest, between runs.
    ///
    /// # Errors
    /// The memory was taken away or has no image, or the system doesn't tell what was copied.
    pub(crate) fn patch(&self, before: &MemoryPatch) -> io::Result<MemoryPatch> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let (image, copied) = self.copied(state)?;
        let mut pages: Vec<usize> = copied.into_iter().flat_map(pages_of).collect();
        // A run that was written to in many places is none any more.
        let (kept, rewritten): (Vec<PageRun>, Vec<PageRun>) =
            state.mapped.iter().cloned().partition(|run| {
                let first = pages.partition_point(|page| *page < run.pages().start);
                let after = pages.partition_point(|page| *page < run.pages().end);
                2 * (after - first) <= run.pages().len()
            });
        if !rewritten.is_empty() {
            pages.extend(rewritten.iter().flat_map(PageRun::pages));
            pages.sort_unstable();
            pages.dedup();
        }
        let store = image.runs().filter(|_| state.tracker.is_some());
        let bytes = image.bytes();
        // SAFETY: accessible, and the guest doesn't run; the lock keeps everybody else out.
        let (mut runs, pages) = unsafe {
            self.reservation.with_bytes(0, state.len, |memory| {
                let now = |page: usize| &memory[page * PAGE_BYTES..(page + 1) * PAGE_BYTES];
                let differing = |page| (page, differing(base_page(bytes, &kept, page), now(page)));
                let pages: Vec<(usize, u64)> = pages.into_iter().map(differing).collect();
                let room =
                    if store.is_some() { runs::MOST_RUNS.saturating_sub(kept.len()) } else { 0 };
                let filled = filled_runs(&pages, &kept).into_iter().take(room);
                let fresh: Vec<PageRun> = filled
                    .filter_map(|run| {
                        let bytes = &memory[run.start * PAGE_BYTES..run.end * PAGE_BYTES];
                        store?.put(u32::try_from(run.start).expect("E-1"), bytes)
                    })
                    .collect();
                let others = pages.into_iter().filter(|(page, _)| page_in(&fresh, *page).is_none());
                let patches = others
                    .filter_map(|(page, blocks)| {
                        let number = u32::try_from(page).expect("E-1");
                        PagePatch::of(number, blocks, now(page), before.page(number))
                    })
                    .collect();
                (fresh, patches)
            })
        };
        for run in &runs {
            self.map_run(state, run)?;
        }
        runs.extend(kept);
        runs.sort_unstable_by_key(|run| run.pages().start);
        Ok(MemoryPatch { len: state.len, runs, pages })
    }

    /// Makes the memory the image with `patch`, whatever it was before. What was grown beyond is
    /// returned to the system.
    ///
    /// For the thread of the guest, between runs.
    ///
    /// # Errors
    /// As `patch`. The memory is then neither what it was nor what it was to be.
    pub(crate) fn restore(&self, patch: &MemoryPatch) -> io::Result<()> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let (image, copied) = self.copied(state)?;
        for run in std::mem::take(&mut state.mapped) {
            if patch.runs.contains(&run) {
                state.mapped.push(run);
            } else {
                self.unmap(image, run.pages())?;
            }
        }
        let bytes = image.bytes();
        self.reservation.give_back(bytes.len(), state.len - bytes.len())?;
        let len = patch.len.max(bytes.len());
        if len < state.len {
            self.reservation.make_inaccessible(len, state.len - len)?;
        } else {
            self.reservation.make_accessible(state.len, len - state.len)?;
        }
        let grown = state.len - bytes.len();
        state.len = len;
        let count: usize = copied.iter().map(|run| run.len() / PAGE_BYTES).sum();
        let mut is_known = patch.runs.is_empty() && patch.pages.is_empty() && grown == 0;
        if state.tracker.is_some() && count > MOST_KEPT_PAGES + patch.pages.len() {
            self.reservation.give_back(0, bytes.len())?;
            is_known = false;
        } else {
            for pages in self.put_back(state, bytes, &copied, patch) {
                self.reservation.give_back(pages.start * PAGE_BYTES, pages.len() * PAGE_BYTES)?;
                is_known = false;
            }
        }
        for run in &patch.runs {
            if state.tracker.is_none() {
                let at = run.pages().start * PAGE_BYTES;
                let bytes = run.bytes();
                // SAFETY: as in `patch`.
                unsafe {
                    self.reservation.with_bytes(at, bytes.len(), |to| to.copy_from_slice(bytes))
                };
            } else if !state.mapped.contains(run) {
                self.map_run(state, run)?;
            }
        }
        // SAFETY: as in `patch`.
        unsafe {
            self.reservation.with_bytes(0, len, |memory| {
                for patch in &patch.pages {
                    let at = patch.page as usize * PAGE_BYTES;
                    patch.apply(&mut memory[at..at + PAGE_BYTES]);
                }
            });
        }
        if let Some(tracker) = &mut state.tracker
            && is_known
        {
            tracker.remember(copied);
        }
        Ok(())
    }

    /// Maps `run` where it belongs, over what is there, which is the same or of no use.
    fn map_run(&self, state: &mut MemoryState, run: &PageRun) -> io::Result<()> {
        let (file, offset) = run.file();
        self.reservation.map_copy(
            run.pages().start * PAGE_BYTES,
            run.bytes().len(),
            file,
            offset,
        )?;
        let mapped = std::mem::take(&mut state.mapped);
        state.mapped.extend(mapped.iter().flat_map(|other| other.without(run.pages())));
        state.mapped.push(run.clone());
        state.mapped.sort_unstable_by_key(|run| run.pages().start);
        Ok(())
    }

    /// Makes pages what they are without runs.
    fn unmap(&self, image: &MemoryImage, pages: Range<usize>) -> io::Result<()> {
        let (start, end) = (pages.start * PAGE_BYTES, pages.end * PAGE_BYTES);
        let in_image = image.bytes().len().clamp(start, end);
        let (file, offset) = image.file();
        self.reservation.map_copy(start, in_image - start, file, offset + start as u64)?;
        self.reservation.map_zeroes(in_image, end - in_image)
    }

    /// Makes pages that were copied as they are in the image, but for those that `patch` replaces,
    /// and says which of them nobody has written to for long.
    fn put_back(
        &self,
        state: &mut MemoryState,
        image: &[u8],
        copied: &[Range<usize>],
        patch: &MemoryPatch,
    ) -> Vec<Range<usize>> {
        let is_replaced = |page: usize| {
            let patched = u32::try_from(page).ok().and_then(|number| patch.page(number));
            patched.is_some_and(PagePatch::is_whole)
                || (page_in(&patch.runs, page).is_some() && page_in(&state.mapped, page).is_none())
        };
        state.restored = state.restored.wrapping_add(1);
        let round = state.restored as usize;
        // Comparing takes as long as copying does, so that pages of the last run are just copied,
        // and compared only now and then.
        let is_looked_at = |page: usize| (page + round).is_multiple_of(RUNS_PER_LOOK);
        let mut unused: Vec<Range<usize>> = Vec::new();
        let within = |run: &Range<usize>| run.start..run.end.min(image.len());
        let pages = copied.iter().map(within).flat_map(pages_of);
        let is_plain = patch.pages.is_empty() && patch.runs.is_empty();
        let pages = pages.filter(|page| is_plain || !is_replaced(*page));
        // SAFETY: as in `patch`.
        unsafe {
            self.reservation.with_bytes(0, image.len(), |memory| {
                for page in pages {
                    let now = &mut memory[page * PAGE_BYTES..(page + 1) * PAGE_BYTES];
                    let base = base_page(image, &state.mapped, page);
                    let idle = state.idle_runs.get_mut(page);
                    if idle.as_ref().is_some_and(|idle| **idle == 0) && !is_looked_at(page) {
                        now.copy_from_slice(base);
                        continue;
                    }
                    let is_changed = *now != *base;
                    if is_changed {
                        now.copy_from_slice(base);
                    }
                    let Some(idle) = idle else { continue };
                    *idle = if is_changed { 0 } else { *idle + 1 };
                    if *idle > MOST_IDLE_RUNS {
                        *idle = 0;
                        match unused.last_mut() {
                            Some(last) if last.end == page => last.end += 1,
                            _ => unused.push(page..page + 1),
                        }
                    }
                }
            });
        }
        unused
    }

    /// The runs of offsets that may differ from what is mapped, in order, and the image.
    fn copied(&self, state: &mut MemoryState) -> io::Result<(&MemoryImage, Vec<Range<usize>>)> {
        let image = self.image.as_deref().filter(|_| !state.revoked);
        let image =
            image.ok_or_else(|| io::Error::other("the memory has no image to go back to"))?;
        let copied = match &mut state.tracker {
            Some(tracker) => tracker.copied(&self.reservation, 0..state.len)?,
            None => std::iter::once(0..state.len).collect(),
        };
        Ok((image, copied))
    }

    /// Takes the whole memory away: the next access of the running guest faults and becomes a
    /// trap. The caller guarantees that no host code touches the memory from now on
    /// (`interrupt.rs` does).
    pub(crate) fn revoke(&self) {
        let mut state = self.state.lock();
        if state.revoked {
            return;
        }
        state.revoked = true;
        if let Err(error) = self.reservation.make_inaccessible(0, state.len) {
            // Only a process that is out of mappings gets here; the guest then runs on until a
            // second stop.
            tracing::error!(%error, "can't revoke the memory of a guest");
            state.revoked = false;
        }
    }

    /// Whether the memory was taken away.
    pub(crate) fn is_revoked(&self) -> bool {
        self.state.lock().revoked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_stops_at_the_limit() {
        let memory = GuestMemory::new(WASM_PAGE_BYTES).unwrap();
        memory.begin_run(3 * WASM_PAGE_BYTES);
        assert_eq!(memory.grow(WASM_PAGE_BYTES), Ok(WASM_PAGE_BYTES));
        assert_eq!(memory.grow(2 * WASM_PAGE_BYTES), Err(GrowthRefused));
        assert_eq!(memory.grow(WASM_PAGE_BYTES), Ok(2 * WASM_PAGE_BYTES));
        assert_eq!(memory.len(), 3 * WASM_PAGE_BYTES);
    }

    #[test]
    fn absurd_growth_is_refused() {
        let memory = GuestMemory::new(WASM_PAGE_BYTES).unwrap();
        assert_eq!(memory.grow(usize::MAX), Err(GrowthRefused));
        assert_eq!(memory.grow(4 << 30), Err(GrowthRefused));
    }

    #[test]
    fn a_revoked_memory_never_grows_again() {
        let memory = GuestMemory::new(WASM_PAGE_BYTES).unwrap();
        memory.revoke();
        memory.revoke();
        assert!(memory.is_revoked());
        assert_eq!(memory.grow(WASM_PAGE_BYTES), Err(GrowthRefused));
    }

    const IMAGE_PAGES: usize = 64;

    /// An image of pages that differ, in a file behind a header.
    fn image() -> Arc<MemoryImage> {
        use std::io::Write;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[9; WASM_PAGE_BYTES]).unwrap();
        for page in 0..IMAGE_PAGES {
            file.write_all(&[page as u8; PAGE_BYTES]).unwrap();
        }
        let len = IMAGE_PAGES * PAGE_BYTES;
        let view = sys::FileView::new(file).unwrap();
        Arc::new(MemoryImage::new(view, WASM_PAGE_BYTES..WASM_PAGE_BYTES + len).unwrap())
    }

    fn poke(memory: &GuestMemory, at: usize, byte: u8) {
        memory.with_bytes(at as u32, 1, |bytes| bytes[0] = byte).unwrap();
    }

    fn everything(memory: &GuestMemory) -> Vec<u8> {
        memory.with_all(<[u8]>::to_vec).unwrap()
    }

    /// Every way in which a memory knows what it copied.
    fn over(image: &Arc<MemoryImage>) -> [GuestMemory; 3] {
        let mapped = GuestMemory::over(Arc::clone(image), true).unwrap();
        let by_words = GuestMemory::over(Arc::clone(image), true).unwrap();
        if let Some(tracker) = &mut by_words.state.lock().tracker {
            tracker.without_scan();
        }
        [mapped, by_words, GuestMemory::over(Arc::clone(image), false).unwrap()]
    }

    #[test]
    fn a_memory_goes_back_to_its_image_whatever_was_done_to_it() {
        let image = image();
        let pristine = MemoryPatch { len: image.bytes().len(), ..MemoryPatch::default() };
        for memory in over(&image) {
            assert!(everything(&memory) == image.bytes());
            for round in 0..3 {
                for page in (0..IMAGE_PAGES).step_by(1 + round) {
                    poke(&memory, page * PAGE_BYTES + 17, 200);
                }
                memory.grow(2 * WASM_PAGE_BYTES).unwrap();
                poke(&memory, image.bytes().len() + 5, 1);
                memory.restore(&pristine).unwrap();
                assert!(everything(&memory) == image.bytes());
            }
            memory.grow(WASM_PAGE_BYTES).unwrap();
            assert!(everything(&memory)[image.bytes().len()..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn more_pages_than_are_kept_go_back_as_well() {
        use std::io::Write;
        let len = 2 * MOST_KEPT_PAGES * PAGE_BYTES;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![3; len]).unwrap();
        let view = sys::FileView::new(file).unwrap();
        let image = Arc::new(MemoryImage::new(view, 0..len).unwrap());
        let memory = GuestMemory::over(Arc::clone(&image), true).unwrap();
        memory.with_bytes(0, len as u32, |bytes| bytes.fill(4)).unwrap();
        let pristine = MemoryPatch { len, ..MemoryPatch::default() };
        memory.restore(&pristine).unwrap();
        assert!(everything(&memory) == image.bytes());
        assert_eq!(memory.patch(&pristine).unwrap(), pristine);
    }

    #[test]
    fn what_was_changed_moves_to_another_memory() {
        let image = image();
        let pristine = MemoryPatch { len: image.bytes().len(), ..MemoryPatch::default() };
        for from in over(&image) {
            for at in [0, 3 * PAGE_BYTES + 100, image.bytes().len() - 1] {
                poke(&from, at, 201);
            }
            from.grow(WASM_PAGE_BYTES).unwrap();
            poke(&from, image.bytes().len() + WASM_PAGE_BYTES - 1, 202);
            let patch = from.patch(&pristine).unwrap();
            assert!(patch.is_sound());
            assert_eq!(patch.pages.len(), 4);
            let again = from.patch(&patch).unwrap();
            let is_shared = |(a, b): (&PagePatch, &PagePatch)| Arc::ptr_eq(&a.bytes, &b.bytes);
            assert!(patch.pages.iter().zip(&again.pages).all(is_shared));
            for to in over(&image) {
                poke(&to, 5 * PAGE_BYTES, 203);
                to.restore(&patch).unwrap();
                assert!(everything(&to) == everything(&from));
                to.restore(&pristine).unwrap();
                assert!(everything(&to) == image.bytes());
            }
        }
    }

    #[test]
    fn a_memory_without_an_image_has_nothing_to_go_back_to() {
        let memory = GuestMemory::new(WASM_PAGE_BYTES).unwrap();
        assert!(memory.restore(&MemoryPatch::default()).is_err());
        let [memory, ..] = over(&image());
        memory.revoke();
        assert!(memory.patch(&MemoryPatch::default()).is_err());
    }

    #[test]
    fn the_reservation_covers_every_address_that_wasm_can_form() {
        let furthest = u64::from(u32::MAX) + u64::from(u32::MAX) + 16;
        assert!(RESERVED_BYTES as u64 > furthest);
        assert_eq!(
            RESERVED_BYTES as u64,
            (4 << 30) + wasmer_static_guard(),
            "wasmer changed its layout"
        );
    }

    fn wasmer_static_guard() -> u64 {
        wasmer::sys::vm::MemoryStyle::Static.offset_guard_size()
    }
}
