//! Lists what can be imported from the build's own archive.

use std::collections::BTreeSet;
use std::io::Cursor;

use crate::error::{EngineError, PythonError};
use crate::places::ARCHIVE_PATH;
use crate::python::distribution::PythonBuild;
use crate::python::library::LibraryFile;
use crate::python::packages::info::{PackageInfo, PackageOrigin, module_of};

/// What can be imported from a build's archive.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    /// The packages whose versions are known, by name.
    pub(crate) distributions: Vec<PackageInfo>,
    /// Top-level modules and packages, including the standard library.
    pub(crate) modules: BTreeSet<String>,
}

impl PythonBuild {
    /// Returns the packages of the build whose versions are known, by name.
    ///
    /// # Errors
    /// The archive with the library can't be read or is damaged.
    pub fn packages(&self) -> Result<Vec<PackageInfo>, EngineError> {
        let archive = LibraryFile { path: ARCHIVE_PATH.to_owned(), contents: self.library()? };
        Ok(inventory([&archive])?.distributions)
    }
}

/// Reads the names of the archives' entries.
pub(crate) fn inventory<'a>(
    archives: impl IntoIterator<Item = &'a LibraryFile>,
) -> Result<Inventory, PythonError> {
    let mut inventory = Inventory::default();
    for LibraryFile { path, contents } in archives {
        let layout = |error| PythonError::layout(path, error);
        let zip = zip::ZipArchive::new(Cursor::new(contents)).map_err(layout)?;
        for entry in zip.file_names() {
            let entry = entry.map_err(layout)?;
            inventory.modules.extend(module_of(&entry).map(str::to_owned));
            inventory.distributions.extend(distribution(&entry));
        }
    }
    inventory.distributions.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(inventory)
}

/// Returns the distribution to which an entry with metadata belongs.
fn distribution(entry: &str) -> Option<PackageInfo> {
    let folder = entry.strip_suffix(".dist-info/METADATA")?;
    let (name, version) = folder.split_once('-')?;
    // In folder names, `_` replaces the `-` of a name.
    let name = name.replace('_', "-");
    Some(PackageInfo { name, version: Some(version.to_owned()), origin: PackageOrigin::Build })
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
