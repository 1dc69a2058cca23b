//! The first wall: what compiled code can reach from its memory's base, in every kind of memory.
//!
//! Each instruction that accesses memory is compiled with each of a few offsets. It is called with
//! addresses around the ends of the memory and of what 32 bits can say. An access must work if all
//! its bytes are inside, and trap if not. The test's own pages follow the reservation, so that an
//! access beyond it would also work.

use std::fmt::Write;

use wasmer::{Instance, Module, TypedFunction, imports};

use super::*;
use crate::memory::image::MemoryImage;
use crate::memory::sys::FileView;
use crate::python::module::native::NativeEngine;
use crate::python::module::new_engine;
use canary::Canary;

mod canary;

/// Bytes of the image, and of every new memory but the full one.
const BYTES: usize = 2 * WASM_PAGE_BYTES;
const OFFSETS: [u32; 5] = [0, 1, 0x8000_0000, 0xffff_fff0, 0xffff_ffff];

/// An instruction of the guest that accesses memory.
struct Access {
    /// The instruction with its operands; `{}` stands for the offset.
    text: String,
    width: u64,
    /// It traps at addresses that aren't a multiple of its width.
    is_aligned: bool,
}

/// Returns every load and store, and atomic ones of each width.
fn accesses() -> Vec<Access> {
    let mut all = Vec::new();
    let mut add = |width: u64, is_aligned, text: String| {
        all.push(Access { text, width, is_aligned });
    };
    // The results go to globals, so that no load is left out as unused.
    for (ty, loads) in [
        ("i32", "load8_s 1 load8_u 1 load16_s 2 load16_u 2 load 4"),
        ("i64", "load8_s 1 load8_u 1 load16_s 2 load16_u 2 load32_s 4 load32_u 4 load 8"),
        ("f32", "load 4"),
        ("f64", "load 8"),
        (
            "v128",
            "load 16 load8x8_s 8 load8x8_u 8 load16x4_s 8 load16x4_u 8 load32x2_s 8 load32x2_u 8 \
            load8_splat 1 load16_splat 2 load32_splat 4 load64_splat 8 load32_zero 4 load64_zero 8",
        ),
    ] {
        for (name, width) in named_widths(loads) {
            add(width, false, format!("(global.set ${ty} ({ty}.{name} {{}} (local.get 0)))"));
        }
    }
    for (ty, stores) in [
        ("i32", "store8 1 store16 2 store 4"),
        ("i64", "store8 1 store16 2 store32 4 store 8"),
        ("f32", "store 4"),
        ("f64", "store 8"),
        ("v128", "store 16"),
    ] {
        for (name, width) in named_widths(stores) {
            add(width, false, format!("({ty}.{name} {{}} (local.get 0) (global.get ${ty}))"));
        }
    }
    for (lane, width) in named_widths("8 1 16 2 32 4 64 8") {
        let operands = "{} 0 (local.get 0) (global.get $v128)";
        add(width, false, format!("(global.set $v128 (v128.load{lane}_lane {operands}))"));
        add(width, false, format!("(v128.store{lane}_lane {operands})"));
    }
    for (ty, widths) in [("i32", "8 1 16 2 _ 4"), ("i64", "8 1 16 2 32 4 _ 8")] {
        for (bits, width) in named_widths(widths) {
            let (bits, unsigned) = if bits == "_" { ("", "") } else { (bits, "_u") };
            let (place, value) = ("{} (local.get 0)", format!("(global.get ${ty})"));
            let load = format!("{ty}.atomic.load{bits}{unsigned} {place}");
            add(width, true, format!("(global.set ${ty} ({load}))"));
            add(width, true, format!("({ty}.atomic.store{bits} {place} {value})"));
            for change in ["add", "sub", "and", "or", "xor", "xchg"] {
                let change = format!("{ty}.atomic.rmw{bits}.{change}{unsigned} {place} {value}");
                add(width, true, format!("(global.set ${ty} ({change}))"));
            }
            let change = format!("{ty}.atomic.rmw{bits}.cmpxchg{unsigned} {place} {value} {value}");
            add(width, true, format!("(global.set ${ty} ({change}))"));
        }
    }
    all
}

/// Returns what threads that share a memory can do with it in addition.
fn waits() -> Vec<Access> {
    let wait = |ty: &str, width: u64| {
        let text = format!(
            "(global.set $i32 (memory.atomic.wait{} {{}}
                (local.get 0) (global.get ${ty}) (i64.const 0)))",
            8 * width
        );
        Access { text, width, is_aligned: true }
    };
    let notify = "(global.set $i32 (memory.atomic.notify {} (local.get 0) (i32.const 1)))";
    vec![wait("i32", 4), wait("i64", 8), Access { text: notify.into(), width: 4, is_aligned: true }]
}

fn named_widths(text: &str) -> impl Iterator<Item = (&str, u64)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.chunks(2).map(|pair| (pair[0], pair[1].parse().unwrap())).collect::<Vec<_>>().into_iter()
}

/// Instructions with bounds of their own, as exported functions without arguments. The address and
/// the length of each reach beyond the memory, or the index is beyond the table.
const BULK: [(&str, &str); 17] = [
    ("fill the end", "(memory.fill (global.get $len) (i32.const 1) (i32.const 1))"),
    ("fill across", "(memory.fill (i32.const 1) (i32.const 1) (global.get $len))"),
    ("fill all", "(memory.fill (i32.const 1) (i32.const 1) (i32.const -1))"),
    ("fill wrapped", "(memory.fill (i32.const -1) (i32.const 1) (i32.const -1))"),
    ("copy across", "(memory.copy (i32.const 0) (i32.const 1) (global.get $len))"),
    ("copy to", "(memory.copy (i32.const -1) (i32.const 0) (i32.const 2))"),
    ("copy from", "(memory.copy (i32.const 0) (i32.const -1) (i32.const 2))"),
    ("copy wrapped", "(memory.copy (i32.const -1) (i32.const -1) (i32.const -1))"),
    ("init", "(memory.init $data (i32.const -1) (i32.const 0) (i32.const 4))"),
    ("init from", "(memory.init $data (i32.const 0) (i32.const 1) (i32.const -1))"),
    ("table get", "(drop (table.get $table (i32.const -1)))"),
    ("table get next", "(drop (table.get $table (i32.const 4)))"),
    ("table set", "(table.set $table (i32.const -1) (ref.null func))"),
    ("table fill", "(table.fill $table (i32.const -1) (ref.null func) (i32.const 2))"),
    ("table copy", "(table.copy $table $table (i32.const 1) (i32.const -1) (i32.const -1))"),
    ("table init", "(table.init $table $elem (i32.const -1) (i32.const 0) (i32.const 1))"),
    ("table call", "(call_indirect $table (type $plain) (i32.const -1))"),
];
/// Those of them that end at the last byte of a memory of 4 GiB.
const FITS_FULL: [&str; 4] = ["fill the end", "fill across", "fill all", "copy across"];

/// Instructions with bounds of their own that stay inside.
const BULK_INSIDE: [(&str, &str); 3] = [
    ("fill inside", "(memory.fill (i32.const 64) (i32.const 0) (i32.const 64))"),
    ("copy inside", "(memory.copy (i32.const 64) (i32.const 128) (i32.const 64))"),
    ("init inside", "(memory.init $data (i32.const 64) (i32.const 0) (i32.const 4))"),
];

/// Returns a module with a function for each instruction and offset. `$len` is the length of the
/// memory.
fn module(accesses: &[Access], memory: &str) -> String {
    let mut text = format!(
        r#"(module {memory}
            (type $plain (func)) (table $table 4 funcref) (elem $elem func $nothing)
            (func $nothing)
            (data $data "\00\01\02\03")
            (global $len (export "len") (mut i32) (i32.const 0))
            (global $i32 (mut i32) (i32.const 0)) (global $i64 (mut i64) (i64.const 0))
            (global $f32 (mut f32) (f32.const 0)) (global $f64 (mut f64) (f64.const 0))
            (global $v128 (mut v128) (v128.const i64x2 0 0))
            (func (export "grow") (result i32) (memory.grow (i32.const 1)))"#
    );
    for (index, access) in accesses.iter().enumerate() {
        for offset in OFFSETS {
            let body = access.text.replace("{}", &format!("offset={offset:#x}"));
            writeln!(text, "(func (export \"{index}+{offset}\") (param i32) {body})").unwrap();
        }
    }
    for (name, body) in BULK.into_iter().chain(BULK_INSIDE) {
        writeln!(text, "(func (export \"{name}\") {body})").unwrap();
    }
    text + ")"
}

/// An instance on one memory, with a canary behind the reservation.
struct Guest {
    name: &'static str,
    store: Store,
    instance: Instance,
    memory: Arc<GuestMemory>,
    accesses: Arc<Vec<Access>>,
    functions: Vec<Vec<TypedFunction<i32, ()>>>,
    canary: Canary,
    /// The instance began with what its memory held.
    has_image: bool,
}

impl Guest {
    /// Calls everything with the addresses that matter at this length.
    fn check(&mut self) {
        let len = self.memory.len() as u64;
        for (access, functions) in self.accesses.iter().zip(&self.functions) {
            for (offset, function) in OFFSETS.into_iter().zip(functions) {
                for address in addresses(len, offset.into(), access.width) {
                    let at = u64::from(address) + u64::from(offset);
                    let is_inside = at + access.width <= len;
                    let is_crooked = access.is_aligned && !at.is_multiple_of(access.width);
                    let result = function.call(&mut self.store, address.cast_signed());
                    let trap = result.map_err(|error| error.to_trap());
                    let is_right = match trap {
                        Ok(()) => is_inside && !is_crooked,
                        Err(Some(TrapCode::HeapAccessOutOfBounds)) => !is_inside,
                        Err(Some(TrapCode::UnalignedAtomic)) => is_crooked,
                        Err(_) => false,
                    };
                    let (name, text) = (self.name, &access.text);
                    assert!(
                        is_right,
                        "{name}, {len:#x} bytes: {text} at {address:#x} + {offset:#x}: {trap:?}"
                    );
                }
            }
        }
        let end = u32::try_from(len).unwrap_or(u32::MAX).cast_signed();
        self.instance.exports.get_global("len").unwrap().set(&mut self.store, end.into()).unwrap();
        for (name, _) in BULK {
            if len == MOST_BYTES as u64 && FITS_FULL.contains(&name) {
                continue;
            }
            let expected = match name.starts_with("table") {
                true => TrapCode::TableAccessOutOfBounds,
                false => TrapCode::HeapAccessOutOfBounds,
            };
            assert_eq!(self.call(name), Err(Some(expected)), "{}: {name}", self.name);
        }
        for (name, _) in BULK_INSIDE {
            assert_eq!(self.call(name), Ok(()), "{}: {name}", self.name);
        }
        assert!(self.canary.is_untouched(), "{}", self.name);
    }

    fn call(&mut self, name: &str) -> Result<(), Option<TrapCode>> {
        let function = self.instance.exports.get_function(name).unwrap().clone();
        function.call(&mut self.store, &[]).map(|_| ()).map_err(|error| error.to_trap())
    }

    fn grow(&mut self) -> i32 {
        let grow: TypedFunction<(), i32> =
            self.instance.exports.get_typed_function(&self.store, "grow").unwrap();
        grow.call(&mut self.store).unwrap()
    }

    /// Every access traps once the memory was taken away, wherever it is: E-2.
    fn check_revoked(&mut self) {
        self.memory.revoke();
        for (access, functions) in self.accesses.iter().zip(&self.functions) {
            if access.text.contains("notify") || access.text.contains("wait") {
                // They leave the memory to those that serve them.
                continue;
            }
            for (offset, function) in OFFSETS.into_iter().zip(functions) {
                for at in [0, WASM_PAGE_BYTES as i32 - 16, -16] {
                    let trap = function.call(&mut self.store, at).map_err(|error| error.to_trap());
                    let is_crooked = access.is_aligned
                        && !(u64::from(at.cast_unsigned()) + u64::from(offset))
                            .is_multiple_of(access.width);
                    let expected = match is_crooked {
                        true => TrapCode::UnalignedAtomic,
                        false => TrapCode::HeapAccessOutOfBounds,
                    };
                    assert_eq!(trap, Err(Some(expected)), "{}: {}", self.name, access.text);
                }
            }
        }
        for (name, _) in BULK_INSIDE {
            if name == "init inside" && self.has_image {
                // The image has the data: nothing is accessed.
                continue;
            }
            let trap = self.call(name);
            assert_eq!(trap, Err(Some(TrapCode::HeapAccessOutOfBounds)), "{}: {name}", self.name);
        }
        assert_eq!(self.grow(), -1, "{}", self.name);
        assert!(self.canary.is_untouched(), "{}", self.name);
    }
}

/// Returns addresses around the end of a memory and around the ends of 32 bits.
fn addresses(len: u64, offset: u64, width: u64) -> Vec<u32> {
    let around_end = [len.saturating_sub(width), len.saturating_sub(width - 1), len - 1, len];
    let with_offset = around_end.map(|at| at.wrapping_sub(offset));
    let ends = [0, 0x8000_0000, 0xffff_fff0, 0xffff_ffff];
    let all = around_end.into_iter().chain(with_offset).chain(ends);
    let mut all: Vec<u32> = all.filter_map(|at| u32::try_from(at).ok()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// A memory, and the instance that has it.
struct Made {
    store: Store,
    instance: Instance,
    memory: Arc<GuestMemory>,
}

impl Made {
    /// Returns an instance on `memory`, or else on what the tunables make.
    fn on(memory: Option<GuestMemory>, engine: &NativeEngine, module: &Module) -> Self {
        let mut store = engine.store();
        let make = || Instance::new(&mut store, module, &imports! {}).unwrap();
        let (instance, memory) = with_memory(memory.map(Arc::new), make);
        let memory = Arc::clone(memory.unwrap().shared());
        Self { store, instance, memory }
    }

    /// Returns an instance that shares `memory` with others.
    fn sharing(memory: GuestMemory, engine: &NativeEngine, module: &Module) -> Self {
        let mut store = engine.store();
        let memory = Arc::new(memory.shared());
        let ty = MemoryType::new(2, Some(65536), true);
        let shared = SharedMemory::new(Arc::clone(&memory), ty);
        let imported = shared.in_store(&mut store, Arc::new(NoWaits)).unwrap();
        let imports = imports! { "env" => { "memory" => imported } };
        let instance = Instance::new(&mut store, module, &imports).unwrap();
        Self { store, instance, memory }
    }
}

fn image() -> Arc<MemoryImage> {
    use std::io::Write;
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&vec![7; BYTES]).unwrap();
    Arc::new(MemoryImage::new(FileView::new(file).unwrap(), 0..BYTES).unwrap())
}

/// A session's state on the image: changed pages, a segment, and grown ones.
fn state(image: &Arc<MemoryImage>) -> Arc<MemoryPatch> {
    changed(image).patch().unwrap()
}

fn changed(image: &Arc<MemoryImage>) -> GuestMemory {
    let memory = GuestMemory::over(Arc::clone(image), true).unwrap();
    memory.grow(2 * WASM_PAGE_BYTES).unwrap();
    memory.write(5, &[1, 2, 3]).unwrap();
    memory.with_bytes(20 << 12, 20 << 12, |bytes| bytes.fill(9)).unwrap();
    memory
}

/// A memory whose pages the kernel has marked, as after a session's turns.
fn marked(image: &Arc<MemoryImage>) -> GuestMemory {
    let memory = changed(image);
    memory.patch().unwrap();
    memory.patch().unwrap();
    memory.write(9, &[1]).unwrap();
    memory
}

/// A kind of memory: its name, and how it is made.
type Kind = (&'static str, fn(&Arc<MemoryImage>) -> GuestMemory);

/// Every kind of memory that an interpreter gets, whether its guest has threads or not.
const KINDS: [Kind; 11] = [
    ("new", |_| GuestMemory::new(BYTES).unwrap()),
    ("full", |_| GuestMemory::new(MOST_BYTES).unwrap()),
    ("image, mapped", |image| GuestMemory::over(Arc::clone(image), true).unwrap()),
    ("image, copied", |image| GuestMemory::over(Arc::clone(image), false).unwrap()),
    ("state resumed, mapped", |image| {
        let memory = GuestMemory::over(Arc::clone(image), true).unwrap();
        memory.restore(&state(image)).unwrap();
        memory
    }),
    ("state resumed, copied", |image| {
        let memory = GuestMemory::over(Arc::clone(image), false).unwrap();
        memory.restore(&state(image)).unwrap();
        memory
    }),
    ("turns taken, marked", marked),
    ("forked, mapped", |image| {
        let memory = GuestMemory::over(Arc::clone(image), true).unwrap();
        memory.restore(&fork(image)).unwrap();
        memory
    }),
    ("forked, copied", |image| {
        let memory = GuestMemory::over(Arc::clone(image), false).unwrap();
        memory.restore(&fork(image)).unwrap();
        memory
    }),
    ("reset after growth, mapped", |image| reset(image, true)),
    ("reset after growth, copied", |image| reset(image, false)),
];

/// The state that a fork of a session begins with.
fn fork(image: &Arc<MemoryImage>) -> Arc<MemoryPatch> {
    let parent = marked(image);
    let snapshot = parent.snapshot().unwrap().map(|snapshot| Arc::clone(snapshot.patch()));
    snapshot.unwrap_or_else(|| parent.patch().unwrap())
}

/// A memory that was longer, and is its image again.
fn reset(image: &Arc<MemoryImage>, is_mapped: bool) -> GuestMemory {
    let memory = GuestMemory::over(Arc::clone(image), is_mapped).unwrap();
    memory.grow(8 * WASM_PAGE_BYTES).unwrap();
    memory.write((BYTES + 5) as u32, &[1]).unwrap();
    let empty = MemoryPatch { len: BYTES, ..MemoryPatch::default() };
    memory.restore(&Arc::new(empty)).unwrap();
    assert_eq!(memory.len(), BYTES);
    memory
}

/// Serves no waits.
#[derive(Debug)]
struct NoWaits;

impl Waits for NoWaits {
    fn wait(&self, _at: u32, _expected: Expected, _timeout: Option<Duration>) -> Waited {
        Waited::Changed
    }

    fn notify(&self, _at: u32, _most: u32) -> u32 {
        0
    }
}

/// Checks the wall around every kind of memory in this process, whose guests' threads share their
/// memory or have none.
fn check_every_kind(is_shared: bool) {
    let mut accesses = accesses();
    let memory = match is_shared {
        true => r#"(import "env" "memory" (memory 2 65536 shared))"#,
        false => r#"(memory (export "memory") 2 65536)"#,
    };
    if is_shared {
        accesses.extend(waits());
    }
    let accesses = Arc::new(accesses);
    let engine = new_engine();
    let module = engine.module(module(&accesses, memory));
    let image = image();
    for (name, make) in KINDS {
        let (made, canary) = Canary::behind(&|| match is_shared {
            true => Made::sharing(make(&image), &engine, &module),
            // The tunables make what no image is for.
            false => Made::on((name != "new").then(|| make(&image)), &engine, &module),
        });
        let Made { store, instance, memory } = made;
        let function = |index: usize, offset: u32| {
            let name = format!("{index}+{offset}");
            instance.exports.get_typed_function(&store, &name).unwrap()
        };
        let functions =
            |index: usize| OFFSETS.iter().map(|offset| function(index, *offset)).collect();
        let functions = (0..accesses.len()).map(functions).collect();
        let accesses = Arc::clone(&accesses);
        let has_image = !is_shared && name != "new";
        let mut guest =
            Guest { name, store, instance, memory, accesses, functions, canary, has_image };
        guest.check();
        let pages = (guest.memory.len() / WASM_PAGE_BYTES) as i32;
        let grown = guest.grow();
        if guest.memory.len() < MOST_BYTES {
            assert_eq!(grown, pages, "{name}");
            guest.check();
        } else {
            assert_eq!(grown, -1, "{name}");
        }
        guest.check_revoked();
    }
}

#[test]
fn every_access_beyond_a_memory_of_every_kind_is_a_trap() {
    check_every_kind(false);
}

#[test]
fn every_access_beyond_a_memory_of_every_kind_that_threads_share_is_a_trap() {
    check_every_kind(true);
}
