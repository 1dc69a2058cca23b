//! The bytecode cache: code of programs that run repeatedly, shared by all interpreters on an
//! image.
//!
//! Compiling takes a short program half of its time, and a long one milliseconds. So a program that
//! ran a few times is compiled once more, in an interpreter that was just reset (`ahead.rs`). Later
//! runs get the code with their request. The key is a hash of the source, so a program that
//! subverts the compiler affects only itself. To the host the code is bytes.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// The longest source that is kept as code. A longer one takes long to run anyway.
const MOST_SOURCE_BYTES: usize = 256 << 10;
/// The run after which a program is compiled ahead. Compiling costs about as much as another run,
/// so with more runs than that it has paid.
const RUNS_BEFORE: u8 = 3;
/// How many programs that aren't compiled ahead are counted: the last this many, up to twice as
/// many.
const COUNTED: usize = 2048;
/// How many programs may wait to be compiled ahead. Further ones are counted again.
const MOST_WANTED: usize = 8;
/// The memory that a program takes apart from its code.
const ENTRY_BYTES: usize = 96;

/// A program that the cache tells from others.
type ProgramKey = [u8; blake3::OUT_LEN];

/// Code of programs, up to a number of bytes. The code that was used last stays.
#[derive(Debug)]
pub(crate) struct BytecodeCache {
    is_off: bool,
    /// Whether any program is wanted. Each worker asks after each job, so not under the lock.
    wants_any: AtomicBool,
    state: Mutex<BytecodeState>,
}

#[derive(Debug)]
struct BytecodeState {
    /// The code of a program, or `None` if each run has to compile it.
    codes: Generations<Option<Arc<[u8]>>>,
    /// How often programs without code were run.
    runs: Generations<u8>,
    wanted: VecDeque<Wanted>,
}

/// A program that is to be compiled ahead.
#[derive(Debug)]
pub(crate) struct Wanted {
    key: ProgramKey,
    pub(crate) source: String,
    pub(crate) is_expression: bool,
}

impl BytecodeCache {
    pub(crate) fn new(most_bytes: usize) -> Self {
        let codes = Generations::new(most_bytes / 2);
        let state =
            BytecodeState { codes, runs: Generations::new(COUNTED), wanted: VecDeque::new() };
        Self {
            is_off: most_bytes == 0,
            wants_any: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    /// Returns the code of a program that is about to run, if it was compiled ahead; otherwise
    /// counts the run.
    pub(crate) fn code(&self, source: &str, is_expression: bool) -> Option<Arc<[u8]>> {
        if self.is_off || source.len() > MOST_SOURCE_BYTES {
            return None;
        }
        let key = key(source, is_expression);
        let mut state = self.state.lock();
        if let Some(known) = state.codes.get(&key) {
            return known.clone();
        }
        let runs = state.runs.get(&key).map_or(1, |runs| *runs + 1);
        let is_wanted = runs >= RUNS_BEFORE;
        state.runs.put(key, if is_wanted { 0 } else { runs }, 1);
        if is_wanted {
            let wanted = &mut state.wanted;
            if wanted.len() < MOST_WANTED && wanted.iter().all(|wanted| wanted.key != key) {
                wanted.push_back(Wanted { key, source: source.to_owned(), is_expression });
                self.wants_any.store(true, Ordering::Release);
            }
        }
        None
    }

    /// Returns whether a program is to be compiled ahead.
    pub(crate) fn wants_any(&self) -> bool {
        self.wants_any.load(Ordering::Acquire)
    }

    /// Returns a program that is to be compiled ahead. The caller puts its code.
    pub(crate) fn wanted(&self) -> Option<Wanted> {
        if !self.wants_any() {
            return None;
        }
        let mut state = self.state.lock();
        let wanted = state.wanted.pop_front();
        self.wants_any.store(!state.wanted.is_empty(), Ordering::Release);
        wanted
    }

    /// Puts the code of a program. `None` means that each run has to compile it. So does code for
    /// which there is no room.
    pub(crate) fn put(&self, wanted: &Wanted, code: Option<&[u8]>) {
        let codes = &mut self.state.lock().codes;
        let code = code.filter(|code| ENTRY_BYTES + code.len() <= codes.most);
        let bytes = ENTRY_BYTES + code.map_or(0, <[u8]>::len);
        codes.put(wanted.key, code.map(Arc::from), bytes);
    }

    /// Returns the number of programs that are kept as code or known to have none. Also returns the
    /// memory that they take, in bytes.
    pub(crate) fn size(&self) -> (usize, usize) {
        let codes = &self.state.lock().codes;
        (codes.young.len() + codes.old.len(), codes.young_size + codes.old_size)
    }
}

fn key(source: &str, is_expression: bool) -> ProgramKey {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[u8::from(is_expression)]);
    hasher.update(source.as_bytes());
    *hasher.finalize().as_bytes()
}

/// A map of two generations, each of a bounded size. When the young one is full it becomes the old
/// one. Values of the old one are dropped unless they are used before the next time.
#[derive(Debug)]
struct Generations<V> {
    young: HashMap<ProgramKey, (V, usize)>,
    old: HashMap<ProgramKey, (V, usize)>,
    young_size: usize,
    old_size: usize,
    /// The largest size of a generation.
    most: usize,
}

impl<V> Generations<V> {
    fn new(most: usize) -> Self {
        let (young, old) = (HashMap::new(), HashMap::new());
        Self { young, old, young_size: 0, old_size: 0, most }
    }

    /// Returns a value, which has then been used.
    fn get(&mut self, key: &ProgramKey) -> Option<&mut V> {
        if let Some((value, size)) = self.old.remove(key) {
            self.old_size -= size;
            self.put(*key, value, size);
        }
        self.young.get_mut(key).map(|(value, _)| value)
    }

    /// Puts a value of this size, unless that is more than a generation holds.
    fn put(&mut self, key: ProgramKey, value: V, size: usize) {
        if size > self.most {
            return;
        }
        for (values, total) in
            [(&mut self.young, &mut self.young_size), (&mut self.old, &mut self.old_size)]
        {
            *total -= values.remove(&key).map_or(0, |(_, size)| size);
        }
        if self.young_size + size > self.most {
            self.old = std::mem::take(&mut self.young);
            self.old_size = std::mem::take(&mut self.young_size);
        }
        self.young.insert(key, (value, size));
        self.young_size += size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program so often that it is to be compiled ahead.
    fn want(cache: &BytecodeCache, source: &str) -> Option<Wanted> {
        for _ in 0..RUNS_BEFORE {
            assert_eq!(cache.code(source, false), None);
        }
        cache.wanted()
    }

    #[test]
    fn a_program_is_compiled_ahead_after_its_third_run() {
        let cache = BytecodeCache::new(1 << 20);
        for _ in 1..RUNS_BEFORE {
            assert_eq!(cache.code("x", false), None);
            assert_eq!(cache.code("x", true), None);
            assert!(cache.wanted().is_none());
        }
        assert_eq!(cache.code("x", false), None);
        let wanted = cache.wanted().unwrap();
        assert_eq!((wanted.source.as_str(), wanted.is_expression), ("x", false));
        assert!(cache.wanted().is_none(), "each is wanted once");
        cache.put(&wanted, Some(b"code"));
        assert_eq!(cache.code("x", false).as_deref(), Some(&b"code"[..]));
        assert_eq!(cache.code("x", true), None, "as an expression it is another program");
        assert_eq!(cache.size(), (1, ENTRY_BYTES + 4));
    }

    #[test]
    fn a_program_that_nobody_compiles_is_wanted_once() {
        let cache = BytecodeCache::new(1 << 20);
        for _ in 0..3 * RUNS_BEFORE {
            assert_eq!(cache.code("x", false), None);
        }
        assert!(cache.wanted().is_some() && cache.wanted().is_none());
    }

    #[test]
    fn a_program_without_code_is_not_asked_for_again() {
        let cache = BytecodeCache::new(1 << 20);
        let wanted = want(&cache, "1 +").unwrap();
        cache.put(&wanted, None);
        assert!(want(&cache, "1 +").is_none());
    }

    #[test]
    fn nothing_is_kept_beyond_its_bound() {
        let cache = BytecodeCache::new(10_000);
        let code = [0; 904];
        for number in 0..1000 {
            let wanted = want(&cache, &format!("x = {number}")).unwrap();
            cache.put(&wanted, Some(&code));
            // Used all the time, so it stays.
            assert!(cache.code("x = 0", false).is_some());
            assert!(cache.size().1 <= 10_000, "{:?}", cache.size());
        }
        assert_eq!(cache.code("x = 1", false), None);
        let wanted = want(&cache, "long").unwrap();
        cache.put(&wanted, Some(&[0; 5000]));
        assert!(want(&cache, "long").is_none(), "it is not compiled ahead again");
        for number in 0..5 * COUNTED {
            (0..number % 4)
                .for_each(|_| assert!(cache.code(&format!("y{number}"), false).is_none()));
            cache.wanted();
        }
        let counted = |runs: &Generations<u8>| runs.young.len() + runs.old.len();
        assert!(counted(&cache.state.lock().runs) <= 2 * COUNTED);
        for number in 0..2 * MOST_WANTED {
            for _ in 0..RUNS_BEFORE {
                cache.code(&format!("z = {number}"), false);
            }
        }
        assert_eq!(cache.state.lock().wanted.len(), MOST_WANTED);
    }

    #[test]
    fn long_programs_and_a_cache_without_room_are_left_alone() {
        let cache = BytecodeCache::new(1 << 20);
        assert!(want(&cache, &"#".repeat(MOST_SOURCE_BYTES + 1)).is_none());
        assert!(want(&BytecodeCache::new(0), "x").is_none());
    }
}
