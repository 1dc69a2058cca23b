//! Lists what the cache holds, and removes entries that were unused for long.
//!
//! The last use of an entry is the time of its newest seal, which each use sets (`seal.rs`). A
//! process that uses a build, a module or an image holds a shared lock on it. So nothing in use is
//! removed in any process, except packages, which stay mapped where they are in use. The next start
//! that needs a removed entry builds or fetches it again.

use std::fs::{self, DirEntry, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::cache::seal::{Sealer, seal_path};
use crate::cache::stamp::stamp_path;
use crate::cache::{CacheDir, remove_unfinished};
use crate::cause::chain;
use crate::error::CacheError;
use crate::python::module::code_path;
use crate::python::{distribution, module};

/// File metadata counts in blocks of this size, whatever the file system uses.
const BLOCK_BYTES: u64 = 512;

/// An entry of the cache, which is used and removed as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheEntry {
    /// The kind of the entry.
    pub kind: CacheEntryKind,
    /// Its name among entries of its kind: for instance the key of an image.
    pub name: String,
    /// The file or the folder.
    pub path: PathBuf,
    /// Its size on disk.
    pub bytes: u64,
    /// When a start last used it, or else when it was made.
    pub last_used: SystemTime,
    /// Whether a process uses it now, or is making an entry of this kind.
    pub is_in_use: bool,
    /// Whether every start of this version needs it: its Python build and the compiled module.
    pub is_needed: bool,
}

/// The kind of an entry of the cache.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
#[non_exhaustive]
pub enum CacheEntryKind {
    /// A Python build, as it was fetched.
    Build,
    /// A build's compiled module, for one version of Hatchery and one kind of CPU.
    Module,
    /// The state of an interpreter that has imported what jobs need.
    Image,
    /// The packages of a requirements file.
    Packages,
}

/// Which entries to remove from the cache. Entries in use are never removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prune {
    /// Removes entries that were unused for this long. `None`: none for their age.
    pub older_than: Option<Duration>,
    /// Removes the least recently used entries until the rest takes at most this many bytes.
    /// Entries that every start needs go last. `None`: none for their size.
    pub to_bytes: Option<u64>,
    /// Whether to report what would be removed instead of removing it.
    pub is_dry_run: bool,
}

/// The result of pruning the cache.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// What was removed, or would be, least recently used first.
    pub removed: Vec<CacheEntry>,
    /// What stays.
    pub kept: Vec<CacheEntry>,
}

/// A kind of entries, and where they are stored.
struct EntryFiles {
    kind: CacheEntryKind,
    /// The folder in the cache; its lock has the same name.
    folder: &'static str,
    /// The extension of files that are entries. `None`: folders are entries.
    extension: Option<&'static str>,
}

const PLACES: [EntryFiles; 4] = [
    EntryFiles { kind: CacheEntryKind::Build, folder: "builds", extension: None },
    EntryFiles { kind: CacheEntryKind::Module, folder: "modules", extension: Some("module") },
    EntryFiles { kind: CacheEntryKind::Image, folder: "images", extension: Some("image") },
    EntryFiles { kind: CacheEntryKind::Packages, folder: "packages", extension: None },
];

impl CacheEntryKind {
    /// Returns its name in lower case.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Returns the entries of the cache, most recently used first.
///
/// # Errors
/// The cache can't be read.
pub fn entries(cache: &CacheDir) -> Result<Vec<CacheEntry>, CacheError> {
    let mut entries = Vec::new();
    for place in &PLACES {
        // Held while an entry of this kind is made.
        let is_busy = matches!(cache.try_lock(place.folder), Ok(None));
        for path in place.paths(cache)? {
            let mut entry = place.entry(path);
            entry.is_in_use = is_busy || place.is_in_use(&entry.path);
            entries.push(entry);
        }
    }
    entries.sort_by(|a, b| (b.last_used, &b.path).cmp(&(a.last_used, &a.path)));
    Ok(entries)
}

/// Returns the size of the whole cache on disk, in bytes, with what isn't finished. Unreadable files count
/// as 0.
pub(crate) fn total_bytes(cache: &CacheDir) -> u64 {
    PLACES.iter().map(|place| bytes_of(&cache.root().join(place.folder))).sum()
}

/// Removes the entries that `prune` selects at the time `now`.
///
/// # Errors
/// The cache can't be read, or an entry can't be removed; entries removed before stay removed.
pub fn prune(cache: &CacheDir, prune: &Prune, now: SystemTime) -> Result<Pruned, CacheError> {
    let mut pruned = choose(entries(cache)?, prune, now);
    if prune.is_dry_run {
        return Ok(pruned);
    }
    for place in &PLACES {
        // Somebody is making an entry there and needs the existing ones.
        let Some(_lock) = cache.try_lock(place.folder)? else { continue };
        remove_unfinished(&cache.root().join(place.folder));
    }
    let mut removed = Vec::new();
    for entry in pruned.removed {
        match remove(cache, &entry)? {
            true => removed.push(entry),
            // Its use began after it was listed.
            false => pruned.kept.push(CacheEntry { is_in_use: true, ..entry }),
        }
    }
    pruned.removed = removed;
    Ok(pruned)
}

/// Removes the least recently used of these images until at most `count` are left and the whole cache
/// takes at most `bytes`. Images in use stay. The caller holds the lock of images.
pub(crate) fn bound_images(cache: &CacheDir, paths: Vec<PathBuf>, count: usize, bytes: u64) {
    let is_images = |place: &&EntryFiles| place.kind == CacheEntryKind::Image;
    let place = PLACES.iter().find(is_images).expect("images have a place");
    let mut images: Vec<_> = paths.into_iter().map(|path| place.entry(path)).collect();
    images.sort_by_key(|image| image.last_used);
    let (mut left_count, mut left_bytes) = (images.len(), total_bytes(cache));
    for image in images {
        if left_count <= count && left_bytes <= bytes {
            break;
        }
        let Some(_unused) = place.claim(&image.path) else { continue };
        match Sealer::remove(&image.path) {
            Ok(()) => {
                left_count -= 1;
                left_bytes = left_bytes.saturating_sub(image.bytes);
            }
            Err(error) => tracing::warn!(error = %chain(&error), "an old image can't be removed"),
        }
    }
}

/// Splits entries into those to remove and those to keep, in any order.
fn choose(mut entries: Vec<CacheEntry>, prune: &Prune, now: SystemTime) -> Pruned {
    let age = |entry: &CacheEntry| now.duration_since(entry.last_used).unwrap_or_default();
    let is_old = |entry: &CacheEntry| prune.older_than.is_some_and(|most| age(entry) >= most);
    let mut left: u64 = entries.iter().map(|entry| entry.bytes).sum();
    entries.sort_by_key(|entry| (!is_old(entry), entry.is_needed, entry.last_used));
    let mut pruned = Pruned::default();
    for entry in entries {
        let is_too_much = prune.to_bytes.is_some_and(|most| left > most);
        if !entry.is_in_use && (is_old(&entry) || is_too_much) {
            left -= entry.bytes;
            pruned.removed.push(entry);
        } else {
            pruned.kept.push(entry);
        }
    }
    pruned
}

/// Removes an entry, unless it is in use.
fn remove(cache: &CacheDir, entry: &CacheEntry) -> Result<bool, CacheError> {
    let place = PLACES.iter().find(|place| place.kind == entry.kind);
    let place = place.expect("every kind has a place");
    let Some(_lock) = cache.try_lock(place.folder)? else { return Ok(false) };
    let Some(_unused) = place.claim(&entry.path) else { return Ok(false) };
    match place.extension {
        Some(_) => {
            if place.kind == CacheEntryKind::Module {
                // It may be missing: what is left is removed all the same.
                let _ = Sealer::remove(&code_path(&entry.path));
            }
            Sealer::remove(&entry.path)?;
        }
        None => fs::remove_dir_all(&entry.path)
            .map_err(|source| CacheError::io("remove", &entry.path, source))?,
    }
    Ok(true)
}

impl EntryFiles {
    fn paths(&self, cache: &CacheDir) -> Result<Vec<PathBuf>, CacheError> {
        let mut paths = cache.paths(self.folder)?;
        paths.retain(|path| match self.extension {
            Some(extension) => path.extension().is_some_and(|found| found == extension),
            None => fs::symlink_metadata(path).is_ok_and(|file| file.is_dir()),
        });
        Ok(paths)
    }

    fn entry(&self, path: PathBuf) -> CacheEntry {
        let file_name = path.file_name().unwrap_or_default();
        let name = if self.extension.is_some() { path.file_stem() } else { path.file_name() };
        let needed = [distribution::folder_name(), module::file_name(distribution::WASM_SHA256)];
        CacheEntry {
            kind: self.kind,
            name: name.unwrap_or_default().to_string_lossy().into_owned(),
            bytes: bytes_of(&path),
            last_used: last_used(&path),
            is_in_use: false,
            is_needed: needed.iter().any(|needed| file_name == needed.as_str()),
            path,
        }
    }

    /// Locks the entry, so that no use of it can begin. Returns `None` if it is in use, or if that
    /// is unknown.
    fn claim(&self, path: &Path) -> Option<Claim> {
        if self.kind == CacheEntryKind::Packages {
            return Some(Claim { _file: None });
        }
        let file = File::open(path).ok()?;
        file.try_lock().ok()?;
        Some(Claim { _file: Some(file) })
    }

    fn is_in_use(&self, path: &Path) -> bool {
        self.claim(path).is_none()
    }
}

/// An entry that can't come into use while this exists.
struct Claim {
    _file: Option<File>,
}

/// Returns the files of an entry. Those are one file, the code of a module, and what belongs to
/// both, or all files of a folder. Not every one of them exists.
fn files(path: &Path) -> Vec<PathBuf> {
    let Ok(folder) = fs::read_dir(path) else {
        let both = [path.to_owned(), code_path(path)];
        return both
            .into_iter()
            .flat_map(|path| [seal_path(&path), stamp_path(&path), path])
            .collect();
    };
    let is_folder = |entry: &DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let all = folder.flatten().flat_map(|entry| match is_folder(&entry) {
        true => files(&entry.path()),
        false => vec![entry.path()],
    });
    all.collect()
}

fn bytes_of(path: &Path) -> u64 {
    files(path).iter().flat_map(fs::symlink_metadata).map(|file| file.blocks() * BLOCK_BYTES).sum()
}

/// Returns when the newest file was written or its seal set by a use.
fn last_used(path: &Path) -> SystemTime {
    let files = files(path).into_iter();
    let times = files.filter_map(|file| fs::symlink_metadata(file).ok()?.modified().ok());
    times.max().unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn cache() -> (tempfile::TempDir, CacheDir) {
        let folder = tempfile::tempdir().unwrap();
        let cache = CacheDir::open(Some(folder.path())).unwrap();
        (folder, cache)
    }

    /// Makes a sealed file that was last used this many days ago.
    fn make(cache: &CacheDir, folder: &str, name: &str, bytes: usize, days: u32) -> PathBuf {
        let path = cache.folder(folder).unwrap().join(name);
        let write = |file: &mut File| file.write_all(&vec![1; bytes]);
        Sealer::new(cache).unwrap().write(&path, "label", write).unwrap();
        let then = SystemTime::now() - days * DAY;
        for file in files(&path).iter().filter(|file| file.exists()) {
            File::options().write(true).open(file).unwrap().set_modified(then).unwrap();
        }
        path
    }

    fn names(entries: &[CacheEntry]) -> Vec<&str> {
        entries.iter().map(|entry| entry.name.as_str()).collect()
    }

    fn pruned(cache: &CacheDir, days: Option<u32>, to_bytes: Option<u64>) -> Pruned {
        let older_than = days.map(|days| days * DAY);
        let request = Prune { older_than, to_bytes, is_dry_run: false };
        prune(cache, &request, SystemTime::now()).unwrap()
    }

    #[test]
    fn everything_is_listed_with_its_size_and_age() {
        let (_folder, cache) = cache();
        make(&cache, "images", "aa.image", 100_000, 3);
        make(&cache, "modules", "bb.module", 10, 2);
        let build = cache.folder("builds").unwrap().join("python");
        fs::create_dir_all(build.join("LICENSES")).unwrap();
        fs::write(build.join("LICENSES/x"), [1; 50_000]).unwrap();
        let packages = cache.folder("packages").unwrap().join("cc");
        fs::create_dir(&packages).unwrap();
        fs::write(packages.join("packed"), b"[]").unwrap();
        let unfinished = cache.root().join("images/.unfinished-x");
        fs::write(&unfinished, b"half").unwrap();

        let entries = entries(&cache).unwrap();
        let kinds: Vec<_> = entries.iter().map(|entry| (entry.kind.name(), &*entry.name)).collect();
        assert_eq!(kinds[2..], [("module", "bb"), ("image", "aa")]);
        assert!(kinds[..2].contains(&("build", "python")), "{kinds:?}");
        assert!(kinds[..2].contains(&("packages", "cc")), "{kinds:?}");
        let image = &entries[3];
        assert!((100_000..120_000).contains(&image.bytes), "{image:?}");
        assert!(entries.iter().all(|entry| !entry.is_in_use && !entry.is_needed), "{entries:?}");
        let bytes = entries.iter().map(|entry| entry.bytes).sum::<u64>();
        assert_eq!(total_bytes(&cache), bytes + bytes_of(&unfinished));
    }

    #[test]
    fn the_code_of_a_module_counts_and_goes_with_it() {
        let (_folder, cache) = cache();
        let index = make(&cache, "modules", "aa.module", 10, 40);
        let code = make(&cache, "modules", "aa.code", 100_000, 40);
        let listed = entries(&cache).unwrap();
        assert_eq!(names(&listed), ["aa"]);
        assert!((100_000..130_000).contains(&listed[0].bytes), "{listed:?}");
        assert_eq!(names(&pruned(&cache, Some(30), None).removed), ["aa"]);
        for path in [index, code] {
            assert!(!path.exists() && !seal_path(&path).exists(), "{path:?}");
        }
    }

    #[test]
    fn entries_unused_for_long_are_removed_with_their_seals() {
        let (_folder, cache) = cache();
        let old = make(&cache, "images", "old.image", 10, 40);
        make(&cache, "modules", "young.module", 10, 20);
        let pruned = pruned(&cache, Some(30), None);
        assert_eq!((names(&pruned.removed), names(&pruned.kept)), (vec!["old"], vec!["young"]));
        assert!(!old.exists() && !crate::cache::seal::seal_path(&old).exists());
    }

    #[test]
    fn a_use_makes_it_young_again() {
        let (_folder, cache) = cache();
        let used = make(&cache, "images", "used.image", 10, 40);
        let read = make(&cache, "images", "read.image", 10, 40);
        let seen = make(&cache, "images", "seen.image", 10, 40);
        let sealer = Sealer::new(&cache).unwrap();
        drop(sealer.view(&used, "label").unwrap());
        drop(sealer.view(&read, "label").unwrap());
        drop(sealer.look_at(&seen, "label").unwrap());
        assert_eq!(names(&pruned(&cache, Some(30), None).removed), ["seen"]);
    }

    #[test]
    fn least_recently_used_entries_are_removed_until_the_rest_fits() {
        let (_folder, cache) = cache();
        let needed = module::file_name(distribution::WASM_SHA256);
        make(&cache, "modules", &needed, 100_000, 9);
        for (name, days) in [("a.image", 1), ("c.image", 8), ("b.image", 5)] {
            make(&cache, "images", name, 100_000, days);
        }
        let pruned_to = |bytes| names(&pruned(&cache, None, Some(bytes)).removed).join(" ");
        assert_eq!(pruned_to(1 << 20), "");
        assert_eq!(pruned_to(250_000), "c b");
        assert_eq!(pruned_to(120_000), "a");
        assert!(pruned_to(0).len() > 10, "what every start needs goes last");
    }

    #[test]
    fn entries_in_use_stay_and_so_does_everything_in_a_dry_run() {
        let (_folder, cache) = cache();
        let path = make(&cache, "modules", "used.module", 10, 40);
        make(&cache, "images", "idle.image", 10, 40);
        let view = Sealer::new(&cache).unwrap().view(&path, "label").unwrap();
        let listed = entries(&cache).unwrap();
        let used: Vec<_> = listed.iter().filter(|entry| entry.is_in_use).cloned().collect();
        assert_eq!(names(&used), ["used"]);

        let request = Prune { to_bytes: Some(0), is_dry_run: true, ..Prune::default() };
        let dry = prune(&cache, &request, SystemTime::now()).unwrap();
        assert_eq!((names(&dry.removed), names(&dry.kept)), (vec!["idle"], vec!["used"]));
        assert_eq!(entries(&cache).unwrap().len(), 2);

        assert_eq!(names(&pruned(&cache, Some(0), None).removed), ["idle"]);
        drop(view);
        assert_eq!(names(&pruned(&cache, Some(0), None).removed), ["used"]);
    }

    #[test]
    fn only_some_images_are_removed_for_being_many_or_large_and_none_in_use() {
        let (_folder, cache) = cache();
        let bound = |names: &[&str], count, bytes| {
            let path = |name: &&str| cache.root().join("images").join(name);
            bound_images(&cache, names.iter().map(path).collect(), count, bytes);
            let mut left: Vec<_> = entries(&cache).unwrap().into_iter().map(|e| e.name).collect();
            left.sort_unstable();
            left.join("")
        };
        for (name, days) in [("a.image", 9), ("b.image", 8), ("c.image", 7), ("d.image", 6)] {
            make(&cache, "images", name, 100_000, days);
        }
        let own = make(&cache, "images", "o.image", 100_000, 40);
        let all = ["a.image", "b.image", "c.image", "d.image"];
        assert_eq!(bound(&all, 4, 1 << 20), "abcdo");
        assert_eq!(bound(&all, 3, 1 << 20), "bcdo");
        let used = cache.root().join("images/b.image");
        let view = Sealer::new(&cache).unwrap().look_at(&used, "label").unwrap();
        assert_eq!(bound(&all[1..], 3, 350_000), "bdo");
        assert_eq!(bound(&["b.image", "d.image"], 3, 0), "bo", "the new one is in use, too");
        drop(view);
        assert_eq!(bound(&["b.image"], 3, 0), "o");
        assert!(own.exists());
    }

    #[test]
    fn entries_stay_while_another_one_is_made_beside_them() {
        let (_folder, cache) = cache();
        make(&cache, "images", "a.image", 10, 40);
        fs::write(cache.root().join("images/.unfinished-x"), b"half").unwrap();
        let making = cache.lock("images").unwrap();
        assert!(pruned(&cache, Some(0), None).removed.is_empty());
        drop(making);
        assert_eq!(names(&pruned(&cache, Some(0), None).removed), ["a"]);
        assert_eq!(fs::read_dir(cache.root().join("images")).unwrap().count(), 0);
    }
}
