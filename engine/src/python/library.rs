//! The read-only library that every guest sees: CPython's archive or folder, and matplotlib's data.
//!
//! Mapped once per process and shared by reference; nothing here is mutable.

use std::io::{self, Cursor, Read, Seek};

use bytes::Bytes;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

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
    /// Returns the library of the default build: its archive, and what `unpacked_data` returned for
    /// it. Files are slices of the two.
    pub(crate) fn of_default(archive: Bytes, data: &Bytes) -> Result<Self, PythonError> {
        let matplotlib_data = stored_files(data)?;
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

/// Returns matplotlib's data from the default build's archive, as an archive without compression.
pub(super) fn unpacked_data(archive: &[u8]) -> Result<Vec<u8>, PythonError> {
    let invalid = |error| PythonError::layout(MATPLOTLIB_DATA, error);
    let data = read_entry(&mut opened(archive)?, MATPLOTLIB_DATA)?;
    let mut packed = opened(&data)?;
    let mut unpacked = ZipWriter::new(Cursor::new(Vec::new()));
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    for index in 0..packed.len() {
        let mut entry = packed.by_index(index).map_err(invalid)?;
        if entry.is_file() {
            unpacked.start_file(entry.name().map_err(invalid)?, stored).map_err(invalid)?;
            io::copy(&mut entry, &mut unpacked)
                .map_err(|e| PythonError::layout(MATPLOTLIB_DATA, e))?;
        }
    }
    Ok(unpacked.finish().map_err(invalid)?.into_inner())
}

/// Returns the files of an archive without compression, without copying them.
fn stored_files(archive: &Bytes) -> Result<Vec<LibraryFile>, PythonError> {
    let invalid = |error| PythonError::layout(MATPLOTLIB_DATA, error);
    let mut zip = opened(archive)?;
    let mut files = Vec::with_capacity(zip.len());
    for index in 0..zip.len() {
        let entry = zip.by_index(index).map_err(invalid)?;
        let path = entry.name().map_err(invalid)?.into_owned();
        let whole = || {
            let start = usize::try_from(entry.data_start()?).ok()?;
            let end = start.checked_add(usize::try_from(entry.size()).ok()?)?;
            (entry.compression() == CompressionMethod::Stored && end <= archive.len())
                .then(|| archive.slice(start..end))
        };
        let contents = whole()
            .ok_or_else(|| PythonError::layout(&path, io::Error::other("it isn't stored whole")))?;
        files.push(LibraryFile { path, contents });
    }
    Ok(files)
}
