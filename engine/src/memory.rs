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
use rustix::process::{Resource, getrlimit};

use crate::error::EngineError;
use cow::Tracker;
use image::MemoryImage;
use patch::{MemoryPatch, PAGE_BYTES};
use runs::PageRun;

#[cfg(target_os = "linux")]
mod cow;
#[cfg(not(target_os = "linux"))]
#[path = "memory/cow_disabled.rs"]
mod cow;
#[cfg(target_os = "linux")]
pub(crate) mod faults;
#[cfg(not(target_os = "linux"))]
#[path = "memory/faults_disabled.rs"]
pub(crate) mod faults;
pub(crate) mod image;
mod layers;
pub(crate) mod patch;
mod runs;
pub(crate) mod sys;
pub(crate) mod tunables;
#[cfg(target_os = "linux")]
mod written;

/// Bytes of a WebAssembly page.
pub(crate) const WASM_PAGE_BYTES: usize = 1 << 16;
/// The most bytes that a 32-bit memory has.
pub(crate) const MOST_BYTES: usize = 4 << 30;
/// What must follow the base: 4 GiB that an index can reach, 4 GiB that an offset can add, and
/// one page for the width of the access.
pub(crate) const RESERVED_BYTES: usize = (8 << 30) + WASM_PAGE_BYTES;
/// Inaccessible bytes before the base.
const GUARD_BEFORE_BYTES: usize = 2 << 30;
/// What a process needs of its address space beyond a guest's: the compiled module, its image, the
/// library, stacks.
const OTHER_BYTES: usize = 2 << 30;

/// # Errors
/// A limit on the address space of this process leaves no room for one guest. Without this, what is
/// refused first may be memory of the process itself, and then it aborts.
pub(crate) fn check_address_space() -> Result<(), EngineError> {
    let needed_bytes = (GUARD_BEFORE_BYTES + RESERVED_BYTES + OTHER_BYTES) as u64;
    match getrlimit(Resource::As).current {
        Some(limit_bytes) if limit_bytes < needed_bytes => {
            Err(EngineError::AddressSpace { limit_bytes, needed_bytes })
        }
        _ => Ok(()),
    }
}

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
    /// Invariant E-10: what the memory was last made or found to be; while its pages are marked,
    /// those that were not written to since are as this says.
    held: Arc<MemoryPatch>,
    /// How often it was taken out since it was last restored.
    taken_out: u32,
    /// Bytes of the image's pages that were copied when that was last looked at, about.
    copied_bytes: usize,
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
            held: Arc::new(MemoryPatch { len, ..MemoryPatch::default() }),
            taken_out: 0,
            copied_bytes: 0,
        }
    }
}

/// Whether a memory can have this many bytes: E-1.
pub(crate) fn is_length(bytes: usize) -> bool {
    bytes.is_multiple_of(WASM_PAGE_BYTES) && bytes <= MOST_BYTES
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

    /// Bytes that this memory has of its own and doesn't share with the image: what was grown, and
    /// the pages of the image that were copied when that was last looked at, which is when a state
    /// is put in or taken out.
    pub(crate) fn private_bytes(&self) -> usize {
        let state = self.state.lock();
        match (&self.image, &state.tracker) {
            (Some(image), Some(_)) => {
                state.len.saturating_sub(image.bytes().len()) + state.copied_bytes
            }
            _ => state.len,
        }
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

    fn image_of(&self, state: &MemoryState) -> io::Result<&MemoryImage> {
        let image = self.image.as_deref().filter(|_| !state.revoked);
        image.ok_or_else(|| io::Error::other("the memory has no image to go back to"))
    }

    /// The runs of offsets that may differ from what is mapped, in order, and the image.
    fn copied(&self, state: &mut MemoryState) -> io::Result<(&MemoryImage, Vec<Range<usize>>)> {
        let image = self.image_of(state)?;
        let copied = match &mut state.tracker {
            Some(tracker) => tracker.copied(&self.reservation, 0..state.len)?,
            None => std::iter::once(0..state.len).collect(),
        };
        let of_image =
            |run: &Range<usize>| run.end.min(image.bytes().len()).saturating_sub(run.start);
        state.copied_bytes = copied.iter().map(of_image).sum();
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
