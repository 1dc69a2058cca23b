//! What an image contains beyond the build: packages, imported modules, and the effects of code.

use serde::{Deserialize, Serialize};

use crate::error::ImageError;
use crate::python::packages::{self, Package};
use crate::run::names::is_identifier;

/// What an image contains beyond the build.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageSpec {
    /// Packages beyond those of the build, importable in the image and in every job.
    #[serde(skip)]
    pub packages: Vec<Package>,
    /// Modules to import, in this order. Programs still need their `import`, which then takes no
    /// time.
    pub preload: Vec<String>,
    /// Modules to import, in this order, that no program sees before it imports them: neither they nor
    /// what they import are in `sys.modules`. Those that can't be imported are left out.
    pub hidden: Vec<String>,
    /// Code to run after the imports.
    pub setup: Option<Setup>,
    /// The key under which [`add_image`](crate::add_image) stored an image of all this from another
    /// machine, to start from it. If it is missing, damaged or has other contents, a warning is
    /// logged, and the image is built here.
    pub added: Option<String>,
}

/// Code that runs as the main module before an image is captured. Every job finds its effects in
/// `__main__`, in modules and in files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Python source.
    pub source: String,
    /// Its name in tracebacks.
    pub filename: String,
}

impl ImageSpec {
    /// Checks that every module to import has a valid name, and that the packages don't conflict.
    ///
    /// # Errors
    /// The first invalid name, or the first path at which two packages differ.
    pub fn check(&self) -> Result<(), ImageError> {
        packages::check(&self.packages)?;
        match self
            .preload
            .iter()
            .chain(&self.hidden)
            .find(|name| !name.split('.').all(is_identifier))
        {
            Some(name) => Err(ImageError::ModuleName(name.clone())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_have_names_that_modules_can_have() {
        for (name, is_name) in [
            ("numpy", true),
            ("matplotlib.pyplot", true),
            ("_private.größe2", true),
            ("", false),
            ("a.", false),
            ("2a", false),
            ("a b", false),
            ("a;import b", false),
        ] {
            let spec = ImageSpec { preload: vec![name.to_owned()], ..ImageSpec::default() };
            assert_eq!(spec.check().is_ok(), is_name, "{name}");
        }
    }
}
