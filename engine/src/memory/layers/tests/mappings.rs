//! What the kernel maps: how many segments, and no huge pages.

use std::fs;
use std::path::Path;

use super::super::diff::map_or_patch;
use super::*;
use crate::memory::segments::{LEAST_PAGES, MOST_MAPPED, MOST_SEGMENTS};

/// Pages between the beginnings of two ranges that are filled.
const STRIDE: usize = LEAST_PAGES + 1;

#[test]
fn segments_that_are_given_up_again_and_again_need_few_mappings() {
    let rounds = 2 * MOST_MAPPED / MOST_SEGMENTS;
    let memory = over_large(rounds * MOST_SEGMENTS * STRIDE);
    let fill = |number: usize, pages: usize, byte: u8| {
        let (at, len) = (number * STRIDE * PAGE_BYTES, pages * PAGE_BYTES);
        memory.with_bytes(at as u32, len as u32, |bytes| bytes.fill(byte)).unwrap();
    };
    let mut most = 0;
    let mut last = None;
    for round in 0..rounds {
        for number in round * MOST_SEGMENTS..(round + 1) * MOST_SEGMENTS {
            fill(number, LEAST_PAGES, 170);
            if let Some(before) = number.checked_sub(MOST_SEGMENTS) {
                // Most of the segment becomes the image again.
                fill(before, LEAST_PAGES - 2, 3);
            }
        }
        last = Some(memory.patch().unwrap());
        most = most.max(memory.state.lock().mapped.len());
    }
    assert!((MOST_MAPPED / 2..=MOST_MAPPED).contains(&most), "{most} mappings");
    let other = over_large(rounds * MOST_SEGMENTS * STRIDE);
    other.restore(&last.unwrap()).unwrap();
    assert!(everything(&other) == everything(&memory));
    memory.restore(&pristine(memory.image.as_ref().unwrap())).unwrap();
    assert!(memory.state.lock().mapped.is_empty());
}

#[test]
fn a_segment_that_is_not_mapped_stays_as_patches() {
    let image = image();
    let store = image.segment_store().expect("Linux has such files");
    let [first, second] =
        [(2, 7), (40, 9)].map(|(page, byte)| store.put(page, &[byte; 3 * PAGE_BYTES]).unwrap());
    let refuse_the_second = |segment: &Segment| match segment.pages().start {
        2 => Ok(()),
        _ => Err(io::ErrorKind::OutOfMemory.into()),
    };
    let (segments, pages) =
        map_or_patch(vec![first.clone(), second], image.bytes(), refuse_the_second);
    assert_eq!(segments, [first]);
    assert!(pages.iter().map(|patch| patch.page).eq(40..43));
    let mut memory = image.bytes().to_vec();
    memory.resize(64 * PAGE_BYTES, 0);
    MemoryPatch { len: memory.len(), segments: Vec::new(), pages }.put_into(&mut memory);
    assert!(memory[40 * PAGE_BYTES..43 * PAGE_BYTES].iter().all(|byte| *byte == 9));
}

#[test]
fn pages_that_are_grown_are_never_huge() {
    if !Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        return;
    }
    let image = image();
    let [memory, ..] = over(&image);
    let grown = image.bytes().len();
    memory.grow(64 * WASM_PAGE_BYTES).unwrap();
    let address = memory.reservation.base().addr().get() + grown;
    assert!(is_never_huge(address), "after it grew");
    memory.reservation.map_zeroes(grown, WASM_PAGE_BYTES).unwrap();
    assert!(is_never_huge(address), "after it was mapped again");
}

/// Returns whether the kernel may use no huge page at this address, by its list of mappings.
fn is_never_huge(address: usize) -> bool {
    let maps = fs::read_to_string("/proc/self/smaps").expect("Linux has it");
    let mut is_here = false;
    for line in maps.lines() {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let number = |text| usize::from_str_radix(text, 16).ok();
        if let Some((Some(start), Some(end))) =
            range.map(|(start, end)| (number(start), number(end)))
        {
            is_here = (start..end).contains(&address);
        } else if is_here && let Some(flags) = line.strip_prefix("VmFlags:") {
            return flags.split(' ').any(|flag| flag == "nh");
        }
    }
    panic!("nothing is mapped at {address:#x}");
}
