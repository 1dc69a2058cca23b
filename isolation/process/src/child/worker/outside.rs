//! How a worker process is confined before it runs guest code.
#![expect(unsafe_code, reason = "closing descriptors that the helper owned")]

use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU32;

use confine::{Confinement, Report, Separation};

use crate::{states, system};

/// Memory files that are made or taken at once, and files of mounted folders.
const NEW_DESCRIPTORS: u64 = states::MOST_FILES as u64;

/// The engine's store of copied pages is a memory file of 64 GiB, mostly holes.
const LONGEST_FILE: u64 = 128 << 30;

/// The threads of a worker, with room for those of a guest.
pub(crate) const THREADS: u64 = 1 << 10;

/// What a worker is confined by, and what it leaves behind.
pub(crate) struct Outside<'a> {
    /// The helper's process id.
    pub(crate) parent: u32,
    /// The namespaces that it shares with the helper's other workers.
    pub(crate) separation: Option<&'a Separation>,
    /// Where the system call is noted that the worker is killed for.
    pub(crate) refused: &'static AtomicU32,
    /// The most private memory that it may have.
    pub(crate) private_bytes: u64,
    /// The helper's own descriptors.
    pub(crate) left: &'a [BorrowedFd<'a>],
}

impl Outside<'_> {
    /// Confines this process, which keeps these descriptors and the files that the engine has open.
    pub(super) fn confine(&self, ends: [BorrowedFd<'_>; 3]) -> Result<Report, String> {
        let kept = system::open_files(self.left).map_err(|error| error.to_string())?;
        let kept: Vec<BorrowedFd<'_>> = kept.into_iter().chain(ends).collect();
        let mut confinement = Confinement::of_child(self.parent);
        confinement.keep = &kept;
        confinement.new_descriptors = NEW_DESCRIPTORS;
        confinement.file_bytes = LONGEST_FILE;
        confinement.threads = THREADS;
        confinement.private_bytes = Some(self.private_bytes);
        confinement.refused = Some(self.refused);
        confinement.separation = self.separation;
        // SAFETY: what isn't kept belonged to the helper, and this process uses none of it. It goes
        // on in `run`, which never returns to the helper's code.
        unsafe { confine::confine(&confinement) }.map_err(|error| engine::chain(&error).to_string())
    }
}
