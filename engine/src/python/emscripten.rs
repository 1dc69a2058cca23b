//! Builds that Emscripten made for JavaScript, as command builds.
//!
//! Such a module, Pyodide's CPython, imports WASI and a few hundred functions of JavaScript. This
//! translation makes a command build of it, which needs none:
//!
//! - The functions that Hatchery serves stay imports (`host/emscripten.rs`). The others become functions
//!   of the module that answer what a failure or nothing to do looks like.
//! - `_start` calls the constructors and CPython's `main`, as in a program for WASI.
//! - The tables of JavaScript's objects are always empty, and nothing writes to them.
//! - Exceptions become those that wasmer knows (`exceptions.rs`).
//! - Addresses of what other modules may bring are constants: zero, since there are none. The machine
//!   code of packages is linked before (`link.rs`).

use bytes::Bytes;
use wasm_encoder::{
    BlockType, CodeSection, ConstExpr, ElementSection, Elements, Encode, EntityType, ExportKind,
    ExportSection, Function, FunctionSection, HeapType, ImportSection, Instruction, MemArg, Module,
    NameMap, NameSection, RawSection, SectionId, ValType,
};
use wasmparser::{ExternalKind, Import, Operator, Parser, Payload, TypeRef};

use crate::cause::Cause;
use crate::python::module::deallocation::FREE;
use crate::python::module::imports::{self, EMSCRIPTEN, SLEEP, WASI};
use crate::python::module::shape::START;
use exceptions::{EXCEPTION, Result, TagBlocks, unknown, value_type};
use link::{FIND, OPEN};
use parts::{FUNCTION_TYPE, ModuleParts, extended, part};

mod exceptions;
mod link;
mod parts;

/// Changes whenever the same module is translated differently.
pub(crate) const VERSION: &str = "emscripten 3";
/// Changes whenever the same libraries are linked differently.
pub(crate) const LINKED_VERSION: &str = "linked 3";

/// CPython's own limit of its stack would be all of the guest's, 10 MiB: before that, the native one
/// ends.
const C_STACK_BYTES: i32 = 512 << 10;
const PAGE_BYTES: i64 = 64 << 10;
/// How many functions there are for the tables of JavaScript's objects.
const OBJECT_FUNCTIONS: u32 = 3;
/// The most arguments with which CPython calls through the trampoline.
const MOST_ARGUMENTS: u32 = 3;
/// The exit code of what aborts.
const ABORTED: i32 = 134;
const UTC: i32 = i32::from_le_bytes(*b"UTC\0");
const I32: ValType = ValType::I32;

/// What functions answer that aren't served, if it isn't zero. Errors are negative.
const ANSWERS: [(&str, i32); 7] = [
    ("__syscall_ioctl", -59),
    ("__syscall_umask_js", 0o022),
    ("_emscripten_system", -58),
    ("_mmap_js", -58),
    ("emscripten_get_heap_max", i32::MIN),
    // By which it asks whether a stream is a terminal: no, with `ENOTTY`.
    ("fd_fdstat_get", 59),
    ("getaddrinfo", -4),
];

/// What doing nothing of this means.
const NOTHING: [&str; 4] =
    ["__syscall_fadvise64", "__syscall_fchown32", "__syscall_fchownat", "__syscall_getuid32_js"];

fn answered(name: &str) -> i32 {
    match ANSWERS.iter().find(|(named, _)| *named == name) {
        Some((_, answer)) => *answer,
        None if name.starts_with("__syscall_") && !NOTHING.contains(&name) => -58,
        None => 0,
    }
}

/// Returns whether a module was made for Emscripten's JavaScript: its first section says so.
pub(crate) fn is_one(wasm: &[u8]) -> bool {
    matches!(
        Parser::new(0).parse_all(wasm).nth(1),
        Some(Ok(Payload::CustomSection(section))) if section.name() == "dylink.0"
    )
}

/// Returns the version of CPython of which such a module says that it is one.
pub(crate) fn version(wasm: &[u8]) -> Option<[u32; 3]> {
    let parts = ModuleParts::read(wasm).ok()?;
    let [_, patch, minor, major] = parts.word(parts.exported_constant("Py_Version")?)?;
    Some([major, minor, patch].map(u32::from))
}

/// Translates a module, with the libraries of packages linked into it. Each has the path at which the
/// guest sees it.
///
/// # Errors
/// It isn't one of those that this knows, or a library can't be linked.
pub(crate) fn translate(wasm: &[u8], libraries: &[(String, Bytes)]) -> Result<Vec<u8>, Cause> {
    let linked;
    let wasm = match libraries {
        [] => wasm,
        libraries => {
            linked = link::link(wasm, libraries)?;
            &linked
        }
    };
    let parts = ModuleParts::read(wasm).map_err(Cause::new)?;
    let translation = ModuleTranslation::new(&parts);
    translation.and_then(|translation| translation.module(wasm)).map_err(Cause::new)
}

struct ModuleTranslation<'a> {
    parts: &'a ModuleParts<'a>,
    /// The first slot of the first table that has a function, and all of its functions.
    table: (u32, &'a [u32]),
    /// Types that are appended to the module's.
    types: Vec<(Vec<ValType>, Vec<ValType>)>,
    tags: Vec<TagBlocks>,
    /// The functions that stay imports.
    imports: Vec<(&'a str, &'a str, u32)>,
    /// The functions in place of imports and for them, with their types; they come before the
    /// module's own.
    replaced: Vec<(u32, Function)>,
    /// The first of three functions: what reads, writes and grows the tables of JavaScript's objects.
    objects: u32,
    start: (u32, Function),
    /// The new numbers of all functions.
    functions: Vec<u32>,
}

impl<'a> ModuleTranslation<'a> {
    fn new(parts: &'a ModuleParts<'a>) -> Result<Self> {
        let mut one = Self {
            parts,
            table: parts.table()?,
            types: Vec::new(),
            tags: Vec::new(),
            imports: Vec::new(),
            replaced: Vec::new(),
            objects: 0,
            start: (0, Function::new([])),
            functions: vec![0; parts.imports.len()],
        };
        let is_address = |import: &Import<'_>| matches!(import.ty, TypeRef::Global(global) if global.content_type == wasmparser::ValType::I32);
        if !parts.others.iter().all(is_address) {
            return Err(unknown("an import that is no function and no address"));
        }
        for ty in &parts.tags {
            let ty = parts.types.get(*ty as usize).ok_or(unknown("a tag without type"))?;
            let carried =
                ty.params().iter().map(|ty| value_type(*ty)).collect::<Result<Vec<_>>>()?;
            let with_exception = [&carried[..], &[EXCEPTION]].concat();
            let blocks = [carried, with_exception].map(|results| match results[..] {
                [] => BlockType::Empty,
                [ty] => BlockType::Result(ty),
                _ => BlockType::FunctionType(one.type_of(Vec::new(), results)),
            });
            let [carried, with_exception] = blocks;
            one.tags.push(TagBlocks { carried, with_exception });
        }
        let is_served = |module: &str, name: &str| {
            imports::is_allowed(module, name) && ANSWERS.iter().all(|(one, _)| *one != name)
        };
        for (number, import) in parts.imports.iter().enumerate() {
            if is_served(import.0, import.1) {
                one.functions[number] = one.imports.len() as u32;
                one.imports.push(*import);
            }
        }
        let two = one.type_of(vec![I32, I32], vec![I32]);
        let [sizes, arguments] =
            ["args_sizes_get", "args_get"].map(|name| one.import(WASI, name, two));
        let sleeps = one.type_of(vec![ValType::F64], Vec::new());
        let sleep = one.import(EMSCRIPTEN, SLEEP, sleeps);
        let is_replaced = |import: &(&str, &str, u32)| !is_served(import.0, import.1);
        let replaced = parts.imports.iter().enumerate().filter(|(_, import)| is_replaced(import));
        for ((number, _), place) in replaced.clone().zip(one.imports.len()..) {
            one.functions[number] = place as u32;
        }
        let count = replaced.clone().count();
        one.objects = (one.imports.len() + count) as u32;
        let first = one.objects + OBJECT_FUNCTIONS;
        one.functions.extend((first..).take(parts.functions.len()));
        for (_, (_, name, ty)) in replaced {
            let function = one.answer(name, *ty)?;
            one.replaced.push((*ty, function));
        }
        let object = ValType::EXTERNREF;
        for (parameters, results) in [
            (vec![I32], vec![object]),
            (vec![I32, object], Vec::new()),
            (vec![object, I32], vec![I32]),
        ] {
            let ty = one.type_of(parameters, results.clone());
            one.replaced.push((ty, one.nothing(&results)?));
        }
        for linked in [OPEN, FIND] {
            let number = parts.imports.iter().position(|import| import.1 == linked);
            let own = parts.exported(ExternalKind::Func, linked);
            if let (Some(number), Some(own)) = (number, own) {
                one.functions[number] = one.numbered(own)?;
            }
        }
        // It would look at the clock until the time is over.
        let computing = one.functions.get_mut(parts.export(SLEEP)? as usize);
        *computing.ok_or(unknown("a function that isn't there"))? = sleep;
        one.start = (one.type_of(Vec::new(), Vec::new()), one.start(sizes, arguments)?);
        Ok(one)
    }

    /// Returns the number of a type, which is appended if it wasn't before.
    fn type_of(&mut self, parameters: Vec<ValType>, results: Vec<ValType>) -> u32 {
        let ty = (parameters, results);
        let known = self.types.iter().position(|one| *one == ty);
        let number = known.unwrap_or_else(|| {
            self.types.push(ty);
            self.types.len() - 1
        });
        (self.parts.types.len() + number) as u32
    }

    fn import(&mut self, module: &'static str, name: &'static str, ty: u32) -> u32 {
        self.imports.push((module, name, ty));
        self.imports.len() as u32 - 1
    }

    /// Returns the new number of a function that the module exports or imports.
    fn named(&self, name: &str) -> Result<u32> {
        let imported = self.parts.imports.iter().position(|import| import.1 == name);
        match imported {
            Some(number) => self.numbered(number as u32),
            None => self.numbered(self.parts.export(name)?),
        }
    }

    /// Returns the function that takes the place of an import.
    fn answer(&mut self, name: &str, ty: u32) -> Result<Function> {
        let mut function = Function::new([]);
        let mut code = function.instructions();
        let word = |offset| MemArg { offset, align: 0, memory_index: 0 };
        match name {
            "_PyEM_TrampolineCall_JS" => return Ok(self.trampoline()),
            // A callback of `ctypes` isn't in the table: its address is that of these three words.
            "ffi_closure_alloc_js" => {
                // (bytes, address) -> callback
                code.local_get(1).local_get(0).call(self.named("malloc")?).local_tee(0);
                code.i32_store(word(0)).local_get(0);
            }
            "ffi_closure_free_js" => _ = code.local_get(0).call(self.named("free")?),
            "ffi_prep_closure_loc_js" => {
                // (callback, form, function, data, address) -> error
                for place in 1..=3 {
                    code.local_get(0).local_get(place).i32_store(word(4 * u64::from(place - 1)));
                }
                code.i32_const(0);
            }
            "ffi_call_js" => {
                // (form, address, result, arguments)
                let called = self.type_of(vec![I32; 4], Vec::new());
                let slots = self.table.0 as usize + self.table.1.len();
                code.local_get(1).i32_const(slots as i32).i32_ge_u().if_(BlockType::Empty);
                code.local_get(1).i32_load(word(0)).local_get(2).local_get(3);
                code.local_get(1).i32_load(word(8)).local_get(1).i32_load(word(4));
                code.call_indirect(0, called).return_().end();
                // Else it is one of those for `memmove` and the like.
                code.local_get(2).local_get(1);
                for argument in 0..MOST_ARGUMENTS {
                    code.local_get(0).i32_load(word(4)).i32_const(argument as i32).i32_gt_u();
                    code.if_(BlockType::Result(I32)).local_get(3);
                    code.i32_load(word(4 * u64::from(argument))).i32_load(word(0));
                    code.else_().i32_const(0).end();
                }
                code.call(self.named("_PyEM_TrampolineCall_JS")?).i32_store(word(0));
            }
            "emscripten_resize_heap" => {
                // (bytes) -> is_done
                code.local_get(0).i64_extend_i32_u().i64_const(PAGE_BYTES - 1).i64_add();
                code.i64_const(PAGE_BYTES).i64_div_u().i32_wrap_i64();
                code.memory_size(0).i32_sub().memory_grow(0).i32_const(-1).i32_ne();
            }
            "_tzset_js" => {
                // (seconds, has_summer_time, name, summer_name)
                for (place, value) in [(0, 0), (1, 0), (2, UTC), (3, UTC)] {
                    code.local_get(place).i32_const(value).i32_store(word(0));
                }
            }
            "__call_sighandler" => {
                // (handler, signal)
                let ty = self.type_of(vec![I32], Vec::new());
                code.local_get(1).local_get(0).call_indirect(0, ty);
            }
            "exit" => _ = code.local_get(0).call(self.named("proc_exit")?),
            "_abort_js" | "__assert_fail" => {
                code.i32_const(ABORTED).call(self.named("proc_exit")?).unreachable();
            }
            name => {
                let ty =
                    self.parts.types.get(ty as usize).ok_or(unknown("an import without type"))?;
                match (ty.results(), answered(name)) {
                    ([wasmparser::ValType::I32], answer) => _ = code.i32_const(answer),
                    (results, 0) => {
                        let results = results.iter().map(|ty| value_type(*ty));
                        let results = results.collect::<Result<Vec<_>>>()?;
                        return self.nothing(&results);
                    }
                    _ => return Err(unknown("a result of an unknown type")),
                }
            }
        }
        code.end();
        Ok(function)
    }

    /// Returns a function whose results are zeros and null.
    fn nothing(&self, results: &[ValType]) -> Result<Function> {
        let mut function = Function::new([]);
        let mut code = function.instructions();
        for result in results {
            match result {
                ValType::I32 => code.i32_const(0),
                ValType::I64 => code.i64_const(0),
                ValType::F64 => code.f64_const(0.0.into()),
                &ValType::EXTERNREF => code.ref_null(HeapType::EXTERN),
                _ => return Err(unknown("a result of an unknown type")),
            };
        }
        code.end();
        Ok(function)
    }

    /// Returns a function that calls a function of the table with as many of three arguments as it
    /// takes: `(function, a, b, c)`. Without JavaScript nothing tells a function's type, but what
    /// is in the table is known.
    fn trampoline(&mut self) -> Function {
        let number = wasmparser::ValType::I32;
        let arguments = |function: &u32| match self.parts.signature(*function) {
            Some(ty) if ty.results() == [number] && ty.params().iter().all(|ty| *ty == number) => {
                (ty.params().len() as u32).min(MOST_ARGUMENTS + 1)
            }
            _ => MOST_ARGUMENTS + 1,
        };
        let before = std::iter::repeat_n(MOST_ARGUMENTS + 1, self.table.0 as usize);
        let slots: Vec<_> = before.chain(self.table.1.iter().map(arguments)).collect();
        let mut function = Function::new([]);
        let mut code = function.instructions();
        for _ in 0..MOST_ARGUMENTS + 2 {
            code.block(BlockType::Empty);
        }
        code.local_get(0).br_table(slots, MOST_ARGUMENTS + 1).end();
        for count in 0..=MOST_ARGUMENTS {
            let ty = self.type_of(vec![I32; count as usize], vec![I32]);
            for argument in 1..=count {
                code.local_get(argument);
            }
            code.local_get(0).call_indirect(0, ty).return_().end();
        }
        // CPython reports that it has no result and no exception.
        code.i32_const(0).end();
        function
    }

    /// Returns `_start`.
    fn start(&self, sizes: u32, arguments: u32) -> Result<Function> {
        let word = |offset| MemArg { offset, align: 2, memory_index: 0 };
        let top = self.named("emscripten_stack_get_base")?;
        let (malloc, calloc) = (self.named("malloc")?, self.named("calloc")?);
        // Where the sizes are, and then the pointers; and the texts.
        let (at, texts) = (0, 1);
        let mut function = Function::new([(2, I32)]);
        let mut code = function.instructions();
        code.call(self.named("emscripten_stack_init")?);
        code.call(self.named("__wasm_call_ctors")?);
        // After the constructors, which may set the limits again.
        code.call(top).call(top).i32_const(C_STACK_BYTES).i32_sub();
        code.call(self.named("emscripten_stack_set_limits")?);
        code.i32_const(8).call(malloc).local_tee(at);
        code.local_get(at).i32_const(4).i32_add().call(sizes).drop();
        code.local_get(at).i32_load(word(4)).call(malloc).local_set(texts);
        // `argc`, then `argv`, which a null ends.
        code.local_get(at).i32_load(word(0));
        code.local_get(at).i32_load(word(0)).i32_const(1).i32_add();
        code.i32_const(4).call(calloc).local_tee(at);
        code.local_get(at).local_get(texts).call(arguments).drop();
        code.call(self.named("Py_BytesMain")?).call(self.named("proc_exit")?).end();
        Ok(function)
    }
}

impl ModuleTranslation<'_> {
    fn module(&self, wasm: &[u8]) -> Result<Vec<u8>> {
        let mut module = Module::new();
        let mut code = CodeSection::new();
        let mut number = self.parts.imports.len() as u32;
        for payload in Parser::new(0).parse_all(wasm) {
            let payload = payload?;
            match payload {
                Payload::CustomSection(_) => {}
                Payload::TypeSection(types) => {
                    let mut added = Vec::new();
                    for (parameters, results) in &self.types {
                        added.push(FUNCTION_TYPE);
                        parameters.encode(&mut added);
                        results.encode(&mut added);
                    }
                    let section = extended(wasm, &types, (0, &[]), (self.types.len(), &added))?;
                    module.section(&RawSection { id: SectionId::Type.into(), data: &section });
                }
                Payload::ImportSection(_) => {
                    let mut imports = ImportSection::new();
                    for (module, name, ty) in &self.imports {
                        imports.import(module, name, EntityType::Function(*ty));
                    }
                    module.section(&imports);
                }
                Payload::FunctionSection(_) => {
                    let mut functions = FunctionSection::new();
                    let types = self.replaced.iter().map(|(ty, _)| ty).chain(&self.parts.functions);
                    types.chain([&self.start.0]).for_each(|ty| _ = functions.function(*ty));
                    module.section(&functions);
                }
                Payload::GlobalSection(globals) => {
                    let addresses = NO_ADDRESS.repeat(self.parts.imported_globals);
                    let before = (self.parts.imported_globals, &addresses[..]);
                    let section = extended(wasm, &globals, before, (0, &[]))?;
                    module.section(&RawSection { id: SectionId::Global.into(), data: &section });
                }
                Payload::ExportSection(exports) => {
                    let mut kept = ExportSection::new();
                    for export in exports {
                        let export = export?;
                        if export.kind == ExternalKind::Memory {
                            kept.export(export.name, ExportKind::Memory, export.index);
                        }
                    }
                    let start =
                        self.imports.len() + self.replaced.len() + self.parts.functions.len();
                    kept.export(START, ExportKind::Func, start as u32);
                    module.section(&kept);
                }
                Payload::ElementSection(_) => {
                    let functions = self.table.1.iter().map(|function| self.numbered(*function));
                    let functions = functions.collect::<Result<Vec<_>>>()?;
                    let first = ConstExpr::i32_const(self.table.0 as i32);
                    let mut elements = ElementSection::new();
                    elements.active(None, &first, Elements::Functions(functions.into()));
                    module.section(&elements);
                }
                Payload::CodeSectionStart { .. } => {
                    self.replaced.iter().for_each(|(_, function)| _ = code.function(function));
                }
                Payload::CodeSectionEntry(body) => {
                    let ty = self.parts.signature(number);
                    let parameters = ty.ok_or(unknown("a function without type"))?.params().len();
                    let replace = |operator: &Operator<'_>| self.replace(operator);
                    code.raw(&exceptions::translate(
                        &self.tags,
                        parameters as u32,
                        &body,
                        &replace,
                    )?);
                    number += 1;
                    if code.len() as usize == self.replaced.len() + self.parts.functions.len() {
                        code.function(&self.start.1);
                        module.section(&code);
                    }
                }
                Payload::StartSection { .. } => return Err(unknown("a start function")),
                payload => {
                    if let Some((id, range)) = payload.as_section() {
                        let data = part(wasm, range.start, range.end)?;
                        module.section(&RawSection { id, data });
                    }
                }
            }
        }
        // The only name that the compiler looks for.
        if let Some(free) = self.parts.exported(ExternalKind::Func, FREE) {
            let (mut names, mut functions) = (NameSection::new(), NameMap::new());
            functions.append(self.numbered(free)?, FREE);
            names.functions(&functions);
            module.section(&names);
        }
        Ok(module.finish())
    }

    /// Returns what takes the place of an operator. The first table has functions, and the others
    /// objects of JavaScript.
    fn replace(&self, operator: &Operator<'_>) -> Option<Instruction<'static>> {
        match operator {
            Operator::Call { function_index } => {
                self.numbered(*function_index).ok().map(Instruction::Call)
            }
            Operator::RefFunc { function_index } => {
                self.numbered(*function_index).ok().map(Instruction::RefFunc)
            }
            Operator::TableGet { table: 1.. } => Some(Instruction::Call(self.objects)),
            Operator::TableSet { table: 1.. } => Some(Instruction::Call(self.objects + 1)),
            Operator::TableGrow { table: 1.. } => Some(Instruction::Call(self.objects + 2)),
            Operator::TableSize { table: 1.. } => Some(Instruction::I32Const(0)),
            _ => None,
        }
    }

    fn numbered(&self, function: u32) -> Result<u32> {
        let number = self.functions.get(function as usize).copied();
        number.ok_or(unknown("a function that isn't there"))
    }
}

/// The constant global that is zero.
const NO_ADDRESS: [u8; 5] = [0x7f, 0, 0x41, 0, 0x0b];

#[cfg(test)]
mod tests;
