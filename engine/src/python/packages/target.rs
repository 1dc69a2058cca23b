//! The Python for which packages are chosen.

use crate::places::PYTHON_VERSION;

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
    /// Returns that of the default build.
    fn default() -> Self {
        Self::new(PYTHON_VERSION, "wasi")
    }
}

impl PythonTarget {
    /// Returns the target of a build that says this of itself.
    pub fn new(version: [u32; 3], platform: impl Into<String>) -> Self {
        Self { version, platform: platform.into() }
    }

    /// Returns the version in the form of `3.12`.
    pub fn series(&self) -> String {
        let [major, minor, _] = self.version;
        format!("{major}.{minor}")
    }
}
