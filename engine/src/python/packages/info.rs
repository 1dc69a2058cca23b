//! Describes a distribution: its name, its version and where it came from.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Describes a distribution in an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub enum PackageOrigin {
    /// It is part of the Python build.
    Build,
    /// A wheel of this name.
    Wheel(String),
    /// A folder of this name.
    Folder(String),
    /// A wheel of this name, from a requirements file.
    Requirements(String),
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

impl fmt::Display for PackageOrigin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Build => formatter.write_str("the build"),
            Self::Wheel(name) => write!(formatter, "wheel {name}"),
            Self::Folder(name) => write!(formatter, "folder {name}"),
            Self::Requirements(name) => write!(formatter, "requirements, wheel {name}"),
        }
    }
}

impl fmt::Display for PackageInfo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Some(version) => write!(formatter, "{} {version}", self.name),
            None => formatter.write_str(&self.name),
        }
    }
}

/// Returns the top-level module or package that a file is or belongs to.
pub(crate) fn module_of(path: &str) -> Option<&str> {
    let is_name = |name: &str| !name.is_empty() && !name.contains(['.', '-']);
    let name = match path.split_once('/') {
        Some((folder, rest)) => Some(folder).filter(|_| rest.contains(".py")),
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
