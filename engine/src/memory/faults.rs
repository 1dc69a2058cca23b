//! Signal handlers for faults: the guest's become traps, and all others reach the handlers of the
//! embedding program.
//!
//! wasmer turns SIGSEGV, SIGILL and SIGFPE of compiled code into traps. It installs its handler
//! once, and never checks it again. Three events would end the process at the next trap, such as a
//! hard stop. This file prevents them:
//!
//! - An embedding program changes the handlers later: a crash reporter, a JVM, `faulthandler` of a
//!   Python. Before each run, and before each hard stop, [`put_back`] restores the engine's if
//!   another one is there.
//! - Another process sends such a signal (`kill -SEGV`). wasmer takes it for a crash of the host
//!   and removes its handler, so that the instruction fails again; but none failed.
//! - The embedding program's handler gets no more faults, because the engine's is before it. So the
//!   engine has handlers on both sides of wasmer's:
//!
//! ```text
//!   kernel -> `enter::<LEVEL>` -> wasmer's handler, which claims faults of a guest
//!                                      | calls what it found when it was installed
//!                                      v
//!                                 `decline` -> what `enter::<LEVEL>` has replaced
//! ```
//!
//! Level 0 has replaced what was there before the engine; each later handler that is replaced takes
//! one level more. The handler at a level may call the previous one, as usual. That is the engine's
//! of the level below, so a chain gets shorter with each call and ends. If a program removes a
//! handler by restoring the previous one, the level of the engine's handler shows it.
//!
//! Everything that handlers call may interrupt anything: no lock, no allocation.
#![expect(unsafe_code, reason = "installs signal handlers, and calls those before and after them")]

use std::cell::Cell;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use parking_lot::Mutex;

/// How many handlers can be on top of each other, each of which calls the previous one. Only a
/// program that keeps installing different ones and removes none needs more. Then the newest takes
/// the last level from the one before.
const LEVELS: usize = 8;

/// What our handlers need: the description of the signal, and a stack of their own. A guest may
/// have used up its stack.
const FLAGS: libc::c_int = libc::SA_SIGINFO | libc::SA_ONSTACK;

type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
type PlainHandler = extern "C" fn(libc::c_int);

static ENTRIES: [Handler; LEVELS] = [
    enter::<0>, enter::<1>, enter::<2>, enter::<3>, enter::<4>, enter::<5>, enter::<6>, enter::<7>,
];

/// The signals that wasmer handles when a guest's code faults. The causes are an access,
/// `unreachable` (what `abort` ends in), and on x86-64 a division.
static WATCHED: [FaultSignal; 3] = [
    FaultSignal::new(libc::SIGSEGV),
    FaultSignal::new(libc::SIGILL),
    FaultSignal::new(libc::SIGFPE),
];

/// Whether handlers are changed here alone.
static ARE_OWNED: AtomicBool = AtomicBool::new(false);

/// Held while handlers change. No handler takes it.
static CHANGES: Mutex<()> = Mutex::new(());

thread_local! {
    /// The level at which this thread has called wasmer's handler, for `decline`.
    static ENTERED_AT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A signal, and who handles it.
struct FaultSignal {
    signal: libc::c_int,
    /// What wasmer has installed; nothing until then, or if it doesn't handle this signal.
    wasmer: Action,
    /// What our handler of each level has replaced.
    replaced: [Action; LEVELS],
    /// The level of the handler that should be installed.
    level: AtomicUsize,
}

/// What a process does on a signal. Set values are never freed, since a handler may be using them.
struct Action(AtomicPtr<libc::sigaction>);

impl Action {
    const fn none() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    fn get(&self) -> Option<&'static libc::sigaction> {
        // SAFETY: null, or a leaked box that nobody changes.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Sets it, and leaks the former value, unless that is the same.
    fn set(&self, action: libc::sigaction) {
        if !self.get().is_some_and(|set| is_same(set, &action)) {
            self.0.store(Box::into_raw(Box::new(action)), Ordering::Release);
        }
    }
}

fn is_same(one: &libc::sigaction, other: &libc::sigaction) -> bool {
    one.sa_sigaction == other.sa_sigaction && one.sa_flags == other.sa_flags
}

/// Returns the level of one of our handlers; `None` for every other one.
fn level_of(action: &libc::sigaction) -> Option<usize> {
    ENTRIES.iter().position(|entry| address(*entry) == action.sa_sigaction)
}

fn address(handler: Handler) -> libc::sighandler_t {
    handler as *const () as libc::sighandler_t
}

/// Calls `begin`, and installs our handlers around wasmer's. wasmer installs its own in the first
/// call.
pub(crate) fn install_around<T>(begin: impl FnOnce() -> T) -> T {
    static INSTALLED: Once = Once::new();
    let (mut begin, mut begun) = (Some(begin), None);
    INSTALLED.call_once(|| {
        let _changes = CHANGES.lock();
        WATCHED.iter().for_each(FaultSignal::prepare);
        begun = begin.take().map(|begin| begin());
        // Other users of wasmer in this process may have made it install its handlers earlier.
        let was_first = WATCHED[0].is_wasmers();
        WATCHED.iter().for_each(|watched| watched.install(was_first));
    });
    begun.or_else(|| begin.map(|begin| begin())).expect("it is called here or there")
}

/// Says that from now on nobody else changes handlers in this process. It holds in one that runs
/// workers alone. Ours then stay where they are unwatched.
pub fn own_handlers() {
    ARE_OWNED.store(true, Ordering::Relaxed);
}

/// Puts our handlers back where other ones are, and from then on lets those have what isn't a
/// guest's. Takes three system calls, 0.7 µs, if nothing has changed.
pub(crate) fn put_back() {
    if ARE_OWNED.load(Ordering::Relaxed) {
        return;
    }
    for watched in &WATCHED {
        if !watched.is_in_place() {
            watched.put_back();
        }
    }
}

impl FaultSignal {
    const fn new(signal: libc::c_int) -> Self {
        let replaced = [const { Action::none() }; LEVELS];
        Self { signal, wasmer: Action::none(), replaced, level: AtomicUsize::new(0) }
    }

    /// Puts `decline` where wasmer will find it.
    fn prepare(&self) {
        let decline = libc::sigaction {
            sa_sigaction: address(decline),
            // As wasmer's, which calls it.
            sa_flags: FLAGS | libc::SA_NODEFER,
            ..default_action()
        };
        if let Some(before) = change(self.signal, Some(&decline)) {
            self.replaced[0].set(before);
        }
    }

    /// Whether wasmer has replaced `decline`.
    fn is_wasmers(&self) -> bool {
        change(self.signal, None).is_some_and(|now| now.sa_sigaction != address(decline))
    }

    /// Installs our handler above wasmer's. `was_first`: wasmer has installed its own just now.
    fn install(&self, was_first: bool) {
        let (Some(now), Some(before)) = (change(self.signal, None), self.replaced[0].get()) else {
            return;
        };
        let is_wasmers = now.sa_sigaction != address(decline);
        let wasmers = match is_wasmers {
            true => now,
            // Its handler, or another one above it. What it doesn't claim, it passes on to whatever
            // it found; later handlers then don't get that.
            false if !was_first && before.sa_flags & libc::SA_SIGINFO != 0 => *before,
            // wasmer doesn't handle this signal.
            false => {
                change(self.signal, Some(before));
                return;
            }
        };
        self.wasmer.set(wasmers);
        change(self.signal, Some(&self.ours(0)));
    }

    fn ours(&self, level: usize) -> libc::sigaction {
        libc::sigaction {
            sa_sigaction: address(ENTRIES[level]),
            sa_flags: FLAGS | libc::SA_NODEFER,
            ..default_action()
        }
    }

    fn is_in_place(&self) -> bool {
        // Nothing to do for a signal that wasmer doesn't handle.
        self.wasmer.get().is_none()
            || change(self.signal, None).is_some_and(|now| {
                now.sa_sigaction == address(ENTRIES[self.level.load(Ordering::Relaxed)])
                    && now.sa_flags & FLAGS == FLAGS
            })
    }

    fn put_back(&self) {
        let _changes = CHANGES.lock();
        let Some(found) = change(self.signal, None) else { return };
        let level = match level_of(&found) {
            // The handlers above this level were removed.
            Some(level) => level,
            None => {
                let last = self.level.load(Ordering::Relaxed);
                // One that was installed twice is one.
                let is_again = last > 0
                    && self.replaced[last].get().is_some_and(|known| is_same(known, &found));
                let level = if is_again { last } else { (last + 1).min(LEVELS - 1) };
                self.replaced[level].set(found);
                level
            }
        };
        self.level.store(level, Ordering::Relaxed);
        let replaced = change(self.signal, Some(&self.ours(level)));
        tracing::debug!(self.signal, level, "another signal handler was in the engine's place");
        // Another thread may have installed one in between.
        if let Some(replaced) = replaced.filter(|replaced| level_of(replaced).is_none())
            && level > 0
        {
            self.replaced[level].set(replaced);
        }
    }
}

/// Sets what happens on a signal, if `to` is given, and returns what happened before. `None` if the
/// system refuses, which it does only for signals that can't be handled.
fn change(signal: libc::c_int, to: Option<&libc::sigaction>) -> Option<libc::sigaction> {
    let mut before = default_action();
    let to = to.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: `to` is null, which changes nothing, or a valid action; the other pointer is to a
    // local. Handlers that are set are ours, of the kind that their flags say, or were set before.
    let result = unsafe { libc::sigaction(signal, to, &raw mut before) };
    (result == 0).then_some(before)
}

/// What happens without a handler.
fn default_action() -> libc::sigaction {
    // SAFETY: plain data, for which zeroes are a value: `SIG_DFL`, no flags, an empty mask.
    unsafe { std::mem::zeroed() }
}

/// Our handler of a level.
extern "C" fn enter<const LEVEL: usize>(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let Some(watched) = WATCHED.iter().find(|watched| watched.signal == signal) else { return };
    // SAFETY: handlers with SA_SIGINFO get a valid pointer to the signal's description.
    let code = unsafe { (*info).si_code };
    // Codes of the kernel's own signals are positive: sigaction(2). Others were sent.
    if code <= 0 {
        // Handlers older than the engine, such as that of Rust's library, would end the process at
        // the next fault. So would wasmer's.
        let later = watched.replaced[LEVEL].get().filter(|_| LEVEL > 0);
        if let Some(action) = later.filter(|action| is_handler(action)) {
            hand_over(action, signal, info, context);
        }
        return;
    }
    if let Some(wasmer) = watched.wasmer.get() {
        ENTERED_AT.set(Some(LEVEL));
        // SAFETY: the kernel's own description and context, of the running handler.
        unsafe { place(info, context) };
        call(wasmer, signal, info, context);
        ENTERED_AT.set(None);
    }
}

/// Gets the faults that wasmer doesn't claim, and passes them on to what our handler has replaced.
extern "C" fn decline(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(watched) = WATCHED.iter().find(|watched| watched.signal == signal) else { return };
    // SAFETY: as in `enter`, which passed it on.
    unsafe { unplace(info) };
    // Taken, since the handler may never return here.
    let level = ENTERED_AT.take().unwrap_or_else(|| watched.level.load(Ordering::Relaxed));
    match watched.replaced[level].get().filter(|action| is_handler(action)) {
        Some(action) => hand_over(action, signal, info, context),
        // The instruction fails again, and the process ends as it would have without us. A fault
        // can't be ignored.
        None => drop(change(signal, Some(&default_action()))),
    }
}

/// The beginning of the kernel's description of a fault: sigaction(2).
#[repr(C)]
struct Fault {
    signal: libc::c_int,
    error: libc::c_int,
    code: libc::c_int,
    address: usize,
}

/// Says where a fault was that has no address: at the top of the stack. Such a fault comes when a
/// program's stack has no room left for the handler of another signal. By the address wasmer tells
/// a stack that is used up from an access outside of the memory. Guests have no other faults
/// without one.
///
/// # Safety
/// Both are what the kernel gave to a handler of SIGSEGV, SIGILL or SIGFPE that is still running.
unsafe fn place(info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: as the caller promises; the layouts are the kernel's.
    unsafe {
        let (fault, context) = (info.cast::<Fault>(), context.cast::<libc::ucontext_t>());
        if is_without_address(&*fault) {
            (*fault).address = stack_pointer(&(*context).uc_mcontext);
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn stack_pointer(registers: &libc::mcontext_t) -> usize {
    registers.gregs[libc::REG_RSP as usize] as usize
}

#[cfg(target_arch = "aarch64")]
fn stack_pointer(registers: &libc::mcontext_t) -> usize {
    registers.sp as usize
}

/// Undoes [`place`] before others see the fault.
///
/// # Safety
/// As for [`place`].
unsafe fn unplace(info: *mut libc::siginfo_t) {
    // SAFETY: as the caller promises.
    unsafe {
        let fault = info.cast::<Fault>();
        if is_without_address(&*fault) {
            (*fault).address = 0;
        }
    }
}

/// The kernel gives none for what it says itself.
fn is_without_address(fault: &Fault) -> bool {
    fault.signal == libc::SIGSEGV && fault.code == libc::SI_KERNEL
}

fn is_handler(action: &libc::sigaction) -> bool {
    ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction)
}

/// Calls a handler as the kernel would, though on the stack of this one.
fn hand_over(
    action: &libc::sigaction,
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    if action.sa_flags & libc::SA_RESETHAND != 0 {
        change(signal, Some(&default_action()));
    }
    block(action, signal);
    call(action, signal, info, context);
}

/// Blocks what the kernel would block while this handler runs. The kernel undoes it when ours has
/// ended.
fn block(action: &libc::sigaction, signal: libc::c_int) {
    let mut blocked = action.sa_mask;
    // SAFETY: the pointers are to a local, which is a valid set, or null.
    unsafe {
        if action.sa_flags & libc::SA_NODEFER == 0 {
            libc::sigaddset(&raw mut blocked, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, ptr::null_mut());
    }
}

fn call(
    action: &libc::sigaction,
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    if action.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: it was installed with SA_SIGINFO, so it is a function of this type.
        let handler: Handler = unsafe { std::mem::transmute(action.sa_sigaction) };
        handler(signal, info, context);
    } else {
        // SAFETY: it was installed without SA_SIGINFO, so it is a function of this type.
        let handler: PlainHandler = unsafe { std::mem::transmute(action.sa_sigaction) };
        handler(signal);
    }
}

#[cfg(test)]
mod tests;
