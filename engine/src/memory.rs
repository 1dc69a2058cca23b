//! The linear memory of one guest: an address-space reservation of which a prefix is accessible.
//!
//! Owns growth and its limit, and differences from the image (`memory/layers.rs`). Also owns
//! revocation, which takes every page away from a running guest: a hard stop.
//! `memory/address_space.rs` draws the reservation. Only `memory/tunables.rs` knows wasmer.
#![expect(unsafe_code, reason = "lends bytes of a mapping; the lock is what makes that sound")]

use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use parking_lot::Mutex;

pub(crate) use address_space::{FIRST_GUEST_BYTES, PAGE_BYTES, WASM_PAGE_BYTES, is_length};
use address_space::{GUARD_BEFORE_BYTES, MOST_BYTES, RESERVED_BYTES};
use cow::Tracker;
use idle::PageAge;
use image::MemoryImage;
use pace::MarkingPolicy;
use patch::MemoryPatch;
use segments::Segment;
use snapshot::Snapshot;
use tunables::Length;

mod address_space;
mod cow;
pub(crate) mod delta;
pub(crate) mod faults;
mod idle;
pub(crate) mod image;
mod layers;
mod pace;
pub(crate) mod patch;
mod segments;
pub(crate) mod snapshot;
pub(crate) mod sys;
pub(crate) mod tunables;
mod vectors;
mod written;

/// This many copied pages are put back in about 10 µs, once the kernel has said which they are.
const FEW_PAGES: u64 = 64;

#[derive(Debug)]
pub(crate) struct GuestMemory {
    reservation: sys::Reservation,
    image: Option<Arc<MemoryImage>>,
    /// Several threads of the guest may use it at once, so that host code only copies.
    is_shared: bool,
    /// Memory of hidden modules in the image, in bytes, which no run is charged for.
    uncharged: usize,
    /// Where compiled code of the instances that have it reads its length.
    lengths: Mutex<Vec<Length>>,
    state: Mutex<MemoryState>,
}

/// What a guest memory holds, and what is known of that.
///
/// ```text
///        over(image)
///            |
///            v          the guest writes, `grow`
///  +---> as base ------------------------------> changed
///  |      ^   ^                                    |  |
///  |      |   +-------------- patch ---------------+  |
///  |      |     `base_patch` = the patch found; from  |
///  |      |     the second one on, the kernel marks   |
///  |      |     pages and notes writes (E-10)         |
///  |      |                                           +--- snapshot: stays changed; `base_patch`
///  |      |                                           |    and the pages without marks are the
///  |      |                                           |    content; later ones mark, part by part
///  |      |                                           |
///  |      +------------- restore(patch) --------------+
///  |            `base_patch` = that patch; nothing is marked;
///  |            after the empty patch, the list of
///  |            copied pages stays known (E-9)
///  |
///  +---- each, at any time ---- revoke ----> revoked (E-2), until dropped
/// ```
///
/// A `restore` that fails leaves the memory in no such state: its interpreter is lost. A `patch` or
/// `snapshot` that fails changes nothing.
#[derive(Debug)]
struct MemoryState {
    /// Accessible bytes from the base. Invariant E-1: a multiple of the wasm page and at most
    /// 4 GiB. Never grows beyond the `limit` of the time.
    len: usize,
    /// Growth beyond this is refused.
    limit: usize,
    /// The largest length that was refused since the run began.
    refused: Option<usize>,
    /// Invariant E-2: once true, nothing is accessible and nothing ever is again.
    revoked: bool,
    /// Knows which pages of the image were copied; without it, each may have changed.
    tracker: Option<Tracker>,
    /// For each page of the image, how long it has been idle.
    page_ages: Vec<PageAge>,
    /// Number of pages that the last restore found unchanged.
    idle_pages: usize,
    /// The idle pages that the last restore returned to the system, in order.
    returned: Vec<Range<usize>>,
    /// Segments that are mapped, in order and apart; only with a tracker.
    mapped: Vec<Segment>,
    /// Invariant E-10: the content after the last `patch` or `restore`. Of each part that was
    /// marked since, it is the content when that was marked. Marked pages that were not written to
    /// since still have that content.
    base_patch: Arc<MemoryPatch>,
    /// Patches, and snapshots of unmarked pages, taken since the last restore.
    copies_taken: u32,
    /// The last snapshot, whose space the next one takes if nobody else has it.
    snapshot: Option<Arc<Snapshot>>,
    /// Pages below this offset are marked, while pages are marked part by part; else 0.
    marked: usize,
    pace: MarkingPolicy,
    /// Bytes of the pages that had been written to at the first snapshot since they were marked.
    first_touched: Option<usize>,
    /// Bytes that snapshots have copied since `hold`: beyond those if pages are marked, else all.
    spent: usize,
    /// Bytes of the image's pages that were copied when that was last asked, approximately.
    copied_bytes: usize,
}

impl MemoryState {
    fn new(len: usize, tracker: Option<Tracker>) -> Self {
        let pages = if tracker.is_some() { len / PAGE_BYTES } else { 0 };
        Self {
            len,
            limit: MOST_BYTES,
            refused: None,
            revoked: false,
            tracker,
            page_ages: vec![PageAge::default(); pages],
            idle_pages: 0,
            returned: Vec::new(),
            mapped: Vec::new(),
            base_patch: Arc::new(MemoryPatch { len, ..MemoryPatch::default() }),
            copies_taken: 0,
            snapshot: None,
            marked: 0,
            pace: MarkingPolicy::default(),
            first_touched: None,
            spent: 0,
            copied_bytes: 0,
        }
    }

    /// Remembers that the memory holds `content`, compared page by page.
    fn hold(&mut self, content: Arc<MemoryPatch>) {
        self.base_patch = content;
        self.snapshot = None;
        self.marked = 0;
        self.first_touched = None;
        self.spent = 0;
    }
}

/// Returns whether the kernel's page scan finds the copied pages of a mapped image. Returns `None`
/// if this system can't map images copy-on-write.
pub(crate) fn has_page_scan() -> Option<bool> {
    Tracker::open().ok().map(|tracker| tracker.has_scan)
}

/// Growth was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GrowthRefused;

impl GuestMemory {
    /// Reserves the address space and makes the first `len` bytes accessible, zeroed.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        assert!(is_length(len), "E-1: {len} bytes");
        let reservation = sys::Reservation::new(GUARD_BEFORE_BYTES, RESERVED_BYTES)?;
        reservation.make_accessible(0, len)?;
        let state = Mutex::new(MemoryState::new(len, None));
        let lengths = Mutex::default();
        Ok(Self { reservation, image: None, is_shared: false, uncharged: 0, lengths, state })
    }

    /// Reserves the address space for a memory that begins as `image`. It is a copy-on-write
    /// mapping if `is_mapped` and the system supports it, else a copy.
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
                // SAFETY: accessible, as of the last line, and nobody else has it yet.
                unsafe { reservation.with_bytes(0, len, |to| to.copy_from_slice(image.bytes())) };
                None
            }
        };
        let state = Mutex::new(MemoryState::new(len, tracker));
        let (image, lengths) = (Some(image), Mutex::default());
        Ok(Self { reservation, image, is_shared: false, uncharged: 0, lengths, state })
    }

    pub(crate) fn shared(self) -> Self {
        Self { is_shared: true, ..self }
    }

    /// Doesn't charge runs for so many bytes.
    pub(crate) fn uncharged(self, bytes: usize) -> Self {
        Self { uncharged: bytes, ..self }
    }

    /// Returns the bytes of which a run is charged for all that it holds.
    pub(crate) fn charged(&self) -> usize {
        self.len() - self.uncharged.min(self.len())
    }

    /// Whether several threads of the guest may use it at once.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Returns the address of the first byte.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.reservation.base()
    }

    /// Returns the number of accessible bytes. A guest never gives memory back, so this is also its
    /// peak.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().len
    }

    /// Returns the bytes that this memory doesn't share with the image. Those are grown ones, and
    /// the image's pages that had been copied at the last `patch` or `restore`.
    pub(crate) fn private_bytes(&self) -> usize {
        let state = self.state.lock();
        match (&self.image, &state.tracker) {
            (Some(image), Some(_)) => {
                state.len.saturating_sub(image.bytes().len()) + state.copied_bytes
            }
            _ => state.len,
        }
    }

    /// Returns whether `restore` takes little time: it has to copy some pages more than last time
    /// at most.
    pub(crate) fn is_restored_soon(&self) -> bool {
        let state = self.state.lock();
        state.tracker.as_ref().is_some_and(|tracker| tracker.has_copied_at_most(FEW_PAGES))
    }

    /// Returns whether `snapshot` takes little time: there is one to refresh, with some pages more
    /// at most.
    pub(crate) fn is_copied_soon(&self) -> bool {
        let state = self.state.lock();
        let tracker = state.snapshot.as_ref().and(state.tracker.as_ref());
        tracker.is_some_and(|tracker| tracker.has_touched_at_most(FEW_PAGES))
    }

    /// Starts a run that may grow the memory to `limit` bytes.
    pub(crate) fn begin_run(&self, limit: usize) {
        let mut state = self.state.lock();
        state.limit = limit.saturating_add(self.uncharged);
        state.refused = None;
    }

    /// Returns the largest length that the run asked for and was refused, in bytes that it would be
    /// charged for.
    pub(crate) fn refused(&self) -> Option<usize> {
        Some(self.state.lock().refused?.saturating_sub(self.uncharged))
    }

    /// Makes `delta` more bytes accessible and returns the length before.
    pub(crate) fn grow(&self, delta: usize) -> Result<usize, GrowthRefused> {
        let mut state = self.state.lock();
        let len = state.len.checked_add(delta).ok_or(GrowthRefused)?;
        if state.revoked || len > state.limit || len > MOST_BYTES {
            state.refused = state.refused.max(Some(len));
            return Err(GrowthRefused);
        }
        debug_assert!(is_length(len), "E-1: a guest grows to {len} bytes");
        self.reservation.make_accessible(state.len, delta).map_err(|error| {
            tracing::warn!(%error, len, "the system refused memory for a guest");
            GrowthRefused
        })?;
        self.lengths.lock().iter().for_each(|length| length.raise_to(len));
        Ok(std::mem::replace(&mut state.len, len))
    }

    /// Has the length of the memory written to where an instance reads it, whenever it grows.
    pub(crate) fn add_length(&self, length: Length) {
        self.lengths.lock().push(length);
    }

    pub(crate) fn remove_length(&self, length: Length) {
        self.lengths.lock().retain(|other| *other != length);
    }

    /// Lends the bytes at `at` to `work`, which changes them; `None` if they aren't all accessible.
    /// Of a shared memory it lends a copy. It puts back from the first to the last byte that `work`
    /// has changed.
    ///
    /// Only for host functions, on the thread of the guest that called them: it waits meanwhile.
    /// `work` must not use this memory in any other way.
    pub(crate) fn with_bytes<T>(
        &self,
        at: u32,
        len: u32,
        work: impl FnOnce(&mut [u8]) -> T,
    ) -> Option<T> {
        if self.is_shared {
            let before = self.copy(at, len)?;
            let mut after = before.clone();
            let result = work(&mut after);
            let differs = |(one, other): (&u8, &u8)| one != other;
            let Some(first) = before.iter().zip(&after).position(differs) else {
                return Some(result);
            };
            let last = before.iter().zip(&after).rposition(differs)?;
            self.write(at + u32::try_from(first).ok()?, &after[first..=last])?;
            return Some(result);
        }
        let state = self.state.lock();
        let at = accessible(&state, at, len as usize)?;
        // SAFETY: accessible, as just checked, for as long as the lock is held. The guest waits for
        // the host function that calls this, and everybody else takes the same lock.
        Some(unsafe { self.reservation.with_bytes(at, len as usize, work) })
    }

    /// Lends the bytes at `at` to `work`, which only looks; `None` if they aren't all accessible.
    /// Of a shared memory it lends a copy, which no thread of the guest can change any more.
    ///
    /// For whom `with_bytes` is.
    pub(crate) fn look<T>(&self, at: u32, len: u32, work: impl FnOnce(&[u8]) -> T) -> Option<T> {
        match self.is_shared {
            true => self.copy(at, len).map(|bytes| work(&bytes)),
            false => self.with_bytes(at, len, |bytes| work(bytes)),
        }
    }

    /// Copies the bytes at `at` into `to`; `None` if they aren't all accessible.
    pub(crate) fn read(&self, at: u32, to: &mut [u8]) -> Option<()> {
        let state = self.state.lock();
        let at = accessible(&state, at, to.len())?;
        // SAFETY: accessible, as just checked, for as long as the lock is held. Without threads the
        // guest waits, as in `with_bytes`.
        unsafe {
            match self.is_shared {
                true => self.reservation.copy_out(at, to),
                false => self.reservation.with_bytes(at, to.len(), |from| to.copy_from_slice(from)),
            }
        }
        Some(())
    }

    /// Puts bytes at `at`; `None` if the place isn't all accessible.
    pub(crate) fn write(&self, at: u32, bytes: &[u8]) -> Option<()> {
        let state = self.state.lock();
        let at = accessible(&state, at, bytes.len())?;
        // SAFETY: as in `read`.
        unsafe {
            match self.is_shared {
                true => self.reservation.copy_in(at, bytes),
                false => {
                    self.reservation.with_bytes(at, bytes.len(), |to| to.copy_from_slice(bytes))
                }
            }
        }
        Some(())
    }

    fn copy(&self, at: u32, len: u32) -> Option<Vec<u8>> {
        // Nothing is allocated for bytes that aren't there.
        accessible(&self.state.lock(), at, len as usize)?;
        let mut bytes = vec![0; len as usize];
        self.read(at, &mut bytes)?;
        Some(bytes)
    }

    /// Lends all bytes to `work`; `None` if the memory was revoked.
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
            // E-9: this may not be the guest's thread, and its write copies the page.
            tracker.forget();
        }
        if state.revoked || at + 4 > state.len || !at.is_multiple_of(4) {
            return None;
        }
        // SAFETY: accessible, as just checked, for as long as the lock is held.
        Some(unsafe { self.reservation.with_word(at, work) })
    }

    /// Says that threads other than the interpreter's have written to the memory, or may. Their
    /// page faults are not in the count of E-9.
    pub(crate) fn forget_copied(&self) {
        if let Some(tracker) = &mut self.state.lock().tracker {
            tracker.forget();
        }
    }

    /// Takes the whole memory away: the next access of the running guest faults and becomes a
    /// trap. The caller guarantees that no host code touches the memory from now on
    /// (`interrupt/gate.rs` does).
    pub(crate) fn revoke(&self) {
        let mut state = self.state.lock();
        if state.revoked {
            return;
        }
        state.revoked = true;
        // A handler that was installed since the run began would get the fault.
        faults::put_back();
        if let Err(error) = self.reservation.make_inaccessible(0, state.len) {
            // Only a process that is out of mappings gets here. The guest then goes on until a
            // second stop.
            tracing::error!(%error, "can't revoke the memory of a guest");
            state.revoked = false;
        }
    }

    pub(crate) fn is_revoked(&self) -> bool {
        self.state.lock().revoked
    }
}

/// Returns where these bytes begin, if all of them are accessible.
fn accessible(state: &MemoryState, at: u32, len: usize) -> Option<usize> {
    let at = at as usize;
    (!state.revoked && at + len <= state.len).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_memory_is_copied_and_only_what_changed_is_put_back() {
        let memory = GuestMemory::new(WASM_PAGE_BYTES).unwrap().shared();
        for at in 0..20 {
            let bytes: Vec<u8> = (0..40).map(|byte| byte ^ 0x5a).collect();
            memory.write(at, &bytes).unwrap();
            let mut read = vec![0; 40];
            memory.read(at, &mut read).unwrap();
            assert_eq!(read, bytes, "{at}");
        }
        // Meanwhile another thread changes a byte that `work` leaves alone.
        memory.with_bytes(100, 8, |bytes| {
            memory.write(107, &[9]).unwrap();
            bytes[2] = 7;
        });
        assert_eq!(memory.look(100, 8, <[u8]>::to_vec), Some(vec![0, 0, 7, 0, 0, 0, 0, 9]));
        let end = WASM_PAGE_BYTES as u32;
        assert_eq!(memory.write(end - 1, &[0; 2]), None);
        assert_eq!(memory.look(u32::MAX, 4, |_| ()), None);
    }

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
}
