//! Operands in the guest's memory, as slices.

use std::ops::Range;

use crate::memory::GuestMemory;

/// A double in the guest's memory, where alignment isn't checked.
pub(super) type Double = [u8; 8];

pub(super) const DOUBLE_BYTES: u64 = size_of::<Double>() as u64;

/// Lends what is read, twice, and what is written; `None` if something isn't in the memory, or if
/// what is written overlaps what is read.
pub(super) fn lend<T>(
    memory: &GuestMemory,
    reads: [&Range<u64>; 2],
    written: &Range<u64>,
    work: impl FnOnce([&[u8]; 2], &mut [u8]) -> T,
) -> Option<T> {
    if reads.iter().any(|read| read.start < written.end && written.start < read.end) {
        return None;
    }
    let start = reads.iter().map(|read| read.start).fold(written.start, u64::min);
    let end = reads.iter().map(|read| read.end).fold(written.end, u64::max);
    let (at, len) = (u32::try_from(start).ok()?, u32::try_from(end - start).ok()?);
    let place =
        |range: &Range<u64>, base: u64| (range.start - base) as usize..(range.end - base) as usize;
    memory.with_bytes(at, len, |bytes| {
        let (before, rest) = bytes.split_at_mut((written.start - start) as usize);
        let (target, after) = rest.split_at_mut((written.end - written.start) as usize);
        let sources = reads.map(|read| match read.start < written.start {
            true => &before[place(read, start)],
            false => &after[place(read, written.end)],
        });
        work(sources, target)
    })
}
