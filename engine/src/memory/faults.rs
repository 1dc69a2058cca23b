//! Tells faults of the guest from signals that somebody sent.
//!
//! wasmer turns SIGSEGV, SIGILL and SIGFPE of compiled code into traps. It takes such a signal from
//! another process (`kill -SEGV`) for a crash of the host, and removes its handler so that the
//! instruction fails again and ends the process. But no instruction failed, so the process ends at
//! the next trap of a guest, such as a hard stop. This handler therefore runs before wasmer's and
//! passes on only faults.
#![expect(unsafe_code, reason = "installs a signal handler, and calls the one before it")]

use std::ptr;
use std::sync::{Once, OnceLock};

/// The signals of faults that wasmer handles on x86-64, with the handlers that it installed.
static HANDLERS: [(libc::c_int, OnceLock<libc::sigaction>); 3] = [
    (libc::SIGSEGV, OnceLock::new()),
    (libc::SIGILL, OnceLock::new()),
    (libc::SIGFPE, OnceLock::new()),
];

type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// Installs the handler before wasmer's, once. To be called after wasmer has installed its own,
/// which it does with the first store.
pub(crate) fn tell_apart() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| HANDLERS.iter().for_each(|(signal, before)| install(*signal, before)));
}

fn install(signal: libc::c_int, before: &OnceLock<libc::sigaction>) {
    // SAFETY: plain data, for which zeroes are a value; the call fills it.
    let mut found: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: null changes nothing, and the other pointer is to a local.
    let is_read = unsafe { libc::sigaction(signal, ptr::null(), &raw mut found) } == 0;
    if !is_read || found.sa_flags & libc::SA_SIGINFO == 0 {
        // Not wasmer's: the embedding program has its own, which must stay first.
        return;
    }
    let ours = libc::sigaction { sa_sigaction: pass_on as *const () as usize, ..found };
    // `pass_on` reads this, so it is set before the handler is installed.
    let _ = before.set(found);
    // SAFETY: `pass_on` is a handler of the kind that the flags, which are wasmer's, ask for.
    if unsafe { libc::sigaction(signal, &raw const ours, ptr::null_mut()) } != 0 {
        tracing::warn!(signal, "can't tell signals from other processes from faults");
    }
}

/// Passes faults on to wasmer's handler. Does nothing else, since it may interrupt anything.
extern "C" fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: handlers with SA_SIGINFO get a valid pointer to the signal's description.
    let code = unsafe { (*info).si_code };
    // Codes of the kernel's own signals are positive: sigaction(2).
    if code <= 0 {
        return;
    }
    let handler = HANDLERS.iter().find(|(of, _)| *of == signal).and_then(|(_, found)| found.get());
    if let Some(found) = handler {
        // SAFETY: it was installed with SA_SIGINFO, so it is a function of this type.
        let handler: Handler = unsafe { std::mem::transmute(found.sa_sigaction) };
        handler(signal, info, context);
    }
}
