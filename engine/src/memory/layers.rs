//! What a memory holds beyond its image: taking it out as a patch, and putting a patch in.
//!
//! Below the pages that were written to lie the runs that are mapped, below those the image, and
//! below that zeroes.
#![expect(unsafe_code, reason = "lends bytes of a mapping; the lock is what makes that sound")]

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::cow::Tracker;
use super::image::MemoryImage;
use super::patch::{MemoryPatch, PAGE_BYTES, PagePatch, base_page, differing, page_in};
use super::runs::{self, PageRun};
use super::{GuestMemory, MemoryState};

/// Copied pages that a memory keeps when it goes back to its image. They don't fault again, but
/// each is copied back every time: 1,024 take 0.3 ms, and simple programs touch 100 to 200.
const MOST_KEPT_PAGES: usize = 1024;
/// A page that no run has written to in this many runs is kept no longer.
const MOST_IDLE_RUNS: u8 = 16;
/// Restores between two looks at whether a page changed that had at the last one.
const RUNS_PER_LOOK: usize = 8;
/// A page is filled if this many of its 64 blocks differ from the image.
const FILLED_BLOCKS: u32 = 32;

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

/// The runs that stay what they are. One that was written to in many places is none any more, and
/// all its pages are added to `pages`, which are those that were written to besides those of
/// `patched`. It stays mapped, and is none the next time either, whatever is written to it.
fn kept_runs(state: &MemoryState, pages: &mut Vec<usize>, patched: &[PagePatch]) -> Vec<PageRun> {
    let stays = |run: &PageRun| {
        let own = run.pages();
        let first = pages.partition_point(|page| *page < own.start);
        let written = pages[first..].partition_point(|page| *page < own.end);
        let patched = patched.iter().filter(|patch| own.contains(&(patch.page as usize)));
        state.held.runs.contains(run) && 2 * (written + patched.count()) <= own.len()
    };
    let (kept, rewritten): (Vec<PageRun>, Vec<PageRun>) =
        state.mapped.iter().cloned().partition(stays);
    if !rewritten.is_empty() {
        pages.extend(rewritten.iter().flat_map(PageRun::pages));
        pages.sort_unstable();
        pages.dedup();
    }
    kept
}

impl GuestMemory {
    /// What differs from the image. Pages that are as they were when the memory was last made or
    /// found to be something share what that holds of them. Long runs of pages that were filled go
    /// to where other memories can map them from, and this one does from now on.
    ///
    /// For the thread of the guest, between runs.
    ///
    /// # Errors
    /// The memory was taken away or has no image, or the system doesn't tell what was copied.
    pub(crate) fn patch(&self) -> io::Result<Arc<MemoryPatch>> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let len = state.len;
        let written = match &mut state.tracker {
            Some(tracker) if !state.revoked => tracker.written(&self.reservation, 0..len),
            _ => None,
        };
        let (before, is_marked) = (Arc::clone(&state.held), written.is_some());
        let (image, written, unwritten) = match written {
            Some(written) => (self.image_of(state)?, written, &before.pages[..]),
            None => {
                let (image, copied) = self.copied(state)?;
                (image, copied, &[][..])
            }
        };
        let mut pages: Vec<usize> = written.into_iter().flat_map(pages_of).collect();
        let kept = kept_runs(state, &mut pages, unwritten);
        let store = image.runs().filter(|_| state.tracker.is_some());
        let room = store.map_or(0, |_| runs::MOST_RUNS.saturating_sub(kept.len()));
        let image = image.bytes();
        // SAFETY: accessible, and the guest doesn't run; the lock keeps everybody else out.
        let (mut runs, mut patches) = unsafe {
            self.reservation.with_bytes(0, len, |memory| {
                let now = |page: usize| &memory[page * PAGE_BYTES..(page + 1) * PAGE_BYTES];
                let differing = |page| (page, differing(base_page(image, &kept, page), now(page)));
                let pages: Vec<(usize, u64)> = pages.iter().copied().map(differing).collect();
                let filled = filled_runs(&pages, &kept).into_iter().take(room);
                let fresh = filled.filter_map(|run| {
                    let bytes = &memory[run.start * PAGE_BYTES..run.end * PAGE_BYTES];
                    store?.put(u32::try_from(run.start).expect("E-1"), bytes)
                });
                let fresh: Vec<PageRun> = fresh.collect();
                let others = pages.into_iter().filter(|(page, _)| page_in(&fresh, *page).is_none());
                let patches = others.filter_map(|(page, blocks)| {
                    let number = u32::try_from(page).expect("E-1");
                    PagePatch::of(number, blocks, now(page), before.page(number))
                });
                let patches: Vec<PagePatch> = patches.collect();
                (fresh, patches)
            })
        };
        let is_as_before = |patch: &&PagePatch| {
            let page = patch.page as usize;
            pages.binary_search(&page).is_err() && page_in(&runs, page).is_none()
        };
        patches.extend(unwritten.iter().filter(is_as_before).cloned());
        patches.sort_by_key(|patch| patch.page);
        let has_fresh = !runs.is_empty();
        for run in &runs {
            self.map_run(state, run)?;
        }
        runs.extend(kept);
        runs.sort_unstable_by_key(|run| run.pages().start);
        state.held = Arc::new(MemoryPatch { len, runs, pages: patches });
        state.taken_out += 1;
        match &mut state.tracker {
            Some(tracker) if is_marked && !has_fresh => tracker.stay_marked(),
            // Marking takes as long as comparing does, for nothing if the memory goes to another
            // session now.
            Some(tracker) if state.taken_out > 1 => tracker.mark(&self.reservation, 0..len),
            _ => {}
        }
        Ok(Arc::clone(&state.held))
    }

    /// Makes the memory the image with `patch`, whatever it was before. What was grown beyond is
    /// returned to the system.
    ///
    /// For the thread of the guest, between runs.
    ///
    /// # Errors
    /// As `patch`. The memory is then neither what it was nor what it was to be.
    pub(crate) fn restore(&self, patch: &Arc<MemoryPatch>) -> io::Result<()> {
        let mut state = self.state.lock();
        let state = &mut *state;
        if let Some(tracker) = &mut state.tracker {
            tracker.unmark();
        }
        let (image, copied) = self.copied(state)?;
        let count: usize = copied.iter().map(|run| run.len() / PAGE_BYTES).sum();
        let keeps_copies = state.tracker.is_none() || count <= MOST_KEPT_PAGES + patch.pages.len();
        for run in std::mem::take(&mut state.mapped) {
            if keeps_copies && patch.runs.contains(&run) {
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
        let mut is_known = patch.runs.is_empty() && patch.pages.is_empty() && grown == 0;
        let mut is_done = vec![false; patch.pages.len()];
        if keeps_copies {
            // A page that is given back while it is marked would be found as one that was copied.
            let has_marks = state.tracker.as_ref().is_some_and(Tracker::has_marks);
            let unused = self.put_back(state, bytes, &copied, patch, &mut is_done);
            for pages in unused.into_iter().filter(|_| !has_marks) {
                self.reservation.give_back(pages.start * PAGE_BYTES, pages.len() * PAGE_BYTES)?;
                is_known = false;
            }
        } else {
            self.unmap(image, 0..bytes.len() / PAGE_BYTES)?;
            is_known = false;
            state.copied_bytes = 0;
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
                let missing = patch.pages.iter().zip(is_done).filter(|(_, is_done)| !is_done);
                for (patch, _) in missing {
                    let at = patch.page as usize * PAGE_BYTES;
                    patch.apply(&mut memory[at..at + PAGE_BYTES]);
                }
            });
        }
        // At least as many are copies now.
        state.copied_bytes = state.copied_bytes.max(patch.pages.len() * PAGE_BYTES);
        state.held = Arc::clone(patch);
        state.taken_out = 0;
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

    /// Makes pages that were copied what they are in the image with `patch`, notes which of its
    /// pages that were in `is_done`, and says which nobody has written to for long. Those that a
    /// run will be mapped over are left alone.
    fn put_back(
        &self,
        state: &mut MemoryState,
        image: &[u8],
        copied: &[Range<usize>],
        patch: &MemoryPatch,
        is_done: &mut [bool],
    ) -> Vec<Range<usize>> {
        let is_replaced = |page: usize| {
            page_in(&patch.runs, page).is_some() && page_in(&state.mapped, page).is_none()
        };
        let patched =
            |page: usize| patch.pages.binary_search_by_key(&page, |patch| patch.page as usize).ok();
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
                    if let Some(index) = patched(page) {
                        // In one pass, while its lines are at hand.
                        patch.pages[index].apply_over(base, now);
                        is_done[index] = true;
                        idle.into_iter().for_each(|idle| *idle = 0);
                        continue;
                    }
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;

    use crate::memory::WASM_PAGE_BYTES;
    use crate::memory::sys::FileView;

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
        let view = FileView::new(file).unwrap();
        Arc::new(MemoryImage::new(view, WASM_PAGE_BYTES..WASM_PAGE_BYTES + len).unwrap())
    }

    fn pristine(image: &MemoryImage) -> Arc<MemoryPatch> {
        Arc::new(MemoryPatch { len: image.bytes().len(), ..MemoryPatch::default() })
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
        let pristine = pristine(&image);
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
        let view = FileView::new(file).unwrap();
        let image = Arc::new(MemoryImage::new(view, 0..len).unwrap());
        let memory = GuestMemory::over(Arc::clone(&image), true).unwrap();
        memory.with_bytes(0, len as u32, |bytes| bytes.fill(4)).unwrap();
        let pristine = pristine(&image);
        memory.restore(&pristine).unwrap();
        assert!(everything(&memory) == image.bytes());
        assert_eq!(memory.patch().unwrap(), pristine);
    }

    #[test]
    fn what_was_changed_moves_to_another_memory() {
        let image = image();
        let pristine = pristine(&image);
        for from in over(&image) {
            for at in [0, 3 * PAGE_BYTES + 100, image.bytes().len() - 1] {
                poke(&from, at, 201);
            }
            from.grow(WASM_PAGE_BYTES).unwrap();
            poke(&from, image.bytes().len() + WASM_PAGE_BYTES - 1, 202);
            let patch = from.patch().unwrap();
            assert!(patch.is_sound());
            assert_eq!(patch.pages.len(), 4);
            let again = from.patch().unwrap();
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
        assert!(memory.restore(&Arc::default()).is_err());
        let [memory, ..] = over(&image());
        memory.revoke();
        assert!(memory.patch().is_err());
    }

    #[test]
    fn long_runs_are_mapped_and_not_copied() {
        let image = image();
        let [memory, by_words, unmapped] = over(&image);
        let pristine = pristine(&image);
        memory.grow(64 * WASM_PAGE_BYTES).unwrap();
        // Across the end of the image, and one that is too short.
        let filled = [40 * PAGE_BYTES..90 * PAGE_BYTES, 100 * PAGE_BYTES..110 * PAGE_BYTES];
        for range in &filled {
            let fill = |bytes: &mut [u8]| bytes.fill(170);
            memory.with_bytes(range.start as u32, range.len() as u32, fill).unwrap();
        }
        let patch = memory.patch().unwrap();
        assert!(patch.runs.iter().map(PageRun::pages).eq(std::iter::once(40..90)));
        assert_eq!((patch.pages.len(), patch.page_count()), (10, 60));
        // One page of the run is written to: the run stays.
        poke(&memory, 45 * PAGE_BYTES, 171);
        let again = memory.patch().unwrap();
        assert_eq!(again.runs, patch.runs);
        assert_eq!((again.pages.len(), again.page_count()), (11, 60));
        for to in [&by_words, &unmapped] {
            to.restore(&again).unwrap();
            assert!(everything(to) == everything(&memory));
        }
        // It is rewritten for the most part, and filled anew there.
        memory.with_bytes(42 << 12, 40 << 12, |bytes| bytes.fill(172)).unwrap();
        let rewritten = memory.patch().unwrap();
        assert!(!rewritten.runs.contains(&patch.runs[0]));
        for to in [&by_words, &unmapped] {
            to.restore(&rewritten).unwrap();
            assert!(everything(to) == everything(&memory));
        }
        memory.restore(&pristine).unwrap();
        assert!(everything(&memory) == image.bytes());
        let flat =
            MemoryPatch { len: again.len, runs: Vec::new(), pages: again.flat(image.bytes()) };
        let flat = Arc::new(flat);
        by_words.restore(&flat).unwrap();
        unmapped.restore(&again).unwrap();
        assert!(everything(&by_words) == everything(&unmapped));
    }

    /// What is unmarked, then marked: each time a few pages are written to and the memory moves.
    #[test]
    fn a_run_that_became_the_image_again_is_not_brought_back() {
        let image = image();
        let [memory, ..] = over(&image);
        let [other, ..] = over(&image);
        let fill = |byte: u8| {
            memory.with_bytes(8 << 12, 40 << 12, |bytes| bytes.fill(byte)).unwrap();
        };
        fill(170);
        assert_eq!(memory.patch().unwrap().runs.len(), 1);
        let (start, end) = (8 * PAGE_BYTES, 48 * PAGE_BYTES);
        let as_image = |bytes: &mut [u8]| bytes.copy_from_slice(&image.bytes()[start..end]);
        memory.with_bytes(start as u32, (end - start) as u32, as_image).unwrap();
        for round in 0..4 {
            poke(&memory, (50 + round) * PAGE_BYTES, 9);
            let patch = memory.patch().unwrap();
            assert!(patch.runs.is_empty());
            other.restore(&patch).unwrap();
            assert!(everything(&other) == everything(&memory), "{round}");
        }
        let is_marked = |memory: &GuestMemory| {
            let mut state = memory.state.lock();
            let tracker = state.tracker.as_mut().unwrap();
            (tracker.has_marks(), tracker.written(&memory.reservation, 0..image.bytes().len()))
        };
        if let (true, written) = is_marked(&memory) {
            assert!(written.is_some_and(|written| written.is_empty()), "nothing since");
        }
    }

    /// What one step of the test below does.
    #[derive(Debug, Clone)]
    enum Step {
        Write { memory: usize, page: usize, pages: usize, byte: u8 },
        Grow { memory: usize },
        Park { memory: usize },
        Attach { memory: usize, state: usize },
        Reset { memory: usize },
    }

    fn step() -> impl Strategy<Value = Step> {
        let memory = 0..3_usize;
        let pages = prop_oneof![1..3_usize, 16..40_usize];
        let write = (memory.clone(), 0..80_usize, pages, any::<u8>());
        prop_oneof![
            6 => write.prop_map(|(memory, page, pages, byte)| Step::Write { memory, page, pages, byte }),
            1 => memory.clone().prop_map(|memory| Step::Grow { memory }),
            3 => memory.clone().prop_map(|memory| Step::Park { memory }),
            3 => (memory.clone(), any::<usize>())
                .prop_map(|(memory, state)| Step::Attach { memory, state }),
            2 => memory.prop_map(|memory| Step::Reset { memory }),
        ]
    }

    proptest! {
        /// Three memories of one image, of every kind, against plain vectors.
        #[test]
        fn memories_hold_what_was_put_into_them(
            steps in proptest::collection::vec(step(), 1..60),
        ) {
            let image = image();
            let memories = over(&image);
            let pristine = pristine(&image);
            let mut models = [(); 3].map(|()| image.bytes().to_vec());
            let mut parked: Vec<(Arc<MemoryPatch>, Vec<u8>)> = Vec::new();
            for step in steps {
                match step {
                    Step::Write { memory, page, pages, byte } => {
                        let end = ((page + pages) * PAGE_BYTES).min(models[memory].len());
                        let start = (page * PAGE_BYTES).min(end);
                        let (at, len) = (start as u32, (end - start) as u32);
                        memories[memory].with_bytes(at, len, |bytes| bytes.fill(byte)).unwrap();
                        models[memory][start..end].fill(byte);
                    }
                    Step::Grow { memory } => {
                        let grown = models[memory].len() + WASM_PAGE_BYTES;
                        if memories[memory].grow(WASM_PAGE_BYTES).is_ok() {
                            models[memory].resize(grown, 0);
                        }
                    }
                    Step::Park { memory } => {
                        let patch = memories[memory].patch().unwrap();
                        parked.push((patch, models[memory].clone()));
                    }
                    Step::Attach { memory, state } if !parked.is_empty() => {
                        let (patch, model) = &parked[state % parked.len()];
                        memories[memory].restore(patch).unwrap();
                        models[memory].clone_from(model);
                    }
                    Step::Attach { memory, .. } | Step::Reset { memory } => {
                        memories[memory].restore(&pristine).unwrap();
                        models[memory] = image.bytes().to_vec();
                    }
                }
                for (memory, model) in memories.iter().zip(&models) {
                    prop_assert!(everything(memory) == *model);
                }
            }
        }
    }
}
