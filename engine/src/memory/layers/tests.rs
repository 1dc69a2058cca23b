//! Memories of one image, whose states are taken out and put into each other.

use std::sync::Arc;

use proptest::prelude::*;

use super::restore::MOST_KEPT_PAGES;
use super::*;
use crate::memory::WASM_PAGE_BYTES;
use crate::memory::idle::{FEW_PAGES, MOST_RUNS, MOST_RUNS_OF_FEW};
use crate::memory::pace::MarkingPolicy;
use crate::memory::patch::{MemoryPatch, PagePatch};
use crate::memory::snapshot::Snapshot;
use crate::memory::sys::FileView;

mod evicted;
mod mappings;
mod marking;

const IMAGE_PAGES: usize = 64;

/// Marks the pages of sessions from their second turn on, in many parts.
const EARLY: MarkingPolicy =
    MarkingPolicy { unmarked_bytes: 41 * PAGE_BYTES, compared_pages: 7, pages: 16 };

/// An image of equal pages.
fn plain_image(pages: usize) -> Arc<MemoryImage> {
    use std::io::Write;
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&vec![3; pages * PAGE_BYTES]).unwrap();
    let view = FileView::new(file).unwrap();
    Arc::new(MemoryImage::new(view, 0..pages * PAGE_BYTES).unwrap())
}

/// An image of pages that differ from each other, in a file behind a header.
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

/// A memory for each way of finding copied pages.
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
    let image = plain_image(2 * MOST_KEPT_PAGES);
    let memory = GuestMemory::over(Arc::clone(&image), true).unwrap();
    let len = image.bytes().len() as u32;
    memory.with_bytes(0, len, |bytes| bytes.fill(4)).unwrap();
    let pristine = pristine(&image);
    memory.restore(&pristine).unwrap();
    assert!(everything(&memory) == image.bytes());
    assert_eq!(memory.patch().unwrap(), pristine);
}

#[test]
fn idle_pages_are_kept_for_long_only_where_they_are_few() {
    // Returns how many pages are copied after runs that write to one page. One run before them
    // wrote to `written` pages.
    let kept = |written: usize| {
        let image = plain_image(8 * FEW_PAGES);
        let memory = GuestMemory::over(Arc::clone(&image), true).unwrap();
        let fill = |bytes: &mut [u8]| bytes.fill(4);
        memory.with_bytes(0, (written * PAGE_BYTES) as u32, fill).unwrap();
        let pristine = pristine(&image);
        for _ in 0..2 * usize::from(MOST_RUNS) {
            memory.restore(&pristine).unwrap();
            assert!(everything(&memory) == image.bytes());
            poke(&memory, 0, 5);
        }
        memory.restore(&pristine).unwrap();
        memory.state.lock().copied_bytes / PAGE_BYTES
    };
    // Without page tracking, every page may have changed.
    if GuestMemory::over(plain_image(16), true).unwrap().state.lock().tracker.is_none() {
        return;
    }
    assert_eq!(kept(FEW_PAGES), FEW_PAGES);
    assert!(kept(4 * FEW_PAGES) <= 1 + FEW_PAGES);
}

#[test]
fn an_idle_page_that_comes_back_is_kept_longer_the_next_time() {
    let image = plain_image(16);
    let memory = GuestMemory::over(Arc::clone(&image), true).unwrap();
    if memory.state.lock().tracker.is_none() {
        return;
    }
    let pristine = pristine(&image);
    let mut returns = Vec::new();
    let run = |written: u32| {
        for page in 0..written {
            // What is there already.
            let at = page * PAGE_BYTES as u32;
            memory.with_bytes(at, 1, |bytes| bytes[0] = image.bytes()[at as usize]).unwrap();
        }
        memory.restore(&pristine).unwrap();
        memory.state.lock().returned.iter().cloned().flatten().collect::<Vec<_>>()
    };
    for number in 0_u32..1500 {
        let returned = run(1 + u32::from(number == 0));
        if !returned.is_empty() {
            returns.push((number, returned));
        }
    }
    // The second page is written to once.
    let few = u32::from(MOST_RUNS_OF_FEW);
    let (first, second) = (few, few + 1 + 4 * few);
    assert_eq!(returns, [(first, vec![0, 1]), (second, vec![0])]);
}

#[test]
fn a_successor_has_the_pages_that_runs_write_to() {
    let image = image();
    let pristine = pristine(&image);
    let (memory, next) = (
        GuestMemory::over(Arc::clone(&image), true).unwrap(),
        GuestMemory::over(Arc::clone(&image), true).unwrap(),
    );
    if memory.state.lock().tracker.is_none() {
        return;
    }
    // Once to find out, and once to know.
    for byte in [4, 5] {
        for page in [1, 2, 30] {
            poke(&memory, page * PAGE_BYTES, byte);
        }
        memory.restore(&pristine).unwrap();
    }
    poke(&memory, 40 * PAGE_BYTES, 6);
    next.prefault_from(&memory);
    next.restore(&pristine).unwrap();
    assert_eq!(next.state.lock().copied_bytes, 3 * PAGE_BYTES);
    assert!(everything(&next) == image.bytes());
    poke(&next, 2 * PAGE_BYTES, 7);
    next.restore(&pristine).unwrap();
    assert!(everything(&next) == image.bytes());

    let other = GuestMemory::over(plain_image(16), true).unwrap();
    other.prefault_from(&next);
    assert!(everything(&other) == plain_image(16).bytes());
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
fn segments_are_mapped_and_not_copied() {
    let image = image();
    let [memory, by_words, unmapped] = over(&image);
    let pristine = pristine(&image);
    memory.grow(64 * WASM_PAGE_BYTES).unwrap();
    // One range across the end of the image, and one that is too short for a segment.
    let filled = [40 * PAGE_BYTES..90 * PAGE_BYTES, 100 * PAGE_BYTES..110 * PAGE_BYTES];
    for range in &filled {
        let fill = |bytes: &mut [u8]| bytes.fill(170);
        memory.with_bytes(range.start as u32, range.len() as u32, fill).unwrap();
    }
    let patch = memory.patch().unwrap();
    assert!(patch.segments.iter().map(Segment::pages).eq(std::iter::once(40..90)));
    assert_eq!((patch.pages.len(), patch.page_count()), (10, 60));
    // One page of the segment is written to: the segment stays.
    poke(&memory, 45 * PAGE_BYTES, 171);
    let again = memory.patch().unwrap();
    assert_eq!(again.segments, patch.segments);
    assert_eq!((again.pages.len(), again.page_count()), (11, 60));
    for to in [&by_words, &unmapped] {
        to.restore(&again).unwrap();
        assert!(everything(to) == everything(&memory));
    }
    // Most of it is rewritten, and filled again.
    memory.with_bytes(42 << 12, 40 << 12, |bytes| bytes.fill(172)).unwrap();
    let rewritten = memory.patch().unwrap();
    assert!(!rewritten.segments.contains(&patch.segments[0]));
    for to in [&by_words, &unmapped] {
        to.restore(&rewritten).unwrap();
        assert!(everything(to) == everything(&memory));
    }
    memory.restore(&pristine).unwrap();
    assert!(everything(&memory) == image.bytes());
    let flat =
        MemoryPatch { len: again.len, segments: Vec::new(), pages: again.flat(image.bytes()) };
    let flat = Arc::new(flat);
    by_words.restore(&flat).unwrap();
    unmapped.restore(&again).unwrap();
    assert!(everything(&by_words) == everything(&unmapped));
}

/// A few pages are written to before each patch; the first patches are unmarked, later ones marked.
#[test]
fn a_segment_that_became_the_image_again_is_not_brought_back() {
    let image = image();
    let [memory, ..] = over(&image);
    let [other, ..] = over(&image);
    let fill = |byte: u8| {
        memory.with_bytes(8 << 12, 40 << 12, |bytes| bytes.fill(byte)).unwrap();
    };
    fill(170);
    assert_eq!(memory.patch().unwrap().segments.len(), 1);
    let (start, end) = (8 * PAGE_BYTES, 48 * PAGE_BYTES);
    let as_image = |bytes: &mut [u8]| bytes.copy_from_slice(&image.bytes()[start..end]);
    memory.with_bytes(start as u32, (end - start) as u32, as_image).unwrap();
    for round in 0..4 {
        poke(&memory, (50 + round) * PAGE_BYTES, 9);
        let patch = memory.patch().unwrap();
        assert!(patch.segments.is_empty());
        other.restore(&patch).unwrap();
        assert!(everything(&other) == everything(&memory), "{round}");
    }
    let is_marked = |memory: &GuestMemory| {
        let mut state = memory.state.lock();
        let tracker = state.tracker.as_mut().unwrap();
        (tracker.has_marks, tracker.written(&memory.reservation, 0..image.bytes().len()))
    };
    if let (true, written) = is_marked(&memory) {
        assert!(written.is_some_and(|written| written.is_empty()), "nothing since");
    }
}

#[test]
fn turns_that_follow_each_other_are_copied_into_one_place() {
    let image = image();
    let [memory, by_words, unmapped] = over(&image);
    assert!(unmapped.snapshot().unwrap().is_none(), "nothing is known of its pages");
    let pages = |snapshot: &Snapshot| -> Vec<u32> {
        snapshot.patch().pages.iter().map(|patch| patch.page).collect()
    };
    poke(&memory, 7, 1);
    memory.patch().unwrap();
    memory.patch().unwrap();
    if !memory.state.lock().tracker.as_ref().unwrap().has_marks {
        // This kernel doesn't note writes.
        return;
    }
    // Writes to the same pages, to another one, and to one that is grown.
    poke(&memory, 3 * PAGE_BYTES, 202);
    let first = memory.snapshot().unwrap().unwrap();
    assert_eq!(pages(&first), [0, 3]);
    let place = Arc::as_ptr(&first);
    drop(first);
    poke(&memory, 3 * PAGE_BYTES, 203);
    poke(&memory, 5 * PAGE_BYTES, 204);
    let second = memory.snapshot().unwrap().unwrap();
    assert_eq!((pages(&second), Arc::as_ptr(&second)), (vec![0, 3, 5], place));
    // Somebody keeps the second one, which therefore stays as it is.
    memory.grow(WASM_PAGE_BYTES).unwrap();
    poke(&memory, image.bytes().len(), 205);
    poke(&memory, 3 * PAGE_BYTES, 206);
    let third = memory.snapshot().unwrap().unwrap();
    assert_eq!(pages(&third), [0, 3, 5, IMAGE_PAGES as u32]);
    let now = everything(&memory);
    for to in [&by_words, &unmapped] {
        to.restore(second.patch()).unwrap();
        assert_eq!(everything(to)[3 * PAGE_BYTES], 203);
        to.restore(third.patch()).unwrap();
        assert!(everything(to) == now);
    }
    assert_eq!(memory.patch().unwrap(), *third.patch());
    memory.restore(&pristine(&image)).unwrap();
    assert!(pages(&memory.snapshot().unwrap().unwrap()).is_empty());
}

#[test]
fn the_first_turns_of_a_session_mark_nothing() {
    let image = image();
    let [memory, by_words, _] = over(&image);
    for memory in [memory, by_words] {
        let has_marks = || memory.state.lock().tracker.as_ref().unwrap().has_marks;
        let mut turns = 0;
        while !has_marks() && turns < 1_000 {
            poke(&memory, (turns % 16) * PAGE_BYTES, 200);
            let Some(snapshot) = memory.snapshot().unwrap() else { break };
            assert_eq!(snapshot.patch().pages.len(), 16.min(turns + 1));
            turns += 1;
        }
        // All 16 pages were copied each time, until that would have cost more than marking them.
        assert!((300..1_000).contains(&turns), "{turns} turns");
    }
}

/// Returns a memory over an image of this many pages, none of which is zero.
fn over_large(pages: usize) -> GuestMemory {
    use std::io::Write;
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&vec![3; pages * PAGE_BYTES]).unwrap();
    let view = FileView::new(file).unwrap();
    let image = Arc::new(MemoryImage::new(view, 0..pages * PAGE_BYTES).unwrap());
    GuestMemory::over(image, true).unwrap()
}

#[test]
fn much_that_was_written_to_is_no_snapshot() {
    let memory = over_large(1024);
    memory.patch().unwrap();
    memory.patch().unwrap();
    memory.with_bytes(0, 600 << 12, |bytes| bytes.fill(4)).unwrap();
    assert!(memory.snapshot().unwrap().is_none());
    memory.patch().unwrap();
    poke(&memory, 7, 1);
    if let Some(snapshot) = memory.snapshot().unwrap() {
        assert_eq!(snapshot.patch().pages.len(), 1, "all else is in a segment");
    }
}

/// One step of the test below.
#[derive(Debug, Clone)]
enum Step {
    Write { memory: usize, page: usize, pages: usize, byte: u8 },
    Grow { memory: usize },
    Suspend { memory: usize },
    Copy { memory: usize },
    Resume { memory: usize, state: usize },
    Reset { memory: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let memory = 0..3_usize;
    let pages = prop_oneof![1..3_usize, 16..40_usize];
    let write = (memory.clone(), 0..80_usize, pages, any::<u8>());
    prop_oneof![
        6 => write.prop_map(|(memory, page, pages, byte)| Step::Write { memory, page, pages, byte }),
        1 => memory.clone().prop_map(|memory| Step::Grow { memory }),
        3 => memory.clone().prop_map(|memory| Step::Suspend { memory }),
        3 => memory.clone().prop_map(|memory| Step::Copy { memory }),
        3 => (memory.clone(), any::<usize>())
            .prop_map(|(memory, state)| Step::Resume { memory, state }),
        2 => memory.prop_map(|memory| Step::Reset { memory }),
    ]
}

proptest! {
    /// Three memories of one image, of every kind, against plain vectors.
    #[test]
    fn memories_hold_what_was_put_into_them(
        steps in proptest::collection::vec(step(), 1..60),
        pace in prop_oneof![Just(EARLY), Just(MarkingPolicy::default())],
    ) {
        let image = image();
        let memories = over(&image);
        for memory in &memories {
            memory.state.lock().pace = pace;
        }
        let pristine = pristine(&image);
        let mut models = [(); 3].map(|()| image.bytes().to_vec());
        let mut suspended: Vec<(Arc<MemoryPatch>, Vec<u8>)> = Vec::new();
        let mut copied: Vec<(Arc<Snapshot>, Vec<u8>)> = Vec::new();
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
                Step::Suspend { memory } => {
                    let patch = memories[memory].patch().unwrap();
                    suspended.push((patch, models[memory].clone()));
                }
                Step::Copy { memory } => {
                    if let Some(snapshot) = memories[memory].snapshot().unwrap() {
                        copied.push((snapshot, models[memory].clone()));
                    }
                }
                Step::Resume { memory, state } if !suspended.is_empty() => {
                    let (patch, model) = &suspended[state % suspended.len()];
                    memories[memory].restore(patch).unwrap();
                    if state % 2 == 1 {
                        memories[memory].mark_soon();
                    }
                    models[memory].clone_from(model);
                }
                Step::Resume { memory, .. } | Step::Reset { memory } => {
                    memories[memory].restore(&pristine).unwrap();
                    models[memory] = image.bytes().to_vec();
                }
            }
            for (memory, model) in memories.iter().zip(&models) {
                prop_assert!(everything(memory) == *model);
            }
        }
        // Whatever was done to the memories since.
        for (snapshot, model) in copied {
            memories[0].restore(snapshot.patch()).unwrap();
            prop_assert!(everything(&memories[0]) == model);
        }
    }
}
