//! Signals of others while a guest's stack has no room for their handlers.

use std::sync::atomic::AtomicBool;
use std::thread;

use wasmer::{Instance, TypedFunction, imports};
use wasmer_types::TrapCode;

use super::*;
use crate::python::module::new_engine;

/// Recurses, then counts.
const MODULE: &str = r#"(module
    (func $dive (export "dive") (param $depth i32) (param $count i32) (result i32)
        (if (local.get $depth) (then
            (return (i32.add (i32.const 1)
                (call $dive (i32.sub (local.get $depth) (i32.const 1)) (local.get $count))))))
        (loop $again
            (br_if $again
                (local.tee $count (i32.sub (local.get $count) (i32.const 1)))))
        (i32.const 0)))"#;

extern "C" fn nothing(_: libc::c_int) {}

/// Sends a signal to this thread again and again, whose handler has no stack of its own.
fn in_a_storm<T>(work: impl FnOnce() -> T) -> T {
    let action = libc::sigaction {
        sa_sigaction: nothing as PlainHandler as usize,
        sa_flags: libc::SA_RESTART,
        ..default_action()
    };
    change(libc::SIGURG, Some(&action)).unwrap();
    // SAFETY: they have no conditions.
    let (process, thread) = unsafe { (libc::getpid(), libc::gettid()) };
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // SAFETY: plain numbers, of a thread that waits for this one.
                unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGURG) };
                thread::yield_now();
            }
        });
        let result = work();
        is_over.store(true, Ordering::Relaxed);
        result
    })
}

#[test]
fn a_stack_without_room_for_a_handler_is_used_up() {
    let engine = new_engine();
    let module = engine.module(MODULE);
    let mut store = install_around(|| engine.store());
    let instance = Instance::new(&mut store, &module, &imports! {}).unwrap();
    let dive: TypedFunction<(i32, i32), i32> =
        instance.exports.get_typed_function(&store, "dive").unwrap();
    let mut dive =
        |depth: i32, count| dive.call(&mut store, depth, count).map_err(|error| error.to_trap());
    // The depth that just fits.
    let (mut fits, mut too_deep) = (0_i32, 1 << 24);
    while too_deep - fits > 1 {
        let depth = fits.midpoint(too_deep);
        match dive(depth, 1) {
            Ok(_) => fits = depth,
            Err(trap) => {
                assert_eq!(trap, Some(TrapCode::StackOverflow));
                too_deep = depth;
            }
        }
    }
    let used_up = in_a_storm(|| dive(fits, i32::MAX));
    assert_eq!(used_up, Err(Some(TrapCode::StackOverflow)));
    assert_eq!(in_a_storm(|| dive(0, 1 << 20)), Ok(0), "there is room at the beginning");
    assert_eq!(dive(fits, 1), Ok(fits));
}
