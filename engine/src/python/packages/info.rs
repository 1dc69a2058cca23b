//! Describes a distribution: its name, its version and where it came from.

use std::collections::BTreeSet;
use std::io::Cursor;

use serde::{Deserialize, Serialize};

use crate::error::{EngineError, PythonError};
use crate::places::{ARCHIVE_PATH, PYTHON_VERSION};
use crate::python::distribution::PythonBuild;
use crate::python::library::LibraryFile;

/// Describes a distribution in an image.
#[derive(Debug, derive_more::Display, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[display("{name}{}", version.as_ref().map(|version| format!(" {version}")).unwrap_or_default())]
#[non_exhaustive]
pub struct PackageInfo {
    /// The name in its metadata, or the folder's name.
    pub name: String,
    /// The version; `None` for a folder without metadata.
    pub version: Option<String>,
    /// Where it came from.
    pub origin: PackageOrigin,
}

/// Where a distribution came from. File names come without their folders.
#[derive(
    Debug, derive_more::Display, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize,
)]
#[non_exhaustive]
pub enum PackageOrigin {
    /// It is part of the Python build.
    #[display("the build")]
    Build,
    /// A wheel of this name.
    #[display("wheel {_0}")]
    Wheel(String),
    /// A folder of this name.
    #[display("folder {_0}")]
    Folder(String),
    /// A wheel of this name, from a requirements file.
    #[display("requirements, wheel {_0}")]
    Requirements(String),
    /// A wheel of this name, one of the common packages.
    #[display("common packages, wheel {_0}")]
    Common(String),
}

impl PackageInfo {
    /// Describes a distribution without a version.
    pub fn new(name: impl Into<String>, origin: PackageOrigin) -> Self {
        Self { name: name.into(), version: None, origin }
    }

    /// Returns whether a dependency, as PEP 508 writes it, names this distribution, in any version.
    pub fn is_named_by(&self, dependency: &str) -> bool {
        normalized(&self.name) == normalized(name_of(dependency))
    }
}

/// Returns the top-level module or package that a file is or belongs to.
pub(crate) fn module_of(path: &str) -> Option<&str> {
    let is_name = |name: &str| !name.is_empty() && !name.contains(['.', '-']);
    let name = match path.split_once('/') {
        Some((folder, rest)) => Some(folder).filter(|_| rest.contains(".py")),
        None if path.ends_with(".so") => path.split('.').next(),
        None => path.strip_suffix(".py").or_else(|| path.strip_suffix(".pyc")),
    };
    name.filter(|name| is_name(name))
}

/// Normalises a distribution's name for comparison: lower case, one `-` for each run of `-`, `_`,
/// `.`.
pub(crate) fn normalized(name: &str) -> String {
    let parts = name.split(['-', '_', '.']).filter(|part| !part.is_empty());
    parts.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

/// Returns the name at the start of a dependency, as PEP 508 writes it.
pub(crate) fn name_of(dependency: &str) -> &str {
    let dependency = dependency.trim_start();
    let end = dependency.find(|c: char| !c.is_ascii_alphanumeric() && !"._-".contains(c));
    &dependency[..end.unwrap_or(dependency.len())]
}

/// The Python for which packages are chosen: a build's, as it says itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PythonTarget {
    /// The version of CPython.
    pub version: [u32; 3],
    /// `sys.platform`.
    pub platform: String,
}

impl Default for PythonTarget {
    fn default() -> Self {
        Self::new(PYTHON_VERSION, "wasi")
    }
}

impl PythonTarget {
    /// Returns the target of a build that says this of itself.
    pub fn new(version: [u32; 3], platform: impl Into<String>) -> Self {
        Self { version, platform: platform.into() }
    }

    /// Returns that of a build that Emscripten made, with this version of CPython.
    pub(crate) fn of_emscripten(version: [u32; 3]) -> Self {
        Self::new(version, "emscripten")
    }

    /// Returns the platforms of wheels with machine code that can be linked into the build: names of
    /// one interface.
    pub(crate) fn machine_code(&self) -> &'static [&'static str] {
        match self.platform == "emscripten" && self.version[..2] == [3, 14] {
            true => {
                &["pyemscripten_2026_0_wasm32", "pyodide_2026_0_wasm32", "emscripten_5_0_3_wasm32"]
            }
            false => &[],
        }
    }

    /// Returns the version in the form of `3.12`.
    pub fn series(&self) -> String {
        let [major, minor, _] = self.version;
        format!("{major}.{minor}")
    }
}

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
