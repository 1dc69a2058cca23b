//! The compiled module as one file, where wasmer can't map it (`linked.rs`): it copies the code.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use bytes::Bytes;
use wasmer::sys::Cranelift;
use wasmer::{Engine, Module};

use super::early::HotFunctions;
use super::early::rest::LazyFunctions;
use super::native::Loading;
use crate::memory::GuestMemory;
use crate::memory::sys::FileView;

/// What the file of the code holds, since a file that is mapped can't be empty.
const NO_CODE: &[u8] = b"the code is in the index";

pub(super) fn configure(_compiler: &mut Cranelift) {}

pub(super) struct Linked {
    pub(super) index: Vec<u8>,
    pub(super) code: Code,
}

/// Stands for the code, which is in the index.
pub(super) struct Code;

impl Code {
    pub(super) fn write(&self, file: &mut File) -> io::Result<()> {
        file.write_all(NO_CODE)
    }
}

/// What the memory of a new instance begins with, which wasmer knows here.
#[derive(Debug)]
pub(crate) struct InitialData;

impl InitialData {
    pub(crate) fn put(&self, _memory: &GuestMemory) -> Option<()> {
        Some(())
    }
}

pub(super) fn split(compiled: &[u8]) -> Result<Linked, String> {
    Ok(Linked { index: compiled.to_vec(), code: Code })
}

pub(super) struct HotModule {
    pub(super) linked: Linked,
    pub(super) word: u64,
    pub(super) functions: usize,
}

pub(super) fn split_early(_compiled: &[u8], _first: &HotFunctions) -> Result<HotModule, String> {
    Err("stubs are made on Linux alone".to_owned())
}

/// Loads a module.
///
/// # Safety
/// `index` was made by [`split`], from what wasmer compiled for this machine with the settings of
/// `engine`.
#[expect(unsafe_code, reason = "loading a compiled module is loading native code")]
pub(super) unsafe fn load(
    engine: &Engine,
    _path: Option<&Path>,
    index: &FileView,
    _code: FileView,
    _rest: Option<(u64, &'static LazyFunctions)>,
) -> io::Result<(Module, InitialData)> {
    let _loading = Loading::begin();
    let compiled = Bytes::copy_from_slice(index.bytes());
    // SAFETY: the caller's promise.
    let module = unsafe { Module::deserialize_unchecked(engine, compiled) };
    Ok((module.map_err(io::Error::other)?, InitialData))
}
