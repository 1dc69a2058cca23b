//! wasmer's ELF image of a module, and the image without code that is made of it.

use std::ops::Range;

use object::elf::{
    FileHeader64, PF_R, PF_W, PF_X, PT_LOAD, ProgramHeader64, Rela64, SHF_ALLOC, SHT_NOBITS,
    SHT_NULL, SHT_RELA,
};
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _, SectionTable};
use object::{LittleEndian as LE, SectionIndex, U32, U64, pod};
use wasmer::sys::vm::TrapCode;

use super::code::LARGE_PAGE_BYTES;

pub(super) const MODULE_INFO: &[u8] = wasmer_compiler::WASMER_MODULE_INFO_SECTION_NAME;
const FUNCTIONS: &[u8] = wasmer_compiler::WASMER_FUNCTION_OFFSETS_SECTION_NAME;
const TRAPS: &[u8] = wasmer_compiler::WASMER_TRAPS_SECTION_NAME;
const TRAPS_OF_FUNCTIONS: &[u8] = wasmer_compiler::WASMER_TRAP_FUNCTION_OFFSETS_SECTION_NAME;

const WORD_BYTES: u64 = 8;
/// The alignment of sections that are not mapped.
const ALIGNMENT: usize = 16;

/// A 64-bit, little-endian ELF image.
pub(super) struct ElfImage<'a> {
    bytes: &'a [u8],
    /// Those that are loaded, in order.
    segments: Vec<ElfSegment<'a>>,
    sections: SectionTable<'a, FileHeader64<LE>>,
    /// The section with the names of sections.
    names: SectionIndex,
    text: Range<u64>,
}

struct ElfSegment<'a> {
    /// Where its entry in the table is in the file.
    entry: usize,
    header: &'a ProgramHeader64<LE>,
    bytes: &'a [u8],
    address: u64,
    /// The bytes in memory, which may be more than those in the file.
    len: u64,
    alignment: u64,
}

impl<'a> ElfImage<'a> {
    /// Parses an image with code in a segment of its own, which has whole pages to itself.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let header = FileHeader64::<LE>::parse(bytes).ok()?;
        header.endian().ok()?;
        let table = usize::try_from(header.e_phoff.get(LE)).ok()?;
        let mut segments = Vec::new();
        for (number, header) in header.program_headers(LE, bytes).ok()?.iter().enumerate() {
            if header.p_type.get(LE) == PT_LOAD {
                let entry = table + number * size_of::<ProgramHeader64<LE>>();
                segments.push(ElfSegment::new(entry, header, bytes)?);
            }
        }
        let mut executable = segments.iter().filter(|segment| segment.is_executable());
        let (Some(text), None) = (executable.next(), executable.next()) else { return None };
        let text = text.address..text.end();
        let sections = header.sections(LE, bytes).ok()?;
        let names = SectionIndex(header.shstrndx(LE, bytes).ok()? as usize);
        let image = Self { bytes, segments, sections, names, text };
        image.is_mappable().then_some(image)
    }

    /// Returns whether the code has pages of its own. The headers must be in the first segment,
    /// which begins with the file.
    fn is_mappable(&self) -> bool {
        let pages = |segment: &ElfSegment<'_>| {
            segment.address / segment.alignment..segment.end().div_ceil(segment.alignment)
        };
        let first = &self.segments[0];
        let tables =
            self.segments.last().map_or(0, |last| last.entry) + size_of::<ProgramHeader64<LE>>();
        let are_apart =
            self.segments.windows(2).all(|pair| pages(&pair[0]).end <= pages(&pair[1]).start);
        first.header.p_offset.get(LE) == 0
            && first.address == 0
            && !first.is_executable()
            && first.bytes.len() >= tables
            && are_apart
    }

    /// Returns the addresses of the code; `None` if something in it is to be relocated.
    pub(super) fn text(&self) -> Option<&Range<u64>> {
        for section in self.sections.iter().filter(|section| section.sh_type.get(LE) == SHT_RELA) {
            let relocations: &[Rela64<LE>] = section.data_as_array(LE, self.bytes).ok()?;
            if relocations.iter().any(|place| self.text.contains(&place.r_offset.get(LE))) {
                return None;
            }
        }
        Some(&self.text)
    }

    pub(super) fn text_bytes(&self, text: &Range<u64>) -> &'a [u8] {
        let segment = self.segments.iter().find(|segment| segment.address == text.start);
        segment.map_or(&[], |segment| segment.bytes)
    }

    pub(super) fn first_function(&self) -> Option<u64> {
        Some(words(self.section(FUNCTIONS)?)?.first()?.get(LE))
    }

    /// Returns the addresses of the module's own functions, by their local indices.
    pub(super) fn local_functions(&self) -> Option<Vec<u64>> {
        let count = words(self.section(TRAPS_OF_FUNCTIONS)?)?.len();
        let addresses = words(self.section(FUNCTIONS)?)?.get(..count)?;
        Some(addresses.iter().map(|address| address.get(LE)).collect())
    }

    /// Returns the address of a word that is 0, can be written to and belongs to nothing. Returns
    /// `None` if there is none.
    pub(super) fn free_word(&self) -> Option<u64> {
        let is_writable = self.segments.last()?.header.p_flags.get(LE).contains(PF_W);
        Some(is_writable.then(|| self.end())?? - WORD_BYTES)
    }

    /// Returns the address behind all that is reserved: room for a word and for whole large pages.
    /// The kernel puts a reservation of those where large pages begin.
    fn end(&self) -> Option<u64> {
        Some((self.segments.last()?.end() + WORD_BYTES).next_multiple_of(LARGE_PAGE_BYTES))
    }

    pub(super) fn section(&self, name: &[u8]) -> Option<&'a [u8]> {
        let (_, section) = self.sections.section_by_name(LE, name)?;
        section.data(LE, self.bytes).ok()
    }

    /// Returns the image without code, debug information and symbols, with this description of the
    /// module. Where the code was, wasmer maps zeroes.
    pub(super) fn index(&self, info: &[u8], text: &Range<u64>) -> Option<Vec<u8>> {
        let (traps, traps_of_functions) =
            without_accesses(self.section(TRAPS)?, self.section(TRAPS_OF_FUNCTIONS)?)?;
        let mut index = self.segments[0].bytes.to_vec();
        // Where segments are now.
        let mut moved = Vec::new();
        for segment in &self.segments[1..] {
            let within = (segment.address % segment.alignment) as usize;
            if segment.address == text.start {
                // Reserved and not executable: that is up to who maps the code there. It has one
                // byte, which is never read, since wasmer can't map a segment without any.
                let header = segment.header_in(&mut index)?;
                header.p_flags = PF_R.into();
                header.p_offset = (segment.alignment + within as u64).into();
                header.p_filesz = 1_u64.into();
                continue;
            }
            let alignment = usize::try_from(segment.alignment).ok()?;
            let at = index.len().next_multiple_of(alignment) + within;
            index.resize(at, 0);
            index.extend(segment.bytes);
            segment.header_in(&mut index)?.p_offset = (at as u64).into();
            moved.push((segment, at as u64));
        }
        // wasmer reserves as much as all segments take.
        let last = self.segments.last()?;
        last.header_in(&mut index)?.p_memsz = (self.end()? - last.address).into();
        let mut table: Vec<u8> = Vec::new();
        for (number, section) in self.sections.enumerate() {
            let mut entry = *section;
            let contents = match self.sections.section_name(LE, section).ok()? {
                MODULE_INFO => Some(info),
                TRAPS => Some(&traps[..]),
                TRAPS_OF_FUNCTIONS => Some(&traps_of_functions[..]),
                name if name == FUNCTIONS || number == self.names => {
                    Some(section.data(LE, self.bytes).ok()?)
                }
                _ => None,
            };
            let at = section.sh_offset.get(LE);
            if let Some(contents) = contents {
                index.resize(index.len().next_multiple_of(ALIGNMENT), 0);
                entry.sh_offset = (index.len() as u64).into();
                entry.sh_size = (contents.len() as u64).into();
                index.extend(contents);
            } else if !section.sh_flags.get(LE).contains(SHF_ALLOC) {
                entry.sh_type = SHT_NULL.into();
                entry.sh_offset = 0_u64.into();
                entry.sh_size = 0_u64.into();
            } else if text.contains(&section.sh_addr.get(LE)) {
                entry.sh_type = SHT_NOBITS.into();
            } else if let Some((segment, moved_to)) =
                moved.iter().find(|(segment, _)| segment.has_in_file(section.file_range(LE)))
            {
                entry.sh_offset = (at - segment.header.p_offset.get(LE) + moved_to).into();
            }
            table.extend(pod::bytes_of(&entry));
        }
        index.resize(index.len().next_multiple_of(ALIGNMENT), 0);
        let at = index.len() as u64;
        pod::from_bytes_mut::<FileHeader64<LE>>(&mut index).ok()?.0.e_shoff = at.into();
        index.extend(table);
        Some(index)
    }
}

impl<'a> ElfSegment<'a> {
    fn new(entry: usize, header: &'a ProgramHeader64<LE>, bytes: &'a [u8]) -> Option<Self> {
        let bytes = header.data(LE, bytes).ok()?;
        let [address, len, alignment] =
            [header.p_vaddr, header.p_memsz, header.p_align].map(|field| field.get(LE));
        address.checked_add(len)?;
        alignment.is_power_of_two().then_some(())?;
        Some(Self { entry, header, bytes, address, len, alignment })
    }

    fn is_executable(&self) -> bool {
        self.header.p_flags.get(LE).contains(PF_X)
    }

    /// Returns the address behind it.
    fn end(&self) -> u64 {
        self.address + self.len
    }

    /// Returns whether these bytes of the file, by their place and number, are in the segment.
    fn has_in_file(&self, range: Option<(u64, u64)>) -> bool {
        let (begin, len) = self.header.file_range(LE);
        range.is_some_and(|(at, size)| at >= begin && at.saturating_add(size) <= begin + len)
    }

    /// Returns its entry in a copy of the headers.
    fn header_in<'b>(&self, copy: &'b mut [u8]) -> Option<&'b mut ProgramHeader64<LE>> {
        Some(pod::from_bytes_mut(copy.get_mut(self.entry..)?).ok()?.0)
    }
}

/// Returns the table of traps and that of each function's place in it, without memory accesses. A
/// fault outside of every table is one.
fn without_accesses(traps: &[u8], of_functions: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (mut kept, mut places) = (Vec::new(), Vec::with_capacity(of_functions.len()));
    for place in words(of_functions)? {
        let place = usize::try_from(place.get(LE)).ok()?;
        let (count, rest) = pod::from_bytes::<U32<LE>>(traps.get(place..)?).ok()?;
        let (traps, _) =
            pod::slice_from_bytes::<[U32<LE>; 2]>(rest, count.get(LE) as usize).ok()?;
        let others =
            traps.iter().filter(|[_, code]| code.get(LE) != TrapCode::HeapAccessOutOfBounds as u32);
        places.extend((kept.len() as u64).to_le_bytes());
        kept.extend((others.clone().count() as u32).to_le_bytes());
        kept.extend(others.flat_map(pod::bytes_of));
    }
    Some((kept, places))
}

fn words(bytes: &[u8]) -> Option<&[U64<LE>]> {
    pod::slice_from_all_bytes(bytes).ok()
}
