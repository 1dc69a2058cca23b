//! Threads of small modules: how they share, wait, meet their limit, and are stopped.

use wasmer::Store;

use super::*;
use crate::host::env::GuestExit;
use crate::host::layout::Layout;
use crate::host::wasi::{HostState, Wasi};
use crate::interrupt::gate::Gate;
use crate::interrupt::reason::StopReason;
use crate::memory::{GuestMemory, WASM_PAGE_BYTES};
use crate::python::module::new_engine;
use crate::python::module::shape::shared_memory;

/// A guest with its host, as an interpreter has them.
struct Guest {
    store: Store,
    instance: Instance,
    gate: Arc<Gate>,
    threads: Arc<Threads>,
    memory: Arc<GuestMemory>,
}

const IMPORTS: &str = r#"
    (import "env" "memory" (memory 1 8 shared))
    (import "wasi" "thread-spawn" (func $spawn (param i32) (result i32)))
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (import "wasi_snapshot_preview1" "sched_yield" (func $yield (result i32)))
    (import "wasix_32v1" "thread_exit" (func $leave (param i32)))
    (import "wasix_32v1" "thread_id" (func $id (param i32) (result i32)))
    (import "wasix_32v1" "fd_pipe" (func $pipe (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_read"
        (func $read (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_write"
        (func $write (param i32 i32 i32 i32) (result i32)))
    (import "wasix_32v1" "futex_wait" (func $wait (param i32 i32 i32 i32) (result i32)))
    (import "wasix_32v1" "futex_wake" (func $wake (param i32 i32) (result i32)))
    (func $started (drop (i32.atomic.rmw.add (i32.const 0) (i32.const 1))))
    (func $spawn_many (param $count i32) (result i32) (local $refused i32)
        (loop $again
            (if (i32.le_s (call $spawn (i32.const 7)) (i32.const 0))
                (then (local.set $refused (i32.add (local.get $refused) (i32.const 1)))))
            (br_if $again
                (local.tee $count (i32.sub (local.get $count) (i32.const 1)))))
        (local.get $refused))
"#;

impl Guest {
    /// Starts a module with these functions; threads begin at `$thread`.
    fn new(functions: &str) -> Self {
        let text = format!(
            "(module {IMPORTS} {functions}
                (export \"main\" (func $main)) (export \"{THREAD_START}\" (func $thread)))"
        );
        let engine = new_engine();
        let module = engine.module(text);
        let mut store = engine.store();
        let gate = Arc::new(Gate::new());
        let layout = Layout::new(&Default::default());
        let state = HostState::new(&layout, None);
        let wasi = Arc::new(Mutex::new(Wasi::new(layout.workspace, state)));
        let quota = crate::files::quota::FileQuota { bytes: 1 << 20, count: 100, open: 100 };
        wasi.lock().tree.begin(quota, false);
        let (channel, control) = (Arc::default(), Arc::default());
        let passage = Arc::new(ThreadGate::of_main(Arc::clone(&gate)));
        let gate_of_parts = Arc::clone(&gate);
        let parts = Parts { gate: gate_of_parts, wasi, channel, control, has_kernels: true };
        let mut env = GuestEnv::new(Arc::clone(&passage), &parts);
        let memory = Arc::new(GuestMemory::new(WASM_PAGE_BYTES).unwrap().shared());
        let shared = SharedMemory::new(Arc::clone(&memory), shared_memory(&module).unwrap());
        let threads = Threads::new(&engine, &module, ThreadMemory::Shared(shared.clone()), parts);
        env.attach_memory(&memory);
        env.threads = Some(Arc::new(Arc::clone(&threads)));
        let env = FunctionEnv::new(&mut store, env);
        let imported = shared.in_store(&mut store, passage).unwrap();
        let imports = reactor::served(&mut store, &module, &env, Some(imported)).unwrap();
        let instance = Instance::new(&mut store, &module, &imports).unwrap();
        gate.guard(Arc::clone(&memory));
        Self { store, instance, gate, threads, memory }
    }

    /// Runs `main` with `most` threads, and `meanwhile` on another thread.
    fn run(
        &mut self,
        most: usize,
        meanwhile: impl FnOnce(&GuestMemory, &dyn Fn() -> bool) + Send,
    ) -> Result<i32, RuntimeError> {
        let main =
            self.instance.exports.get_typed_function::<(), i32>(&self.store, "main").unwrap();
        self.threads.begin_run(most);
        let run = self.gate.begin();
        let handle = Arc::clone(&self.gate);
        let (gate, memory, store) = (&self.gate, &self.memory, &mut self.store);
        thread::scope(|scope| {
            scope.spawn(|| meanwhile(memory, &|| handle.stop(run, StopReason::WallTime)));
            gate.guest(|| main.call(store)).map_err(unwind).flatten()
        })
    }

    fn word(&self, at: u32) -> u32 {
        word(&self.memory, at)
    }
}

fn word(memory: &GuestMemory, at: u32) -> u32 {
    memory.with_word(at, |word| word.load(Ordering::SeqCst)).unwrap_or_default()
}

/// Waits until the guest has written this to the word at 0.
fn wait_for(memory: &GuestMemory, value: u32) {
    while word(memory, 0) != value {
        thread::yield_now();
    }
}

#[test]
fn threads_that_spin_are_stopped() {
    for _ in 0..20 {
        let mut guest = Guest::new(
            "(func $thread (param i32 i32) (call $started) (loop $spin (br $spin)))
            (func $main (result i32) (drop (call $spawn_many (i32.const 8)))
                (loop $spin (br $spin)) (unreachable))",
        );
        let ended = guest.run(8, |memory, stop| {
            wait_for(memory, 8);
            assert!(stop());
        });
        assert!(ended.is_err());
        assert!(guest.threads.end(), "none goes on");
        assert_eq!(guest.threads.count(), 0);
        assert!(guest.memory.is_revoked());
    }
}

#[test]
fn threads_that_wait_are_stopped() {
    for wait in [
        "(drop (call $wait (i32.const 64) (i32.const 0) (i32.const 128) (i32.const 160)))",
        "(drop (memory.atomic.wait32 (i32.const 64) (i32.const 0) (i64.const -1)))",
        "(drop (memory.atomic.wait64 (i32.const 64) (i64.const 0) (i64.const -1)))",
    ] {
        let mut guest = Guest::new(&format!(
            "(func $thread (param i32 i32) (call $started) {wait} (unreachable))
            (func $main (result i32) (drop (call $spawn_many (i32.const 4)))
                {wait} (unreachable))"
        ));
        let ended = guest.run(8, |memory, stop| {
            wait_for(memory, 4);
            assert!(stop());
        });
        assert!(ended.is_err(), "{wait}");
        assert!(guest.threads.end() && guest.threads.count() == 0, "{wait}");
    }
}

#[test]
fn threads_share_one_memory_which_counts_once() {
    // Each thread counts to 1000, and the last one to end wakes the main thread.
    let mut guest = Guest::new(
        "(func $thread (param i32 i32) (local $left i32) (local.set $left (i32.const 1000))
            (loop $again
                (drop (i32.atomic.rmw.add (i32.const 64) (i32.const 1)))
                (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
            (if (i32.eq (i32.atomic.rmw.add (i32.const 0) (i32.const 1)) (i32.const 3))
                (then (drop (memory.grow (i32.const 2)))
                    (i32.atomic.store (i32.const 68) (i32.const 1))
                    (drop (memory.atomic.notify (i32.const 68) (i32.const 1))))))
        (func $main (result i32) (drop (call $spawn_many (i32.const 8)))
            (loop $again (drop (memory.atomic.wait32 (i32.const 68) (i32.const 0) (i64.const -1)))
                (br_if $again (i32.eqz (i32.atomic.load (i32.const 68)))))
            (memory.size))",
    );
    guest.memory.begin_run(3 * WASM_PAGE_BYTES);
    assert_eq!(guest.run(4, |_, _| ()).unwrap(), 3, "main sees what a thread has grown");
    assert_eq!((guest.word(64), guest.memory.len()), (4000, 3 * WASM_PAGE_BYTES));
    assert!(guest.threads.end() && !guest.memory.is_revoked());
}

#[test]
fn a_thousand_threads_meet_the_cap() {
    let mut guest = Guest::new(
        "(func $thread (param i32 i32) (call $started)
            (drop (memory.atomic.wait32 (i32.const 64) (i32.const 0) (i64.const -1))))
        (func $main (result i32) (call $spawn_many (i32.const 1000)))",
    );
    assert_eq!(guest.run(64, |_, _| ()).unwrap(), 1000 - 64);
    assert_eq!((guest.threads.count(), guest.threads.refused()), (64, Some(65)));
    assert!(guest.threads.end_turn(Duration::from_secs(10)).0);
    guest.gate.end();
    assert!(guest.threads.end() && guest.threads.count() == 0);
    assert!(!guest.memory.is_revoked(), "they were all waiting");
}

#[test]
fn a_thread_ends_alone_or_ends_the_program() {
    for (thread, expected) in [
        ("(return)", None),
        ("(call $leave (i32.const 5))", None),
        ("(call $exit (i32.const 3))", Some(3)),
    ] {
        let mut guest = Guest::new(&format!(
            "(func $thread (param i32 i32) (drop (call $id (i32.const 8))) {thread})
            (func $main (result i32) (drop (call $spawn (i32.const 7)))
                (loop $again (drop (call $yield))
                    (br_if $again (i32.eqz (i32.atomic.load (i32.const 0)))))
                (i32.const 42))"
        ));
        let threads = Arc::clone(&guest.threads);
        let ended = guest.run(1, |memory, _| {
            if expected.is_none() {
                while word(memory, 8) == 0 || threads.count() > 0 {
                    thread::yield_now();
                }
                memory.write(0, &[1]).unwrap();
            }
        });
        let (is_held, end) = guest.threads.end_turn(Duration::from_secs(10));
        assert!(is_held);
        match (expected, end) {
            (None, None) => assert_eq!((ended.unwrap(), guest.word(8)), (42, 2), "{thread}"),
            (Some(code), Some(GuestEnd::Unwound(error))) => {
                assert!(ended.is_err());
                assert_eq!(error.downcast::<GuestExit>().unwrap(), GuestExit(code));
            }
            (_, end) => panic!("{thread}: {}", end.is_some()),
        }
    }
}

#[test]
fn threads_are_held_between_runs_and_go_on_in_the_next() {
    let mut guest = Guest::new(
        "(func $thread (param i32 i32)
            (loop $again (call $started) (drop (call $yield)) (br $again)))
        (func $main (result i32)
            (if (i32.eqz (i32.load (i32.const 64)))
                (then (i32.store (i32.const 64) (call $spawn (i32.const 7)))))
            (loop $again (br_if $again
                (i32.lt_u (i32.atomic.load (i32.const 0)) (i32.load (i32.const 68)))))
            (i32.const 1))",
    );
    let mut before = 0;
    for _ in 0..20 {
        guest.memory.write(68, &(before + 100_u32).to_le_bytes()).unwrap();
        assert_eq!(guest.run(1, |_, _| ()).unwrap(), 1);
        let (is_held, end) = guest.threads.end_turn(Duration::from_secs(10));
        assert!(is_held && end.is_none());
        guest.gate.end();
        before = guest.word(0);
        for _ in 0..100 {
            thread::yield_now();
            assert_eq!(guest.word(0), before, "it is held");
        }
    }
    assert!(guest.threads.end() && !guest.memory.is_revoked());
}

#[test]
fn a_thread_waits_for_what_another_one_writes() {
    // The descriptors are at 72 and 76, a buffer at 80 with its `iovec` at 64.
    let mut guest = Guest::new(
        "(func $thread (param i32 i32)
            (drop (call $read (i32.load (i32.const 72)) (i32.const 64) (i32.const 1) (i32.const 96)))
            (call $started))
        (func $main (result i32)
            (drop (call $pipe (i32.const 72) (i32.const 76)))
            (i32.store (i32.const 64) (i32.const 80)) (i32.store (i32.const 68) (i32.const 5))
            (drop (call $spawn (i32.const 7)))
            (drop (call $write
                (i32.load (i32.const 76)) (i32.const 64) (i32.const 1) (i32.const 100)))
            (loop $again (drop (call $yield))
                (br_if $again (i32.eqz (i32.atomic.load (i32.const 0)))))
            (call $read (i32.load (i32.const 72)) (i32.const 64) (i32.const 1) (i32.const 104)))",
    );
    let threads = Arc::clone(&guest.threads);
    let ended = guest.run(1, |memory, _| {
        wait_for(memory, 1);
        while threads.count() > 0 {
            thread::yield_now();
        }
    });
    assert_eq!(guest.word(96), 5, "it has read what was written");
    assert_eq!(ended.unwrap(), Errno::Deadlock.code(), "the last thread would wait for itself");
}
