//! The compiled module as two files, so that its code is mapped and never copied.
//!
//! wasmer compiles to an ELF image whose code has no absolute addresses. It maps the image when it
//! loads it (its `Artifact::deserialize_file`). But it would also read the whole file at the first
//! trap of a process, for debug information. At each further trap it would read a table with an
//! entry for every memory access. It also copies the initial contents of the guest's memory. So the
//! image is stored in two files:
//!
//! - the *index*, an ELF image without code (`linked/elf.rs`), which wasmer loads;
//! - the *code* with the initial data (`linked/code.rs`), which is mapped over the place that
//!   wasmer reserved for it. Processes share its pages.
//!
//! Both end or begin with the same hash, so that files of two compilations are never combined.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{hint, io, ptr};

use wasmer::sys::Cranelift;
use wasmer::{Engine, Module};
use wasmer_compiler::serialize::SerializableModule;
use wasmer_types::{InitExprOp, MemoryIndex, OwnedDataInitializer};

use super::early::lazy::LazyFunctions;
use super::early::{HotFunctions, STUB_BYTES, stub};
use super::native::Loading;
use crate::memory::sys::{self, FileView};
use code::CodeHeader;

mod code;
mod elf;
#[cfg(test)]
mod tests;

pub(crate) use code::InitialData;

/// Makes the compiler's output such that [`split`] takes it.
pub(super) fn configure(compiler: &mut Cranelift) {
    compiler.experimental_artifact(true);
}

/// A compiled module as its two files.
pub(super) struct Linked {
    pub(super) index: Vec<u8>,
    pub(super) code: code::Code,
}

/// An early module (`early.rs`).
pub(super) struct HotModule {
    pub(super) linked: Linked,
    /// The address in the image of the word that its stubs read.
    pub(super) word: u64,
    /// How many functions it has.
    pub(super) functions: usize,
}

pub(super) fn split(compiled: &[u8]) -> Result<Linked, String> {
    let image = elf::ElfImage::parse(compiled).ok_or("it isn't an ELF image of a known form")?;
    split_with(&image, |_, _| Ok(()))
}

/// Does the same with an early module, and puts stubs in place of all functions but the `first`
/// ones.
pub(super) fn split_early(compiled: &[u8], first: &HotFunctions) -> Result<HotModule, String> {
    let image = elf::ElfImage::parse(compiled).ok_or("it isn't an ELF image of a known form")?;
    let functions = image.local_functions().ok_or("no functions")?;
    let word = image.free_word().ok_or("no room for a word")?;
    let linked = split_with(&image, |text_at, text| {
        let ends = functions[1..].iter().copied().chain([text_at + text.len() as u64]);
        for ((function, at), end) in (0..).zip(&functions).zip(ends) {
            if first.contains(function) {
                continue;
            }
            let place = (end >= at + STUB_BYTES as u64).then_some(at - text_at);
            let place = place.and_then(|place| text.get_mut(place as usize..)?.first_chunk_mut());
            *place.ok_or("no room for a stub")? =
                stub(function, *at, word).ok_or("the image is too large for stubs")?;
        }
        Ok(())
    })?;
    Ok(HotModule { linked, word, functions: functions.len() })
}

/// Splits an image; `change` gets the address of the code and the code.
fn split_with(
    image: &elf::ElfImage<'_>,
    change: impl FnOnce(u64, &mut [u8]) -> Result<(), &'static str>,
) -> Result<Linked, String> {
    let (info, data) = without_data(image.section(elf::MODULE_INFO).ok_or("no information")?)?;
    let text = image.text().ok_or("the code is not where it can be mapped")?;
    let header = CodeHeader::new(text, image.first_function().ok_or("it has no functions")?, &data);
    let mut code = image.text_bytes(text).to_vec();
    change(text.start, &mut code)?;
    let code = code::Code::new(header, code, data);
    let mut index = image.index(&info, text).ok_or("its tables are damaged")?;
    index.extend(code.binding());
    Ok(Linked { index, code })
}

/// Loads a module from its two files; `None` if they don't belong together. `rest` is what the
/// stubs of an early module use, with the address of their word.
///
/// # Safety
/// Both were made by [`split`], or by [`split_early`] if there is a `rest`. They were made from
/// what wasmer compiled for this machine with the settings of `engine`. Nobody changes them while
/// the module exists.
#[expect(unsafe_code, reason = "loading a compiled module is loading native code")]
pub(super) unsafe fn load(
    engine: &Engine,
    path: Option<&Path>,
    index: &FileView,
    code: FileView,
    rest: Option<(u64, &'static LazyFunctions)>,
) -> io::Result<(Module, InitialData)> {
    let other = || io::Error::other("the index and the code of the module don't belong together");
    let (header, data) = code::read(code).ok_or_else(other)?;
    if !index.bytes().ends_with(data.binding()) {
        return Err(other());
    }
    let _loading = Loading::begin();
    grow_heap();
    // SAFETY: the caller's promise. wasmer opens the file that was checked, by its descriptor.
    let module = unsafe { Module::deserialize_from_file(engine, opened(path, index.file())) };
    let module = module.map_err(io::Error::other)?;
    let artifact = module.sys_artifact().ok_or_else(other)?;
    let functions = artifact.finished_functions().values().next();
    let first = functions.map(|function| **function as usize).ok_or_else(other)?;
    let base = first.checked_sub(header.first_function()).ok_or_else(other)?;
    let (offset, len) = header.pages();
    // SAFETY: wasmer has reserved these pages for the code at the addresses that the index names.
    // It unmaps them with the engine. The code is what was compiled for these addresses, relative
    // to `base`, by the caller's promise and the comparison above. None of it runs yet.
    unsafe { sys::map_code(base + offset, len, data.file(), header.at()) }?;
    if let Some((word, rest)) = rest {
        let word = ptr::with_exposed_provenance_mut::<&'static LazyFunctions>(base + word as usize);
        // SAFETY: the caller's promise: a word of the image that can be written to and that nothing
        // else uses. No stub runs yet.
        unsafe { word.write(rest) };
    }
    Ok((module, data))
}

/// Grows the heap of this thread in large steps. wasmer allocates some 5 MiB in small pieces for a
/// module, and for these glibc would grow the heap by 4 KiB at a time, with a system call each.
fn grow_heap() {
    // Below the size from which glibc maps memory for each allocation.
    const STEP: usize = 96 << 10;
    const STEPS: usize = 60;
    drop(hint::black_box((0..STEPS).map(|_| Vec::<u8>::with_capacity(STEP)).collect::<Vec<_>>()));
}

/// Returns a path that leads to this very file, or to `path` where the system has none.
fn opened(path: Option<&Path>, file: &File) -> PathBuf {
    let opened = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    match path {
        Some(path) if !opened.exists() => path.to_owned(),
        _ => opened,
    }
}

/// Bytes that a memory begins with.
#[derive(Debug)]
struct DataSegment {
    /// The address in the guest.
    at: u32,
    bytes: Box<[u8]>,
}

/// The custom section with the names of functions, most of what wasmer knows of a module.
const NAMES: &str = "name";

/// Returns the description without the initial contents of the memory, and these beside it. Names
/// of functions, which only traces would show, are left out.
#[expect(unsafe_code, reason = "wasmer's interface for its own format")]
fn without_data(description: &[u8]) -> Result<(Vec<u8>, Vec<DataSegment>), String> {
    // wasmer's format needs an alignment that the section doesn't have in the image.
    let description = description.to_vec();
    // SAFETY: wasmer has just written it, and it is validated.
    let module = unsafe { SerializableModule::deserialize(&description) };
    let mut module = module.map_err(|error| error.to_string())?;
    let info = Arc::get_mut(&mut module.compile_info.module).ok_or("the description is shared")?;
    info.function_names.clear();
    if let Some(names) = info.custom_sections.get(NAMES) {
        info.custom_sections_data[*names] = Box::default();
    }
    // A start function would run before the memory has its contents.
    let data = match info.start_function {
        None => segments(&module.data_initializers),
        Some(_) => None,
    };
    if data.is_some() {
        module.data_initializers = Box::default();
    }
    let description = module.serialize().map_err(|error| error.to_string())?;
    Ok((description, data.unwrap_or_default()))
}

/// Returns what the memory begins with; `None` if that depends on an instance.
fn segments(initializers: &[OwnedDataInitializer]) -> Option<Vec<DataSegment>> {
    let segment = |initializer: &OwnedDataInitializer| {
        let location = &initializer.location;
        match *location.offset_expr.ops {
            [InitExprOp::I32Const(at)] if location.memory_index == MemoryIndex::from_u32(0) => {
                Some(DataSegment { at: at.cast_unsigned(), bytes: initializer.data.clone() })
            }
            _ => None,
        }
    };
    initializers.iter().map(segment).collect()
}
