//! wasmer's ELF image of a module, and the image without code that is made of it.
//!
//! Offsets of fields are those of 64-bit little-endian ELF (`elf.h`).

use std::ops::Range;

use wasmer::sys::vm::TrapCode;

use super::code::LARGE_PAGE_BYTES;

pub(super) const MODULE_INFO: &[u8] = wasmer_compiler::WASMER_MODULE_INFO_SECTION_NAME;
const FUNCTIONS: &[u8] = wasmer_compiler::WASMER_FUNCTION_OFFSETS_SECTION_NAME;
const TRAPS: &[u8] = wasmer_compiler::WASMER_TRAPS_SECTION_NAME;
const TRAPS_OF_FUNCTIONS: &[u8] = wasmer_compiler::WASMER_TRAP_FUNCTION_OFFSETS_SECTION_NAME;

/// 64-bit, little-endian, of the current version.
const MAGIC: [u8; 7] = *b"\x7fELF\x02\x01\x01";
const HEADER_BYTES: usize = 64;
const SEGMENT_BYTES: usize = 56;
const SECTION_BYTES: usize = 64;
const WORD_BYTES: u64 = 8;
/// Types and flags of segments and sections.
const LOADED: u32 = 1;
const EXECUTABLE: u32 = 1;
const WRITABLE: u32 = 2;
const READABLE: u32 = 4;
const UNUSED: u32 = 0;
const WITHOUT_BYTES: u32 = 8;
const ALLOCATED: u64 = 2;
/// The alignment of sections that are not mapped.
const ALIGNMENT: usize = 16;

/// An ELF image. Every range of it that is named here lies inside of it.
pub(super) struct ElfImage<'a> {
    bytes: &'a [u8],
    /// Those that are loaded, in order, with the offsets of their entries in the table.
    segments: Vec<(usize, ElfSegment)>,
    sections: Vec<Section>,
    /// The section with the names of sections.
    names: usize,
    text: Range<u64>,
}

#[derive(Debug, Clone)]
struct ElfSegment {
    is_executable: bool,
    at: Range<usize>,
    address: u64,
    /// The bytes in memory, which may be more than those in the file.
    len: u64,
    alignment: u64,
}

struct Section {
    entry: [u8; SECTION_BYTES],
    name: Range<usize>,
    at: Range<usize>,
}

impl<'a> ElfImage<'a> {
    /// Parses an image with code in a segment of its own, which has whole pages to itself.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        bytes.strip_prefix(&MAGIC)?;
        let names = u16_at(bytes, 62)?.into();
        let segments = segments(bytes)?;
        let sections = sections(bytes, names)?;
        let mut executable = segments.iter().filter(|(_, segment)| segment.is_executable);
        let (Some((_, text)), None) = (executable.next(), executable.next()) else { return None };
        let text = text.address..text.address.checked_add(text.len)?;
        let image = Self { bytes, segments, sections, names, text };
        image.is_mappable().then_some(image)
    }

    /// Returns whether the code has pages of its own, and the headers are in the first segment,
    /// which begins with the file.
    fn is_mappable(&self) -> bool {
        let pages = |segment: &ElfSegment| {
            let end = segment.address + segment.len;
            segment.address / segment.alignment..end.div_ceil(segment.alignment)
        };
        let first = &self.segments[0].1;
        let tables = HEADER_BYTES + self.segments.last().map_or(0, |(at, _)| at + SEGMENT_BYTES);
        let are_apart =
            self.segments.windows(2).all(|pair| pages(&pair[0].1).end <= pages(&pair[1].1).start);
        first.at.start == 0
            && first.address == 0
            && !first.is_executable
            && first.at.end >= tables
            && are_apart
    }

    /// Returns the addresses of the code; `None` if something in it is to be relocated.
    pub(super) fn text(&self) -> Option<&Range<u64>> {
        const RELOCATIONS: u32 = 4;
        const RELOCATION_BYTES: usize = 24;
        for section in self.sections.iter().filter(|section| section.kind() == RELOCATIONS) {
            for relocation in self.bytes[section.at.clone()].chunks_exact(RELOCATION_BYTES) {
                if self.text.contains(&u64_at(relocation, 0)?) {
                    return None;
                }
            }
        }
        Some(&self.text)
    }

    pub(super) fn text_bytes(&self, text: &Range<u64>) -> &'a [u8] {
        let segment = self.segments.iter().find(|(_, segment)| segment.address == text.start);
        segment.map_or(&[], |(_, segment)| &self.bytes[segment.at.clone()])
    }

    pub(super) fn first_function(&self) -> Option<u64> {
        u64_at(self.section(FUNCTIONS)?, 0)
    }

    /// Returns the addresses of the module's own functions, by their local indices.
    pub(super) fn local_functions(&self) -> Option<Vec<u64>> {
        let count = self.section(TRAPS_OF_FUNCTIONS)?.len() / 8;
        let addresses = self.section(FUNCTIONS)?.get(..count * 8)?;
        addresses.chunks_exact(8).map(|address| u64_at(address, 0)).collect()
    }

    /// Returns the address of a word that is 0, can be written to and belongs to nothing; `None` if
    /// there is none.
    pub(super) fn free_word(&self) -> Option<u64> {
        let (entry, _) = self.segments.last()?;
        let is_writable = u32_at(self.bytes, entry + 4)? & WRITABLE != 0;
        is_writable.then_some(())?;
        Some(self.end()? - WORD_BYTES)
    }

    /// Returns the address behind all that is reserved: room for a word and for whole large pages,
    /// since the kernel puts a reservation of those where large pages begin.
    fn end(&self) -> Option<u64> {
        let (_, last) = self.segments.last()?;
        Some((last.address + last.len + WORD_BYTES).next_multiple_of(LARGE_PAGE_BYTES))
    }

    pub(super) fn section(&self, name: &[u8]) -> Option<&'a [u8]> {
        let section =
            self.sections.iter().find(|section| &self.bytes[section.name.clone()] == name);
        Some(&self.bytes[section?.at.clone()])
    }

    /// Returns the image without code, debug information and symbols, with this description of the
    /// module. wasmer maps zeroes where the code was.
    pub(super) fn index(&self, info: &[u8], text: &Range<u64>) -> Option<Vec<u8>> {
        let (traps, traps_of_functions) =
            without_accesses(self.section(TRAPS)?, self.section(TRAPS_OF_FUNCTIONS)?)?;
        let mut index = self.bytes[self.segments[0].1.at.clone()].to_vec();
        // How far segments moved, by their address.
        let mut moved = Vec::new();
        for (entry, segment) in &self.segments[1..] {
            let within = (segment.address % segment.alignment) as usize;
            if segment.address == text.start {
                // Reserved and not executable: that is up to who maps the code there. It has one
                // byte, which is never read, since wasmer can't map a segment without any.
                index.get_mut(entry + 4..entry + 8)?.copy_from_slice(&READABLE.to_le_bytes());
                put(&mut index, entry + 8, segment.alignment + within as u64)?;
                put(&mut index, entry + 32, 1)?;
                continue;
            }
            let alignment = usize::try_from(segment.alignment).ok()?;
            let at = index.len().next_multiple_of(alignment) + within;
            index.resize(at, 0);
            index.extend(&self.bytes[segment.at.clone()]);
            put(&mut index, entry + 8, at as u64)?;
            moved.push((segment.clone(), at));
        }
        // wasmer reserves as much as all segments take.
        let (entry, last) = self.segments.last()?;
        put(&mut index, entry + 40, self.end()? - last.address)?;
        let mut table = Vec::with_capacity(self.sections.len() * SECTION_BYTES);
        for (number, section) in self.sections.iter().enumerate() {
            let mut entry = section.entry;
            let name = &self.bytes[section.name.clone()];
            let contents = match name {
                MODULE_INFO => Some(info),
                FUNCTIONS => Some(&self.bytes[section.at.clone()]),
                TRAPS => Some(&traps[..]),
                TRAPS_OF_FUNCTIONS => Some(&traps_of_functions[..]),
                _ if number == self.names => Some(&self.bytes[section.at.clone()]),
                _ => None,
            };
            if let Some(contents) = contents {
                index.resize(index.len().next_multiple_of(ALIGNMENT), 0);
                put(&mut entry, 24, index.len() as u64)?;
                put(&mut entry, 32, contents.len() as u64)?;
                index.extend(contents);
            } else if u64_at(&entry, 8)? & ALLOCATED == 0 {
                entry[4..8].copy_from_slice(&UNUSED.to_le_bytes());
                put(&mut entry, 24, 0)?;
                put(&mut entry, 32, 0)?;
            } else if text.contains(&u64_at(&entry, 16)?) {
                entry[4..8].copy_from_slice(&WITHOUT_BYTES.to_le_bytes());
            } else if let Some((segment, at)) =
                moved.iter().find(|(segment, _)| segment.contains(&section.at))
            {
                put(&mut entry, 24, (section.at.start - segment.at.start + at) as u64)?;
            }
            table.extend(entry);
        }
        index.resize(index.len().next_multiple_of(ALIGNMENT), 0);
        let at = index.len() as u64;
        put(&mut index, 40, at)?;
        index.extend(table);
        Some(index)
    }
}

impl ElfSegment {
    fn contains(&self, range: &Range<usize>) -> bool {
        self.at.start <= range.start && range.end <= self.at.end
    }
}

impl Section {
    fn kind(&self) -> u32 {
        u32_at(&self.entry, 4).unwrap_or(UNUSED)
    }
}

fn segments(bytes: &[u8]) -> Option<Vec<(usize, ElfSegment)>> {
    let mut segments = Vec::new();
    let (table, count) = (usize_at(bytes, 32)?, usize::from(u16_at(bytes, 56)?));
    for entry in (0..count).map(|number| table + number * SEGMENT_BYTES) {
        if u32_at(bytes, entry)? != LOADED {
            continue;
        }
        let segment = ElfSegment {
            is_executable: u32_at(bytes, entry + 4)? & EXECUTABLE != 0,
            at: range_in(bytes, usize_at(bytes, entry + 8)?, usize_at(bytes, entry + 32)?)?,
            address: u64_at(bytes, entry + 16)?,
            len: u64_at(bytes, entry + 40)?,
            alignment: u64_at(bytes, entry + 48)?,
        };
        segment.address.checked_add(segment.len)?;
        (segment.alignment.is_power_of_two()).then_some(())?;
        segments.push((entry, segment));
    }
    (!segments.is_empty()).then_some(segments)
}

fn sections(bytes: &[u8], names: usize) -> Option<Vec<Section>> {
    let (table, count) = (usize_at(bytes, 40)?, usize::from(u16_at(bytes, 60)?));
    let entry = |number: usize| bytes.get(table + number * SECTION_BYTES..)?.first_chunk();
    let contents = |entry: &[u8; SECTION_BYTES]| {
        if matches!(u32_at(entry, 4)?, UNUSED | WITHOUT_BYTES) {
            return Some(0..0);
        }
        range_in(bytes, usize_at(entry, 24)?, usize_at(entry, 32)?)
    };
    let names = contents(entry(names)?)?;
    let section = |number| {
        let entry: &[u8; SECTION_BYTES] = entry(number)?;
        let name = names.start + u32_at(entry, 0)? as usize;
        let len = bytes.get(name..names.end)?.iter().position(|byte| *byte == 0)?;
        Some(Section { entry: *entry, name: name..name + len, at: contents(entry)? })
    };
    (0..count).map(section).collect()
}

/// Returns the table of traps and that of each function's place in it, without memory accesses: a
/// fault outside of every table is one.
fn without_accesses(traps: &[u8], of_functions: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    const TRAP_BYTES: usize = 8;
    let (mut kept, mut places) = (Vec::new(), Vec::with_capacity(of_functions.len()));
    for place in of_functions.chunks_exact(8) {
        let at = usize_at(place, 0)?;
        let count = u32_at(traps, at)? as usize;
        let of_function = traps.get(at + 4..at + 4 + count * TRAP_BYTES)?;
        places.extend((kept.len() as u64).to_le_bytes());
        let count_at = kept.len();
        kept.extend([0; 4]);
        for trap in of_function.chunks_exact(TRAP_BYTES) {
            if u32_at(trap, 4)? != TrapCode::HeapAccessOutOfBounds as u32 {
                kept.extend(trap);
            }
        }
        let count = ((kept.len() - count_at - 4) / TRAP_BYTES) as u32;
        kept[count_at..count_at + 4].copy_from_slice(&count.to_le_bytes());
    }
    Some((kept, places))
}

fn range_in(bytes: &[u8], at: usize, len: usize) -> Option<Range<usize>> {
    let end = at.checked_add(len)?;
    (end <= bytes.len()).then_some(at..end)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

fn usize_at(bytes: &[u8], at: usize) -> Option<usize> {
    u64_at(bytes, at).and_then(|number| usize::try_from(number).ok())
}

fn put(bytes: &mut [u8], at: usize, number: u64) -> Option<()> {
    bytes.get_mut(at..at + 8)?.copy_from_slice(&number.to_le_bytes());
    Some(())
}
