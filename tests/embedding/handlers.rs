//! Handlers of faults that other code installs before and after the engine's, and removes again.
//! Each scenario ends in a crash, which shows who gets it.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::{Ended, Host, in_a_process};

/// With which a crash reporter of these tests ends the process.
const REPORTED: i32 = 42;

/// What a scenario says once its pool has done its part.
const READY: &str = "ready to crash\n";

/// What a handler with `SA_SIGINFO` is.
type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

fn say(words: &str) {
    // SAFETY: the pointer and the length are those of a text.
    let written = unsafe { libc::write(2, words.as_ptr().cast(), words.len()) };
    assert!(written > 0);
}

/// A crash reporter that ends the process.
extern "C" fn report(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: valid in a handler with `SA_SIGINFO`.
    let is_fault = unsafe { (*info).si_code } > 0;
    say(if is_fault { "reported a fault\n" } else { "reported a sent signal\n" });
    // SAFETY: ends the process.
    unsafe { libc::_exit(REPORTED) };
}

/// One without `SA_SIGINFO`.
extern "C" fn report_plainly(_: libc::c_int) {
    say("reported plainly\n");
    // SAFETY: ends the process.
    unsafe { libc::_exit(REPORTED) };
}

/// One that only says so. Installed with `SA_RESETHAND`, the instruction then ends the process.
extern "C" fn note(_: libc::c_int) {
    say("noted\n");
}

/// What was there before `chain_first` and `chain_second`, for SIGSEGV.
static BEFORE_FIRST: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());
static BEFORE_SECOND: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

/// Handlers that call the previous one, as `tests/signals.rs` has one.
extern "C" fn chain_first(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    say("first\n");
    call_previous(&BEFORE_FIRST, signal, info, context);
}

extern "C" fn chain_second(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    say("second\n");
    call_previous(&BEFORE_SECOND, signal, info, context);
}

fn call_previous(
    before: &AtomicPtr<libc::sigaction>,
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: set before the handler was installed, and leaked.
    let before = unsafe { &*before.load(Ordering::SeqCst) };
    assert_ne!(before.sa_flags & libc::SA_SIGINFO, 0);
    // SAFETY: it was installed with SA_SIGINFO.
    let previous: Handler = unsafe { std::mem::transmute(before.sa_sigaction) };
    previous(signal, info, context);
}

/// Acts as `faulthandler` of CPython: says what happened, puts the previous handler back and raises
/// the signal again.
extern "C" fn dump(signal: libc::c_int) {
    say("dumped\n");
    disable_dump();
    // SAFETY: sends a signal to this thread.
    unsafe { libc::raise(signal) };
}

fn enable_dump() {
    let flags = libc::SA_NODEFER | libc::SA_ONSTACK;
    let before = install(libc::SIGSEGV, dump as *const () as usize, flags);
    BEFORE_FIRST.store(Box::into_raw(Box::new(before)), Ordering::SeqCst);
}

fn disable_dump() {
    // SAFETY: set by `enable_dump`, and leaked.
    let before = unsafe { &*BEFORE_FIRST.load(Ordering::SeqCst) };
    // SAFETY: puts back what was there.
    assert_eq!(unsafe { libc::sigaction(libc::SIGSEGV, before, ptr::null_mut()) }, 0);
}

fn install(
    signal: libc::c_int,
    handler: libc::sighandler_t,
    flags: libc::c_int,
) -> libc::sigaction {
    // SAFETY: plain data, for which zeroes are a value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    (action.sa_sigaction, action.sa_flags) = (handler, flags);
    let mut before = action;
    // SAFETY: both pointers are to locals, and the flags are those of the handler's type.
    assert_eq!(unsafe { libc::sigaction(signal, &raw const action, &raw mut before) }, 0);
    before
}

/// Installs a crash reporter for every signal of faults.
fn install_reporter() {
    for signal in [libc::SIGSEGV, libc::SIGILL, libc::SIGFPE, libc::SIGBUS] {
        install(signal, report as *const () as usize, libc::SA_SIGINFO | libc::SA_ONSTACK);
    }
}

fn install_default() {
    for signal in [libc::SIGSEGV, libc::SIGILL, libc::SIGFPE] {
        install(signal, libc::SIG_DFL, 0);
    }
}

fn install_chain(handler: Handler, before: &AtomicPtr<libc::sigaction>) {
    let flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    let found = install(libc::SIGSEGV, handler as *const () as usize, flags);
    before.store(Box::into_raw(Box::new(found)), Ordering::SeqCst);
}

/// Crashes in code of the host.
fn crash() {
    say(READY);
    // SAFETY: none: this is the crash.
    unsafe { ptr::without_provenance_mut::<u8>(8).write_volatile(1) };
}

#[track_caller]
fn assert_crashed(ended: &Ended) {
    assert_eq!(ended.said(READY), 1, "{ended}");
    ended.assert_signal(libc::SIGSEGV);
}

#[track_caller]
fn assert_reported(ended: &Ended, words: &str) {
    assert_eq!(ended.said(READY), 1, "{ended}");
    ended.assert_exit(REPORTED);
    assert_eq!(ended.said(words), 1, "{ended}");
    assert_eq!(ended.said("reported"), 1, "{ended}");
}

#[test]
fn a_handler_from_before_the_engine_gets_real_crashes_and_nothing_else() {
    let test = "handlers::a_handler_from_before_the_engine_gets_real_crashes_and_nothing_else";
    let ended = in_a_process(test, || {
        install_reporter();
        let host = Host::start();
        host.stops_hard();
        host.survives_faults_of_programs();
        crash();
    });
    assert_reported(&ended, "reported a fault");
}

#[test]
fn a_handler_from_after_the_first_run_gets_real_crashes_and_nothing_else() {
    let test = "handlers::a_handler_from_after_the_first_run_gets_real_crashes_and_nothing_else";
    let ended = in_a_process(test, || {
        let host = Host::start();
        install_reporter();
        for _ in 0..3 {
            host.stops_hard();
            host.survives_faults_of_programs();
        }
        // On any thread.
        let _ = std::thread::spawn(crash).join();
    });
    assert_reported(&ended, "reported a fault");
}

/// The simplest kind of handler.
#[test]
fn a_later_handler_without_a_description_of_the_signal_is_called_as_such() {
    let test = "handlers::a_later_handler_without_a_description_of_the_signal_is_called_as_such";
    let ended = in_a_process(test, || {
        let host = Host::start();
        install(libc::SIGSEGV, report_plainly as *const () as usize, 0);
        host.stops_hard();
        crash();
    });
    assert_reported(&ended, "reported plainly");
}

#[test]
fn a_later_handler_for_one_time_is_called_once_and_the_crash_goes_on() {
    let test = "handlers::a_later_handler_for_one_time_is_called_once_and_the_crash_goes_on";
    let ended = in_a_process(test, || {
        let host = Host::start();
        install(libc::SIGSEGV, note as *const () as usize, libc::SA_RESETHAND);
        host.stops_hard();
        crash();
    });
    assert_crashed(&ended);
    assert_eq!(ended.said("noted"), 1, "{ended}");
}

#[test]
fn without_any_handler_programs_still_fault_harmlessly_and_a_crash_is_a_crash() {
    let test =
        "handlers::without_any_handler_programs_still_fault_harmlessly_and_a_crash_is_a_crash";
    let ended = in_a_process(test, || {
        let host = Host::start();
        install_default();
        host.stops_hard();
        install_default();
        host.survives_faults_of_programs();
        crash();
    });
    assert_crashed(&ended);
}

#[test]
fn later_handlers_that_call_the_previous_one_are_called_once_each_and_the_newest_first() {
    let test = "handlers::later_handlers_that_call_the_previous_one_are_called_once_each_and_the_newest_first";
    let ended = in_a_process(test, || {
        let host = Host::start();
        install_chain(chain_first, &BEFORE_FIRST);
        host.stops_hard();
        install_chain(chain_second, &BEFORE_SECOND);
        host.stops_hard();
        host.survives_faults_of_programs();
        crash();
    });
    assert_crashed(&ended);
    assert_eq!((ended.said("first"), ended.said("second")), (1, 1), "{ended}");
    assert_eq!(ended.said("second\nfirst"), 1, "{ended}");
}

#[test]
fn a_handler_that_is_enabled_and_disabled_again_and_again_costs_nothing() {
    let test = "handlers::a_handler_that_is_enabled_and_disabled_again_and_again_costs_nothing";
    let ended = in_a_process(test, || {
        let host = Host::start();
        for round in 0..40 {
            enable_dump();
            host.answers();
            if round % 10 == 0 {
                host.stops_hard();
            }
            disable_dump();
            host.answers();
        }
        host.stops_hard();
        crash();
    });
    assert_crashed(&ended);
    assert_eq!(ended.said("dumped"), 0, "{ended}");
}

#[test]
fn a_handler_that_puts_the_previous_one_back_and_raises_the_signal_is_called_once() {
    let test =
        "handlers::a_handler_that_puts_the_previous_one_back_and_raises_the_signal_is_called_once";
    let ended = in_a_process(test, || {
        let host = Host::start();
        enable_dump();
        host.stops_hard();
        crash();
    });
    assert_crashed(&ended);
    assert_eq!(ended.said("dumped"), 1, "{ended}");
}

/// More of them than our handlers can tell apart.
#[test]
fn handlers_that_replace_each_other_for_ever_change_nothing() {
    let test = "handlers::handlers_that_replace_each_other_for_ever_change_nothing";
    let ended = in_a_process(test, || {
        let host = Host::start();
        for _ in 0..15 {
            install(libc::SIGSEGV, report_plainly as *const () as usize, 0);
            host.answers();
            install_default();
            host.answers();
            install_reporter();
            host.answers();
        }
        host.stops_hard();
        host.survives_faults_of_programs();
        crash();
    });
    assert_reported(&ended, "reported a fault");
}

/// Before a hard stop the handlers are put back as well.
#[test]
fn a_handler_that_is_installed_during_a_run_does_not_get_its_hard_stop() {
    let test = "handlers::a_handler_that_is_installed_during_a_run_does_not_get_its_hard_stop";
    let ended = in_a_process(test, || {
        let host = Host::start();
        for _ in 0..3 {
            host.stops_hard_after(install_reporter);
            host.stops_hard_after(install_default);
        }
        host.stops_hard_after(enable_dump);
        host.stops_hard_after(disable_dump);
        host.stops_hard_after(install_reporter);
        crash();
    });
    assert_reported(&ended, "reported a fault");
    assert_eq!(ended.said("dumped"), 0, "{ended}");
}

#[test]
fn a_later_handler_gets_signals_that_were_sent() {
    let test = "handlers::a_later_handler_gets_signals_that_were_sent";
    let ended = in_a_process(test, || {
        let host = Host::start();
        // SAFETY: sends a signal to this thread.
        let send = || unsafe { libc::raise(libc::SIGSEGV) };
        // Nobody is there for it.
        send();
        host.stops_hard();
        install_reporter();
        host.stops_hard();
        say(READY);
        send();
    });
    assert_reported(&ended, "reported a sent signal");
}
