//! What a module of Emscripten has, as far as its translation and linking need it.

use std::collections::{HashMap, HashSet};

use wasm_encoder::Encode;
use wasmparser::{
    ConstExpr, DataKind, Dylink0Subsection, ElementItems, ElementKind, ExternalKind, FuncType,
    FunctionBody, Import, KnownCustom, MemInfo, MemoryType, Operator, Parser, Payload,
    SectionLimited, SymbolFlags, TableType, TypeRef, ValType,
};

use super::exceptions::{Result, unknown};

/// What a module has.
#[derive(Default)]
pub(super) struct ModuleParts<'a> {
    pub(super) types: Vec<FuncType>,
    /// The imported functions, with namespaces and types; and what else is imported.
    pub(super) imports: Vec<(&'a str, &'a str, u32)>,
    pub(super) others: Vec<Import<'a>>,
    /// The types of its own functions, and what they are.
    pub(super) functions: Vec<u32>,
    pub(super) bodies: Vec<FunctionBody<'a>>,
    /// The types of all tags, those that it imports first.
    pub(super) tags: Vec<u32>,
    pub(super) own_tags: u32,
    /// The values of all globals that are constant numbers, those that it imports first.
    pub(super) globals: Vec<Option<i32>>,
    pub(super) imported_globals: usize,
    pub(super) tables: Vec<TableType>,
    pub(super) memories: Vec<MemoryType>,
    pub(super) exports: HashMap<&'a str, (ExternalKind, u32)>,
    /// What fills the first table, and the memory.
    pub(super) elements: Vec<(ConstExpr<'a>, Vec<u32>)>,
    pub(super) data: Vec<(ConstExpr<'a>, &'a [u8])>,
    pub(super) start: Option<u32>,
    /// The sections with types and globals.
    pub(super) type_section: Option<wasmparser::TypeSectionReader<'a>>,
    pub(super) global_section: Option<wasmparser::GlobalSectionReader<'a>>,
    /// What a library asks for, the libraries that it needs, and its imports that may stay undefined.
    pub(super) asks: Option<MemInfo>,
    pub(super) needed: Vec<&'a str>,
    pub(super) weak: HashSet<(&'a str, &'a str)>,
}

impl<'a> ModuleParts<'a> {
    pub(super) fn read(wasm: &'a [u8]) -> Result<Self> {
        let mut parts = Self::default();
        for (number, payload) in Parser::new(0).parse_all(wasm).enumerate() {
            match payload? {
                Payload::CustomSection(section) => {
                    if let (1, KnownCustom::Dylink0(sections)) = (number, section.as_known()) {
                        for section in sections {
                            parts.read_of_linking(section?);
                        }
                    }
                }
                Payload::TypeSection(types) => {
                    parts.type_section = Some(types.clone());
                    parts.types = types.into_iter_err_on_gc_types().collect::<Result<_, _>>()?;
                }
                Payload::ImportSection(imports) => {
                    for import in imports.into_imports() {
                        let import = import?;
                        match import.ty {
                            TypeRef::Func(ty) => {
                                parts.imports.push((import.module, import.name, ty));
                                continue;
                            }
                            TypeRef::Global(_) => parts.globals.push(None),
                            TypeRef::Tag(tag) => parts.tags.push(tag.func_type_idx),
                            _ => {}
                        }
                        parts.others.push(import);
                    }
                    parts.imported_globals = parts.globals.len();
                }
                Payload::FunctionSection(functions) => parts.functions = all(functions)?,
                Payload::TableSection(tables) => {
                    parts.tables = all(tables)?.into_iter().map(|table| table.ty).collect();
                }
                Payload::MemorySection(memories) => parts.memories = all(memories)?,
                Payload::TagSection(tags) => {
                    parts.own_tags = tags.count();
                    parts.tags.extend(all(tags)?.iter().map(|tag| tag.func_type_idx));
                }
                Payload::GlobalSection(globals) => {
                    parts.global_section = Some(globals.clone());
                    for global in globals {
                        let global = global?;
                        let is_number = global.ty.content_type == ValType::I32;
                        let value = constant(&global.init_expr, &|_| None);
                        parts.globals.push(value.filter(|_| is_number && !global.ty.mutable));
                    }
                }
                Payload::ExportSection(exports) => {
                    let exports = all(exports)?.into_iter();
                    parts.exports =
                        exports.map(|export| (export.name, (export.kind, export.index))).collect();
                }
                Payload::StartSection { func, .. } => parts.start = Some(func),
                Payload::ElementSection(elements) => {
                    for element in elements {
                        let element = element?;
                        let (
                            ElementKind::Active { table_index: None | Some(0), offset_expr },
                            ElementItems::Functions(functions),
                        ) = (element.kind, element.items)
                        else {
                            return Err(unknown("a table that isn't filled by numbers"));
                        };
                        parts.elements.push((offset_expr, all(functions)?));
                    }
                }
                Payload::CodeSectionEntry(body) => parts.bodies.push(body),
                Payload::DataSection(data) => {
                    for data in data {
                        let data = data?;
                        let DataKind::Active { offset_expr, .. } = data.kind else {
                            return Err(unknown("passive data"));
                        };
                        parts.data.push((offset_expr, data.data));
                    }
                }
                _ => {}
            }
        }
        Ok(parts)
    }

    fn read_of_linking(&mut self, section: Dylink0Subsection<'a>) {
        match section {
            Dylink0Subsection::MemInfo(asks) => self.asks = Some(asks),
            Dylink0Subsection::Needed(needed) => self.needed.extend(needed),
            Dylink0Subsection::ImportInfo(imports) => {
                let is_weak = |flags: SymbolFlags| flags.contains(SymbolFlags::BINDING_WEAK);
                let weak = imports.into_iter().filter(|import| is_weak(import.flags));
                self.weak.extend(weak.map(|import| (import.module, import.field)));
            }
            _ => {}
        }
    }

    pub(super) fn signature(&self, function: u32) -> Option<&FuncType> {
        let function = function as usize;
        let ty = match self.imports.get(function) {
            Some((_, _, ty)) => *ty,
            None => *self.functions.get(function - self.imports.len())?,
        };
        self.types.get(ty as usize)
    }

    pub(super) fn exported(&self, kind: ExternalKind, name: &str) -> Option<u32> {
        self.exports.get(name).filter(|(own, _)| *own == kind).map(|(_, number)| *number)
    }

    pub(super) fn export(&self, name: &str) -> Result<u32> {
        let missing = unknown("a function that starts it is missing");
        self.exported(ExternalKind::Func, name).ok_or(missing)
    }

    /// Returns the value of a constant of its own that it exports.
    pub(super) fn exported_constant(&self, name: &str) -> Option<i32> {
        *self.globals.get(self.exported(ExternalKind::Global, name)? as usize)?
    }

    /// Returns the slot from which on the first table is filled, if it is so once, and its functions.
    pub(super) fn table(&self) -> Result<(u32, &[u32])> {
        let [(first, functions)] = &self.elements[..] else {
            return Err(unknown("a table that isn't filled once"));
        };
        let first = constant(first, &|_| None).and_then(|slot| u32::try_from(slot).ok());
        let first = first.filter(|slot| *slot < MOST_SLOTS);
        Ok((first.ok_or(unknown("a table filled from somewhere"))?, functions))
    }

    /// Returns the word at an address that its data begins with.
    pub(super) fn word(&self, address: i32) -> Option<[u8; 4]> {
        self.data.iter().find_map(|(begin, bytes)| {
            let place = address.checked_sub(constant(begin, &|_| None)?)?;
            bytes.get(usize::try_from(place).ok()?..)?.first_chunk().copied()
        })
    }
}

/// The most slots of a table.
pub(super) const MOST_SLOTS: u32 = 1 << 20;

fn all<'a, T: wasmparser::FromReader<'a>>(section: SectionLimited<'a, T>) -> Result<Vec<T>> {
    Ok(section.into_iter().collect::<Result<_, _>>()?)
}

/// Returns the value of a constant expression. `global` knows those of globals.
pub(super) fn constant(
    expression: &ConstExpr<'_>,
    global: &dyn Fn(u32) -> Option<i32>,
) -> Option<i32> {
    let mut stack: Vec<i32> = Vec::new();
    for operator in expression.get_operators_reader() {
        let apply: fn(i32, i32) -> i32 = match operator.ok()? {
            Operator::I32Const { value } => {
                stack.push(value);
                continue;
            }
            Operator::GlobalGet { global_index } => {
                stack.push(global(global_index)?);
                continue;
            }
            Operator::I32Add => i32::wrapping_add,
            Operator::I32Sub => i32::wrapping_sub,
            Operator::I32Mul => i32::wrapping_mul,
            Operator::End => return stack.pop(),
            _ => return None,
        };
        let (second, first) = (stack.pop()?, stack.pop()?);
        stack.push(apply(first, second));
    }
    None
}

/// The first byte of a function's type.
pub(super) const FUNCTION_TYPE: u8 = 0x60;

/// Returns a section with more entries, each given as their number and bytes.
pub(super) fn extended<T>(
    wasm: &[u8],
    section: &SectionLimited<'_, T>,
    before: (usize, &[u8]),
    after: (usize, &[u8]),
) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    (before.0 + section.count() as usize + after.0).encode(&mut bytes);
    bytes.extend([before.1, entries(wasm, section)?, after.1].concat());
    Ok(bytes)
}

/// Returns a section's entries, which follow their number.
pub(super) fn entries<'a, T>(wasm: &'a [u8], section: &SectionLimited<'_, T>) -> Result<&'a [u8]> {
    let own = part(wasm, section.range().start, section.range().end)?;
    let number = own.iter().position(|byte| byte & 0x80 == 0).map_or(0, |last| last + 1);
    Ok(&own[number..])
}

pub(super) fn part(wasm: &[u8], start: u64, end: u64) -> Result<&[u8]> {
    let place = |at| usize::try_from(at).ok();
    let part = place(start).zip(place(end)).and_then(|(start, end)| wasm.get(start..end));
    part.ok_or(unknown("a section that is elsewhere"))
}
