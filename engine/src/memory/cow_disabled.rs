//! Stands in for `cow.rs` where copy-on-write isn't supported: `open` fails, and the memory copies
//! its image instead.

use std::io;
use std::ops::Range;

use super::image::MemoryImage;
use super::sys::Reservation;

#[derive(Debug)]
pub(super) enum Tracker {}

impl Tracker {
    pub(super) fn open() -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn has_scan(&self) -> bool {
        match *self {}
    }

    pub(super) fn map(_reservation: &Reservation, _image: &MemoryImage) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn open_ahead(&self) {
        match *self {}
    }

    pub(super) fn copied(
        &mut self,
        _reservation: &Reservation,
        _range: Range<usize>,
    ) -> io::Result<Vec<Range<usize>>> {
        match *self {}
    }

    pub(super) fn is_complete(
        &mut self,
        _found: &[Range<usize>],
        _reservation: &Reservation,
        _range: Range<usize>,
    ) -> bool {
        match *self {}
    }

    pub(super) fn known(&self) -> Option<&[Range<usize>]> {
        match *self {}
    }

    pub(super) fn has_copied_at_most(&self, _count: u64) -> bool {
        match *self {}
    }

    pub(super) fn remember(&mut self, _copied: Vec<Range<usize>>) {
        match *self {}
    }

    pub(super) fn forget(&mut self) {
        match *self {}
    }
}
