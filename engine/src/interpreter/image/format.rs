//! The file of an image. `docs/image-format.md` has the same table.
//!
//! ```text
//!  0  8  magic `HTCHIMG6`
//!  8  8  bytes of the header, little-endian
//! 16  8  where the memory begins: a multiple of 64 KiB
//! 24  8  bytes of the memory: a multiple of 64 KiB
//! 32  …  the header, in postcard's format
//!  …  …  zeroes
//!  …  …  the memory; pages of zeroes are holes in the file
//! ```
//!
//! The digit of the magic is the version: a file of another version is built again, never
//! converted. Nothing here checks for damage; the seal beside the file does (`seal.rs`).

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::{Facts, ImageInfo};
use crate::files::mount::Mount;
use crate::files::tree::saved::SavedTree;
use crate::host::layout::{Layout, put_mount};
use crate::host::wasi::HostState;
use crate::host::wasi::clock::SavedClock;
use crate::host::wasi::descriptors::saved::{HostParts, SavedDescriptors};
use crate::host::wasi::path::is_workdir;
use crate::host::wasi::random::Random;
use crate::memory::image::MemoryImage;
use crate::memory::sys::FileView;
use crate::memory::{GuestMemory, PAGE_BYTES};
use crate::python::packages::Package;
use crate::python::spec::ImageSpec;

/// What was captured from a template. Holds the template's memory until it is written.
pub(super) struct Captured {
    pub(super) memory: Arc<GuestMemory>,
    pub(super) host: HostState,
    pub(super) facts: Facts,
}

/// Magic and version; also a part of every image's key.
pub(crate) const MAGIC: [u8; 8] = *b"HTCHIMG6";
const PREFIX_BYTES: usize = 32;
/// The alignment of the memory in the file: no system has larger pages.
const ALIGNMENT: usize = 64 << 10;

pub(super) struct ImageContents {
    pub(super) memory: MemoryImage,
    pub(super) host: HostState,
    pub(super) facts: Facts,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ImageHeader {
    info: ImageInfo,
    facts: Facts,
    host: SavedHost,
}

impl ImageHeader {
    pub(super) fn new(
        key: &str,
        visible_key: String,
        spec: &ImageSpec,
        build: &str,
        warnings: Vec<String>,
        captured: &Captured,
    ) -> Self {
        let info = ImageInfo {
            visible_key,
            packages: spec.packages.iter().flat_map(Package::infos).cloned().collect(),
            warnings,
            preload: spec.preload.clone(),
            hidden: spec.hidden.clone(),
            setup: spec.setup.as_ref().map(|setup| setup.filename.clone()),
            build: build.to_owned(),
            created: SystemTime::now(),
            ..ImageInfo::new(key)
        };
        Self { info, facts: captured.facts.clone(), host: SavedHost::of(&captured.host) }
    }
}

/// Writes an image into an empty file.
pub(super) fn write(file: &mut File, header: &ImageHeader, memory: &[u8]) -> io::Result<()> {
    let header = postcard::to_stdvec(header).map_err(io::Error::other)?;
    let memory_at = (PREFIX_BYTES + header.len()).next_multiple_of(ALIGNMENT);
    file.write_all(&MAGIC)?;
    for number in [header.len(), memory_at, memory.len()] {
        file.write_all(&(number as u64).to_le_bytes())?;
    }
    file.write_all(&header)?;
    write_at(file, memory_at, memory)
}

/// Writes the end of a file, from `at` on, in which pages of zeroes become holes.
pub(super) fn write_at(file: &mut File, at: usize, bytes: &[u8]) -> io::Result<()> {
    file.set_len((at + bytes.len()) as u64)?;
    let is_zero = |page: &[u8]| page.iter().all(|byte| *byte == 0);
    let mut at = at as u64;
    for page in bytes.chunks(PAGE_BYTES) {
        if !is_zero(page) {
            file.seek(SeekFrom::Start(at))?;
            file.write_all(page)?;
        }
        at += page.len() as u64;
    }
    Ok(())
}

/// Parses a file; `None` if it is no image of this version.
pub(super) fn read(view: FileView, layout: &Layout) -> Option<(ImageInfo, ImageContents)> {
    let (header, memory) = parse(view.bytes())?;
    let memory = MemoryImage::new(view, memory)?;
    let info = ImageInfo { memory_bytes: memory.bytes().len() as u64, ..header.info };
    let host = header.host.revive(layout)?;
    Some((info, ImageContents { memory, host, facts: header.facts }))
}

/// Reads the description of the image in a file; `None` if it is no image of this version.
pub(super) fn read_info(bytes: &[u8]) -> Option<ImageInfo> {
    let (header, memory) = parse(bytes)?;
    Some(ImageInfo { memory_bytes: memory.len() as u64, ..header.info })
}

fn parse(bytes: &[u8]) -> Option<(ImageHeader, std::ops::Range<usize>)> {
    let rest = bytes.strip_prefix(&MAGIC)?;
    let (numbers, rest) = rest.split_at_checked(PREFIX_BYTES - MAGIC.len())?;
    let number = |index: usize| {
        let bytes = numbers[index * 8..].first_chunk().expect("three numbers");
        usize::try_from(u64::from_le_bytes(*bytes)).ok()
    };
    let (header_len, memory_at, memory_len) = (number(0)?, number(1)?, number(2)?);
    let header = postcard::from_bytes(rest.get(..header_len)?).ok()?;
    let end = memory_at.checked_add(memory_len)?;
    (end <= bytes.len()).then_some((header, memory_at..end))
}

/// The saved form of one guest's host. Mounted folders and what was open in them have no byte form.
/// A file leaves them out, and the jobs that need them mount them again. A state for another
/// process has them beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedHost {
    tree: SavedTree,
    open: SavedDescriptors,
    workdir: String,
    clock: SavedClock,
    random: Random,
}

impl SavedHost {
    pub(crate) fn of(state: &HostState) -> Self {
        Self::with_parts(state, None)
    }

    pub(crate) fn whole(state: &HostState) -> (Self, HostParts) {
        let mounts = state.tree.mounts().map(|(node, mount)| (node, Arc::clone(mount))).collect();
        let mut parts = HostParts { mounts, files: Vec::new() };
        let saved = Self::with_parts(state, Some(&mut parts));
        (saved, parts)
    }

    fn with_parts(state: &HostState, parts: Option<&mut HostParts>) -> Self {
        Self {
            tree: state.tree.saved(),
            open: state.open.saved(&state.tree, parts),
            workdir: state.workdir.to_string(),
            clock: state.clock.saved(),
            random: state.random.clone(),
        }
    }

    /// Returns whether `of` leaves nothing out: no folder of the host is mounted, open or being
    /// listed.
    pub(crate) fn is_all_of(state: &HostState) -> bool {
        state.tree.mounts().next().is_none() && state.open.can_be_saved(&state.tree)
    }

    /// Restores the host for a guest of the build with this layout; `None` if it is invalid.
    pub(crate) fn revive(self, layout: &Layout) -> Option<HostState> {
        self.revive_with(layout, &[], Vec::new())
    }

    /// Restores the host with these folders at these paths, and these open files.
    pub(crate) fn revive_with(
        self,
        layout: &Layout,
        mounts: &[(String, Arc<Mount>)],
        files: Vec<Arc<File>>,
    ) -> Option<HostState> {
        let mut state = HostState::new(layout, None);
        state.tree = state.tree.with_saved(self.tree)?;
        let now = state.clock.timestamp();
        let mut parts = HostParts { mounts: Vec::new(), files };
        for (path, mount) in mounts {
            let node = put_mount(&mut state.tree, path, mount, now).ok()?;
            parts.mounts.push((node, Arc::clone(mount)));
        }
        state.open = state.open.reopen(&self.open, &state.tree, &parts)?;
        state.workdir = Some(self.workdir).filter(|path| is_workdir(path))?.into();
        state.clock = self.clock.into();
        state.random = self.random;
        Some(state)
    }
}
