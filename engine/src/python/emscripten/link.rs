//! The machine code of packages, linked into the interpreter's module.
//!
//! Emscripten's wheels carry libraries (`dylink.0`) that JavaScript would load when Python imports
//! them. Here they are linked ahead. So there is one module with one memory and one table, which images
//! hold as always:
//!
//! ```text
//! memory   the interpreter's data and stack | each library's data | names, marks | heap
//! table    the interpreter's functions | each library's | those that are looked up by name
//! ```
//!
//! - Addresses become constants, since all are known. The heap begins behind the libraries.
//! - `_dlopen_js` and `_dlsym_js`, which the interpreter imports, become functions of the module. They
//!   find what is linked, by its path.
//! - When Python first loads a library, its start function, relocations and constructors run. A mark in
//!   memory says that they did.
//! - A name means what the library itself defines, else one that it needs, else the interpreter: as
//!   Python opens libraries, `RTLD_LOCAL`. So libraries that don't need each other may define the same
//!   names, also those of the interpreter.
//!
//! Libraries are untrusted: whatever they are, the result is a module like others, which is checked as
//! such. What can't be linked as its authors meant it is refused.

use std::collections::{HashMap, HashSet, VecDeque};

use bytes::Bytes;
use wasm_encoder::{
    BlockType, CodeSection, ConstExpr, DataCountSection, DataSection, ElementSection, Elements,
    Encode, ExportKind, Function, FunctionSection, GlobalType, Instruction, MemArg, MemorySection,
    MemoryType, Module, RawSection, RefType, SectionId, TableSection, TableType,
};
use wasmparser::{
    ExternalKind, FuncType, FunctionBody, Operator, Parser, Payload, TypeRef, ValType, Validator,
    WasmFeatures,
};

use super::exceptions::{Untranslatable, unknown, value_type};
use super::parts::{FUNCTION_TYPE, MOST_SLOTS, ModuleParts, constant, entries, extended, part};
use crate::cause::Cause;
use crate::python::module::imports::EMSCRIPTEN as ENV;

/// What the interpreter imports to load a library, and to find a function in it.
pub(super) const OPEN: &str = "_dlopen_js";
pub(super) const FIND: &str = "_dlsym_js";

const HEAP: &str = "__heap_base";
/// Returns where the address is at which the heap begins.
const HEAP_ADDRESS: &str = "emscripten_get_sbrk_ptr";
const STACK: &str = "__stack_pointer";
const COMPARE: &str = "strcmp";
/// What a library exports to be prepared.
const PREPARING: [&str; 2] = ["__wasm_apply_data_relocs", "__wasm_call_ctors"];
/// How the functions begin that Python looks up.
const LOOKED_UP: &str = "PyInit";
/// The most bytes of all libraries' data.
const MOST_BYTES: u64 = 256 << 20;
/// The largest alignment, as a power of two.
const MOST_ALIGNMENT: u32 = 16;
const LEAST_ALIGNMENT: u32 = 4;
const PAGE_BYTES: u64 = 64 << 10;
/// Addresses stay positive.
const MOST_MEMORY: u64 = 1 << 31;

/// Offsets in Emscripten's record of a library (`struct dso`).
const LOADED_OFFSET: u64 = 8;
const MEMORY_BASE_OFFSET: u64 = 12;
const PATH_OFFSET: i32 = 36;

/// The places of generated functions: one that traps, what `OPEN` and `FIND` become, and from the last
/// place on what begins each library.
const TRAP: usize = 0;
const OPENING: usize = 1;
const FINDING: usize = 2;
const BEGIN: usize = 3;

/// What wasmer compiles, and exceptions in the form that is translated.
const FEATURES: WasmFeatures = WasmFeatures::WASM2
    .union(WasmFeatures::EXTENDED_CONST)
    .union(WasmFeatures::EXCEPTIONS)
    .union(WasmFeatures::LEGACY_EXCEPTIONS);

/// Why a library can't be linked.
#[derive(Debug, thiserror::Error)]
enum Unlinkable {
    #[error(transparent)]
    Form(#[from] Untranslatable),
    #[error("nothing defines `{0}`")]
    Undefined(String),
    #[error("`{0}` has another type where it is defined")]
    OtherType(String),
    #[error("it needs the library `{0}`, which no package has")]
    Needed(String),
    #[error("{0}")]
    Refused(&'static str),
}

type Result<T, E = Unlinkable> = std::result::Result<T, E>;

/// Reads a module, if it is valid.
fn read_valid(wasm: &[u8]) -> Result<ModuleParts<'_>> {
    Validator::new_with_features(FEATURES).validate_all(wasm)?;
    Ok(ModuleParts::read(wasm)?)
}

/// Returns the number that a function of its own returns.
fn returned(parts: &ModuleParts<'_>, function: u32) -> Option<i32> {
    let own = (function as usize).checked_sub(parts.imports.len())?;
    match parts.bodies.get(own)?.get_operators_reader().ok()?.read().ok()? {
        Operator::I32Const { value } => Some(value),
        _ => None,
    }
}

/// Returns whether a function's parameters and results are so many numbers of 32 bits.
fn has_type(parts: &ModuleParts<'_>, function: u32, parameters: usize, results: usize) -> bool {
    parts.signature(function).is_some_and(|ty| {
        (ty.params().len(), ty.results().len()) == (parameters, results)
            && ty.params().iter().chain(ty.results()).all(|ty| *ty == ValType::I32)
    })
}

impl From<wasmparser::BinaryReaderError> for Unlinkable {
    fn from(error: wasmparser::BinaryReaderError) -> Self {
        Self::Form(error.into())
    }
}

/// What stands for a global of a library.
#[derive(Debug, Clone, Copy)]
enum LinkedGlobal {
    Constant(i32),
    Number(u32),
    /// The slot of this function.
    SlotOf(u32),
}

impl LinkedGlobal {
    fn constant(&self) -> Option<i32> {
        match self {
            Self::Constant(value) => Some(*value),
            _ => None,
        }
    }
}

/// A library, and where in the linked module its parts begin.
struct LinkedLibrary<'a> {
    path: &'a str,
    wasm: &'a [u8],
    parts: ModuleParts<'a>,
    memory_base: u32,
    memory_size: u32,
    table_base: u32,
    table_size: u32,
    first_type: u32,
    first_function: u32,
    first_global: u32,
    /// The libraries that it needs.
    needed: Vec<usize>,
    /// What its functions, globals and tags are in the linked module.
    functions: Vec<u32>,
    globals: Vec<LinkedGlobal>,
    tags: Vec<u32>,
    /// The functions that Python looks up, with their slots.
    looked_up: Vec<(&'a str, u32)>,
}

impl LinkedLibrary<'_> {
    fn constant(&self, expression: &wasmparser::ConstExpr<'_>) -> Option<i32> {
        constant(expression, &|number| self.globals.get(number as usize)?.constant())
    }

    /// Returns the number of a function that it defines.
    fn defined(&self, name: &str) -> Option<u32> {
        let number = self.parts.exported(ExternalKind::Func, name)? as usize;
        let number = number.checked_sub(self.parts.imports.len())?;
        Some(self.first_function + number as u32)
    }

    /// Returns what an operator with a number becomes.
    fn linked(&self, operator: &Operator<'_>) -> Result<Option<Instruction<'static>>> {
        let function = |number: u32| self.functions[number as usize];
        let tag = |number: u32| self.tags[number as usize];
        let block = |ty: wasmparser::BlockType| match ty {
            wasmparser::BlockType::FuncType(ty) => {
                Some(BlockType::FunctionType(self.first_type + ty))
            }
            _ => None,
        };
        Ok(Some(match operator {
            Operator::Call { function_index } => Instruction::Call(function(*function_index)),
            Operator::RefFunc { function_index } => Instruction::RefFunc(function(*function_index)),
            Operator::CallIndirect { type_index, table_index } => Instruction::CallIndirect {
                type_index: self.first_type + type_index,
                table_index: *table_index,
            },
            Operator::GlobalGet { global_index } => match self.globals[*global_index as usize] {
                LinkedGlobal::Constant(value) => Instruction::I32Const(value),
                LinkedGlobal::Number(number) => Instruction::GlobalGet(number),
                LinkedGlobal::SlotOf(_) => return Err(unknown("an address without slot").into()),
            },
            Operator::GlobalSet { global_index } => match self.globals[*global_index as usize] {
                LinkedGlobal::Number(number) => Instruction::GlobalSet(number),
                _ => return Err(Unlinkable::Refused("it changes an address that is constant")),
            },
            Operator::Block { blockty } => return Ok(block(*blockty).map(Instruction::Block)),
            Operator::Loop { blockty } => return Ok(block(*blockty).map(Instruction::Loop)),
            Operator::If { blockty } => return Ok(block(*blockty).map(Instruction::If)),
            Operator::Try { blockty } => return Ok(block(*blockty).map(Instruction::Try)),
            Operator::Catch { tag_index } => Instruction::Catch(tag(*tag_index)),
            Operator::Throw { tag_index } => Instruction::Throw(tag(*tag_index)),
            Operator::MemoryInit { .. }
            | Operator::DataDrop { .. }
            | Operator::TableInit { .. }
            | Operator::ElemDrop { .. }
            | Operator::TryTable { .. } => return Err(unknown("an operator of segments").into()),
            _ => return Ok(None),
        }))
    }

    /// Returns a function with the new numbers.
    fn body(&self, body: &FunctionBody<'_>) -> Result<Vec<u8>> {
        let (first, bytes) = (body.range().start, body.as_bytes());
        let operators = body.get_operators_reader()?;
        let begin = operators.original_position();
        let mut linked = part(bytes, 0, begin - first)?.to_vec();
        let operators = operators.into_iter_with_offsets().collect::<Result<Vec<_>, _>>()?;
        let ends = operators.iter().skip(1).map(|(_, at)| at - first);
        let ends = ends.chain([bytes.len() as u64]);
        for ((operator, at), end) in operators.iter().zip(ends) {
            match self.linked(operator)? {
                Some(instruction) => instruction.encode(&mut linked),
                None => linked.extend(part(bytes, at - first, end)?),
            }
        }
        Ok(linked)
    }

    /// Adds the entries of its globals.
    fn put_globals(&self, entries: &mut Vec<u8>) -> Result<()> {
        let globals = self.parts.global_section.iter().flat_map(|globals| globals.clone());
        for global in globals {
            let global = global?;
            let ty = GlobalType {
                val_type: value_type(global.ty.content_type)?,
                mutable: global.ty.mutable,
                shared: false,
            };
            ty.encode(entries);
            let value = &global.init_expr;
            if let Some(value) = self.constant(value) {
                ConstExpr::i32_const(value).encode(entries);
                continue;
            }
            for operator in value.get_operators_reader() {
                if self.linked(&operator?)?.is_some() {
                    return Err(unknown("a global that begins as another one").into());
                }
            }
            let mut bytes = value.get_binary_reader();
            entries.extend(bytes.read_bytes(bytes.bytes_remaining())?);
        }
        Ok(())
    }
}

/// Returns whether parts, each given by place and length, are apart and in what begins at `base`.
fn are_apart(parts: impl Iterator<Item = (u32, usize)>, base: u32, size: u32) -> bool {
    let mut parts: Vec<_> = parts.map(|(at, len)| (u64::from(at), len as u64)).collect();
    parts.sort_unstable();
    let mut end = u64::from(base);
    let all_follow = parts.into_iter().all(|(at, length)| {
        let follows = at >= end;
        end = at + length;
        follows
    });
    all_follow && end <= u64::from(base) + u64::from(size)
}

/// Returns the interpreter's module with the libraries in it, each given with the path at which the
/// guest sees it. The order matters.
///
/// # Errors
/// A library can't be linked, or the interpreter isn't one that this knows.
pub(super) fn link(main: &[u8], libraries: &[(String, Bytes)]) -> Result<Vec<u8>, Cause> {
    let of_main = |error: Unlinkable| Cause::because("no package can be linked with it", error);
    let named = |path: &str| {
        let text = format!("`{path}` can't be linked");
        move |error: Unlinkable| Cause::because(text, error)
    };
    let mut link = Link::new(main).map_err(of_main)?;
    for (path, wasm) in libraries {
        link.lay_out(path, wasm).map_err(named(path))?;
    }
    for step in [Link::find_needed, Link::resolve] {
        for (number, (path, _)) in libraries.iter().enumerate() {
            step(&mut link, number).map_err(named(path))?;
        }
    }
    link.give_slots().map_err(of_main)?;
    for (number, (path, _)) in libraries.iter().enumerate() {
        link.encode(number).map_err(named(path))?;
    }
    let places = link.place_texts().map_err(of_main)?;
    link.generate(&places);
    link.module(main).map_err(of_main)
}

/// Where in memory the texts and marks are that the generated functions compare and set.
struct TextPlaces {
    /// The paths of the libraries.
    paths: Vec<u32>,
    /// The names of each one's functions that are looked up, with their slots.
    names: Vec<Vec<(u32, u32)>>,
    /// A word for each library.
    marks: Vec<u32>,
}

struct Link<'a> {
    main: ModuleParts<'a>,
    /// The numbers of three of its functions.
    open: u32,
    find: u32,
    compare: u32,
    /// Where the heap begins, and where that address is kept.
    heap: u32,
    heap_at: u32,
    libraries: Vec<LinkedLibrary<'a>>,
    /// The functions of the table from this slot on.
    first_slot: u32,
    table: Vec<u32>,
    memory_end: u64,
    /// How many there are of each, without what is generated.
    types: u32,
    functions: u32,
    globals: u32,
    /// In place of functions that stay undefined, with their types.
    stubs: Vec<(u32, Function)>,
    /// The generated functions, with their types.
    generated: Vec<(u32, Function)>,
    /// What is added to the interpreter's.
    bodies: Vec<Vec<u8>>,
    global_entries: Vec<u8>,
    data: Vec<(u32, &'a [u8])>,
    texts: Vec<u8>,
    texts_at: u32,
}

/// A slot that has no function yet.
const EMPTY: u32 = u32::MAX;

impl<'a> Link<'a> {
    fn new(wasm: &'a [u8]) -> Result<Self> {
        let main = read_valid(wasm)?;
        let imported = |name| main.imports.iter().position(|import| import.1 == name);
        let exported = |name| main.exported(ExternalKind::Func, name);
        let (Some(open), Some(find), Some(compare), Some(heap_at), Some(heap), Some(table), false) = (
            imported(OPEN).map(|open| open as u32).filter(|open| has_type(&main, *open, 1, 1)),
            imported(FIND).map(|find| find as u32).filter(|find| has_type(&main, *find, 3, 1)),
            exported(COMPARE).filter(|compare| has_type(&main, *compare, 2, 1)),
            exported(HEAP_ADDRESS).and_then(|function| returned(&main, function)),
            main.exported_constant(HEAP),
            main.tables.first().filter(|_| !main.memories.is_empty()),
            main.others.iter().any(|import| !matches!(import.ty, TypeRef::Global(_))),
        ) else {
            return Err(unknown("an interpreter that loads no libraries").into());
        };
        let (first_slot, functions) = main.table()?;
        let slots = table.initial.saturating_sub(first_slot.into());
        if slots > MOST_SLOTS.into() {
            return Err(Unlinkable::Refused("its table is too large"));
        }
        let mut functions = functions.to_vec();
        functions.resize(functions.len().max(slots as usize), EMPTY);
        Ok(Self {
            open,
            find,
            compare,
            heap: heap as u32,
            heap_at: heap_at as u32,
            libraries: Vec::new(),
            first_slot,
            table: functions,
            memory_end: u64::from(heap as u32),
            types: main.types.len() as u32,
            functions: (main.imports.len() + main.functions.len()) as u32,
            globals: main.globals.len() as u32,
            stubs: Vec::new(),
            generated: Vec::new(),
            bodies: Vec::new(),
            global_entries: Vec::new(),
            data: Vec::new(),
            texts: Vec::new(),
            texts_at: 0,
            main,
        })
    }

    /// Reads a library and gives its parts their places.
    fn lay_out(&mut self, path: &'a str, wasm: &'a [u8]) -> Result<()> {
        let parts = read_valid(wasm)?;
        let asks = parts.asks.ok_or(unknown("a library without `dylink.0`"))?;
        if parts.own_tags > 0 || !parts.tables.is_empty() || !parts.memories.is_empty() {
            return Err(Unlinkable::Refused("it has a memory, a table or exceptions of its own"));
        }
        if asks.memory_alignment.max(asks.table_alignment) > MOST_ALIGNMENT {
            return Err(Unlinkable::Refused("it asks for an alignment of more than 64 KiB"));
        }
        let alignment = 1 << asks.memory_alignment.max(LEAST_ALIGNMENT);
        let memory_base = self.memory_end.next_multiple_of(alignment);
        // At least a byte, since a library is known by where it begins.
        self.memory_end = memory_base + u64::from(asks.memory_size.max(1));
        let slots_end = u64::from(self.first_slot) + self.table.len() as u64;
        let table_base = slots_end.next_multiple_of(1 << asks.table_alignment);
        let slots_end = table_base + u64::from(asks.table_size);
        self.check_bounds(slots_end)?;
        self.table.resize((slots_end - u64::from(self.first_slot)) as usize, EMPTY);
        let (first_type, first_function) = (self.types, self.functions);
        let first_global = self.globals;
        self.types += parts.types.len() as u32;
        self.functions += parts.bodies.len() as u32;
        self.globals += (parts.globals.len() - parts.imported_globals) as u32;
        self.libraries.push(LinkedLibrary {
            path,
            memory_base: memory_base as u32,
            memory_size: asks.memory_size,
            table_base: table_base as u32,
            table_size: asks.table_size,
            first_type,
            first_function,
            first_global,
            needed: Vec::new(),
            functions: Vec::new(),
            globals: Vec::new(),
            tags: Vec::new(),
            looked_up: Vec::new(),
            wasm,
            parts,
        });
        Ok(())
    }

    fn check_bounds(&self, slots_end: u64) -> Result<()> {
        let bytes = self.memory_end - u64::from(self.heap);
        if bytes > MOST_BYTES || self.memory_end > MOST_MEMORY || slots_end > MOST_SLOTS.into() {
            return Err(Unlinkable::Refused("its data or its table is too large"));
        }
        Ok(())
    }

    fn find_needed(&mut self, number: usize) -> Result<()> {
        let own = self.libraries[number].path;
        let find = |name: &&str| {
            let path = |number: &usize| self.libraries[*number].path;
            let is_it = |number: &usize| path(number).rsplit('/').next() == Some(*name);
            // Packages may carry libraries of the same name: their own are nearest.
            let shared = |number: &usize| {
                path(number)
                    .bytes()
                    .zip(own.bytes())
                    .take_while(|(one, other)| one == other)
                    .count()
            };
            let found = (0..self.libraries.len()).filter(is_it).max_by_key(shared);
            found.ok_or_else(|| Unlinkable::Needed((*name).to_owned()))
        };
        let needed = self.libraries[number].parts.needed.iter().map(find);
        self.libraries[number].needed = needed.collect::<Result<_>>()?;
        Ok(())
    }

    /// Returns a library and those that it needs, nearest first.
    fn scope(&self, number: usize) -> Vec<&LinkedLibrary<'a>> {
        let (mut scope, mut next) = (Vec::new(), VecDeque::from([number]));
        let mut seen = HashSet::from([number]);
        while let Some(number) = next.pop_front() {
            let library = &self.libraries[number];
            scope.push(library);
            next.extend(library.needed.iter().filter(|needed| seen.insert(**needed)));
        }
        scope
    }

    /// Returns the number of a generated function.
    fn generated(&self, place: usize) -> u32 {
        self.functions + place as u32
    }

    /// Returns the type of a function of the interpreter, or that a library defines.
    fn signature(&self, function: u32) -> Option<&FuncType> {
        let after = self.libraries.partition_point(|one| one.first_function <= function);
        match after.checked_sub(1).map(|last| &self.libraries[last]) {
            None => self.main.signature(function),
            Some(library) => {
                let imported = library.parts.imports.len() as u32;
                library.parts.signature(function - library.first_function + imported)
            }
        }
    }

    /// Finds what a library's imports are, and puts its functions into the table.
    fn resolve(&mut self, number: usize) -> Result<()> {
        let scope = self.scope(number);
        let library = &self.libraries[number];
        let parts = &library.parts;
        let function = |module: &str, name: &str| {
            let of_main = || self.main.exported(ExternalKind::Func, name);
            let defined = || scope.iter().find_map(|library| library.defined(name));
            let found = if module == ENV { defined().or_else(of_main) } else { None };
            let is_it = |import: &(&str, &str, u32)| (import.0, import.1) == (module, name);
            found.or_else(|| self.main.imports.iter().position(is_it).map(|number| number as u32))
        };
        let address = |name: &str| {
            let of_library = |library: &&LinkedLibrary<'_>| {
                let value = library.parts.exported_constant(name)?;
                Some(value.wrapping_add(library.memory_base as i32))
            };
            let of_main = || self.main.exported_constant(name);
            scope.iter().find_map(of_library).or_else(of_main)
        };
        let (mut functions, mut globals, mut tags) = (Vec::new(), Vec::new(), Vec::new());
        let (mut stubs, first_stub) = (Vec::new(), BEGIN + self.libraries.len() + self.stubs.len());
        for (module, name, ty) in &parts.imports {
            functions.push(match function(module, name) {
                Some(number) if self.signature(number) == parts.types.get(*ty as usize) => number,
                Some(_) => return Err(Unlinkable::OtherType((*name).to_owned())),
                None if parts.weak.contains(&(module, name)) => {
                    stubs.push((library.first_type + ty, trap()));
                    self.generated(first_stub + stubs.len() - 1)
                }
                None => return Err(Unlinkable::Undefined((*name).to_owned())),
            });
        }
        for import in &parts.others {
            let is_weak = parts.weak.contains(&(import.module, import.name));
            let undefined = || Unlinkable::Undefined(import.name.to_owned());
            match import.ty {
                TypeRef::Global(ty) if ty.content_type == ValType::I32 => {
                    let found = match (import.module, import.name) {
                        (ENV, "__memory_base") => {
                            Some(LinkedGlobal::Constant(library.memory_base as i32))
                        }
                        (ENV, "__table_base") => {
                            Some(LinkedGlobal::Constant(library.table_base as i32))
                        }
                        (ENV, STACK) => {
                            let stack = self.main.exported(ExternalKind::Global, STACK);
                            stack.map(LinkedGlobal::Number)
                        }
                        ("GOT.mem", name) => address(name).map(LinkedGlobal::Constant),
                        ("GOT.func", name) => function(ENV, name).map(LinkedGlobal::SlotOf),
                        _ => None,
                    };
                    let found = found.or(is_weak.then_some(LinkedGlobal::Constant(0)));
                    globals.push(found.ok_or_else(undefined)?);
                }
                TypeRef::Tag(ty) => {
                    let tag = self.main.exported(ExternalKind::Tag, import.name);
                    let tag = tag.ok_or_else(undefined)?;
                    let own = &self.main.types[self.main.tags[tag as usize] as usize];
                    if *own != parts.types[ty.func_type_idx as usize] {
                        return Err(Unlinkable::OtherType(import.name.to_owned()));
                    }
                    tags.push(tag);
                }
                TypeRef::Table(ty) => {
                    let fits = ty.element_type == wasmparser::RefType::FUNCREF
                        && ty.maximum.is_none()
                        && ty.initial <= u64::from(library.table_size);
                    if ty.table64 || ty.shared || !fits {
                        return Err(Unlinkable::Refused("it asks for another table"));
                    }
                }
                TypeRef::Memory(ty) => {
                    let own = &self.main.memories[0];
                    let most = |memory: &wasmparser::MemoryType| memory.maximum.unwrap_or(u64::MAX);
                    let fits = (ty.memory64, ty.shared, ty.page_size_log2)
                        == (own.memory64, own.shared, own.page_size_log2);
                    if !fits || most(&ty) < most(own) || ty.initial > own.initial {
                        return Err(Unlinkable::Refused("it asks for another memory"));
                    }
                }
                _ => return Err(undefined()),
            }
        }
        functions.extend((0..parts.bodies.len()).map(|own| library.first_function + own as u32));
        let own = |own| LinkedGlobal::Number(library.first_global + own as u32);
        globals.extend((0..parts.globals.len() - parts.imported_globals).map(own));
        let place = |(at, filled): &(wasmparser::ConstExpr<'_>, Vec<u32>)| {
            let at = constant(at, &|number| globals.get(number as usize)?.constant());
            Ok((at.ok_or(unknown("functions without place"))? as u32, filled.len()))
        };
        let places = parts.elements.iter().map(place).collect::<Result<Vec<_>>>()?;
        if !are_apart(places.iter().copied(), library.table_base, library.table_size) {
            return Err(Unlinkable::Refused(
                "its functions overlap, or are outside of the table that it asks for",
            ));
        }
        for ((at, _), (_, filled)) in places.iter().zip(&parts.elements) {
            for (slot, function) in (*at - self.first_slot..).zip(filled) {
                self.table[slot as usize] = functions[*function as usize];
            }
        }
        self.stubs.extend(stubs);
        let library = &mut self.libraries[number];
        (library.functions, library.globals, library.tags) = (functions, globals, tags);
        Ok(())
    }

    /// Gives slots to the functions that libraries know by address, and those that are looked up.
    fn give_slots(&mut self) -> Result<()> {
        let trap = self.generated(TRAP);
        let mut slots = HashMap::new();
        for (slot, function) in (self.first_slot..).zip(&mut self.table) {
            if *function == EMPTY {
                *function = trap;
            } else {
                // A function has one address, by which it is compared.
                slots.entry(*function).or_insert(slot);
            }
        }
        let mut slot_of = |function: u32| {
            *slots.entry(function).or_insert_with(|| {
                self.table.push(function);
                self.first_slot + self.table.len() as u32 - 1
            })
        };
        for library in &mut self.libraries {
            for global in &mut library.globals {
                if let LinkedGlobal::SlotOf(function) = *global {
                    *global = LinkedGlobal::Constant(slot_of(function) as i32);
                }
            }
            let names = library.parts.exports.keys().filter(|name| name.starts_with(LOOKED_UP));
            let mut names: Vec<_> = names.copied().collect();
            names.sort_unstable();
            let named = |name| Some((name, slot_of(library.defined(name)?)));
            library.looked_up = names.into_iter().filter_map(named).collect();
        }
        self.check_bounds(u64::from(self.first_slot) + self.table.len() as u64)
    }

    /// Writes a library's functions, globals and data with their new numbers.
    fn encode(&mut self, number: usize) -> Result<()> {
        let library = &self.libraries[number];
        for body in &library.parts.bodies {
            self.bodies.push(library.body(body)?);
        }
        library.put_globals(&mut self.global_entries)?;
        let begin = self.data.len();
        for (at, bytes) in &library.parts.data {
            let at = library.constant(at).ok_or(unknown("data without place"))?;
            self.data.push((at as u32, bytes));
        }
        let places = self.data[begin..].iter().map(|(at, bytes)| (*at, bytes.len()));
        if !are_apart(places, library.memory_base, library.memory_size) {
            return Err(Unlinkable::Refused(
                "its data overlaps, or is outside of the memory that it asks for",
            ));
        }
        for name in PREPARING {
            let function = library.parts.exported(ExternalKind::Func, name);
            if function.is_some_and(|function| !has_type(&library.parts, function, 0, 0)) {
                return Err(Unlinkable::OtherType(name.to_owned()));
            }
        }
        Ok(())
    }

    /// Places the texts behind the libraries, and ends the memory before the heap.
    fn place_texts(&mut self) -> Result<TextPlaces> {
        self.texts_at = self.memory_end.next_multiple_of(16) as u32;
        let texts = &mut self.texts;
        let mut place = |text: &str| {
            let at = self.texts_at + texts.len() as u32;
            texts.extend(text.bytes().chain([0]));
            at
        };
        let paths = self.libraries.iter().map(|library| place(library.path)).collect();
        let names = self.libraries.iter().map(|library| {
            let names = library.looked_up.iter().map(|(name, slot)| (place(name), *slot));
            names.collect()
        });
        let names = names.collect();
        let marks_at = self.texts_at + self.texts.len().next_multiple_of(4) as u32;
        let marks: Vec<_> = (marks_at..).step_by(4).take(self.libraries.len()).collect();
        self.memory_end = u64::from(marks_at) + 4 * marks.len() as u64;
        self.memory_end = self.memory_end.next_multiple_of(16);
        self.check_bounds(0)?;
        Ok(TextPlaces { paths, names, marks })
    }

    /// Makes the functions that load libraries.
    fn generate(&mut self, places: &TextPlaces) {
        let nothing = self.types;
        let word = |offset| MemArg { offset, align: 2, memory_index: 0 };
        let (mut open, mut find, mut begins) =
            (Function::new([]), Function::new([]), Vec::with_capacity(self.libraries.len()));
        let (mut opened, mut found) = (open.instructions(), find.instructions());
        for (number, library) in self.libraries.iter().enumerate() {
            // The argument is a record that ends in the path.
            opened.local_get(0).i32_const(PATH_OFFSET).i32_add();
            opened.i32_const(places.paths[number] as i32).call(self.compare).i32_eqz();
            opened.if_(BlockType::Empty).call(self.generated(BEGIN + number));
            for (offset, value) in [
                (MEMORY_BASE_OFFSET, library.memory_base),
                (MEMORY_BASE_OFFSET + 4, library.memory_size),
                (MEMORY_BASE_OFFSET + 8, library.table_base),
                (MEMORY_BASE_OFFSET + 12, library.table_size),
            ] {
                opened.local_get(0).i32_const(value as i32).i32_store(word(offset));
            }
            let is_loaded = MemArg { offset: LOADED_OFFSET, align: 0, memory_index: 0 };
            opened.local_get(0).i32_const(1).i32_store8(is_loaded).i32_const(1).return_().end();

            found.local_get(0).i32_load(word(MEMORY_BASE_OFFSET));
            found.i32_const(library.memory_base as i32).i32_eq().if_(BlockType::Empty);
            for (name, slot) in &places.names[number] {
                found.local_get(1).i32_const(*name as i32).call(self.compare).i32_eqz();
                found.if_(BlockType::Empty).i32_const(*slot as i32).return_().end();
            }
            found.end();

            let mut begin = Function::new([]);
            let mut begun = begin.instructions();
            let mark = places.marks[number] as i32;
            begun.i32_const(mark).i32_load(word(0)).if_(BlockType::Empty).return_().end();
            begun.i32_const(mark).i32_const(1).i32_store(word(0));
            for needed in &library.needed {
                begun.call(self.generated(BEGIN + needed));
            }
            let named = PREPARING.map(|name| library.parts.exported(ExternalKind::Func, name));
            for function in [library.parts.start].into_iter().chain(named).flatten() {
                begun.call(library.functions[function as usize]);
            }
            begun.end();
            begins.push((nothing, begin));
        }
        opened.i32_const(0).end();
        found.i32_const(0).end();
        let of = |imported: u32| self.main.imports[imported as usize].2;
        self.generated = vec![(nothing, trap()), (of(self.open), open), (of(self.find), find)];
        self.generated.extend(begins);
        self.generated.append(&mut self.stubs);
    }

    /// Writes the interpreter's module with all that is added.
    fn module(&self, wasm: &[u8]) -> Result<Vec<u8>> {
        let mut module = Module::new();
        for payload in Parser::new(0).parse_all(wasm) {
            match payload? {
                Payload::CustomSection(section) if section.name() != "dylink.0" => {}
                Payload::TypeSection(types) => {
                    let mut added = Vec::new();
                    for library in &self.libraries {
                        let section = library.parts.type_section.as_ref();
                        added
                            .extend(section.map_or(Ok(&[][..]), |own| entries(library.wasm, own))?);
                    }
                    added.extend([FUNCTION_TYPE, 0, 0]);
                    let count = self.types as usize + 1 - self.main.types.len();
                    let section = extended(wasm, &types, (0, &[]), (count, &added))?;
                    module.section(&RawSection { id: SectionId::Type.into(), data: &section });
                }
                Payload::FunctionSection(_) => {
                    let mut functions = FunctionSection::new();
                    self.main.functions.iter().for_each(|ty| _ = functions.function(*ty));
                    for LinkedLibrary { parts, first_type, .. } in &self.libraries {
                        parts
                            .functions
                            .iter()
                            .for_each(|ty| _ = functions.function(first_type + ty));
                    }
                    self.generated.iter().for_each(|(ty, _)| _ = functions.function(*ty));
                    module.section(&functions);
                }
                Payload::TableSection(_) => {
                    let mut tables = TableSection::new();
                    for (number, table) in self.main.tables.iter().enumerate() {
                        let end = u64::from(self.first_slot) + self.table.len() as u64;
                        let minimum = if number == 0 { end } else { table.initial };
                        tables.table(TableType {
                            element_type: match table.element_type {
                                wasmparser::RefType::FUNCREF => RefType::FUNCREF,
                                wasmparser::RefType::EXTERNREF => RefType::EXTERNREF,
                                _ => return Err(unknown("a table of another kind").into()),
                            },
                            table64: table.table64,
                            minimum,
                            maximum: table.maximum.map(|most| most.max(minimum)),
                            shared: table.shared,
                        });
                    }
                    module.section(&tables);
                }
                Payload::MemorySection(_) => {
                    let mut memories = MemorySection::new();
                    let memory = &self.main.memories[0];
                    let minimum = memory.initial.max(self.memory_end.div_ceil(PAGE_BYTES));
                    if memory.maximum.is_some_and(|most| most < minimum) {
                        return Err(Unlinkable::Refused("its memory is too small"));
                    }
                    memories.memory(MemoryType {
                        minimum,
                        maximum: memory.maximum,
                        memory64: memory.memory64,
                        shared: memory.shared,
                        page_size_log2: memory.page_size_log2,
                    });
                    module.section(&memories);
                }
                Payload::GlobalSection(globals) => {
                    let count = self.globals as usize - self.main.globals.len();
                    let added = (count, &self.global_entries[..]);
                    let section = extended(wasm, &globals, (0, &[]), added)?;
                    module.section(&RawSection { id: SectionId::Global.into(), data: &section });
                }
                Payload::ExportSection(exports) => {
                    let mut added = Vec::new();
                    for (name, place) in [(OPEN, OPENING), (FIND, FINDING)] {
                        name.encode(&mut added);
                        ExportKind::Func.encode(&mut added);
                        self.generated(place).encode(&mut added);
                    }
                    let section = extended(wasm, &exports, (0, &[]), (2, &added))?;
                    module.section(&RawSection { id: SectionId::Export.into(), data: &section });
                }
                Payload::ElementSection(_) => {
                    let first = ConstExpr::i32_const(self.first_slot as i32);
                    let mut elements = ElementSection::new();
                    elements.active(None, &first, Elements::Functions((&self.table[..]).into()));
                    module.section(&elements);
                }
                Payload::DataCountSection { .. } => {
                    let count = (self.main.data.len() + self.data.len() + 1) as u32;
                    module.section(&DataCountSection { count });
                }
                Payload::CodeSectionStart { .. } => {
                    let mut code = CodeSection::new();
                    self.main.bodies.iter().for_each(|body| _ = code.raw(body.as_bytes()));
                    self.bodies.iter().for_each(|body| _ = code.raw(body));
                    self.generated.iter().for_each(|(_, function)| _ = code.function(function));
                    module.section(&code);
                }
                Payload::CodeSectionEntry(_) => {}
                Payload::DataSection(_) => _ = module.section(&self.data_section()?),
                payload => {
                    if let Some((id, range)) = payload.as_section() {
                        let data = part(wasm, range.start, range.end)?;
                        module.section(&RawSection { id, data });
                    }
                }
            }
        }
        Ok(module.finish())
    }

    /// Writes all data, and the address at which the heap begins now into the interpreter's.
    fn data_section(&self) -> Result<DataSection> {
        let mut data = DataSection::new();
        let mut moved = 0;
        for (at, bytes) in &self.main.data {
            let at = constant(at, &|_| None).ok_or(unknown("data without place"))?;
            let mut bytes = bytes.to_vec();
            let word = (self.heap_at.checked_sub(at as u32))
                .and_then(|begin| bytes.get_mut(begin as usize..)?.first_chunk_mut());
            if let Some(word) = word
                && u32::from_le_bytes(*word) == self.heap
            {
                *word = (self.memory_end as u32).to_le_bytes();
                moved += 1;
            }
            data.active(0, &ConstExpr::i32_const(at), bytes);
        }
        if moved != 1 {
            return Err(unknown("a heap that begins elsewhere").into());
        }
        for (at, bytes) in &self.data {
            data.active(0, &ConstExpr::i32_const(*at as i32), bytes.iter().copied());
        }
        let at = ConstExpr::i32_const(self.texts_at as i32);
        data.active(0, &at, self.texts.iter().copied());
        Ok(data)
    }
}

fn trap() -> Function {
    let mut function = Function::new([]);
    function.instructions().unreachable().end();
    function
}

#[cfg(test)]
mod tests;
