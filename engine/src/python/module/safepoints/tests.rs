//! Loops and recursions without a memory access end at a hard stop, whatever their shape.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use wasmer::sys::vm::TrapCode;
use wasmer::sys::wasmparser::{Parser, Payload};
use wasmer::{Instance, TypedFunction, imports};

use super::paths::Safepoints;
use crate::cache::CacheDir;
use crate::config::{EngineConfig, Silent};
use crate::interrupt::gate::Gate;
use crate::interrupt::reason::StopReason;
use crate::memory::tunables::with_memory;
use crate::python::distribution::PythonBuild;
use crate::python::module::new_engine;

/// Each shape runs for years and keeps its values in registers.
const SHAPES: &[(&str, &str)] = &[
    (
        "counting",
        "(local $n i64)
         (loop $l (br_if $l (i64.ne
            (local.tee $n (i64.add (local.get $n) (i64.const 1))) (i64.const -1))))",
    ),
    ("empty", "(loop $l (br $l))"),
    ("tail of a block", "(loop $l (block $out (br_if $out (i32.const 0)) (br $l)))"),
    (
        "nested",
        "(local $i i64) (local $j i64)
         (loop $outer
            (local.set $j (i64.const 0))
            (loop $inner
                (local.set $j (i64.add (local.get $j) (i64.const 1)))
                (br_if $inner (i64.lt_u (local.get $j) (i64.const 4000000000000))))
            (local.set $i (i64.add (local.get $i) (i64.const 1)))
            (br_if $outer (i64.lt_u (local.get $i) (i64.const 4000000000000))))",
    ),
    (
        "a store in the outer loop alone",
        "(local $j i64)
         (loop $outer
            (i64.store (i32.const 64) (local.get $j))
            (loop $inner
                (local.set $j (i64.add (local.get $j) (i64.const 1)))
                (br_if $inner (i64.ne (local.get $j) (i64.const -1))))
            (br $outer))",
    ),
    (
        "a store on one arm",
        "(local $n i64)
         (loop $l
            (local.set $n (i64.add (local.get $n) (i64.const 1)))
            (if (i64.eqz (local.get $n))
                (then (i64.store (i32.const 64) (local.get $n)))
                (else (local.set $n (i64.add (local.get $n) (i64.const 2)))))
            (br $l))",
    ),
    (
        "a store where it is not reached",
        "(loop $l (br $l) (i64.store (i32.const 64) (i64.const 1)))",
    ),
    (
        "an arm that jumps over the store",
        "(local $n i64)
         (loop $l
            (block $over
                (local.set $n (i64.add (local.get $n) (i64.const 1)))
                (br_if $over (i64.ne (local.get $n) (i64.const -1)))
                (i64.store (i32.const 64) (local.get $n)))
            (br $l))",
    ),
    (
        "a load that the compiler knows the result of",
        "(local $n i64)
         (local.set $n (i64.load (i32.const 64)))
         (loop $l
            (local.set $n (i64.add (local.get $n) (i64.const 1)))
            (br_if $l (i64.ge_u (local.get $n) (i64.load (i32.const 64)))))",
    ),
    (
        "a load that no access before the loop resembles",
        "(local $p i32) (local $n i64)
         (local.set $p (i32.wrap_i64 (call $leaf (i64.const 8))))
         (drop (i64.load offset=16 (local.get $p)))
         (loop $l
            (local.set $n (i64.add (local.get $n) (i64.const 1)))
            (br_if $l (i64.ge_u (local.get $n) (i64.load offset=24 (local.get $p)))))",
    ),
    (
        "a load that an access before the loop resembles",
        "(local $p i32) (local $n i64)
         (local.set $p (i32.wrap_i64 (call $leaf (i64.const 8))))
         (drop (i64.load offset=24 (local.get $p)))
         (loop $l
            (local.set $n (i64.add (local.get $n) (i64.const 1)))
            (br_if $l (i64.ge_u (local.get $n) (i64.load offset=24 (local.get $p)))))",
    ),
    (
        "a load whose offset makes up for its address",
        "(local $n i64)
         (local.set $n (i64.load offset=8 (i32.const 64)))
         (loop $l
            (local.set $n (i64.add (local.get $n) (i64.const 1)))
            (br_if $l (i64.ge_u (local.get $n) (i64.load offset=16 (i32.const 56)))))",
    ),
    (
        "a load from an address that changes only on the way out",
        "(local $p i32) (local $n i64)
         (local.set $p (i32.wrap_i64 (call $leaf (i64.const 8))))
         (drop (i64.load offset=24 (local.get $p)))
         (loop $l
            (local.set $n (i64.add (local.get $n) (i64.const 1)))
            (if (i64.eq (local.get $n) (i64.const -1))
                (then (local.set $p (i32.add (local.get $p) (i32.const 8))) (return)))
            (br_if $l (i64.ge_u (local.get $n) (i64.load offset=24 (local.get $p)))))",
    ),
    (
        "a load from an address that two locals hand to and fro",
        "(local $p i32) (local $q i32) (local $n i64)
         (local.set $p (i32.wrap_i64 (call $leaf (i64.const 8))))
         (local.set $q (local.get $p))
         (drop (i64.load offset=24 (local.get $p)))
         (loop $l
            (local.set $n (i64.add (local.get $n) (i64.const 1)))
            (local.get $q)
            (local.set $q (local.get $p))
            (local.set $p)
            (br_if $l (i64.ge_u (local.get $n) (i64.load offset=24 (local.get $p)))))",
    ),
    (
        "floating point",
        "(local $x f64)
         (loop $l
            (local.set $x (f64.sqrt (f64.add (local.get $x) (f64.const 1.5))))
            (br_if $l (f64.lt (local.get $x) (f64.const 1e300))))",
    ),
    (
        "br_table",
        "(local $n i32)
         (loop $l
            (block $b (block $a
                (br_table $a $b $l
                    (i32.and
                        (local.tee $n (i32.add (local.get $n) (i32.const 7)))
                        (i32.const 3))))
                (br $l))
            (br $l))",
    ),
    ("calls of what touches nothing", "(loop $l (drop (call $leaf (i64.const 1))) (br $l))"),
    (
        "a caught exception",
        "(loop $l
            (block $caught
                (try_table (catch_all $caught) (drop (call $leaf (i64.const 1))) (br $l)))
            (br $l))",
    ),
    ("recursion", "(drop (call $fib (i64.const 90)))"),
    ("recursion through a table", "(drop (call $indirect (i64.const 90)))"),
];

const HELPERS: &str = "
    (type $of (func (param i64) (result i64)))
    (table funcref (elem $indirect))
    (func $leaf (type $of) (i64.mul (local.get 0) (local.get 0)))
    (func $fib (type $of)
        (if (result i64) (i64.lt_s (local.get 0) (i64.const 2))
            (then (local.get 0))
            (else (i64.add
                (call $fib (i64.sub (local.get 0) (i64.const 1)))
                (call $fib (i64.sub (local.get 0) (i64.const 2)))))))
    (func $indirect (type $of)
        (if (result i64) (i64.lt_s (local.get 0) (i64.const 2))
            (then (local.get 0))
            (else (i64.add
                (call_indirect (type $of) (i64.sub (local.get 0) (i64.const 1)) (i32.const 0))
                (call_indirect (type $of) (i64.sub (local.get 0) (i64.const 2)) (i32.const 0))))))";

/// Runs `body`, stops it, and returns whether it ended within a minute.
fn ends_at_a_stop(body: &str) -> bool {
    let text = format!("(module (memory 1) {HELPERS} (func (export \"run\") {body}))");
    let engine = new_engine();
    let module = engine.module(text);
    let gate = Arc::new(Gate::new());
    let run = gate.begin();
    let handle = Arc::clone(&gate);
    let (ended, end) = mpsc::channel();
    let (began, begin) = mpsc::channel();
    thread::spawn(move || {
        let mut store = engine.store();
        let (instance, memory) =
            with_memory(None, || Instance::new(&mut store, &module, &imports! {}).unwrap());
        gate.guard(Arc::clone(memory.unwrap().shared()));
        let run: TypedFunction<(), ()> =
            instance.exports.get_typed_function(&store, "run").unwrap();
        let result = gate.guest(|| {
            began.send(()).unwrap();
            run.call(&mut store)
        });
        let trap = result.map(|ended| ended.unwrap_err().to_trap());
        // The receiver is gone once a minute has passed.
        let _ = ended.send(trap);
    });
    begin.recv().unwrap();
    assert!(handle.stop(run, StopReason::Cancelled));
    match end.recv_timeout(Duration::from_secs(60)) {
        Ok(trap) => {
            assert_eq!(trap, Ok(Some(TrapCode::HeapAccessOutOfBounds)));
            true
        }
        Err(_) => false,
    }
}

#[test]
fn every_shape_ends_at_a_stop() {
    let endless: Vec<&str> =
        SHAPES.iter().filter(|(_, body)| !ends_at_a_stop(body)).map(|(name, _)| *name).collect();
    assert!(endless.is_empty(), "these went on: {endless:?}");
}

fn safepoints(body: &str) -> Safepoints {
    let text = format!("(module (memory 1) {HELPERS} (func (export \"run\") {body}))");
    let wasm = wat::parse_str(text).unwrap();
    let mut safepoints = None;
    for payload in Parser::new(0).parse_all(&wasm) {
        if let Payload::CodeSectionEntry(function) = payload.unwrap() {
            let operators = function.get_operators_reader().unwrap();
            let operators: Vec<_> = operators.into_iter().map(Result::unwrap).collect();
            safepoints = Some(Safepoints::of(&operators).unwrap());
        }
    }
    safepoints.unwrap()
}

#[test]
fn loops_that_always_store_are_left_as_they_are() {
    let safepoints = safepoints(
        "(local $n i32)
         (loop $outer
            (loop $inner
                (i32.store (local.get $n) (i32.const 1))
                (br_if $inner (local.get $n)))
            (br_if $outer (local.get $n))
            (if (local.get $n) (then (br $outer)) (else (i32.store8 (i32.const 1) (i32.const 0)))))",
    );
    assert_eq!(safepoints.at_loops, [false, false]);
    assert!(!safepoints.at_entry);
}

#[test]
fn a_load_that_the_compiler_may_move_out_of_its_loop_does_not_count() {
    let same = "(local $p i32)
         (i32.store8 (local.get $p) (i32.const 1))
         (loop $l (br_if $l (i32.load (local.get $p))))";
    assert_eq!(safepoints(same).at_loops, [true]);
}

#[test]
fn a_loop_that_never_goes_round_needs_none() {
    let safepoints = safepoints("(loop $l (nop)) (block $b (loop $l (br $b)))");
    assert_eq!(safepoints.at_loops, [false, false]);
}

#[test]
fn a_function_that_looks_at_memory_before_it_calls_needs_none() {
    assert!(!safepoints("(drop (call $leaf (i64.load (i32.const 8))))").at_entry);
    assert!(safepoints("(drop (call $leaf (i64.const 8)))").at_entry);
    let on_one_path = "(block $b (br_if $b (i32.const 1)) (drop (i64.load (i32.const 8))))
         (drop (call $leaf (i64.const 8)))";
    assert!(safepoints(on_one_path).at_entry);
}

#[test]
fn a_module_without_a_memory_compiles() {
    let wasm = wat::parse_str("(module (func (loop $l (br $l))))").unwrap();
    new_engine().module(wasm);
}

/// What programs pay for safepoints: how many of the Python build's functions and loops have one.
/// The tightest loops, such as `sum` of a list, take up to 4 % longer for them. NumPy's take as
/// long as without.
#[test]
fn safepoints_of_the_python_build_are_few_enough() {
    let config = EngineConfig::from_env();
    let cache = CacheDir::open(config.cache_dir.as_deref()).unwrap();
    let build = PythonBuild::install(&cache, config.wheel.as_deref(), &Silent).unwrap();
    let wasm = build.wasm().unwrap();
    let (mut functions, mut at_entry, mut loops, mut at_loops) = (0, 0, 0, 0);
    for payload in Parser::new(0).parse_all(&wasm) {
        if let Payload::CodeSectionEntry(function) = payload.unwrap() {
            let operators = function.get_operators_reader().unwrap();
            let operators: Vec<_> = operators.into_iter().map(Result::unwrap).collect();
            let safepoints = Safepoints::of(&operators).unwrap();
            functions += 1;
            at_entry += usize::from(safepoints.at_entry);
            loops += safepoints.at_loops.len();
            at_loops += safepoints.at_loops.iter().filter(|needs_one| **needs_one).count();
        }
    }
    println!("{at_entry} of {functions} functions, {at_loops} of {loops} loops");
    assert!(at_entry * 4 < functions, "{at_entry} of {functions} functions");
    assert!(at_loops * 9 < loops * 5, "{at_loops} of {loops} loops");
}
