//! The binding: which functions it has, with which types, and those that wait, end the program or
//! call the guest.

use std::thread;

use wasmer::{FunctionEnv, FunctionType, Instance, Module, RuntimeError, Store};

use super::*;
use crate::host::GuestHost;
use crate::host::env::{GuestEnv, GuestExit, Parts, unwind};
use crate::host::reactor::ReactorHost;
use crate::host::wasi::binding;
use crate::interrupt::gate::{Gate, Stopped, ThreadGate};
use crate::interrupt::reason::StopReason;
use crate::memory::tunables::{InstanceMemory, with_memory};
use crate::python::module::imports::{JUDGED, WASI, is_allowed};
use crate::python::module::native::NativeEngine;
use crate::python::module::new_engine;

mod network;
mod refused;

/// A module with its host, as an interpreter has them.
pub(super) struct Bound {
    pub(super) store: Store,
    env: FunctionEnv<GuestEnv>,
    pub(super) gate: Arc<Gate>,
    pub(super) wasi: Arc<Mutex<Wasi>>,
    host: ReactorHost,
    /// Keeps the instance's memory.
    memory: Option<InstanceMemory>,
    engine: NativeEngine,
}

impl Bound {
    fn new() -> Self {
        Self::on(new_engine())
    }

    pub(super) fn on(engine: NativeEngine) -> Self {
        Self::with(engine, HostState::new(&layout(), Some(&Deterministic::new(1))))
    }

    /// One whose clock is the machine's, as a guest has it that may have a network.
    fn in_real_time() -> Self {
        Self::in_real_time_on(new_engine())
    }

    pub(super) fn in_real_time_on(engine: NativeEngine) -> Self {
        Self::with(engine, HostState::new(&layout(), None))
    }

    fn with(engine: NativeEngine, state: HostState) -> Self {
        let wasi = Arc::new(Mutex::new(Wasi::new(layout().workspace, state)));
        wasi.lock().tree.begin(FileQuota { bytes: 1 << 20, count: 100, open: 100 }, false);
        let mut store = engine.store();
        let gate = Arc::new(Gate::new());
        let passage = Arc::new(ThreadGate::of_main(Arc::clone(&gate)));
        let parts = Parts {
            gate: Arc::clone(&gate),
            wasi: Arc::clone(&wasi),
            channel: Arc::default(),
            control: Arc::default(),
            has_kernels: true,
        };
        let env = GuestEnv::new(passage, &parts);
        let env = FunctionEnv::new(&mut store, env);
        let host = ReactorHost::new(Arc::clone(&wasi));
        Self { store, env, gate, wasi, host, memory: None, engine }
    }

    fn start(&mut self, text: &str) -> Instance {
        let module = self.engine.module(text);
        self.start_module(&module)
    }

    pub(super) fn start_module(&mut self, module: &Module) -> Instance {
        let imports = self.host.imports(&mut self.store, module, &self.env, None).unwrap();
        let (instance, memory) =
            with_memory(None, || Instance::new(&mut self.store, module, &imports).unwrap());
        let memory = memory.unwrap();
        self.gate.guard(Arc::clone(memory.shared()));
        self.env.as_mut(&mut self.store).attach_memory(memory.shared());
        self.memory = Some(memory);
        self.host.attach(&mut self.store, &instance).unwrap();
        instance
    }

    /// Begins a run with streams of its own.
    pub(super) fn begin_run(&mut self) -> Arc<Transcript> {
        let transcript = Arc::new(Transcript::default());
        transcript.begin(&Limits::default());
        self.wasi.lock().begin_run(RunStreams {
            transcript: Arc::clone(&transcript),
            stdin: Vec::new(),
            stops_at_output_limit: false,
            most_calls: u64::MAX,
            network: RunNetwork::default(),
        });
        transcript
    }

    /// Has a Python build run a source text.
    pub(super) fn turn(&mut self, python: &Instance, source: &str) -> Result<i32, RuntimeError> {
        let exports = &python.exports;
        let alloc = exports.get_typed_function::<u32, u32>(&self.store, "host_alloc").unwrap();
        let turn = exports.get_typed_function::<(u32, u32), i32>(&self.store, "turn").unwrap();
        let len = source.len() as u32;
        let at = self.gate.guest(|| alloc.call(&mut self.store, len)).unwrap()?;
        self.wasi.lock().guest.write(at, source.as_bytes()).unwrap();
        self.gate.guest(|| turn.call(&mut self.store, at, len)).unwrap()
    }

    fn run(&mut self, instance: &Instance) -> Result<i32, RuntimeError> {
        let main = instance.exports.get_typed_function::<(), i32>(&self.store, "main").unwrap();
        self.gate.guest(|| main.call(&mut self.store)).unwrap()
    }
}

/// Runs a module's `main` as a program.
fn run(text: &str) -> Result<i32, RuntimeError> {
    let mut bound = Bound::new();
    let instance = bound.start(text);
    bound.gate.begin();
    bound.run(&instance)
}

pub(super) fn exit_code(result: Result<i32, RuntimeError>) -> Option<u32> {
    result.unwrap_err().downcast::<GuestExit>().ok().map(|exit| exit.0)
}

#[test]
fn what_is_bound_is_what_is_judged() {
    let mut bound = Bound::new();
    let Bound { store, env, .. } = &mut bound;
    let all: Vec<_> = JUDGED.iter().filter(|row| row.namespace != "host").collect();
    for row in &all {
        for name in row.names() {
            assert!(binding::function(store, env, name).is_some(), "{name}");
        }
    }
    for (name, _) in binding::FUNCTIONS {
        // Another name for what preview 1 means by `fd_renumber`.
        let is_judged = all.iter().any(|row| row.names().any(|one| one == *name));
        assert!(is_judged || *name == "fd_move", "{name}");
    }
}

/// Returns the imported functions of a module with their types. A whole Python build needs no
/// compiling for that.
fn imported_functions(module: &[u8]) -> Vec<(String, String, FunctionType)> {
    use wasmparser::{Parser, Payload, TypeRef, ValType};
    let types_of = |types: &[ValType]| -> Vec<wasmer::Type> {
        types
            .iter()
            .map(|one| match one {
                ValType::I32 => wasmer::Type::I32,
                ValType::I64 => wasmer::Type::I64,
                other => panic!("no function of WASI has a {other}"),
            })
            .collect()
    };
    let (mut types, mut functions) = (Vec::new(), Vec::new());
    for payload in Parser::new(0).parse_all(module) {
        match payload.unwrap() {
            Payload::TypeSection(section) => {
                types = section.into_iter_err_on_gc_types().map(Result::unwrap).collect();
            }
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    let import = import.unwrap();
                    if let TypeRef::Func(index) = import.ty {
                        let ty = &types[index as usize];
                        let ty = FunctionType::new(types_of(ty.params()), types_of(ty.results()));
                        functions.push((import.module.to_owned(), import.name.to_owned(), ty));
                    }
                }
            }
            _ => {}
        }
    }
    functions
}

#[test]
fn functions_have_the_types_that_a_wasix_build_expects() {
    let Some(folder) = crate::python::module::imports::tests::wasix_build() else { return };
    let mut bound = Bound::new();
    let Bound { store, env, .. } = &mut bound;
    let mut seen = 0;
    for file in ["python.wasm", "reactor.wasm"] {
        for (namespace, name, ty) in imported_functions(&std::fs::read(folder.join(file)).unwrap())
        {
            if namespace != "host" {
                let function = binding::function(store, env, &name).unwrap();
                assert!(is_allowed(&namespace, &name));
                assert_eq!(function.ty(store), ty, "{file}: {namespace}.{name}");
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 91 + 89);
}

#[test]
fn fd_renumber_means_what_the_module_expects() {
    let renumber = |wasix: &str| {
        let text = format!(
            r#"(module
                (import "{WASI}" "fd_renumber" (func $renumber (param i32 i32) (result i32)))
                (import "{WASI}" "fd_close" (func $close (param i32) (result i32)))
                {wasix}
                (memory (export "memory") 1 1)
                (func (export "main") (result i32)
                    (drop (call $renumber (i32.const 2) (i32.const 1)))
                    (call $close (i32.const 2))))"#
        );
        run(&text).unwrap()
    };
    assert_eq!(renumber(""), Errno::BadDescriptor.code());
    let wasix = r#"(import "wasix_32v1" "proc_id" (func (param i32) (result i32)))"#;
    assert_eq!(renumber(wasix), 0);
}

#[test]
fn no_thread_and_no_process_starts() {
    let text = r#"(module
        (import "wasi" "thread-spawn" (func $spawn (param i32) (result i32)))
        (import "wasix_32v1" "proc_fork" (func $fork (param i32 i32) (result i32)))
        (import "wasix_32v1" "sock_open" (func $open (param i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 1 1)
        (func (export "main") (result i32)
            (i32.add
                (i32.mul (call $spawn (i32.const 0)) (i32.const -10000))
                (i32.add
                    (i32.mul (call $fork (i32.const 1) (i32.const 0)) (i32.const 100))
                    (call $open (i32.const 1) (i32.const 1) (i32.const 6) (i32.const 0))))))"#;
    assert_eq!(run(text).unwrap(), 6_58_02);
}

/// Returns a module that sends itself a signal, with this handler.
fn raising(signal: u32, handler: &str) -> String {
    format!(
        r#"(module
            (import "wasix_32v1" "proc_signal" (func $kill (param i32 i32) (result i32)))
            (import "wasix_32v1" "thread_signal" (func $raise (param i32 i32) (result i32)))
            (memory (export "memory") 1 1)
            (global $handled (mut i32) (i32.const 0))
            {handler}
            (func (export "main") (result i32)
                (drop (call $kill (i32.const 1) (i32.const {signal})))
                (global.get $handled)))"#
    )
}

#[test]
fn a_handler_of_the_guest_takes_its_signals() {
    let handler = r#"(func (export "__wasm_signal") (param i32)
        (global.set $handled (i32.add (global.get $handled) (local.get 0))))"#;
    assert_eq!(run(&raising(15, handler)).unwrap(), 15);
    assert_eq!(run(&raising(0, handler)).unwrap(), 0);
    assert_eq!(run(&raising(70, handler)).unwrap(), 0);
    assert_eq!(exit_code(run(&raising(9, handler))), Some(137));
}

#[test]
fn a_deadly_signal_ends_the_program_with_its_number() {
    for handler in [
        "",
        // As the C library ends a program by default.
        r#"(func (export "__wasm_signal") (param i32) unreachable)"#,
        // It raises the signal again, as `abort` does.
        r#"(func (export "__wasm_signal") (param i32)
            (drop (call $raise (i32.const 1) (local.get 0))))"#,
    ] {
        assert_eq!(exit_code(run(&raising(6, handler))), Some(134), "{handler}");
    }
    // It aborts, which raises another signal.
    let handler = r#"(func (export "__wasm_signal") (param i32)
        (drop (call $raise (i32.const 1) (i32.const 6))))"#;
    assert_eq!(exit_code(run(&raising(15, handler))), Some(143));
    assert_eq!(run(&raising(17, "")).unwrap(), 0);
}

/// Returns a module that waits for a futex at 0, whose value is 5. Its result is the error number,
/// plus 256 if it was woken.
fn waiting(expected: u32, timeout: Option<u64>) -> String {
    let tag = u8::from(timeout.is_some());
    let timeout = timeout.unwrap_or(0);
    format!(
        r#"(module
            (import "wasix_32v1" "futex_wait" (func $wait (param i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 1 1)
            (func (export "main") (result i32)
                (i32.store (i32.const 0) (i32.const 5))
                (i32.store8 (i32.const 16) (i32.const {tag}))
                (i64.store (i32.const 24) (i64.const {timeout}))
                (i32.add
                    (call $wait
                        (i32.const 0) (i32.const {expected}) (i32.const 16) (i32.const 32))
                    (i32.shl (i32.load8_u (i32.const 32)) (i32.const 8)))))"#
    )
}

#[test]
fn a_futex_waits_for_its_timeout() {
    // The clock is virtual, so the wait takes no time.
    assert_eq!(run(&waiting(5, Some(1_000_000_000))).unwrap(), 0);
    assert_eq!(run(&waiting(4, Some(1_000_000_000))).unwrap(), 256);
    assert_eq!(run(&waiting(4, None)).unwrap(), 256);
}

#[test]
fn a_futex_without_a_timeout_is_stopped() {
    let mut bound = Bound::new();
    let instance = bound.start(&waiting(5, None));
    let run = bound.gate.begin();
    bound.gate.begin_program();
    let handle = Arc::clone(&bound.gate);
    let stopper = thread::spawn(move || {
        // What the program can't notice must not end its wait.
        assert!(handle.interrupt(run, StopReason::Interrupted));
        assert!(handle.stop(run, StopReason::WallTime));
    });
    let main = instance.exports.get_typed_function::<(), i32>(&bound.store, "main").unwrap();
    // Stopped before it began, or in its wait.
    if let Ok(ended) = bound.gate.guest(|| main.call(&mut bound.store)) {
        let error = ended.unwrap_err();
        assert!(error.clone().to_trap().is_some() || error.downcast::<Stopped>().is_ok());
    }
    stopper.join().unwrap();
    assert_eq!(bound.gate.end().stop, Some(StopReason::WallTime));
}

#[test]
fn leaving_ends_the_program() {
    for (function, expected) in [("proc_exit2", 3), ("thread_exit", 0)] {
        let text = format!(
            r#"(module
                (import "wasix_32v1" "{function}" (func $leave (param i32)))
                (memory (export "memory") 1 1)
                (func (export "main") (result i32) (call $leave (i32.const 3)) (i32.const 0)))"#
        );
        assert_eq!(exit_code(run(&text)), Some(expected));
    }
}
