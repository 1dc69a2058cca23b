//! What is loaded from the two files behaves as what was compiled.

use std::io::Write;

use wasmer::sys::vm::TrapCode;
use wasmer::{Instance, Store, TypedFunction, imports};

use super::*;
use crate::memory::tunables::{InstanceMemory, with_memory};
use crate::python::module::native::NativeEngine;
use crate::python::module::new_engine;

/// Has what a loader must get right: calls between functions and into tables, data, and traps of
/// each kind. It also has exceptions that are caught in another function.
const MODULE: &str = r#"(module
    (memory (export "memory") 1)
    (data (i32.const 0) "begin")
    (data (i32.const 65532) "ends")
    (table 3 funcref)
    (elem (i32.const 0) func $seven $depth)
    (type $number (func (result i32)))
    (tag $error (param i32))
    (global $calls (mut i32) (i32.const 0))
    (func $seven (type $number) (i32.const 7))
    (func $depth (export "depth") (param i32) (result i32)
        (if (result i32) (i32.eqz (local.get 0))
            (then (i32.const 0))
            (else (i32.add (i32.const 1)
                (call $depth (i32.sub (local.get 0) (i32.const 1)))))))
    (func (export "indirect") (param i32) (result i32)
        (call_indirect (type $number) (local.get 0)))
    (func (export "load") (param i32) (result i32) (i32.load (local.get 0)))
    (func (export "divide") (param i32) (result i32)
        (i32.div_s (i32.const 42) (local.get 0)))
    (func (export "unreachable") (param i32) (result i32) (unreachable))
    (func (export "round") (param i32) (result i32)
        (i32.trunc_f64_s (f64.ceil (f64.div (f64.convert_i32_s (local.get 0)) (f64.const 2)))))
    (func $throw (param i32) (throw $error (local.get 0)))
    (func (export "catch") (param i32) (result i32)
        (block $caught (result i32)
            (try_table (catch $error $caught) (call $throw (local.get 0)))
            (unreachable))))"#;

fn compiled(text: &str) -> Linked {
    let module = new_engine().module(text);
    split(&module.serialize().unwrap()).unwrap()
}

/// Writes the two files of a module, with names.
fn written(linked: &Linked) -> (tempfile::TempDir, FileView, FileView) {
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &Path| FileView::new(File::open(path).unwrap()).unwrap();
    let index = folder.path().join("test.module");
    std::fs::write(&index, &linked.index).unwrap();
    let code = index.with_extension("code");
    linked.code.write(&mut File::create(&code).unwrap()).unwrap();
    let views = (open(&index), open(&code));
    (folder, views.0, views.1)
}

struct Running {
    store: Store,
    instance: Instance,
    memory: InstanceMemory,
    _data: InitialData,
    _index: FileView,
    folder: tempfile::TempDir,
    _engine: NativeEngine,
}

impl Running {
    #[expect(unsafe_code, reason = "as in production")]
    fn new() -> Self {
        let (folder, index, code) = written(&compiled(MODULE));
        let engine = new_engine();
        // SAFETY: just made, and nobody else knows the files.
        let (module, data) = unsafe { load(&engine, None, &index, code, None) }.unwrap();
        let mut store = engine.store();
        let (instance, memory) =
            with_memory(None, || Instance::new(&mut store, &module, &imports! {}).unwrap());
        let memory = memory.unwrap();
        assert_eq!(text_at(&memory, 0, 5), "\0\0\0\0\0", "the data are not in the index");
        data.put(memory.shared()).unwrap();
        Self { store, instance, memory, _data: data, _index: index, folder, _engine: engine }
    }

    fn call(&mut self, name: &str, argument: i32) -> Result<i32, Option<TrapCode>> {
        let function: TypedFunction<i32, i32> =
            self.instance.exports.get_typed_function(&self.store, name).unwrap();
        function.call(&mut self.store, argument).map_err(|error| error.to_trap())
    }
}

fn text_at(memory: &InstanceMemory, at: u32, len: u32) -> String {
    let text = memory.shared().with_bytes(at, len, |bytes| bytes.to_vec()).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn mapped_code_runs_and_its_memory_has_its_data() {
    let mut module = Running::new();
    assert_eq!(text_at(&module.memory, 0, 5), "begin");
    assert_eq!(text_at(&module.memory, 65_532, 4), "ends");
    for (name, argument, result) in
        [("depth", 1000, 1000), ("indirect", 0, 7), ("divide", 6, 7), ("round", 13, 7)]
    {
        assert_eq!(module.call(name, argument), Ok(result), "{name}");
    }
    // Needs the tables for unwinding, which stay in the index.
    assert_eq!(module.call("catch", 7), Ok(7));
}

#[test]
fn traps_keep_their_kinds() {
    use TrapCode::*;
    let mut module = Running::new();
    for (name, argument, trap) in [
        ("load", -4, HeapAccessOutOfBounds),
        ("load", 65_533, HeapAccessOutOfBounds),
        ("divide", 0, IntegerDivisionByZero),
        ("unreachable", 0, UnreachableCodeReached),
        ("indirect", 1, BadSignature),
        ("indirect", 2, IndirectCallToNull),
        ("indirect", 3, TableAccessOutOfBounds),
        ("depth", i32::MAX, StackOverflow),
    ] {
        assert_eq!(module.call(name, argument), Err(Some(trap)), "{name}({argument})");
        assert_eq!(module.call("divide", 42), Ok(1), "after {name}({argument})");
    }
}

/// The kernel's own account of the mapping. What is not dirty is a page of the file, of which all
/// processes together have one.
#[test]
fn code_is_pages_of_its_file() {
    let mut module = Running::new();
    assert_eq!(module.call("depth", 10), Ok(10));
    let name = module.folder.path().join("test.code").display().to_string();
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mapping = maps.split("VmFlags").find(|mapping| {
        let head = mapping.lines().find(|line| line.contains(&name));
        head.is_some_and(|head| head.contains(" r-xp "))
    });
    let fields = |field: &str| {
        let line = mapping.unwrap().lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    assert!(fields("Rss:") > 0);
    assert_eq!((fields("Private_Dirty:"), fields("Anonymous:")), (0, 0));
}

#[test]
#[expect(unsafe_code, reason = "as in production")]
fn files_of_two_compilations_are_not_combined() {
    let (_a, index, _) = written(&compiled(MODULE));
    let (_b, _, code) = written(&compiled(&MODULE.replace("const 42", "const 43")));
    // SAFETY: both are from this compiler.
    let error = unsafe { load(&new_engine(), None, &index, code, None) }.unwrap_err();
    assert!(error.to_string().contains("don't belong together"), "{error}");
}

#[test]
fn data_that_depend_on_the_instance_or_on_a_start_function_stay_with_wasmer() {
    for text in [
        r#"(module (memory 1) (func $f) (start $f) (data (i32.const 0) "x"))"#,
        r#"(module (global $at (import "a" "b") i32) (memory 1) (func)
            (data (global.get $at) "x"))"#,
    ] {
        let (_folder, _index, code) = written(&compiled(text));
        let (_, data) = code::read(code).unwrap();
        assert!(data.is_empty(), "{text}");
    }
}

#[test]
fn a_cut_file_is_none() {
    let mut whole = Vec::new();
    let (folder, _index, code) = written(&compiled(MODULE));
    whole.extend_from_slice(code.bytes());
    for len in [1, 20, 60, whole.len() - 1] {
        let path = folder.path().join("cut");
        File::create(&path).unwrap().write_all(&whole[..len]).unwrap();
        let cut = FileView::new(File::open(&path).unwrap()).unwrap();
        assert!(code::read(cut).is_none(), "{len} bytes");
    }
    assert!(split(&whole).is_err() && split(b"").is_err());
}
