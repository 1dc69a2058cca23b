//! Images: interpreters that have started and imported what jobs need, to be begun from again and
//! again.
//!
//! ```text
//! Engine --prepare once (template.rs)--> Image --start--> Interpreter --reset--> as in the image
//!                                    (a file in the cache, mapped)
//! ```
//!
//! An image is the template's memory, its globals, what its host held, and where in its memory
//! interrupts and random numbers are. Tables need no place in it: `module/writes.rs` holds a build
//! to never writing to them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::config::ProgressSink;
use crate::engine::Engine;
use crate::error::{ImageError, StartError};
use crate::files::Layout;
use crate::host::wasi::HostState;
use crate::interpreter::Interpreter;
use crate::interrupt::raise::Offsets;
use crate::memory::image::MemoryImage;
use crate::memory::patch::MemoryPatch;
use crate::packages::{self, Package, PackageInfo};

pub(crate) mod format;
pub(crate) mod saved;
pub(crate) mod store;
mod template;

/// What an image is made of, beyond the build.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageSpec {
    /// Packages beside those of the build. They can be imported in the image and in every job.
    pub packages: Vec<Package>,
    /// Modules that are imported, in this order. Programs still have to say `import`, which then
    /// takes no time.
    pub preload: Vec<String>,
    /// Code that runs after that.
    pub setup: Option<Setup>,
}

/// Code that runs as the main module before an image is taken: every job finds what it left, in
/// `__main__`, in modules and in files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Python source.
    pub source: String,
    /// Its name in tracebacks.
    pub filename: String,
}

impl ImageSpec {
    /// Whether every module to be imported has a name that a module can have, and the packages go
    /// together.
    ///
    /// # Errors
    /// The first name that is none, or the first file in which two packages differ.
    pub fn check(&self) -> Result<(), ImageError> {
        packages::check(&self.packages)?;
        let is_part = |part: &str| {
            let mut characters = part.chars();
            characters.next().is_some_and(|first| first == '_' || first.is_alphabetic())
                && characters.all(|other| other == '_' || other.is_alphanumeric())
        };
        match self.preload.iter().find(|name| !name.split('.').all(is_part)) {
            Some(name) => Err(ImageError::ModuleName { name: name.clone() }),
            None => Ok(()),
        }
    }
}

/// What is known of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageInfo {
    /// Everything that it was made of, hashed: 32 hexadecimal digits.
    pub key: String,
    /// Its file in the cache; `None` if it could not be written there.
    pub path: Option<PathBuf>,
    /// What the file takes on disk, in bytes.
    pub file_bytes: u64,
    /// Guest memory of an interpreter that begins from it, in bytes.
    pub memory_bytes: u64,
    /// Packages beside those of the build.
    pub packages: Vec<PackageInfo>,
    /// What is strange about them: needs that nothing there meets, modules that can't be imported
    /// because the build has others of that name.
    pub warnings: Vec<String>,
    /// What was imported.
    pub preload: Vec<String>,
    /// The name of the setup, if there was one.
    pub setup: Option<String>,
    /// The Python build.
    pub build: String,
    /// When it was made.
    pub created: SystemTime,
}

/// An interpreter that has started and imported what jobs need. Cheap to clone; clones are the
/// same image.
#[derive(Clone)]
pub struct Image {
    inner: Arc<ImageInner>,
}

struct ImageInner {
    engine: Engine,
    info: ImageInfo,
    /// The files that every interpreter on it sees and none can change.
    layout: Layout,
    memory: Arc<MemoryImage>,
    host: HostState,
    facts: Facts,
    /// What an interpreter on the image differs by before it ran: nothing.
    pristine: Arc<MemoryPatch>,
}

/// What is known of the interpreter in the image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Facts {
    /// The values of the module's globals, in the order of wasmer's store.
    pub(crate) globals: Vec<u128>,
    /// Where the interpreter keeps what interrupts need, if its layout is known.
    pub(crate) offsets: Option<Offsets>,
    /// The address of `KeyboardInterrupt`.
    pub(crate) exception: Option<u32>,
    /// Where the states of the random number generators are that modules share.
    pub(crate) generators: Vec<GeneratorState>,
}

/// The state of one Mersenne Twister in guest memory: 624 words, of which any are a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GeneratorState {
    pub(crate) address: u32,
}

impl GeneratorState {
    pub(crate) const BYTES: u32 = 624 * 4;
}

impl std::fmt::Debug for Image {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Image").field("info", &self.inner.info).finish_non_exhaustive()
    }
}

impl Image {
    /// Finds the image in the cache, or makes it: that takes what starting Python and importing
    /// the modules takes. Concurrent calls, in this process and others, wait for one another.
    ///
    /// # Errors
    /// The packages don't go together, a module can't be imported, the setup fails, or the system
    /// refuses memory. If only the cache can't be written to, the image is made all the same.
    #[tracing::instrument(level = "info", name = "load_image", skip_all)]
    pub fn load_or_build(
        engine: &Engine,
        spec: &ImageSpec,
        progress: &Arc<dyn ProgressSink>,
    ) -> Result<Self, ImageError> {
        spec.check()?;
        store::load_or_build(engine, spec, progress.as_ref())
    }

    fn new(
        engine: &Engine,
        layout: Layout,
        info: ImageInfo,
        contents: format::ImageContents,
    ) -> Self {
        let format::ImageContents { memory, host, facts } = contents;
        let pristine = MemoryPatch { len: memory.bytes().len(), ..MemoryPatch::default() };
        let pristine = Arc::new(pristine);
        let memory = Arc::new(memory);
        Self {
            inner: Arc::new(ImageInner {
                engine: engine.clone(),
                info,
                layout,
                memory,
                host,
                facts,
                pristine,
            }),
        }
    }

    /// Starts an interpreter on this thread, where it stays: one that is as the image is.
    ///
    /// # Errors
    /// The system refuses memory.
    #[tracing::instrument(level = "debug", name = "start_interpreter", skip_all)]
    pub fn start(&self) -> Result<Interpreter, StartError> {
        Interpreter::on(self)
    }

    /// Memory that all interpreters on it share, in bytes: the image's, and the compiled module's.
    pub fn shared_bytes(&self) -> u64 {
        self.inner.info.memory_bytes + self.inner.engine.module_bytes()
    }

    /// What is known of it.
    pub fn info(&self) -> &ImageInfo {
        &self.inner.info
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.inner.layout
    }

    pub(crate) fn memory(&self) -> &Arc<MemoryImage> {
        &self.inner.memory
    }

    pub(crate) fn host(&self) -> &HostState {
        &self.inner.host
    }

    pub(crate) fn facts(&self) -> &Facts {
        &self.inner.facts
    }

    pub(crate) fn pristine(&self) -> &Arc<MemoryPatch> {
        &self.inner.pristine
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
