//! Packages to add to an image: pure-Python wheels, folders, and the packages of a requirements
//! file. The machine code of a few is left out (`stand_ins.rs`). A build of Emscripten takes wheels with
//! machine code for it, which is linked into its module (`python/emscripten/link.rs`).
//!
//! A package is read completely when it is opened, or mapped where pip fetched it before. An image's
//! key covers every byte of it.
//! Every guest of the image sees its files, read-only, below `SITE`. They aren't stored in the
//! image's file, so the image can only be loaded together with its packages.
//!
//! Nothing of a package runs outside of the sandbox. Packages are untrusted, so paths, kinds and
//! sizes are checked before anything is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::cache::CacheDir;
use crate::cause::Cause;
use crate::config::ProgressSink;
use crate::error::PackageError;
use crate::files::check_path;
use crate::places::SITE;
use info::{Inventory, PackageInfo, PackageOrigin, PythonTarget, module_of, normalized};
use metadata::Metadata;

mod folder;
mod index;
pub(crate) mod info;
mod metadata;
mod requirements;
mod stand_ins;
mod wheel;

/// The largest number of files in one image's packages. A hundred wheels of the usual size have
/// fewer.
const MOST_FILES: usize = 20_000;
/// The most bytes of one image's packages, unpacked; they stay in this process's memory.
const MOST_BYTES: u64 = 384 << 20;
/// The largest number of folders above a file.
const MOST_PARTS: usize = 32;

/// One or more distributions to add to an image, read and checked. Cheap to clone; clones are the
/// same package, and packages with the same contents are equal.
#[derive(Clone, derive_more::Debug)]
#[debug("Package({:?})", inner.infos)]
pub struct Package {
    inner: Arc<PackageInner>,
}

struct PackageInner {
    infos: Vec<PackageInfo>,
    /// Normalised names of the distributions that it requires.
    needs: BTreeSet<String>,
    files: BTreeMap<String, Bytes>,
    /// The hash of names, versions, paths and contents.
    hash: blake3::Hash,
}

impl PartialEq for Package {
    fn eq(&self, other: &Self) -> bool {
        self.inner.hash == other.inner.hash
    }
}

impl Eq for Package {}

/// A package in a file of the cache, which has its files unpacked.
#[derive(Serialize, Deserialize)]
struct PackedPackage<'a> {
    infos: Vec<PackageInfo>,
    needs: BTreeSet<String>,
    #[serde(borrow)]
    files: Vec<(&'a str, &'a serde_bytes::Bytes)>,
    hash: [u8; 32],
}

impl PackedPackage<'_> {
    /// Returns the package, whose files stay parts of `whole`.
    fn unpack(self, whole: &Bytes) -> Package {
        let Self { infos, needs, files, hash } = self;
        let shared = |(path, contents): (&str, &serde_bytes::Bytes)| {
            (path.to_owned(), whole.slice_ref(contents))
        };
        let files = files.into_iter().map(shared).collect();
        let inner = PackageInner { infos, needs, files, hash: hash.into() };
        Package { inner: Arc::new(inner) }
    }
}

impl Package {
    fn pack(&self) -> PackedPackage<'_> {
        let PackageInner { infos, needs, files, hash } = self.inner.as_ref();
        let files = files.iter().map(|(path, file)| (path.as_str(), serde_bytes::Bytes::new(file)));
        let (infos, needs, hash) = (infos.clone(), needs.clone(), *hash.as_bytes());
        PackedPackage { infos, needs, files: files.collect(), hash }
    }

    /// Reads a wheel or a folder.
    ///
    /// A folder with an `__init__.py` is one package with the folder's name. Any other folder is
    /// laid out like `site-packages`: modules, packages, and optional `.dist-info` folders. Names
    /// that begin with a dot and `__pycache__` are left out. Files that end in `.pth` have no
    /// effect.
    ///
    /// # Errors
    /// It can't be read, isn't a package, or is larger than 384 MiB or 20,000 files. Or it needs
    /// machine code, or requires another Python than `target`.
    pub fn open(path: &Path, target: &PythonTarget) -> Result<Self, PackageError> {
        let metadata =
            std::fs::metadata(path).map_err(|cause| PackageError::Read(path.to_owned(), cause))?;
        if metadata.is_dir() {
            return folder::read(path, target);
        }
        if path.extension().is_none_or(|extension| extension != "whl") {
            return Err(bad(path, "give a wheel, which ends in `.whl`, or a folder"));
        }
        wheel::read(path, &wheel::load(path)?, target, PackageOrigin::Wheel(file_name(path)))
    }

    /// Returns the wheels of a requirements file for `target`, in the order of their file names.
    /// They come from the cache or else through this machine's pip. Every requirement states its
    /// version and SHA-256. Dependencies aren't resolved: the file names all of them except those
    /// that the build has.
    ///
    /// An `index` is a folder where pip finds wheels, too. With a `pyodide-lock.json`, the packages
    /// that this names come first. They need no hash, and bring what they depend on.
    ///
    /// # Errors
    /// The file or the index can't be read or is ambiguous, pip fails, [`Self::open`] refuses a wheel,
    /// or a file isn't that of the lock file.
    pub fn from_requirements(
        cache: &CacheDir,
        path: &Path,
        index: Option<&Path>,
        target: &PythonTarget,
        progress: &dyn ProgressSink,
    ) -> Result<Vec<Self>, PackageError> {
        requirements::load(cache, Some(path), index, target, progress)
    }

    /// Returns the common packages: some 170 wheels, from requests and Flask to xarray, with
    /// what they need beside the default build. Their versions belong to this version of
    /// Hatchery. They come from the cache or else through this machine's pip.
    ///
    /// # Errors
    /// pip fails, or the build has a Python older than 3.12.
    pub fn common(
        cache: &CacheDir,
        target: &PythonTarget,
        progress: &dyn ProgressSink,
    ) -> Result<Vec<Self>, PackageError> {
        requirements::load(cache, None, None, target, progress)
    }

    /// Returns the distributions in it: one for a wheel, those with metadata for a folder, or else
    /// the folder itself.
    pub fn infos(&self) -> &[PackageInfo] {
        &self.inner.infos
    }

    fn name(&self) -> String {
        let names: Vec<String> = self.inner.infos.iter().map(PackageInfo::to_string).collect();
        names.join(", ")
    }
}

/// Checks that packages can be in one image: files with the same path must be equal.
///
/// # Errors
/// Two of them have different files at one path, or together they are too large.
pub(crate) fn check(packages: &[Package]) -> Result<(), PackageError> {
    let mut seen: BTreeMap<&str, (&Package, &Bytes)> = BTreeMap::new();
    let mut bytes = 0_u64;
    for package in packages {
        for (path, contents) in &package.inner.files {
            match seen.insert(path, (package, contents)) {
                Some((_, same)) if same == contents => {}
                Some((other, _)) => return Err(conflict(path, other, package)),
                None => bytes += contents.len() as u64,
            }
        }
    }
    for (path, (package, _)) in &seen {
        if let Some((other, _)) = folders_above(path).find_map(|folder| seen.get(folder)) {
            return Err(conflict(path, other, package));
        }
    }
    if bytes > MOST_BYTES || seen.len() > MOST_FILES {
        let names: Vec<String> = packages.iter().map(Package::name).collect();
        return Err(PackageError::TooLarge { what: names.join(", "), detail: caps() });
    }
    Ok(())
}

fn conflict(path: &str, first: &Package, second: &Package) -> PackageError {
    PackageError::Conflict { file: path.to_owned(), first: first.name(), second: second.name() }
}

/// Returns every file of the packages, each path once.
pub(crate) fn files(packages: &[Package]) -> BTreeMap<&str, &Bytes> {
    let files = packages.iter().flat_map(|package| &package.inner.files);
    files.map(|(path, contents)| (path.as_str(), contents)).collect()
}

/// Returns the machine code of the packages, by the paths at which the guest sees it.
pub(crate) fn libraries(packages: &[Package]) -> Vec<(String, Bytes)> {
    let libraries = files(packages).into_iter().filter(|(path, _)| is_native(path));
    libraries.map(|(path, contents)| (format!("{SITE}/{path}"), contents.clone())).collect()
}

/// Returns what distinguishes an image with these packages from others, for its key.
pub(crate) fn identity(packages: &[Package]) -> Vec<u8> {
    packages.iter().flat_map(|package| *package.inner.hash.as_bytes()).collect()
}

/// Returns warnings about packages on top of a build, for the user who adds them.
pub(crate) fn warnings(packages: &[Package], build: &Inventory) -> Vec<String> {
    let added = || packages.iter().flat_map(Package::infos);
    let known: BTreeSet<String> =
        added().chain(&build.distributions).map(|info| normalized(&info.name)).collect();
    let mut warnings = Vec::new();
    // The user hasn't chosen what the common packages need.
    let is_common = |info: &PackageInfo| matches!(info.origin, PackageOrigin::Common(_));
    for package in packages.iter().filter(|package| !package.infos().iter().any(is_common)) {
        // `cffi` calls machine code, which is left out, and the other JavaScript (`_system.py`).
        let is_called = |need: &&String| !["cffi", "httpx2-jsfetch"].contains(&need.as_str());
        for need in package.inner.needs.difference(&known).filter(is_called) {
            warnings.push(format!("{} needs `{need}`, which is not there", package.name()));
        }
        let lacks = |info: &PackageInfo| match &info.origin {
            PackageOrigin::Requirements(file) => wheel::lacks_machine_code(file),
            _ => false,
        };
        if package.infos().iter().any(lacks) {
            warnings.push(format!(
                "{} is there without its machine code, for which this build has no wheel",
                package.name()
            ));
        }
        let hides =
            |info: &PackageInfo| same_names(info, build).find(|own| own.version != info.version);
        let modules: BTreeSet<&str> =
            package.inner.files.keys().filter_map(|path| module_of(path)).collect();
        let hidden: Vec<&str> =
            modules.into_iter().filter(|module| build.modules.contains(*module)).collect();
        match package.infos().iter().find_map(hides) {
            Some(own) => warnings.push(format!(
                "{} is not used: the build has {own}, which comes first",
                package.name()
            )),
            None if !hidden.is_empty() && !is_of_build(package, build) => warnings.push(format!(
                "`{}` of {} can't be imported: the build has modules of that name, which come first",
                hidden.join("`, `"),
                package.name()
            )),
            None => {}
        }
    }
    warnings
}

/// Returns the distributions of the build with the name of another one.
fn same_names<'a>(
    info: &PackageInfo,
    build: &'a Inventory,
) -> impl Iterator<Item = &'a PackageInfo> {
    let name = normalized(&info.name);
    build.distributions.iter().filter(move |own| normalized(&own.name) == name)
}

/// Returns whether the build has every distribution of the package in the same version.
fn is_of_build(package: &Package, build: &Inventory) -> bool {
    let is_there =
        |info: &PackageInfo| same_names(info, build).any(|own| own.version == info.version);
    package.infos().iter().all(is_there)
}

/// Files as they are read, each checked before it is kept.
struct Collector<'a> {
    /// What is read, for errors.
    source: &'a Path,
    files: BTreeMap<String, Bytes>,
    bytes: u64,
    /// Whether its machine code can be linked into the build.
    is_linkable: bool,
    /// Whether it may have been machine code alone, which is left out.
    may_be_empty: bool,
}

impl<'a> Collector<'a> {
    fn new(source: &'a Path, is_linkable: bool) -> Self {
        Self { source, files: BTreeMap::new(), bytes: 0, is_linkable, may_be_empty: false }
    }

    /// Keeps one file. Never reads more than an image may hold.
    fn add(&mut self, path: &str, contents: &mut dyn Read) -> Result<(), PackageError> {
        self.check(path)?;
        let room = MOST_BYTES - self.bytes;
        let mut bytes = Vec::new();
        contents.take(room + 1).read_to_end(&mut bytes).map_err(|error| {
            bad_because(self.source, &format!("can't read `{path}` in it"), error)
        })?;
        self.bytes += bytes.len() as u64;
        if self.bytes > MOST_BYTES || self.files.len() >= MOST_FILES {
            let what = self.source.display().to_string();
            return Err(PackageError::TooLarge { what, detail: caps() });
        }
        if self.files.insert(path.to_owned(), Bytes::from(bytes)).is_some() {
            return Err(bad(self.source, &format!("it has `{path}` twice")));
        }
        Ok(())
    }

    fn check(&self, path: &str) -> Result<(), PackageError> {
        let is_plain = check_path(path).is_ok() && !path.contains('\\');
        if !is_plain || path.split('/').count() > MOST_PARTS {
            return Err(bad(
                self.source,
                &format!("`{}` in it isn't a plain path", path.escape_debug()),
            ));
        }
        if is_native(path) && !self.is_linkable {
            let reason = format!("`{path}` in it is machine code");
            return Err(PackageError::Native { path: self.source.to_owned(), reason });
        }
        Ok(())
    }

    /// Returns the package, once all its files are collected.
    fn finish(
        self,
        infos: Vec<PackageInfo>,
        metadata: &[Metadata],
        target: &PythonTarget,
    ) -> Result<Package, PackageError> {
        if let Some(one) = metadata.iter().find(|one| !one.runs_on(target)) {
            let (path, has) = (self.source.to_owned(), target.series());
            let wants = one.requires_python.clone().unwrap_or_default();
            return Err(PackageError::Python { path, wants, has });
        }
        let is_file = |folder: &str| self.files.contains_key(folder);
        if let Some(folder) =
            self.files.keys().flat_map(|path| folders_above(path)).find(|f| is_file(f))
        {
            return Err(bad(self.source, &format!("`{folder}` in it is a file and a folder")));
        }
        if !self.may_be_empty && !self.files.keys().any(|path| module_of(path).is_some()) {
            return Err(bad(self.source, "there is nothing in it that can be imported"));
        }
        let mut hasher = blake3::Hasher::new();
        let mut part = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        for info in &infos {
            part(info.to_string().as_bytes());
        }
        for (path, contents) in &self.files {
            part(path.as_bytes());
            part(contents);
        }
        let needs = metadata.iter().flat_map(|one| one.needs(target)).collect();
        let inner = PackageInner { infos, needs, files: self.files, hash: hasher.finalize() };
        Ok(Package { inner: Arc::new(inner) })
    }
}

/// Returns `a` and `a/b` for `a/b/c`.
fn folders_above(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

/// Returns whether a file's name is that of a shared library.
fn is_native(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    [".so", ".pyd", ".dylib", ".dll"].iter().any(|end| name.ends_with(end)) || name.contains(".so.")
}

fn caps() -> String {
    format!("an image takes at most {} MiB in {MOST_FILES} files", MOST_BYTES >> 20)
}

fn bad(path: &Path, detail: &str) -> PackageError {
    PackageError::NotAPackage { path: path.to_owned(), detail: detail.to_owned(), cause: None }
}

fn bad_because(
    path: &Path,
    detail: &str,
    error: impl std::error::Error + Send + Sync + 'static,
) -> PackageError {
    let (path, detail, cause) = (path.to_owned(), detail.to_owned(), Some(Cause::new(error)));
    PackageError::NotAPackage { path, detail, cause }
}

fn file_name(path: &Path) -> String {
    path.file_name().map(OsStr::to_string_lossy).unwrap_or_default().into_owned()
}

#[cfg(test)]
mod tests;
