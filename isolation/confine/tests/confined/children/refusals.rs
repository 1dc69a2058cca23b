//! What a confined process is refused, each thing in a child of its own.

use std::sync::atomic::{AtomicU32, Ordering};

use confine::{CALLS, RefusedCall};

use super::support::{End, become_nobody, confine_bare, run, shared};
use test_support::attempts::{Attempt, Listeners, Targets, attempts, state};
use test_support::raw::raw;

/// Returns attempts on this process, whose children make them, and what has to stay meanwhile.
fn aimed_at_parent() -> (Listeners, Vec<Attempt>) {
    let listeners = Listeners::open();
    let targets = Targets::new(std::process::id(), listeners.port(), listeners.path());
    (listeners, attempts(&targets))
}

pub(crate) fn every_attempt_is_refused() {
    let (_listeners, attempts) = aimed_at_parent();
    assert!(attempts.len() >= 80, "{} attempts", attempts.len());
    let before = state();
    for is_root in [true, false] {
        for attempt in &attempts {
            let Attempt { what, name, .. } = attempt;
            let shared = shared();
            let end = run(|| {
                if !is_root {
                    become_nobody();
                }
                confine_bare(shared);
                shared.words[0].store(attempt.make().unsigned_abs() as u32, Ordering::SeqCst);
                0
            });
            let result = shared.words[0].load(Ordering::SeqCst);
            if attempt.is_missing() {
                assert_eq!(result, libc::ENOSYS.unsigned_abs(), "{what}");
                continue;
            }
            assert_eq!(end, End::Signal(libc::SIGSYS), "{what}: {name} returned {result}");
            assert_eq!(shared.refused().as_deref(), Some(*name), "{what}");
        }
    }
    assert_eq!(state(), before, "the parent has changed");
    println!("{} attempts, each as root (if the test is) and as nobody", attempts.len());
}

/// Otherwise a refusal would say nothing.
pub(crate) fn harmless_ones_would_succeed() {
    let (_listeners, attempts) = aimed_at_parent();
    let harmless: Vec<&Attempt> = attempts.iter().filter(|attempt| attempt.is_harmless).collect();
    let mut succeeded = 0;
    for attempt in harmless {
        let shared = shared();
        let end = run(|| {
            let result = attempt.make();
            shared.words[0].store((-result.min(0)) as u32, Ordering::SeqCst);
            i32::from(result < 0)
        });
        let error = shared.words[0].load(Ordering::SeqCst);
        // No child to wait for; or this machine refuses it to everybody, as a container may.
        let is_expected = match error.cast_signed() {
            libc::ECHILD => attempt.name == "wait4",
            libc::EPERM | libc::ENOSYS => true,
            _ => false,
        };
        assert!(end == End::Exit(0) || is_expected, "{}: {end:?}, error {error}", attempt.what);
        succeeded += u32::from(end == End::Exit(0));
    }
    assert!(succeeded > 40, "{succeeded} attempts succeed");
}

/// Calls of 32-bit programs, and those of x32.
pub(crate) fn other_entries_to_the_kernel_are_closed() {
    const X32: libc::c_long = 0x4000_0000;
    for number in [0, 1, 257, 512, 520] {
        let shared = shared();
        let end = run(|| {
            confine_bare(shared);
            raw(X32 + number, [0; 6]);
            0
        });
        assert_eq!(end, End::Signal(libc::SIGSYS), "x32 {number}");
    }
    for number in [5, 20, 162] {
        let shared = shared();
        let end = run(|| {
            confine_bare(shared);
            // SAFETY: the call takes no pointers, or fails.
            unsafe { std::arch::asm!("int 0x80", inlateout("eax") number => _) };
            0
        });
        // Where the kernel has no calls for 32 bits, the instruction is a fault.
        let is_closed = [libc::SIGSYS, libc::SIGSEGV].map(End::Signal).contains(&end);
        assert!(is_closed, "32-bit call {number}: {end:?}");
    }
}

/// Filters don't see `uretprobe` and `uprobe` in newer kernels: only the kernel's own code for probes
/// may make them, and from anywhere else they fail or are a fault.
const PROBES: [u32; 2] = [335, 336];

pub(crate) fn every_unlisted_number_is_refused() {
    let mut refused = 0;
    for number in (0..600).filter(|number| CALLS.iter().all(|call| call.number != *number)) {
        let shared = shared();
        let end = run(|| {
            confine_bare(shared);
            i32::from(raw(number.into(), [0; 6]) >= 0)
        });
        if PROBES.contains(&number) {
            assert!(end != End::Exit(1), "{number}");
            continue;
        }
        assert_eq!(end, End::Signal(libc::SIGSYS), "{number}");
        let named = AtomicU32::new(0);
        RefusedCall::write(number, &named);
        assert_eq!(RefusedCall::read(&shared.refused), RefusedCall::read(&named));
        refused += 1;
    }
    assert_eq!(refused, 600 - CALLS.len() - PROBES.len());
}
