//! Threads for a build whose C library knows of one.
//!
//! Such a library is musl without atomic instructions: it refuses to start threads, and traps where
//! one would have to wait. Its locks and conditions are whole otherwise. So three of its functions,
//! and those by which CPython tells threads apart, are replaced by calls of the host. There, each
//! thread has an instance and a stack of its own. One of them runs at a time (`host/threads.rs`).
//!
//! CPython serves requests to a thread between two instructions. There, it also calls the host, so
//! that a thread that computes can be asked for its turn.
//!
//! The library keeps what belongs to a thread at fixed addresses. The host exchanges those words
//! when another thread goes on ([`ThreadWords`]).
//!
//! All functions are found by name. A build without them is compiled unchanged.

use std::collections::HashMap;

use wasmer::sys::wasmparser::{BlockType, MemArg, Operator};
use wasmer::{AsStoreMut, Instance, Module, RuntimeError, Store, TypedFunction, Value};
use wasmer_types::{
    ExportIndex, GlobalIndex, GlobalInit, GlobalType, ImportIndex, ModuleInfo, Mutability,
    TableIndex, Type,
};
use wasmparser::{KnownCustom, Name, Parser, Payload};

use super::beginnings::{Begin, Beginning, find};
use super::imports::{HOST, HOST_CALL};
use super::shape::TABLE;
use crate::interrupt::gate::words::{ThreadWords, VALUES};

/// Calls of `host.call` whose length is at least this are none of frames; no frame is that long.
pub(crate) const LEAST_THREAD_CALL: u32 = 0xffff_ff00;
/// Gives the turn to the threads that wait for it.
const YIELD: u32 = LEAST_THREAD_CALL;
/// Says that CPython's state of the thread at this address will be freed.
pub(crate) const FREES: u32 = 0xffff_ff20;
/// Waits for a word. The lowest bits are [`ABSOLUTE`] and the clock, from [`CLOCK_SHIFT`] on.
pub(crate) const WAIT: u32 = 0xffff_ff40;
/// Wakes threads that wait for a word.
pub(crate) const WAKE: u32 = 0xffff_ff80;
/// Starts a thread.
pub(crate) const SPAWN: u32 = 0xffff_ffc0;

/// The time of a wait is one of the clock, not a duration: wasi-libc's `WASILIBC_FUTEX_ABSTIME`.
pub(crate) const ABSOLUTE: u32 = 2;
pub(crate) const CLOCK_SHIFT: u32 = 2;
const CLOCKS: u32 = 3;

/// `(at, expected, clock, time, flags)`: the result is 0, or an error number below zero.
const FUTEX_WAIT: &str = "__wasilibc_futex_wait";
/// `(at, most, flags)`: the number of threads that were woken.
const FUTEX_WAKE: &str = "__wasilibc_futex_wake";
/// `(out, attributes, start, argument)`: an error number.
const CREATE: &str = "__pthread_create";
const IDENTIFIERS: [&str; 2] = ["PyThread_get_thread_ident_ex", "PyThread_get_thread_ident"];
/// It loads from the description of the thread, at [`VALUES`].
const GET_VALUE: &str = "__pthread_getspecific";
/// Each loads its result from one word.
const LOCKED_STATE: &str = "PyThreadState_GetUnchecked";
const OWN_STATE: &str = "PyGILState_GetThisThreadState";

/// It serves the requests to a thread: `(state)`, whether an exception is raised.
const SERVE_REQUESTS: &str = "_Py_HandlePending";

/// It frees the state of the thread that runs: `(state)`.
const FREE_STATE: &str = "_PyThreadState_DeleteCurrent";

/// Releases the interpreter's lock, and takes it again.
const RELEASE: &str = "PyEval_SaveThread";
const TAKE: &str = "PyEval_RestoreThread";

/// The exports of the stack pointer, and of the addresses in [`ThreadWords`].
const STACK_POINTER: &str = "hatchery_stack_pointer";
const THREAD: &str = "hatchery_thread";
const OWN: &str = "hatchery_own_state";
const LOCKED: &str = "hatchery_locked_state";

/// Returns the words of an instance whose module was given threads.
pub(crate) fn words_of(instance: &Instance, store: &mut Store) -> Option<ThreadWords> {
    let mut address = |name| match instance.exports.get_global(name).ok()?.get(store) {
        Value::I32(address) => Some(address.cast_unsigned()),
        _ => None,
    };
    ThreadWords::at(address(THREAD)?, address(OWN)?, address(LOCKED)?)
}

/// Finds the words in WebAssembly that has the functions which are replaced.
fn find_words(wasm: &[u8]) -> Option<ThreadWords> {
    let (mut names, mut bodies, mut imported) = (HashMap::new(), Vec::new(), 0);
    for payload in Parser::new(0).parse_all(wasm) {
        match payload.ok()? {
            Payload::ImportSection(imports) => {
                let functions = imports.into_imports().filter(|import| {
                    import.as_ref().is_ok_and(|one| matches!(one.ty, wasmparser::TypeRef::Func(_)))
                });
                imported = functions.count();
            }
            Payload::CodeSectionEntry(body) => bodies.push(body),
            Payload::CustomSection(section) => {
                let KnownCustom::Name(section) = section.as_known() else { continue };
                for name in section {
                    let Ok(Name::Function(functions)) = name else { continue };
                    for function in functions {
                        let function = function.ok()?;
                        if [GET_VALUE, LOCKED_STATE, OWN_STATE].contains(&function.name) {
                            names.insert(function.name, function.index as usize);
                        }
                    }
                }
            }
            _ => {}
        }
    }
    // The addresses and offsets from which a function loads words, in order.
    let loads = |name: &str| -> Option<Vec<(u32, u32)>> {
        let body = bodies.get(names.get(name)?.checked_sub(imported)?)?;
        let (mut loads, mut constant) = (Vec::new(), None);
        for operator in body.get_operators_reader().ok()? {
            match operator.ok()? {
                wasmparser::Operator::I32Const { value } => constant = Some(value.cast_unsigned()),
                wasmparser::Operator::I32Load { memarg } => {
                    loads.extend(constant.take().zip(memarg.offset.try_into().ok()));
                }
                _ => constant = None,
            }
        }
        Some(loads)
    };
    let word = |name| match *loads(name)? {
        [(base, offset)] => base.checked_add(offset),
        _ => None,
    };
    let values = loads(GET_VALUE)?;
    let (_, thread) = values.iter().find(|(base, _)| *base == VALUES)?;
    ThreadWords::at(*thread, word(OWN_STATE)?, word(LOCKED_STATE)?)
}

/// Gives threads to the modules that an engine compiles, if they are `wasm`.
#[derive(Debug)]
pub(super) struct GiveThreads {
    words: Option<ThreadWords>,
}

impl GiveThreads {
    pub(super) fn to(wasm: &[u8]) -> Self {
        Self { words: find_words(wasm) }
    }

    /// Returns the functions that change, and changes the description with them. Does neither to a
    /// module of another kind.
    fn describe(&self, info: &mut ModuleInfo) -> Option<Vec<Beginning>> {
        let words = self.words?;
        let shares_memory = info.memories.values().any(|memory| memory.shared);
        if shares_memory || info.tables.is_empty() || info.globals.is_empty() {
            return None;
        }
        let function_index = info.imports.iter().find_map(|(key, import)| match import {
            ImportIndex::Function(index) if (&*key.module, &*key.field) == (HOST, HOST_CALL) => {
                Some(index.as_u32())
            }
            _ => None,
        })?;
        let local = |name: &str, parameters: &[Type], result: Type| {
            info.local_func_index(find(info, name, parameters, &[result])?)
        };
        let get = |local_index| Operator::LocalGet { local_index };
        let value = |value: u32| Operator::I32Const { value: value.cast_signed() };
        let host = [Operator::Call { function_index }, Operator::Return];
        let wait = [
            get(0),
            value(WAIT),
            get(2),
            value(CLOCKS),
            Operator::I32And,
            value(CLOCK_SHIFT),
            Operator::I32Shl,
            Operator::I32Or,
            get(4),
            value(ABSOLUTE),
            Operator::I32And,
            Operator::I32Or,
            get(1),
            get(3),
        ];
        let wake = [get(0), value(WAKE), get(1), value(0)];
        let spawn = [get(0), value(SPAWN), get(2), get(3)];
        let mut changes = vec![
            (local(FUTEX_WAIT, &[Type::I32; 5], Type::I32)?, [&wait[..], &host].concat()),
            (local(FUTEX_WAKE, &[Type::I32; 3], Type::I32)?, [&wake[..], &host].concat()),
            (local(CREATE, &[Type::I32; 4], Type::I32)?, [&spawn[..], &host].concat()),
        ];
        let [call, _] = host;
        let yields = vec![value(0), value(YIELD), value(0), value(0), call.clone(), Operator::Drop];
        changes.push((local(SERVE_REQUESTS, &[Type::I32], Type::I32)?, yields));
        let frees = vec![get(0), value(FREES), value(0), value(0), call, Operator::Drop];
        let free = info.local_func_index(find(info, FREE_STATE, &[Type::I32], &[])?)?;
        changes.push((free, frees));
        // The number, unless it is 0: then the thread is the first one.
        let offset = u64::from(words.number());
        let memarg = MemArg { align: 2, max_align: 2, offset, memory: 0 };
        let load = [value(0), Operator::I32Load { memarg }];
        for name in IDENTIFIERS {
            let wide = local(name, &[], Type::I64).map(|index| (index, true));
            let (index, is_wide) = wide.or_else(|| Some((local(name, &[], Type::I32)?, false)))?;
            let mut identify = load.to_vec();
            identify.push(Operator::If { blockty: BlockType::Empty });
            identify.extend(load.clone());
            identify.extend(is_wide.then_some(Operator::I64ExtendI32U));
            identify.extend([Operator::Return, Operator::End]);
            changes.push((index, identify));
        }
        let release = find(info, RELEASE, &[], &[Type::I32])?;
        let take = find(info, TAKE, &[Type::I32], &[])?;
        let mut exports = vec![
            (RELEASE, ExportIndex::Function(release)),
            (TAKE, ExportIndex::Function(take)),
            (TABLE, ExportIndex::Table(TableIndex::from_u32(0))),
            // The first global is the stack pointer: clang and `wasm-ld` make it so.
            (STACK_POINTER, ExportIndex::Global(GlobalIndex::from_u32(0))),
        ];
        for (name, address) in [THREAD, OWN, LOCKED].into_iter().zip(words.addresses()) {
            let global = info.globals.push(GlobalType::new(Type::I32, Mutability::Const));
            info.global_initializers.push(GlobalInit::I32Const(address.cast_signed()));
            exports.push((name, ExportIndex::Global(global)));
        }
        info.exports.extend(exports.into_iter().map(|(name, index)| (name.to_owned(), index)));
        Some(changes)
    }
}

impl Begin for GiveThreads {
    fn beginnings(&self, info: &mut ModuleInfo) -> Vec<Beginning> {
        self.describe(info).unwrap_or_default()
    }
}

/// Returns whether a module was given threads.
pub(crate) fn are_given(module: &Module) -> bool {
    module.exports().any(|export| export.name() == STACK_POINTER)
}

/// Releases the interpreter's lock around waits of the host, for functions that keep it while they
/// call the host.
#[derive(Debug, Clone)]
pub(crate) struct InterpreterLock {
    release: TypedFunction<(), u32>,
    take: TypedFunction<u32, ()>,
}

impl InterpreterLock {
    /// Returns that of an instance whose module was given threads.
    pub(crate) fn of(instance: &Instance, store: &Store) -> Option<Self> {
        let release = instance.exports.get_typed_function(store, RELEASE).ok()?;
        let take = instance.exports.get_typed_function(store, TAKE).ok()?;
        Some(Self { release, take })
    }

    /// Releases it, on the guest's side. Returns the state of the thread, which takes it again.
    pub(crate) fn release(&self, store: &mut impl AsStoreMut) -> Result<u32, RuntimeError> {
        self.release.call(store)
    }

    /// Takes it again, on the guest's side.
    pub(crate) fn take(&self, store: &mut impl AsStoreMut, state: u32) -> Result<(), RuntimeError> {
        self.take.call(store, state)
    }
}

/// Sets the stack of an instance, which grows down from `top`.
///
/// # Errors
/// The module wasn't given threads.
pub(crate) fn set_stack(
    instance: &Instance,
    store: &mut Store,
    top: u32,
) -> Result<(), RuntimeError> {
    let pointer = instance.exports.get_global(STACK_POINTER);
    let pointer = pointer.map_err(|error| RuntimeError::user(Box::new(error)))?;
    pointer.set(store, Value::I32(top.cast_signed()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use wasmer::{Function, FunctionEnv, FunctionEnvMut, TypedFunction, imports};

    use super::*;
    use crate::memory::tunables::{InstanceMemory, with_memory};
    use crate::python::module::engine_for;

    /// The C library and the interpreter of a build, as far as they are looked at.
    const BUILD: &str = r#"(module
        (import "host" "call" (func $host (param i32 i32 i32 i32) (result i32)))
        (memory 1) (table 1 funcref) (global $stack (mut i32) (i32.const 4096))
        (func $__wasilibc_futex_wait (export "wait") (param i32 i32 i32 i32 i32) (result i32)
            unreachable)
        (func $__wasilibc_futex_wake (param i32 i32 i32) (result i32) (i32.const 0))
        (func $__pthread_create (export "create") (param i32 i32 i32 i32) (result i32)
            (i32.const 58))
        (func $__pthread_getspecific (param i32) (result i32)
            (i32.load (i32.add (i32.load offset=1024 (i32.const 68))
                               (i32.shl (local.get 0) (i32.const 2)))))
        (func $PyThread_get_thread_ident_ex (export "wide") (result i64) (i64.const 1024))
        (func $PyThread_get_thread_ident (export "narrow") (result i32) (i32.const 1024))
        (func $PyThreadState_GetUnchecked (result i32) (i32.load offset=512 (i32.const 0)))
        (func $PyGILState_GetThisThreadState (result i32) (i32.load offset=516 (i32.const 0)))
        (func $_Py_HandlePending (export "serve") (param i32) (result i32) (local.get 0))
        (func $_PyThreadState_DeleteCurrent (export "free") (param i32))
        (func $PyEval_SaveThread (result i32) (i32.const 0))
        (func $PyEval_RestoreThread (param i32)))"#;

    type Calls = FunctionEnv<Vec<[u32; 4]>>;

    fn instance(text: &str) -> (Store, Instance, InstanceMemory, Calls) {
        let wasm = wat::parse_str(text).unwrap();
        let engine = engine_for(&wasm, None);
        let mut store = engine.store();
        let calls = FunctionEnv::new(&mut store, Vec::new());
        let call =
            |mut calls: FunctionEnvMut<'_, Vec<[u32; 4]>>, a: u32, b: u32, c: u32, d: u32| {
                calls.data_mut().push([a, b, c, d]);
                7
            };
        let call = Function::new_typed_with_env(&mut store, &calls, call);
        let imports = imports! { "host" => { "call" => call } };
        let module = engine.module(text);
        let (instance, memory) =
            with_memory(None, || Instance::new(&mut store, &module, &imports).unwrap());
        (store, instance, memory.unwrap(), calls)
    }

    #[test]
    fn a_build_with_one_thread_calls_the_host_for_others() {
        let (mut store, instance, _memory, calls) = instance(BUILD);
        assert!(are_given(instance.module()));
        let words = words_of(&instance, &mut store).unwrap();
        assert_eq!(words.addresses(), [1024, 516, 512]);
        let exports = &instance.exports;
        let wait: TypedFunction<(u32, u32, u32, u32, u32), i32> =
            exports.get_typed_function(&store, "wait").unwrap();
        assert_eq!(wait.call(&mut store, 16, 5, 1, 32, ABSOLUTE).unwrap(), 7);
        let create: TypedFunction<(u32, u32, u32, u32), i32> =
            exports.get_typed_function(&store, "create").unwrap();
        assert_eq!(create.call(&mut store, 16, 0, 3, 4).unwrap(), 7);
        let flags = ABSOLUTE | 1 << CLOCK_SHIFT;
        assert_eq!(calls.as_ref(&store)[..], [[16, WAIT | flags, 5, 32], [16, SPAWN, 3, 4]]);
    }

    #[test]
    fn a_thread_offers_its_turn_where_it_serves_requests() {
        let (mut store, instance, _memory, calls) = instance(BUILD);
        let serve: TypedFunction<u32, u32> =
            instance.exports.get_typed_function(&store, "serve").unwrap();
        assert_eq!(serve.call(&mut store, 5).unwrap(), 5, "it goes on");
        assert_eq!(calls.as_ref(&store)[..], [[0, YIELD, 0, 0]]);
    }

    #[test]
    fn the_host_knows_that_a_state_is_freed() {
        let (mut store, instance, _memory, calls) = instance(BUILD);
        let free: TypedFunction<u32, ()> =
            instance.exports.get_typed_function(&store, "free").unwrap();
        free.call(&mut store, 5).unwrap();
        assert_eq!(calls.as_ref(&store)[..], [[5, FREES, 0, 0]]);
    }

    #[test]
    fn a_thread_is_known_by_its_number() {
        let (mut store, instance, memory, _) = instance(BUILD);
        let wide: TypedFunction<(), u64> =
            instance.exports.get_typed_function(&store, "wide").unwrap();
        let narrow: TypedFunction<(), u32> =
            instance.exports.get_typed_function(&store, "narrow").unwrap();
        for (number, known) in [(0, 1024), (4096, 4096)] {
            memory.shared().with_word(1044, |word| word.store(number, Ordering::SeqCst));
            assert_eq!(wide.call(&mut store).unwrap(), u64::from(known));
            assert_eq!(narrow.call(&mut store).unwrap(), known);
        }
    }

    #[test]
    fn another_build_is_left_as_it_is() {
        for (from, to) in [
            ("$__pthread_create", "$pthread_create"),
            ("$PyEval_SaveThread (result i32) (i32.const 0)", "$PyEval_SaveThread"),
            ("$_Py_HandlePending", "$eval_frame_handle_pending"),
            ("$_PyThreadState_DeleteCurrent", "$tstate_delete_common"),
            ("(i32.load offset=516 (i32.const 0))", "(i32.const 516)"),
        ] {
            let (mut store, instance, ..) = instance(&BUILD.replace(from, to));
            assert!(!are_given(instance.module()), "{to}");
            assert_eq!(words_of(&instance, &mut store), None, "{to}");
        }
    }
}
