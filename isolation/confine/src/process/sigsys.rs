//! Writes down the system call that the process is about to be killed for.
//!
//! `SIGSYS` alone doesn't tell the parent the call. So the filter raises the signal, and the
//! handler writes the number into shared memory and raises the signal again, which now kills. No
//! filter lets the process install another handler; without a stack for this one, it dies at once.
//! The refused call never runs.
#![expect(unsafe_code, reason = "a signal handler, installed and run")]

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::refused::RefusedCall;

/// `si_code` of a call that a filter refused.
const SECCOMP: i32 = 1;

/// Where to write the call.
static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

/// The part of `siginfo_t` that describes a refused call, as Linux lays it out on 64 bits.
#[repr(C)]
struct Refusal {
    signal: i32,
    error: i32,
    code: i32,
    padding: i32,
    address: usize,
    number: u32,
    architecture: u32,
}

/// Has the process write refused calls into this word before they kill it.
pub(super) fn report_to(word: &'static AtomicU32) -> io::Result<()> {
    WORD.store(ptr::from_ref(word).cast_mut(), Ordering::Release);
    // SAFETY: all zeroes are a value of this plain structure.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    // The default action is back once the handler runs, and the signal isn't blocked there.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESETHAND | libc::SA_NODEFER;
    // SAFETY: the handler has the form that `SA_SIGINFO` demands, and calls only what a handler may.
    match unsafe { libc::sigaction(libc::SIGSYS, &raw const action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn handler(_signal: i32, info: *const libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel gives a handler of this form a `siginfo_t`, which is larger than this part
    // and aligned like it.
    let refusal = unsafe { &*info.cast::<Refusal>() };
    // SAFETY: null, or a word that lives as long as the process.
    if let Some(word) = unsafe { WORD.load(Ordering::Acquire).as_ref() }
        && refusal.code == SECCOMP
    {
        RefusedCall::write(refusal.number, word);
    }
    // SAFETY: these take no pointers. The first ends the process, since the signal has its default
    // action again; the second is there in case it doesn't.
    unsafe {
        // glibc has a function for it from 2.30 on, and the wheel needs 2.28.
        let thread = libc::syscall(libc::SYS_gettid);
        libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGSYS);
        libc::_exit(128 + libc::SIGSYS);
    }
}
