//! Pages that are marked part by part, once that pays.

use super::*;

#[test]
fn the_pages_of_a_long_session_are_marked_part_by_part() {
    let image = image();
    let [memory, other, _] = over(&image);
    memory.state.lock().pace = EARLY;
    for page in 0..40 {
        poke(&memory, page * PAGE_BYTES, 100);
    }
    let marked = || memory.state.lock().marked / PAGE_BYTES;
    let copied = |snapshot: &Snapshot| snapshot.bytes() as usize / PAGE_BYTES;
    let first = memory.snapshot().unwrap().unwrap();
    assert_eq!((marked(), copied(&first)), (0, 40));
    let mut parts = Vec::new();
    for turn in 0..100 {
        // A page that is hot, one that changes once, and one that is grown into being.
        poke(&memory, 0, turn);
        poke(&memory, (10 + usize::from(turn) % 30) * PAGE_BYTES, 100 + turn);
        if turn == 3 {
            memory.grow(WASM_PAGE_BYTES).unwrap();
            poke(&memory, image.bytes().len(), 1);
        }
        let Some(snapshot) = memory.snapshot().unwrap() else {
            // This kernel doesn't note writes.
            assert!(parts.is_empty());
            return;
        };
        other.restore(snapshot.patch()).unwrap();
        assert!(everything(&other) == everything(&memory), "{turn}");
        parts.push(marked());
        if marked() == 0 {
            break;
        }
    }
    // Seven copied pages at once, and no more than 16 pages.
    assert_eq!(parts[..6], [7, 14, 21, 28, 35, 51]);
    assert_eq!(parts.last(), Some(&0), "all are marked: {parts:?}");
    poke(&memory, 5 * PAGE_BYTES, 9);
    let last = memory.snapshot().unwrap().unwrap();
    assert!(copied(&last) < 20, "{} pages", copied(&last));
    assert!(first.patch().pages.iter().all(|patch| patch.bytes[0] == 100), "it stayed as it was");
}

#[test]
fn a_session_that_was_marked_is_marked_soon_where_it_goes_on() {
    let image = image();
    let [memory, other] = [(); 2].map(|()| GuestMemory::over(Arc::clone(&image), true).unwrap());
    let turn = |memory: &GuestMemory, number: u8| {
        for page in 0..40 {
            poke(memory, page * PAGE_BYTES, number);
        }
        memory.snapshot().unwrap();
    };
    memory.state.lock().pace = EARLY;
    turn(&memory, 1);
    assert!(!memory.is_marked(), "a short session");
    let short = memory.patch().unwrap();
    for number in 2..20 {
        turn(&memory, number);
    }
    if !memory.is_marked() {
        // This kernel doesn't note writes.
        assert!(matches!(memory.snapshot(), Ok(None)));
        return;
    }
    let long = memory.patch().unwrap();
    for (patch, is_long) in [(short, false), (long, true)] {
        other.restore(&patch).unwrap();
        assert!(!other.is_marked(), "of another session");
        if is_long {
            other.mark_soon();
        }
        turn(&other, 30);
        turn(&other, 31);
        assert_eq!(other.is_marked(), is_long);
    }
}

#[test]
fn marks_of_pages_that_were_never_used_are_no_copies() {
    let memory = over_large(8192);
    memory.state.lock().pace =
        MarkingPolicy { unmarked_bytes: 200 * PAGE_BYTES, ..MarkingPolicy::default() };
    let mut parts = Vec::new();
    for turn in 0..20 {
        for page in 0..100 {
            poke(&memory, page * 80 * PAGE_BYTES, turn);
        }
        let Some(snapshot) = memory.snapshot().unwrap() else {
            // This kernel doesn't note writes.
            assert!(parts.iter().all(|marked| *marked == 0));
            return;
        };
        assert!(snapshot.bytes() <= (110 * PAGE_BYTES) as u64, "{turn}: {}", snapshot.bytes());
        parts.push(memory.state.lock().marked / PAGE_BYTES);
    }
    assert!(parts.iter().any(|marked| *marked > 2 * 512), "{parts:?}");
    assert_eq!(parts.last(), Some(&0), "all are marked: {parts:?}");
}
