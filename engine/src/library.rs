//! The read-only library that every guest sees: CPython's archive and matplotlib's data.
//!
//! It is read and unpacked once per process and shared by reference; nothing here is mutable.

use std::collections::BTreeSet;
use std::io::{Cursor, Read};
use std::sync::Arc;

use crate::error::{EngineError, PythonError};
use crate::packages::{PackageInfo, PackageOrigin, module_of};
use crate::python::PythonBuild;

/// Where CPython looks for its library, a path compiled into the build.
pub(crate) const ARCHIVE_PATH: &str = "/usr/local/lib/python315.zip";
/// Where matplotlib expects its data: inside the archive, whose entries can't be opened as files,
/// so the host shows a folder there.
pub(crate) const MATPLOTLIB_DATA_PATH: &str = "/usr/local/lib/python315.zip/matplotlib/mpl-data";
/// An archive inside the archive holds that data.
const MATPLOTLIB_DATA: &str = "matplotlib/mpl-data.zip";

/// The read-only library.
#[derive(Debug)]
pub(crate) struct Library {
    /// The contents of `ARCHIVE_PATH`.
    pub(crate) archive: Arc<Vec<u8>>,
    /// The files below `MATPLOTLIB_DATA_PATH`, with their relative paths.
    pub(crate) matplotlib_data: Vec<LibraryFile>,
}

/// A file of the library, shared by all guests.
#[derive(Debug)]
pub(crate) struct LibraryFile {
    pub(crate) path: String,
    pub(crate) contents: Arc<Vec<u8>>,
}

impl Library {
    pub(crate) fn load(build: &PythonBuild) -> Result<Self, EngineError> {
        let archive = build.library()?;
        let data = read_entry(&archive, MATPLOTLIB_DATA)?;
        let matplotlib_data = unpack(&data)?;
        Ok(Self { archive: Arc::new(archive), matplotlib_data })
    }
}

/// What can be imported from a build's archive.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    /// The packages that say their versions, by name.
    pub(crate) distributions: Vec<PackageInfo>,
    /// Modules and packages at the top, those of the standard library among them.
    pub(crate) modules: BTreeSet<String>,
}

/// Reads the names of an archive's entries.
pub(crate) fn inventory(archive: &[u8]) -> Result<Inventory, PythonError> {
    let name = ARCHIVE_PATH;
    let zip = zip::ZipArchive::new(Cursor::new(archive)).map_err(|e| bad(name, &e))?;
    let mut inventory = Inventory::default();
    for entry in zip.file_names() {
        let entry = entry.map_err(|e| bad(name, &e))?;
        inventory.modules.extend(module_of(&entry).map(str::to_owned));
        inventory.distributions.extend(distribution(&entry));
    }
    inventory.distributions.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(inventory)
}

/// The distribution whose metadata an entry is.
fn distribution(entry: &str) -> Option<PackageInfo> {
    let folder = entry.strip_suffix(".dist-info/METADATA")?;
    let (name, version) = folder.split_once('-')?;
    // Folders can't have a `-` in a name, and have `_` in its place.
    let name = name.replace('_', "-");
    Some(PackageInfo { name, version: Some(version.to_owned()), origin: PackageOrigin::Build })
}

fn read_entry(archive: &[u8], name: &str) -> Result<Vec<u8>, PythonError> {
    let mut zip = zip::ZipArchive::new(Cursor::new(archive)).map_err(|e| bad(name, &e))?;
    let mut entry = zip.by_name(name).map_err(|e| bad(name, &e))?;
    let mut contents = Vec::new();
    entry.read_to_end(&mut contents).map_err(|e| bad(name, &e))?;
    Ok(contents)
}

fn unpack(archive: &[u8]) -> Result<Vec<LibraryFile>, PythonError> {
    let mut zip =
        zip::ZipArchive::new(Cursor::new(archive)).map_err(|e| bad(MATPLOTLIB_DATA, &e))?;
    let mut files = Vec::with_capacity(zip.len());
    for index in 0..zip.len() {
        let mut entry = zip.by_index(index).map_err(|e| bad(MATPLOTLIB_DATA, &e))?;
        if entry.is_dir() {
            continue;
        }
        let name = entry.name().map_err(|e| bad(MATPLOTLIB_DATA, &e))?.into_owned();
        let mut contents = Vec::new();
        entry.read_to_end(&mut contents).map_err(|e| bad(&name, &e))?;
        files.push(LibraryFile { path: name, contents: Arc::new(contents) });
    }
    Ok(files)
}

fn bad(name: &str, error: &dyn std::error::Error) -> PythonError {
    PythonError::Layout { name: name.to_owned(), detail: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_metadata_names_a_distribution() {
        let found = distribution("et_xmlfile-2.0.0.dist-info/METADATA").unwrap();
        assert_eq!(found.to_string(), "et-xmlfile 2.0.0");
        for entry in
            ["numpy/__init__.pyc", "x-1.dist-info/entry_points.txt", "x.dist-info/METADATA"]
        {
            assert_eq!(distribution(entry), None, "{entry}");
        }
    }
}
