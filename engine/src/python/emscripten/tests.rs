//! The translation, of small modules in Emscripten's form.

use std::sync::{Arc, Mutex};

use wasmer::{Function, Instance, RuntimeError, TypedFunction, imports};

use super::exceptions::random::{FUNCTIONS, LegacySample, RandomNumbers, noted, translated};
use super::{C_STACK_BYTES, EMSCRIPTEN, SLEEP, START, WASI, is_one, translate};
use crate::cause::chain;
use crate::memory::tunables::with_memory;
use crate::python::module::imports as judged;
use crate::python::module::writes;
use crate::python::module::{new_engine, shape};

/// What CPython's module has, as far as the translation minds. `BODY` is `main`'s.
const PYTHON: &str = r#"(module
    (@custom "dylink.0" (before first) "\01\04\00\00\00\00")
    (import "env" "__syscall_getcwd" (func $getcwd (param i32 i32) (result i32)))
    (import "env" "__syscall_socket" (func $socket (param i32 i32 i32 i32 i32 i32) (result i32)))
    (import "GOT.func" "glClear" (global $clear (mut i32)))
    (import "env" "JsvArray_New" (func $array (result externref)))
    (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
    (import "env" "exit" (func $exit (param i32)))
    (import "env" "_PyEM_TrampolineCall_JS" (func $call (param i32 i32 i32 i32) (result i32)))
    (import "env" "emscripten_resize_heap" (func $resize (param i32) (result i32)))
    (import "env" "ffi_call_js" (func $ffi (param i32 i32 i32 i32)))
    (import "env" "ffi_closure_alloc_js" (func $allocate (param i32 i32) (result i32)))
    (import "env" "ffi_closure_free_js" (func $release (param i32)))
    (import "env" "ffi_prep_closure_loc_js" (func $prepare (param i32 i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (table $functions 6 funcref)
    (table $objects 0 externref)
    (global $top (mut i32) (i32.const 0))
    (global $limit (mut i32) (i32.const 0))
    (elem (i32.const 1) $none $one $three $four $called)
    (func $none (result i32) i32.const 10)
    (func $one (param i32) (result i32) local.get 0)
    (func $three (param i32 i32 i32) (result i32) (i32.add (local.get 1) (local.get 2)))
    (func $four (param i32 i32 i32 i32) (result i32) unreachable)
    (func $called (param $form i32) (param $result i32) (param $arguments i32) (param $data i32)
        (i32.store (local.get $result) (i32.add (local.get $data)
            (i32.add (i32.load (local.get $form)) (i32.load (i32.load (local.get $arguments)))))))
    (func (export "free") (param i32))
    (func (export "malloc") (param i32) (result i32) i32.const 1024)
    (func (export "calloc") (param i32 i32) (result i32) i32.const 2048)
    (func $init (export "emscripten_stack_init") (global.set $top (i32.const 0x100000))
        (global.set $limit (i32.const 9)))
    (func (export "emscripten_stack_get_base") (result i32) global.get $top)
    (func (export "emscripten_stack_set_limits") (param i32 i32) (global.set $limit (local.get 1)))
    (func $sleep (export "emscripten_thread_sleep") (param f64) unreachable)
    (func (export "__wasm_call_ctors")
        (call $init)
        (drop (table.grow $objects (call $array) (i32.const 1)))
        (table.set $objects (i32.const 7) (call $array)))
    (func (export "Py_BytesMain") (param $argc i32) (param $argv i32) (result i32) BODY))"#;

fn python(body: &str) -> Vec<u8> {
    let wasm = wat::parse_str(PYTHON.replace("BODY", body)).unwrap();
    assert!(is_one(&wasm));
    translate(&wasm, &[]).unwrap()
}

#[derive(Debug, thiserror::Error)]
#[error("exit")]
struct TestExit;

/// Runs `_start` of a translated module. Returns the code with which it ends, and how long it slept.
pub(super) fn run(wasm: &[u8]) -> (i32, f64) {
    let engine = new_engine();
    let module = wasmer::Module::new(&engine, wasm).unwrap();
    judged::check(&module).unwrap();
    let mut store = engine.store();
    let (code, slept) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(0.0)));
    let (ended, sleeps) = (Arc::clone(&code), Arc::clone(&slept));
    let exit = move |code: i32| -> Result<(), RuntimeError> {
        *ended.lock().unwrap() = Some(code);
        Err(RuntimeError::user(Box::new(TestExit)))
    };
    let imports = imports! {
        WASI => {
            "proc_exit" => Function::new_typed(&mut store, exit),
            "args_sizes_get" => Function::new_typed(&mut store, |_: i32, _: i32| 0_i32),
            "args_get" => Function::new_typed(&mut store, |_: i32, _: i32| 0_i32),
        },
        EMSCRIPTEN => {
            "__syscall_getcwd" => Function::new_typed(&mut store, |_: i32, _: i32| 5_i32),
            SLEEP => Function::new_typed(&mut store, move |time: f64| *sleeps.lock().unwrap() += time),
        },
    };
    let (instance, _memory) =
        with_memory(None, || Instance::new(&mut store, &module, &imports).unwrap());
    let start: TypedFunction<(), ()> = instance.exports.get_typed_function(&store, START).unwrap();
    start.call(&mut store).unwrap_err();
    let code = code.lock().unwrap().expect("it exits");
    let slept = *slept.lock().unwrap();
    (code, slept)
}

#[test]
fn a_translated_module_is_a_command_build_with_images() {
    let wasm = python("i32.const 7");
    writes::check(&wasm).unwrap();
    judged::check_bytes(&wasm).unwrap();
    let engine = new_engine();
    let module = wasmer::Module::new(&engine, &wasm).unwrap();
    assert!(shape::Shape::of(&module).is_command());
    let functions = module.imports().functions().map(|import| import.name().to_owned());
    let functions: Vec<_> = functions.collect();
    assert_eq!(functions, ["__syscall_getcwd", "proc_exit", "args_sizes_get", "args_get", SLEEP]);
    assert_eq!(run(&wasm), (7, 0.0));
}

#[test]
fn each_import_is_served_answered_or_done_in_the_module() {
    for (expected, body) in [
        (5, "(call $getcwd (i32.const 0) (i32.const 0))"),
        (
            -58,
            "i32.const 0 i32.const 0 i32.const 0 i32.const 0 i32.const 0 i32.const 0 call $socket",
        ),
        (0, "global.get $clear"),
        (1, "(ref.is_null (call $array))"),
        (1, "(ref.is_null (table.get $objects (i32.const 99)))"),
        (0, "(table.size $objects)"),
        (3, "(call $exit (i32.const 3)) unreachable"),
        (0x10_0000 - C_STACK_BYTES, "global.get $limit"),
        (1, "(call $resize (i32.const 200000))"),
        (4, "(drop (call $resize (i32.const 200000))) memory.size"),
    ] {
        assert_eq!(run(&python(body)).0, expected, "{body}");
    }
    assert_eq!(run(&python("(call $sleep (f64.const 1.5)) i32.const 0")), (0, 1.5));
}

#[test]
fn the_trampoline_calls_with_as_many_arguments_as_there_are() {
    for (slot, expected) in [(0, 0), (1, 10), (2, 20), (3, 70), (4, 0), (5, 0), (6, 0), (-1, 0)] {
        let body =
            format!("(call $call (i32.const {slot}) (i32.const 20) (i32.const 30) (i32.const 40))");
        assert_eq!(run(&python(&body)).0, expected, "slot {slot}");
    }
}

#[test]
fn ctypes_calls_its_callbacks_and_functions_of_few_numbers() {
    // The form at 3000 says how many arguments there are; at 3100 their addresses are.
    let prepared = "(i32.store (i32.const 3000) (i32.const 5))
        (i32.store (i32.const 3100) (i32.const 3200)) (i32.store (i32.const 3200) (i32.const 7))
        (i32.store (i32.const 3104) (i32.const 3204)) (i32.store (i32.const 3204) (i32.const 8))
        (i32.store (i32.const 3108) (i32.const 3208)) (i32.store (i32.const 3208) (i32.const 9))
        (drop (call $allocate (i32.const 16) (i32.const 700)))
        (drop (call $prepare (i32.load (i32.const 700)) (i32.const 3000) (i32.const 5) (i32.const 30)
            (i32.const 0)))";
    for (expected, count, address) in [
        (5 + 7 + 30, 1, "(i32.load (i32.const 700))"),
        (8 + 9, 3, "(i32.const 3)"),
        (8, 2, "(i32.const 3)"),
        (10, 0, "(i32.const 1)"),
    ] {
        let body = format!(
            "{prepared} (i32.store (i32.const 3004) (i32.const {count}))
            (call $ffi (i32.const 3000) {address} (i32.const 3300) (i32.const 3100))
            (call $release (i32.load (i32.const 700))) (i32.load (i32.const 3300))"
        );
        assert_eq!(run(&python(&body)).0, expected, "{count} {address}");
    }
}

#[test]
fn what_is_unknown_is_refused() {
    let refusal = |text: &str| {
        let wasm = wat::parse_str(text).unwrap();
        chain(&translate(&wasm, &[]).unwrap_err()).to_string()
    };
    let known = PYTHON.replace("BODY", "i32.const 7");
    for (what, replaced, by) in [
        ("that starts it is missing", "\"malloc\"", "\"other\""),
        ("an import that is no function", "(global $clear (mut i32))", "(memory 1)"),
        (
            "a table",
            "(elem (i32.const 1) $none",
            "(elem (i32.const 0) $one) (elem (i32.const 1) $none",
        ),
        (
            "no number",
            "(param f64) unreachable",
            "(param f64) (local v128) try (result v128) unreachable end drop",
        ),
    ] {
        assert!(known.contains(replaced), "{replaced}");
        let said = refusal(&known.replacen(replaced, by, 1));
        assert!(said.contains(what), "{said}");
    }
    let truncated = &wat::parse_str(&known).unwrap()[..200];
    assert!(chain(&translate(truncated, &[]).unwrap_err()).to_string().contains("can't be read"));
    assert!(!is_one(&wat::parse_str("(module)").unwrap()));
}

/// Returns how many cases a fuzzer tries: so many, or `HATCHERY_FUZZ_MODULES`.
pub(super) fn cases(usual: u64) -> u64 {
    let asked = std::env::var("HATCHERY_FUZZ_MODULES").ok();
    asked.map_or(usual, |asked| asked.parse().expect("it is a number"))
}

#[test]
fn exceptions_do_what_they_did_in_their_legacy_form() {
    // A case is a function.
    for seed in 0..cases(800).div_ceil(FUNCTIONS as u64) {
        let sample = LegacySample::new(&mut RandomNumbers::new(seed));
        let engine = new_engine();
        let wasm = translated(&sample.module()).unwrap();
        let module = wasmer::Module::new(&engine, &wasm).unwrap();
        let mut store = engine.store();
        let notes = Arc::new(Mutex::new(0));
        let written = Arc::clone(&notes);
        let note = move |note: i32| {
            let mut notes = written.lock().unwrap();
            *notes = noted(*notes, note);
        };
        let note = Function::new_typed(&mut store, note);
        let imports = imports! { EMSCRIPTEN => { "note" => note } };
        let (instance, _memory) =
            with_memory(None, || Instance::new(&mut store, &module, &imports).unwrap());
        for number in 0..FUNCTIONS {
            let Some(expected) = sample.result(number) else { continue };
            *notes.lock().unwrap() = 0;
            let function = instance.exports.get_function(&number.to_string()).unwrap();
            let has_thrown = function.call(&mut store, &[]).is_err();
            let notes = *notes.lock().unwrap();
            assert_eq!((notes, has_thrown), expected, "function {number} of sample {seed}");
        }
    }
}

#[test]
fn damaged_modules_are_refused_without_a_panic() {
    let mut numbers = RandomNumbers::new(7);
    let python = wat::parse_str(PYTHON.replace("BODY", "i32.const 7")).unwrap();
    for _ in 0..cases(2_000) {
        let sample = LegacySample::new(&mut numbers).module();
        for whole in [&sample, &python] {
            let mut damaged = whole.clone();
            for _ in 0..=numbers.below(3) {
                let at = numbers.below(damaged.len());
                damaged[at] = numbers.below(256) as u8;
            }
            let _ = (translated(&damaged), translate(&damaged, &[]));
        }
    }
}
