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

use crate::build::packages::info::PackageInfo;
use crate::host::layout::Layout;
use crate::host::wasi::HostState;
use crate::interpreter::engine::Engine;
use crate::interrupt::raise::Offsets;
use crate::memory::image::MemoryImage;
use crate::memory::patch::MemoryPatch;

pub(crate) mod format;
pub(crate) mod saved;
pub(crate) mod store;
mod template;

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
