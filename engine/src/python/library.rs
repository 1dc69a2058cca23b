//! The read-only library that every guest sees: CPython's archive or folder, and matplotlib's data.
//!
//! Mapped or unpacked once per process and shared by reference; nothing here is mutable.

use std::io::{Cursor, Read, Seek};

use bytes::Bytes;
use zip::ZipArchive;

use crate::error::PythonError;
use crate::places::ARCHIVE_PATH;

/// The archive inside the archive that holds matplotlib's data.
const MATPLOTLIB_DATA: &str = "matplotlib/mpl-data.zip";

#[derive(Debug, Default)]
pub(crate) struct Library {
    /// Its files, with their paths in the guest: for the default build, only the archive.
    pub(crate) files: Vec<LibraryFile>,
    /// The files below `MATPLOTLIB_DATA_PATH`, with their relative paths; only the default build
    /// has any.
    pub(crate) matplotlib_data: Vec<LibraryFile>,
}

#[derive(Debug, Clone)]
pub(crate) struct LibraryFile {
    pub(crate) path: String,
    pub(crate) contents: Bytes,
}

impl Library {
    pub(crate) fn of_default(archive: Bytes) -> Result<Self, PythonError> {
        let data = read_entry(&mut opened(&archive)?, MATPLOTLIB_DATA)?;
        let matplotlib_data = unpack(&data)?;
        let files = vec![LibraryFile { path: ARCHIVE_PATH.to_owned(), contents: archive }];
        Ok(Self { files, matplotlib_data })
    }

    pub(crate) fn archives(&self) -> impl Iterator<Item = &LibraryFile> {
        self.files.iter().filter(|file| file.path.ends_with(".zip"))
    }
}

fn opened(archive: &[u8]) -> Result<ZipArchive<Cursor<&[u8]>>, PythonError> {
    ZipArchive::new(Cursor::new(archive)).map_err(|e| PythonError::layout(MATPLOTLIB_DATA, e))
}

/// Reads one file of an archive.
pub(super) fn read_entry<R: Read + Seek>(
    archive: &mut ZipArchive<R>,
    name: &str,
) -> Result<Vec<u8>, PythonError> {
    let mut entry = archive.by_name(name).map_err(|e| PythonError::layout(name, e))?;
    let mut contents = Vec::with_capacity(usize::try_from(entry.size()).unwrap_or(0));
    entry.read_to_end(&mut contents).map_err(|e| PythonError::layout(name, e))?;
    Ok(contents)
}

fn unpack(archive: &[u8]) -> Result<Vec<LibraryFile>, PythonError> {
    let mut zip = opened(archive)?;
    let mut files = Vec::with_capacity(zip.len());
    for index in 0..zip.len() {
        let mut entry = zip.by_index(index).map_err(|e| PythonError::layout(MATPLOTLIB_DATA, e))?;
        if entry.is_dir() {
            continue;
        }
        let name = entry.name().map_err(|e| PythonError::layout(MATPLOTLIB_DATA, e))?.into_owned();
        let mut contents = Vec::new();
        entry.read_to_end(&mut contents).map_err(|e| PythonError::layout(&name, e))?;
        files.push(LibraryFile { path: name, contents: Bytes::from(contents) });
    }
    Ok(files)
}
