//! Sessions outside of slots: an interpreter's state beyond its image, suspended, copied, saved to a
//! file and resumed again.
//!
//! Layout of a saved session, numbers little-endian; `docs/image-format.md` has the same table:
//!
//! ```text
//!  0   8  magic `HTCHSES3`
//!  8  32  BLAKE3 of all that follows
//! 40   …  the session, in postcard's format
//! ```
//!
//! A program in the sandbox could give its own memory any contents that a saved session can have.
//! So forging a file gains nothing. The hash detects damage, and the host checks what it reads.
//!
//! A packed session has the same bytes, and the state without a byte form. That is its running
//! clock, and its files if folders of the host are mounted among them.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use replace::{Access, replace};
use serde::{Deserialize, Serialize};

use crate::error::SessionError;
use crate::files::changes::Workspace;
use crate::host::wasi::HostState;
use crate::host::wasi::clock::Clock;
use crate::interpreter::image::format::SavedHost;
use crate::interpreter::image::{GeneratorState, Image};
use crate::memory::delta::PatchDelta;
use crate::memory::patch::{MemoryPatch, PagePatch};
use crate::memory::snapshot::Snapshot;
use crate::run::program::Deterministic;
use forks::{ForkBase, Lineage};

pub(crate) mod forks;
pub(crate) mod message;

const MAGIC: [u8; 8] = *b"HTCHSES3";

/// The state of an interpreter between two runs: what it holds beyond its image. Immutable and
/// shared: a clone is a reference.
#[derive(Clone, derive_more::Debug)]
#[debug("SessionState({} bytes on {:?})", self.bytes(), inner.image)]
pub struct SessionState {
    pub(super) inner: Arc<SessionInner>,
}

#[derive(Clone)]
pub(super) struct SessionInner {
    pub(super) image: Image,
    pub(super) memory: SessionMemory,
    pub(super) globals: Arc<[u128]>,
    pub(super) host: HostState,
    pub(super) life: Life,
    /// Whether the pages of its memory were marked when it was copied. They are once many turns
    /// have followed each other in one interpreter.
    pub(super) was_marked: bool,
    /// What its bytes are counted beside, and what was forked off it.
    pub(super) lineage: Lineage,
}

/// What the memory of a session holds beyond its image.
#[derive(Debug, Clone)]
pub(crate) enum SessionMemory {
    /// Compared with the image.
    Patch(Arc<MemoryPatch>),
    /// Copied page by page.
    Snapshot(Arc<Snapshot>),
    /// Compared with the state that it was forked from.
    Delta(Arc<PatchDelta>, Arc<ForkBase>),
}

impl SessionMemory {
    fn patch(&self, image: &Image) -> Arc<MemoryPatch> {
        match self {
            Self::Patch(patch) => Arc::clone(patch),
            Self::Snapshot(snapshot) => Arc::clone(snapshot.patch()),
            Self::Delta(delta, base) => delta.over(base.of(image)).into(),
        }
    }

    /// Returns the bytes that it takes beside `base`.
    fn bytes(&self, base: Option<&ForkBase>) -> u64 {
        match (self, base) {
            (Self::Patch(patch), None) => patch.bytes(),
            (Self::Patch(patch), Some(base)) => patch.bytes_beside(&base.patch),
            (Self::Snapshot(snapshot), None) => snapshot.bytes(),
            (Self::Snapshot(snapshot), Some(base)) => snapshot.bytes_beside(&base.patch),
            (Self::Delta(delta, own), _) => delta.bytes(&own.patch),
        }
    }
}

/// The history of an interpreter's state that later runs depend on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Life {
    /// The clock and the random numbers that the first run asked for.
    pub(crate) deterministic: Option<Deterministic>,
    pub(crate) has_run: bool,
    /// Whether the state was forked: it must not repeat the random numbers of the original.
    pub(crate) is_copy: bool,
}

/// The states of the random number generators that modules share.
pub(crate) type Generators = Vec<[u8; GeneratorState::BYTES as usize]>;

impl SessionInner {
    /// Completes it with its bytes beside what it was forked from.
    pub(super) fn counted(mut self) -> SessionState {
        let library = &self.image.inner.layout.tree;
        let base = self.lineage.base().map(|base| &**base);
        let of_files = match base {
            None => self.host.tree.file_bytes(),
            Some(base) => self.host.tree.bytes_beside(&base.tree, library),
        };
        self.lineage.own_bytes = self.memory.bytes(base).saturating_add(of_files);
        SessionState { inner: Arc::new(self) }
    }
}

impl SessionState {
    fn new(
        image: &Image,
        memory: SessionMemory,
        globals: impl Into<Arc<[u128]>>,
        host: HostState,
        life: Life,
    ) -> Self {
        let image = image.clone();
        let (globals, was_marked, lineage) = (globals.into(), false, Lineage::default());
        SessionInner { image, memory, globals, host, life, was_marked, lineage }.counted()
    }

    /// Returns the state of an interpreter on `image` before its first run.
    pub fn fresh(image: &Image) -> Self {
        let memory = SessionMemory::Patch(Arc::clone(&image.inner.pristine));
        let globals = image.inner.facts.globals.as_slice();
        Self::new(image, memory, globals, image.inner.host.clone(), Life::default())
    }

    /// Returns the bytes of memory and files that the state holds beyond the image, without what
    /// [forks](Self::branch) share with it.
    pub fn bytes(&self) -> u64 {
        self.inner.lineage.own_bytes
    }

    /// Returns the number of 4 KiB pages of guest memory that differ from the image.
    pub fn pages(&self) -> usize {
        self.memory().page_count()
    }

    /// Returns the files of the workspace.
    pub fn workspace(&self) -> Workspace {
        Workspace::new(&self.inner.host.tree, self.inner.image.inner.layout.workspace)
    }

    /// Returns a copy for another session, which counts all its bytes. Before it runs, the random
    /// number generators that modules share are seeded again; a deterministic session keeps their
    /// states.
    pub fn fork(&self) -> Self {
        let SessionInner { image, globals, host, life, .. } = &*self.inner;
        let life = Life { is_copy: life.deterministic.is_none(), ..*life };
        let memory = SessionMemory::Patch(self.memory());
        Self::new(image, memory, Arc::clone(globals), host.clone(), life)
    }

    /// Returns the same state in less memory, if its pages are copied whole, or if it was forked
    /// and isn't a delta yet. Otherwise returns `None`. Comparing pages takes 0.1 ms and more.
    pub fn compact(&self) -> Option<Self> {
        let inner = &*self.inner;
        let memory = match (&inner.memory, inner.lineage.base()) {
            (SessionMemory::Delta(..), _) | (SessionMemory::Patch(_), None) => return None,
            (SessionMemory::Patch(patch), Some(base)) if Arc::ptr_eq(patch, &base.patch) => {
                return None;
            }
            (SessionMemory::Snapshot(snapshot), None) => {
                SessionMemory::Patch(Arc::clone(snapshot.patch()))
            }
            (memory, Some(base)) => {
                let patch = memory.patch(&inner.image);
                let delta = PatchDelta::between(base.of(&inner.image), &patch);
                SessionMemory::Delta(Arc::new(delta), Arc::clone(base))
            }
        };
        Some(SessionInner { memory, ..inner.clone() }.counted())
    }

    /// Writes the session to a file in one step. The old file stays until the new one is on the
    /// disk. Leaves mounted folders out. Returns the bytes written.
    ///
    /// # Errors
    /// The file can't be written.
    #[tracing::instrument(level = "debug", name = "save_session", skip_all)]
    pub fn save(&self, path: &Path) -> Result<u64, SessionError> {
        let bytes = self.to_bytes(SavedHost::of(&self.inner.host));
        let failed = |cause| SessionError::File { action: "write", path: path.to_owned(), cause };
        replace(path, Access::Private, |file| file.write_all(&bytes)).map_err(failed)?;
        Ok(bytes.len() as u64)
    }

    /// Reads a session that `save` wrote, on that of these images on which it was saved. Returns the
    /// image's place among them too. Like a fork, the session gets new random numbers.
    ///
    /// # Errors
    /// The file can't be read, is damaged or no session, or belongs to another image.
    #[tracing::instrument(level = "debug", name = "revive_session", skip_all)]
    pub fn revive(images: &[Image], path: &Path) -> Result<(usize, Self), SessionError> {
        let failed = |cause| SessionError::File { action: "read", path: path.to_owned(), cause };
        if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
            return Err(failed(std::io::Error::other("it isn't a regular file")));
        }
        let bytes = fs::read(path).map_err(failed)?;
        let mut foreign = None;
        for (place, image) in images.iter().enumerate() {
            match Self::from_bytes(image, &bytes) {
                Ok(state) => return Ok((place, state.fork())),
                Err(Unread::Bad(detail)) => {
                    return Err(SessionError::NotASession { path: path.to_owned(), detail });
                }
                Err(Unread::OtherImage(saved)) => foreign = Some(saved),
            }
        }
        let foreign = foreign.ok_or(SessionError::NotSuspendable)?;
        Err(foreign.refusal(path, images))
    }

    /// Returns the clock and the random numbers that its first run asked for.
    pub fn deterministic(&self) -> Option<Deterministic> {
        self.inner.life.deterministic
    }

    /// Returns whether anything has run in it.
    pub fn has_run(&self) -> bool {
        self.inner.life.has_run
    }

    /// Splits the session, without mounted folders, into parts of which several states of one
    /// session have many in common.
    pub fn to_parts(&self) -> SessionParts {
        let mut saved = self.saved(SavedHost::of(&self.inner.host));
        let bytes = std::mem::take(&mut saved.bytes);
        let mut rest = bytes.as_slice();
        let pages = saved.pages.iter().map(|(_, blocks)| {
            let (page, after) = rest.split_at(PagePatch::bytes_of(*blocks));
            rest = after;
            page.to_vec()
        });
        SessionParts { pages: pages.collect(), head: saved.sealed() }
    }

    /// Puts a session together that `to_parts` split, on that of these images on which it was. It
    /// keeps a deterministic clock and random numbers. `path` is the file that has the parts.
    ///
    /// # Errors
    /// The parts are damaged, or belong to another image.
    pub fn from_parts(
        images: &[Image],
        parts: &SessionParts,
        path: &Path,
    ) -> Result<(usize, Self), SessionError> {
        let bad = |detail| SessionError::NotASession { path: path.to_owned(), detail };
        let mut saved = Saved::opened(&parts.head).map_err(bad)?;
        saved.bytes = parts.pages.concat();
        let Some(place) = images.iter().position(|image| image.info().key == saved.image) else {
            return Err(saved.refusal(path, images));
        };
        let image = &images[place];
        match Self::of_saved(image, saved, |host| host.revive(&image.inner.layout)) {
            Ok(state) => Ok((place, state)),
            Err(Unread::Bad(detail)) => Err(bad(detail)),
            Err(Unread::OtherImage(saved)) => Err(saved.refusal(path, images)),
        }
    }

    /// Packs the session into bytes, which take less memory until it continues in this process.
    #[tracing::instrument(level = "debug", name = "pack_session", skip_all)]
    pub fn pack(&self) -> PackedSession {
        let SessionInner { image, host, .. } = &*self.inner;
        let clock = host.clock.clone();
        let is_whole = SavedHost::is_all_of(host);
        let saved = SavedHost::of(if is_whole { host } else { &image.inner.host });
        let bytes = self.to_bytes(saved);
        let rest = PackedRest { clock, host: (!is_whole).then(|| host.clone()) };
        PackedSession { bytes, rest }
    }

    /// Restores a session that `pack` packed. It is the same session, so unlike a revived one it
    /// keeps its random numbers, clock and mounted folders.
    ///
    /// # Errors
    /// The bytes are damaged or no session, or belong to another image.
    #[tracing::instrument(level = "debug", name = "unpack_session", skip_all)]
    pub fn unpack(image: &Image, bytes: &[u8], rest: &PackedRest) -> Result<Self, SessionError> {
        let unpacked = Self::from_bytes(image, bytes).map_err(Unread::for_process)?;
        let SessionInner { memory, globals, host, life, .. } = &*unpacked.inner;
        let host = rest.host.as_ref().unwrap_or(host);
        let host = HostState { clock: rest.clock.clone(), ..host.clone() };
        Ok(Self::new(image, memory.clone(), Arc::clone(globals), host, *life))
    }

    /// Encodes the session with this host, in the layout above.
    fn to_bytes(&self, host: SavedHost) -> Vec<u8> {
        self.saved(host).sealed()
    }

    fn saved(&self, host: SavedHost) -> Saved {
        let SessionInner { image, globals, life, .. } = &*self.inner;
        let (info, memory) = (image.info(), self.memory());
        let pages = memory.flat(image.inner.memory.bytes());
        Saved {
            image: info.key.clone(),
            preload: info.preload.clone(),
            build: info.build.clone(),
            len: memory.len as u64,
            pages: pages.iter().map(|page| (page.page, page.blocks)).collect(),
            bytes: pages.iter().flat_map(|page| page.bytes.iter().copied()).collect(),
            globals: globals.to_vec(),
            host,
            life: *life,
        }
    }

    /// Decodes what `to_bytes` encoded.
    fn from_bytes(image: &Image, bytes: &[u8]) -> Result<Self, Unread> {
        Self::decoded(image, bytes, |host| host.revive(&image.inner.layout))
    }

    /// Decodes a session whose host `revive` restores.
    fn decoded(
        image: &Image,
        bytes: &[u8],
        revive: impl FnOnce(SavedHost) -> Option<HostState>,
    ) -> Result<Self, Unread> {
        Self::of_saved(image, Saved::opened(bytes).map_err(Unread::Bad)?, revive)
    }

    fn of_saved(
        image: &Image,
        saved: Saved,
        revive: impl FnOnce(SavedHost) -> Option<HostState>,
    ) -> Result<Self, Unread> {
        if saved.image != image.info().key {
            return Err(Unread::OtherImage(Box::new(saved)));
        }
        let memory = saved.memory(image).ok_or(Unread::Bad("its memory is invalid"))?;
        let Saved { globals, host, life, .. } = saved;
        if globals.len() != image.inner.facts.globals.len() {
            return Err(Unread::Bad("its globals are another build's"));
        }
        let host = revive(host).ok_or(Unread::Bad("its files are invalid"))?;
        Ok(Self::new(image, SessionMemory::Patch(Arc::new(memory)), globals, host, life))
    }

    pub(crate) fn memory(&self) -> Arc<MemoryPatch> {
        self.inner.memory.patch(&self.inner.image)
    }
}

/// A session in parts.
#[derive(Debug)]
pub struct SessionParts {
    /// A saved session without its `bytes`.
    pub head: Vec<u8>,
    /// Those bytes, page by page.
    pub pages: Vec<Vec<u8>>,
}

/// A session that takes less memory, until it continues in this process.
pub struct PackedSession {
    /// Its memory and everything else that has a byte form. They can be compressed and kept
    /// anywhere.
    pub bytes: Vec<u8>,
    /// The state that has no byte form.
    pub rest: PackedRest,
}

/// The state of a packed session that has no byte form.
pub struct PackedRest {
    /// Keeps running while the session is packed.
    clock: Clock,
    /// The files and descriptors of a session with mounted or open folders of the host.
    host: Option<HostState>,
}

/// Why bytes aren't a session.
enum Unread {
    Bad(&'static str),
    OtherImage(Box<Saved>),
}

impl Unread {
    /// Returns the error for a state that never was in a file.
    fn for_process(self) -> SessionError {
        match self {
            Self::Bad(detail) => SessionError::Damaged(detail),
            Self::OtherImage(_) => SessionError::NotSuspendable,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    image: String,
    preload: Vec<String>,
    /// The name of its build, for error messages.
    build: String,
    len: u64,
    /// The number of each page that differs from the image, and a bit for each block that does.
    pages: Vec<(u32, u64)>,
    /// Those blocks in order.
    bytes: Vec<u8>,
    globals: Vec<u128>,
    host: SavedHost,
    life: Life,
}

impl Saved {
    /// Encodes it in the layout above.
    fn sealed(&self) -> Vec<u8> {
        let mut bytes = postcard::to_stdvec(self).expect("plain data can be encoded");
        let hash = blake3::hash(&bytes);
        bytes.splice(..0, MAGIC.into_iter().chain(*hash.as_bytes()));
        bytes
    }

    /// Decodes what `sealed` encoded; an error says what is wrong with it.
    fn opened(bytes: &[u8]) -> Result<Self, &'static str> {
        let rest = bytes.strip_prefix(&MAGIC).ok_or("it doesn't begin as a session does")?;
        let (hash, body) =
            rest.split_first_chunk::<{ blake3::OUT_LEN }>().ok_or("it is too short")?;
        if blake3::hash(body) != blake3::Hash::from_bytes(*hash) {
            return Err("its checksum is wrong");
        }
        postcard::from_bytes(body).map_err(|_| "its fields can't be read")
    }

    /// Says why none of these images is the session's.
    fn refusal(self, path: &Path, images: &[Image]) -> SessionError {
        let Self { image: saved, preload, build, .. } = self;
        let path = path.to_owned();
        let here = images.iter().map(Image::info);
        if let Some(same) = here.clone().find(|image| image.build == build) {
            return SessionError::OtherImage { path, saved, here: same.key.clone(), preload };
        }
        let builds: Vec<&str> = here.map(|image| image.build.as_str()).collect();
        SessionError::OtherBuild { path, build, here: builds.join(" and ") }
    }

    /// Returns the memory; `None` if it is invalid on this image.
    fn memory(&self, image: &Image) -> Option<MemoryPatch> {
        let len = usize::try_from(self.len).ok()?;
        let mut rest = self.bytes.as_slice();
        let mut pages = Vec::with_capacity(self.pages.len());
        for (page, blocks) in &self.pages {
            let (bytes, after) = rest.split_at_checked(PagePatch::bytes_of(*blocks))?;
            pages.push(PagePatch { page: *page, blocks: *blocks, bytes: bytes.into() });
            rest = after;
        }
        let memory = MemoryPatch { len, segments: Vec::new(), pages };
        let is_sound = rest.is_empty()
            && crate::memory::is_length(len)
            && len >= image.inner.memory.bytes().len()
            && memory.is_sound();
        is_sound.then_some(memory)
    }
}
