//! Pages that the kernel has evicted. None that was written to is missed, whatever was in memory
//! when the kernel was asked.
//!
//! `MADV_PAGEOUT` evicts pages of the image's file, and, on a system with swap, copies. It leaves
//! alone what is mapped twice. So each memory here has an image of its own, of the same content.
#![expect(unsafe_code, reason = "advises the kernel about the pages of a mapping")]

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

use rustix::fs::fstatfs;
use rustix::mm::{Advice, madvise};

use super::*;

const PAGES: usize = 256;
const LEN: usize = PAGES * PAGE_BYTES;
const ROUNDS: usize = 300;
/// The way without the page scan has less that can go wrong.
const ROUNDS_WITHOUT_SCAN: usize = 60;
/// Rounds between new memories: copies stay after a reset, and only the file's pages are evicted
/// without swap.
const ROUNDS_OF_ONE: usize = 6;
/// Type of a file system in memory, whose pages only swap can take: statfs(2).
const TMPFS: u64 = 0x0102_1994;

/// Numbers that look random and are the same in each run (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }
}

/// How many pages were evicted.
#[derive(Debug, Default)]
struct Evicted {
    /// In all, while pages were marked.
    while_marked: usize,
    of_file: usize,
    copies: usize,
}

/// A memory of an image that no other memory maps, and what it must hold.
struct Evictable {
    image: Arc<MemoryImage>,
    memory: GuestMemory,
    model: Vec<u8>,
    /// The image's file can be evicted without swap.
    is_on_disk: bool,
}

impl Evictable {
    fn new(content: &[u8], has_scan: bool) -> Self {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        // Pages that aren't on the disk yet stay.
        file.sync_all().unwrap();
        let is_on_disk = fstatfs(&file).unwrap().f_type as u64 != TMPFS;
        let view = FileView::new(file).unwrap();
        let image = Arc::new(MemoryImage::new(view, 0..content.len()).unwrap());
        let memory = Self::over(&image, has_scan);
        Self { image, memory, model: content.to_vec(), is_on_disk }
    }

    fn over(image: &Arc<MemoryImage>, has_scan: bool) -> GuestMemory {
        let memory = GuestMemory::over(Arc::clone(image), true).unwrap();
        if let Some(tracker) = memory.state.lock().tracker.as_mut().filter(|_| !has_scan) {
            tracker.without_scan();
        }
        memory.state.lock().pace = EARLY;
        memory
    }

    /// Takes a memory of which no page was copied yet.
    fn renew(&mut self, has_scan: bool) {
        self.memory = Self::over(&self.image, has_scan);
        self.model = self.image.bytes().to_vec();
    }

    /// Evicts what the kernel is willing to evict. All pages were looked at before.
    fn evict(&self, evicted: &mut Evicted) {
        assert!(everything(&self.memory) == self.model);
        let of_image = self.image.bytes();
        let (base, len) = (self.memory.base().as_ptr(), self.memory.len());
        // SAFETY: the first is a mapping of a file that nobody writes to. The other one is advised
        // in ways that change no content.
        unsafe {
            let of_image = (of_image.as_ptr().cast_mut().cast(), of_image.len());
            madvise(of_image.0, of_image.1, Advice::LinuxDontNeed).unwrap();
            for advice in [Advice::LinuxCold, Advice::LinuxPageOut] {
                // Kernels before Linux 5.4 know neither.
                madvise(base.cast(), len, advice).unwrap_or_default();
            }
        }
        let mut words = vec![0; len / PAGE_BYTES * 8];
        let is_marked =
            self.memory.state.lock().tracker.as_ref().is_some_and(|tracker| tracker.has_marks);
        let pagemap = File::open("/proc/self/pagemap").unwrap();
        pagemap.read_exact_at(&mut words, (base.addr() / PAGE_BYTES * 8) as u64).unwrap();
        for (word, page) in words.as_chunks::<8>().0.iter().zip(0..) {
            // Bit 63: the page is in memory. It was, as of the first line.
            if u64::from_le_bytes(*word) >> 63 == 0 {
                evicted.while_marked += usize::from(is_marked);
                let at = page * PAGE_BYTES..(page + 1) * PAGE_BYTES;
                match self.image.bytes().get(at.clone()) == self.model.get(at) {
                    true => evicted.of_file += 1,
                    false => evicted.copies += 1,
                }
            }
        }
        // What the comparison has mapped.
        let of_image = self.image.bytes();
        // SAFETY: as above.
        unsafe {
            let of_image = (of_image.as_ptr().cast_mut().cast(), of_image.len());
            madvise(of_image.0, of_image.1, Advice::LinuxDontNeed).unwrap();
        }
    }

    /// Writes to some pages: to few, to many, or to a range of them.
    fn write(&mut self, dice: &mut Dice) {
        let pages = self.model.len() / PAGE_BYTES;
        let (first, count) = match dice.below(4) {
            0 => (dice.below(pages), 1),
            1 | 2 => (dice.below(pages), 1 + dice.below(40)),
            _ => (dice.below(pages), 1 + dice.below(pages / 4)),
        };
        let is_range = dice.below(2) == 0;
        for index in 0..count {
            let page = if is_range { (first + index) % pages } else { dice.below(pages) };
            let at = page * PAGE_BYTES + dice.below(PAGE_BYTES - 64);
            let (byte, len) = (dice.below(256) as u8, 1 + dice.below(64));
            self.memory.with_bytes(at as u32, len as u32, |bytes| bytes.fill(byte)).unwrap();
            self.model[at..at + len].fill(byte);
        }
    }

    fn grow(&mut self) {
        if self.model.len() < 2 * LEN {
            self.memory.grow(WASM_PAGE_BYTES).unwrap();
            self.model.resize(self.model.len() + WASM_PAGE_BYTES, 0);
        }
    }

    fn check(&self, what: &str, round: usize) {
        assert!(everything(&self.memory) == self.model, "after {what} in round {round}");
    }
}

/// Resets, suspends, copies, forks and resumes memories whose pages are evicted again and again.
/// Returns how many were.
fn go_back_after_evictions(has_scan: bool) -> Option<Evicted> {
    let mut dice = Dice(20);
    let content: Vec<u8> = (0..LEN).map(|_| dice.below(256) as u8).collect();
    let mut memories = [0, 1].map(|_| Evictable::new(&content, has_scan));
    let is_tracked = memories[0].memory.state.lock().tracker.is_some();
    let pristine = pristine(&memories[0].image);
    let mut evicted = Evicted::default();
    let rounds = if has_scan { ROUNDS } else { ROUNDS_WITHOUT_SCAN };
    for round in 0..rounds {
        if round % ROUNDS_OF_ONE == 0 {
            memories.iter_mut().for_each(|memory| memory.renew(has_scan));
        }
        let [one, other] = &mut memories;
        // Several turns of a session, of which the first ones mark no page.
        for _ in 0..dice.below(4) {
            let evicts = [dice.below(2) == 0, dice.below(2) == 0];
            if evicts[0] {
                one.evict(&mut evicted);
            }
            one.write(&mut dice);
            if dice.below(8) == 0 {
                one.grow();
            }
            if evicts[1] {
                one.evict(&mut evicted);
            }
            match dice.below(3) {
                0 => drop(one.memory.patch().unwrap()),
                1 => drop(one.memory.snapshot().unwrap()),
                _ => {}
            }
            one.check("a turn", round);
        }
        // Its state goes to another worker, suspended or as a fork, whatever that one held.
        one.evict(&mut evicted);
        if dice.below(2) == 0 {
            one.write(&mut dice);
        }
        let snapshot = match dice.below(2) {
            0 => one.memory.snapshot().unwrap(),
            _ => None,
        };
        let patch = match snapshot {
            Some(snapshot) => Arc::clone(snapshot.patch()),
            None => one.memory.patch().unwrap(),
        };
        one.check("a copy", round);
        other.write(&mut dice);
        other.evict(&mut evicted);
        other.memory.restore(&patch).unwrap();
        other.model.clone_from(&one.model);
        other.check("a resume", round);
        // Both go back to the image, or go on.
        for memory in &mut memories {
            memory.write(&mut dice);
            if dice.below(3) > 0 {
                memory.evict(&mut evicted);
            }
            if dice.below(4) > 0 {
                memory.memory.restore(&pristine).unwrap();
                memory.model.clone_from(&content);
                memory.check("a reset", round);
            }
        }
        memories.swap(0, 1);
    }
    eprintln!("{evicted:?}, with the page scan: {has_scan}");
    (is_tracked && memories[0].is_on_disk).then_some(evicted)
}

/// Without a disk or page tracking there is nothing to evict, and the memories are still compared.
#[test]
fn pages_that_were_evicted_go_back_as_well() {
    for has_scan in [true, false] {
        if let Some(evicted) = go_back_after_evictions(has_scan) {
            assert!(
                evicted.of_file > 100 * ROUNDS_WITHOUT_SCAN,
                "{evicted:?}: too few to show anything"
            );
        }
    }
}
