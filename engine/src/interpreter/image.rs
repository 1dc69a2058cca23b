//! Images: the state of an interpreter that has started and imported what jobs need, from which
//! interpreters begin.
//!
//! ```text
//! Engine --prepare once (template.rs)--> Image --start--> Interpreter --reset--> as in the image
//!                                    (a file in the cache, mapped)
//! ```
//!
//! An image holds the template's memory, globals and host state, and the addresses for interrupts
//! and random numbers. It holds no tables, since `module/writes.rs` refuses a build that writes to
//! them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::host::layout::Layout;
use crate::host::wasi::HostState;
use crate::interpreter::bytecode::BytecodeCache;
use crate::interpreter::engine::Engine;
use crate::interpreter::entry::Reentry;
use crate::interrupt::raise::Offsets;
use crate::memory::image::MemoryImage;
use crate::memory::patch::MemoryPatch;
use crate::python::packages::info::PackageInfo;

pub(crate) mod format;
pub(crate) mod store;
mod template;

/// Describes an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ImageInfo {
    /// The hash of everything that it was built from: 32 hexadecimal digits. In a list of the
    /// cache, one that was added ([`add_image`](crate::add_image)) has the hash of its file.
    pub key: String,
    /// The key of the image without its hidden modules. Programs see the same in both.
    pub visible_key: String,
    /// Its file in the cache; `None` if it could not be written there.
    #[serde(skip)]
    pub path: Option<PathBuf>,
    /// The size of the file on disk, in bytes.
    #[serde(skip)]
    pub file_bytes: u64,
    /// The guest memory of an interpreter that begins from it, in bytes.
    #[serde(skip)]
    pub memory_bytes: u64,
    /// Packages beyond those of the build.
    pub packages: Vec<PackageInfo>,
    /// Problems of the packages: requirements that nothing meets, and modules that modules of the
    /// build hide by their names.
    pub warnings: Vec<String>,
    /// The modules that it imported.
    pub preload: Vec<String>,
    /// The modules that it imported and hides until a program imports them.
    pub hidden: Vec<String>,
    /// The name of the setup, if there was one.
    pub setup: Option<String>,
    /// The Python build.
    pub build: String,
    /// When it was built.
    pub created: SystemTime,
}

impl ImageInfo {
    /// Describes an empty image with this key, which was built in 1970 and has no file.
    pub fn new(key: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            visible_key: String::new(),
            path: None,
            file_bytes: 0,
            memory_bytes: 0,
            packages: Vec::new(),
            warnings: Vec::new(),
            preload: Vec::new(),
            hidden: Vec::new(),
            setup: None,
            build: String::new(),
            created: SystemTime::UNIX_EPOCH,
        }
    }
}

/// The state of an interpreter that has started and imported what jobs need. Cheap to clone; clones
/// are the same image.
#[derive(Clone, derive_more::Debug)]
#[debug("Image({:?})", inner.info)]
pub struct Image {
    pub(super) inner: Arc<ImageInner>,
}

pub(super) struct ImageInner {
    engine: Engine,
    info: ImageInfo,
    /// The files that every interpreter on it sees and none can change.
    pub(super) layout: Layout,
    pub(super) memory: Arc<MemoryImage>,
    pub(super) host: HostState,
    pub(super) facts: Facts,
    /// The difference between the image and an interpreter that hasn't run: none.
    pub(super) pristine: Arc<MemoryPatch>,
    /// The code of programs that run again and again.
    pub(super) bytecode: BytecodeCache,
}

/// What the host needs to know about the interpreter in the image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Facts {
    /// The values of the module's globals, in the order of wasmer's store.
    pub(crate) globals: Vec<u128>,
    /// Where the interpreter keeps what interrupts need, if its layout is known.
    pub(crate) offsets: Option<Offsets>,
    /// The address of `KeyboardInterrupt`.
    pub(crate) exception: Option<u32>,
    /// Where a command build is entered.
    pub(crate) reentry: Option<Reentry>,
    /// The addresses of the random number generators that modules share.
    pub(crate) generators: Vec<GeneratorState>,
    /// The memory that hidden modules take, in bytes.
    pub(crate) hidden_bytes: u64,
}

/// The state of one Mersenne Twister in guest memory: any 624 words are a valid state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GeneratorState {
    pub(crate) address: u32,
}

impl GeneratorState {
    pub(crate) const BYTES: u32 = 624 * 4;
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
                bytecode: BytecodeCache::new(engine.inner.config.code_cache_bytes),
            }),
        }
    }

    /// Returns the memory that all interpreters on it share, in bytes. That is the image's, the
    /// compiled module's, and the most that the code of programs takes.
    pub fn shared_bytes(&self) -> u64 {
        let engine = &self.inner.engine;
        self.inner.info.memory_bytes
            + engine.module_bytes()
            + engine.inner.config.code_cache_bytes as u64
    }

    /// Returns the number of programs whose code it keeps, and the memory that they take, in bytes.
    pub fn code_cache_size(&self) -> (usize, usize) {
        self.inner.bytecode.size()
    }

    /// Returns its description.
    pub fn info(&self) -> &ImageInfo {
        &self.inner.info
    }

    /// Returns the engine whose interpreters it is of.
    pub fn engine(&self) -> &Engine {
        &self.inner.engine
    }
}
