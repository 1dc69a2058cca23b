//! What a memory holds beyond its image. `diff.rs` takes it out, `restore.rs` puts it in, and
//! `copy.rs` copies it between two turns of a session. `marking.rs` makes that cheaper for sessions
//! of many turns.
//!
//! Isolation depends on the first two: after `restore` the memory is the image with the patch, byte
//! by byte. A memory consists of layers. The topmost one that covers a page gives its content:
//!
//! ```text
//! written pages        #    #                  #          copied by the kernel at the first write
//! segments               [=======]     [=======]          mapped from the segment store
//! image          [=======================]                mapped from its file
//! zeroes                                  [===========]   pages that were grown
//!                0                                   len
//! ```
//!
//! What lies below a written page is its *base*. A patch has the segments, and of the written pages
//! the blocks that differ from the base.

use std::io;
use std::ops::Range;

use super::address_space::PAGE_BYTES;
use super::image::MemoryImage;
use super::segments::Segment;
use super::{GuestMemory, MemoryState};

mod copy;
mod diff;
mod marking;
mod restore;

/// Whether invariants are asserted that take a pass of their own.
const IS_CHECKED: bool = cfg!(any(test, debug_assertions));

impl GuestMemory {
    /// Returns the image, and the ranges of offsets that may differ from what is mapped, in order.
    fn find_copied(
        &self,
        state: &mut MemoryState,
    ) -> io::Result<(&MemoryImage, Vec<Range<usize>>)> {
        let image = self.image_of(state)?;
        let copied = match &mut state.tracker {
            Some(tracker) => {
                let (reservation, range) = (&self.reservation, 0..state.len);
                let copied = tracker.copied(reservation, range.clone())?;
                let is_complete = !IS_CHECKED || tracker.is_complete(&copied, reservation, range);
                assert!(is_complete, "E-9: a page was copied without a fault of its thread");
                copied
            }
            None => std::iter::once(0..state.len).collect(),
        };
        let of_image =
            |range: &Range<usize>| range.end.min(image.bytes().len()).saturating_sub(range.start);
        state.copied_bytes = copied.iter().map(of_image).sum();
        Ok((image, copied))
    }

    fn image_of(&self, state: &MemoryState) -> io::Result<&MemoryImage> {
        let image = self.image.as_deref().filter(|_| !state.revoked);
        image.ok_or_else(|| io::Error::other("the memory has no image to go back to"))
    }

    /// Maps `segment` in its place. What is there has the same content or is of no use.
    fn map_segment(&self, state: &mut MemoryState, segment: &Segment) -> io::Result<()> {
        let (file, offset) = segment.file();
        let at = segment.pages().start * PAGE_BYTES;
        self.reservation.map_copy(at, segment.bytes().len(), file, offset)?;
        let mapped = std::mem::take(&mut state.mapped);
        state.mapped.extend(mapped.iter().flat_map(|other| other.without(segment.pages())));
        state.mapped.push(segment.clone());
        state.mapped.sort_unstable_by_key(|segment| segment.pages().start);
        Ok(())
    }

    /// Makes pages what they are without segments and copies: the image, then zeroes.
    fn unmap(&self, image: &MemoryImage, pages: Range<usize>) -> io::Result<()> {
        let (start, end) = (pages.start * PAGE_BYTES, pages.end * PAGE_BYTES);
        let in_image = image.bytes().len().clamp(start, end);
        let (file, offset) = image.file();
        self.reservation.map_copy(start, in_image - start, file, offset + start as u64)?;
        self.reservation.map_zeroes(in_image, end - in_image)
    }
}

fn pages_of(range: Range<usize>) -> Range<usize> {
    range.start / PAGE_BYTES..range.end / PAGE_BYTES
}

#[cfg(test)]
mod tests;
