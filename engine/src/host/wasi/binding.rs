//! Binds the functions for wasmer: on the host's side of the gate, with calls counted and exceeded
//! limits reported.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use wasmer::sys::vm::TrapCode;
use wasmer::{AsStoreMut, Function, FunctionEnv, RuntimeError, Store};

use super::Wasi;
use super::clock::{MONOTONIC, REALTIME};
use super::process::{self, Effect, futex_end};
use crate::errno::{Errno, Result};
use crate::host::env::{Caller, GuestEnv, GuestExit, HostResult, ThreadExit, ThreadStart, unwind};
use crate::host::network::watch::Watch;
use crate::interrupt::futex::MAIN;
use crate::interrupt::gate::Woken;
use crate::memory::tunables::Expected;
use crate::python::module::imports::{self, ImportRule, SLEEP, WASIX};

const SUCCESS: i32 = 0;

/// Lists each function once with its parameters, for binding and for fuzzing. Those that are served
/// come first, then those whose result is a number, and those that always fail.
macro_rules! functions {
    (
        served { $($name:ident($($argument:ident: $type:ident),*);)* }
        answered { $($answered:ident($($given:ident: $given_type:ident),*);)* }
        refused { $($refused:ident($($ignored:ident: $ignored_type:ident),*);)* }
    ) => {
        /// Returns the function of this name for wasmer, if it is bound.
        pub(crate) fn function(
            store: &mut Store,
            env: &FunctionEnv<GuestEnv>,
            name: &str,
        ) -> Option<Function> {
            Some(match name {
                $(stringify!($name) => Function::new_typed_with_env(
                    store,
                    env,
                    |caller: Caller<'_>, $($argument: $type),*| {
                        serve(&caller, |wasi| wasi.$name($($argument),*))
                    },
                ),)*
                $(stringify!($answered) => Function::new_typed_with_env(
                    store,
                    env,
                    |caller: Caller<'_>, $($given: $given_type),*| {
                        answer(&caller, |wasi| wasi.$answered($($given),*))
                    },
                ),)*
                $(stringify!($refused) => Function::new_typed_with_env(
                    store,
                    env,
                    |caller: Caller<'_>, $($ignored: $ignored_type),*| {
                        $(let _ = $ignored;)*
                        serve(&caller, |_| refuse(stringify!($refused)))
                    },
                ),)*
                _ => return bound_only(store, env, name),
            })
        }

        /// Calls the function with this index; `pick` gives its arguments by name.
        #[cfg(test)]
        pub(super) fn call(
            number: usize,
            wasi: &mut Wasi,
            pick: &mut dyn FnMut(&str) -> u64,
        ) -> Result {
            match FUNCTIONS[number].0 {
                $(stringify!($name) => {
                    $(let $argument = pick(stringify!($argument)) as $type;)*
                    wasi.$name($($argument),*)
                })*
                $(stringify!($answered) => {
                    $(let $given = pick(stringify!($given)) as $given_type;)*
                    wasi.$answered($($given),*).map(drop)
                })*
                name => refuse(name),
            }
        }

        /// The functions with the names and types of their parameters.
        #[cfg(test)]
        pub(super) const FUNCTIONS: &[(&str, &[(&str, &str)])] = &[
            $((stringify!($name), &[$((stringify!($argument), stringify!($type))),*]),)*
            $((stringify!($answered), &[$((stringify!($given), stringify!($given_type))),*]),)*
            $((stringify!($refused), &[$((stringify!($ignored), stringify!($ignored_type))),*]),)*
        ];
    };
}

/// Returns a function that isn't one of plain data. It waits, ends the program or calls the guest,
/// or its result is no error number.
fn bound_only(store: &mut Store, env: &FunctionEnv<GuestEnv>, name: &str) -> Option<Function> {
    Some(match name {
        "_gmtime_js" | "_localtime_js" => Function::new_typed_with_env(store, env, date),
        "_mktime_js" | "_timegm_js" => Function::new_typed_with_env(store, env, seconds),
        "emscripten_date_now" => Function::new_typed_with_env(store, env, real_time),
        "emscripten_get_now" => Function::new_typed_with_env(store, env, running_time),
        SLEEP => Function::new_typed_with_env(store, env, sleep),
        "__syscall_poll" => Function::new_typed_with_env(store, env, poll),
        "callback_signal" => Function::new_typed_with_env(store, env, callback_signal),
        "futex_wait" => Function::new_typed_with_env(store, env, futex_wait),
        "futex_wake" => Function::new_typed_with_env(store, env, futex_wake),
        "futex_wake_all" => Function::new_typed_with_env(store, env, futex_wake_all),
        "poll_oneoff" => Function::new_typed_with_env(store, env, poll_oneoff),
        "proc_exit" | "proc_exit2" => Function::new_typed_with_env(store, env, proc_exit),
        "proc_signal" => Function::new_typed_with_env(store, env, proc_signal),
        "thread-spawn" => Function::new_typed_with_env(store, env, thread_spawn),
        "thread_id" => Function::new_typed_with_env(store, env, thread_id),
        "thread_exit" => Function::new_typed_with_env(store, env, thread_exit),
        "thread_signal" => Function::new_typed_with_env(store, env, thread_signal),
        _ => return None,
    })
}

functions! {
served {
    args_get(pointers: u32, texts: u32);
    args_sizes_get(count: u32, bytes: u32);
    environ_get(pointers: u32, texts: u32);
    environ_sizes_get(count: u32, bytes: u32);
    clock_res_get(id: u32, out: u32);
    clock_time_get(id: u32, precision: u64, out: u32);
    fd_advise(fd: u32, offset: u64, len: u64, advice: u32);
    fd_allocate(fd: u32, offset: u64, len: u64);
    fd_close(fd: u32);
    fd_datasync(fd: u32);
    fd_fdstat_get(fd: u32, out: u32);
    fd_fdstat_set_flags(fd: u32, flags: u32);
    fd_filestat_get(fd: u32, out: u32);
    fd_filestat_set_size(fd: u32, size: u64);
    fd_filestat_set_times(fd: u32, accessed: u64, modified: u64, flags: u32);
    fd_pread(fd: u32, buffers: u32, count: u32, offset: u64, out: u32);
    fd_prestat_get(fd: u32, out: u32);
    fd_prestat_dir_name(fd: u32, at: u32, len: u32);
    fd_pwrite(fd: u32, buffers: u32, count: u32, offset: u64, out: u32);
    fd_read(fd: u32, buffers: u32, count: u32, out: u32);
    fd_readdir(fd: u32, at: u32, len: u32, cookie: u64, out: u32);
    fd_renumber(fd: u32, to: u32);
    fd_move(fd: u32, to: u32);
    fd_seek(fd: u32, delta: i64, whence: u32, out: u32);
    fd_dup2(fd: u32, least: u32, closes_on_exec: u32, out: u32);
    fd_fdflags_get(fd: u32, out: u32);
    fd_fdflags_set(fd: u32, flags: u32);
    fd_pipe(reader: u32, writer: u32);
    fd_sync(fd: u32);
    fd_tell(fd: u32, out: u32);
    fd_write(fd: u32, buffers: u32, count: u32, out: u32);
    path_create_directory(fd: u32, path: u32, len: u32);
    path_filestat_get(fd: u32, flags: u32, path: u32, len: u32, out: u32);
    path_filestat_set_times(fd: u32, flags: u32, path: u32, len: u32, accessed: u64, modified: u64, times: u32);
    path_link(old_fd: u32, flags: u32, old_path: u32, old_len: u32, new_fd: u32, new_path: u32, new_len: u32);
    path_open(fd: u32, look: u32, path: u32, len: u32, how: u32, rights: u64, inherited: u64, flags: u32, out: u32);
    path_open2(fd: u32, look: u32, path: u32, len: u32, how: u32, rights: u64, inherited: u64, flags: u32, more_flags: u32, out: u32);
    path_readlink(fd: u32, path: u32, len: u32, buffer: u32, buffer_len: u32, out: u32);
    path_remove_directory(fd: u32, path: u32, len: u32);
    path_rename(fd: u32, path: u32, len: u32, new_fd: u32, new_path: u32, new_len: u32);
    path_symlink(target: u32, target_len: u32, fd: u32, path: u32, len: u32);
    path_unlink_file(fd: u32, path: u32, len: u32);
    random_get(at: u32, len: u32);
    sched_yield();
    sock_accept(fd: u32, flags: u32, out: u32);
    sock_recv(fd: u32, buffers: u32, count: u32, flags: u32, out: u32, out_flags: u32);
    sock_send(fd: u32, buffers: u32, count: u32, flags: u32, out: u32);
    sock_shutdown(fd: u32, how: u32);
    chdir(path: u32, len: u32);
    getcwd(path: u32, out_len: u32);
    proc_id(out: u32);
    proc_parent(process: u32, out: u32);
    proc_raise_interval(signal: u32, interval: u64, repeats: u32);
    proc_signals_get(out: u32);
    proc_signals_sizes_get(out: u32);
    resolve(host: u32, len: u32, port: u32, addresses: u32, count: u32, out: u32);
    sock_addr_local(fd: u32, out: u32);
    sock_addr_peer(fd: u32, out: u32);
    sock_connect(fd: u32, address: u32);
    sock_get_opt_flag(fd: u32, option: u32, out: u32);
    sock_get_opt_size(fd: u32, option: u32, out: u32);
    sock_get_opt_time(fd: u32, option: u32, out: u32);
    sock_open(family: u32, kind: u32, protocol: u32, out: u32);
    sock_pair(family: u32, kind: u32, protocol: u32, first: u32, second: u32);
    sock_recv_from(fd: u32, buffers: u32, count: u32, flags: u32, out: u32, out_flags: u32, out_address: u32);
    sock_set_opt_flag(fd: u32, option: u32, value: u32);
    sock_set_opt_size(fd: u32, option: u32, size: u64);
    thread_parallelism(out: u32);
    tty_get(out: u32);
}
answered {
    __syscall_chdir(path: u32);
    __syscall_chmod(path: u32, mode: u32);
    __syscall_dup(fd: u32);
    __syscall_dup3(fd: u32, to: u32, flags: u32);
    __syscall_faccessat(fd: u32, path: u32, mode: u32, flags: u32);
    __syscall_fallocate(fd: u32, mode: u32, offset: u64, len: u64);
    __syscall_fchdir(fd: u32);
    __syscall_fchmod(fd: u32, mode: u32);
    __syscall_fchmodat2(fd: u32, path: u32, mode: u32, flags: u32);
    __syscall_fcntl64(fd: u32, command: u32, arguments: u32);
    __syscall_fdatasync(fd: u32);
    __syscall_fstat64(fd: u32, out: u32);
    __syscall_ftruncate64(fd: u32, size: u64);
    __syscall_getcwd(at: u32, len: u32);
    __syscall_getdents64(fd: u32, at: u32, len: u32);
    __syscall_lstat64(path: u32, out: u32);
    __syscall_mkdirat(fd: u32, path: u32, mode: u32);
    __syscall_newfstatat(fd: u32, path: u32, out: u32, flags: u32);
    __syscall_openat(fd: u32, path: u32, flags: u32, arguments: u32);
    __syscall_pipe(out: u32);
    __syscall_readlinkat(fd: u32, path: u32, at: u32, len: u32);
    __syscall_renameat(fd: u32, path: u32, new_fd: u32, new_path: u32);
    __syscall_rmdir(path: u32);
    __syscall_stat64(path: u32, out: u32);
    __syscall_symlinkat(target: u32, fd: u32, path: u32);
    __syscall_truncate64(path: u32, size: u64);
    __syscall_unlinkat(fd: u32, path: u32, flags: u32);
    __syscall_utimensat(fd: u32, path: u32, times: u32, flags: u32);
}
refused {
    clock_time_set(id: u32, time: u64);
    epoll_create(out: u32);
    epoll_ctl(epoll: u32, operation: u32, fd: u32, event: u32);
    epoll_wait(epoll: u32, events: u32, count: u32, timeout: u64, out: u32);
    proc_exec3(name: u32, name_len: u32, arguments: u32, arguments_len: u32, environment: u32, environment_len: u32, searches: u32, path: u32, len: u32);
    proc_fork(copies: u32, out: u32);
    proc_join(process: u32, flags: u32, out: u32);
    proc_spawn2(name: u32, name_len: u32, arguments: u32, arguments_len: u32, environment: u32, environment_len: u32, operations: u32, count: u32, signals: u32, signal_count: u32, searches: u32, path: u32, len: u32, out: u32);
    sock_accept_v2(fd: u32, flags: u32, out: u32, out_address: u32);
    sock_bind(fd: u32, address: u32);
    sock_listen(fd: u32, backlog: u32);
    sock_send_file(fd: u32, from: u32, offset: u64, size: u64, out: u32);
    sock_send_to(fd: u32, buffers: u32, count: u32, flags: u32, address: u32, out: u32);
    sock_set_opt_time(fd: u32, option: u32, time: u32);
    tty_set(terminal: u32);
}
}

/// Returns the error of a function that always fails.
fn refuse(name: &str) -> Result {
    match imports::judgement(WASIX, name) {
        ImportRule::Refused(errno) => Err(errno),
        judgement => unreachable!("`{name}` is listed as refused here, but is {judgement:?}"),
    }
}

/// Runs work for the guest on the host's side of the gate, and answers with its error number.
pub(in crate::host) fn on_host(
    caller: &Caller<'_>,
    work: impl FnOnce(&GuestEnv) -> Result,
) -> HostResult {
    let env = caller.data();
    match env.gate.host(|| work(env)) {
        Ok(Ok(())) => Ok(SUCCESS),
        Ok(Err(errno)) => Ok(errno.code()),
        Err(stopped) => Err(unwind(stopped)),
    }
}

/// Runs one function and answers the guest with its error number. If it would have to wait for a
/// network, waits for that, and runs it again. If it waits for another thread, and the guest has
/// some, it runs again after each change.
pub(in crate::host) fn serve(
    caller: &Caller<'_>,
    work: impl Fn(&mut Wasi) -> Result,
) -> HostResult {
    on_host(caller, |env| {
        let (mut is_counted, mut is_asked) = (false, false);
        loop {
            let (result, seen, want) = {
                let mut wasi = env.wasi.lock();
                if !std::mem::replace(&mut is_counted, true) {
                    wasi.count_call();
                }
                let before = wasi.changes();
                wasi.is_asked = is_asked;
                let result = work(&mut wasi);
                let want = wasi.take_want();
                if let Some(exceeded) = wasi.take_exceeded() {
                    env.control.request_stop(exceeded);
                }
                (result, env.note_changes(before, wasi.changes()), want)
            };
            if let Some(want) = want {
                is_asked = want.wait(&env.gate)? == Woken::Asked;
                continue;
            }
            let has_changed = || env.changes() != seen;
            if result != Err(Errno::Deadlock) || !env.gate.wait_for_change(has_changed) {
                return result;
            }
        }
    })
}

/// Runs one function and answers the guest with its result, or an error number below zero.
fn answer(caller: &Caller<'_>, work: impl Fn(&mut Wasi) -> Result<u32>) -> HostResult {
    let answered = Cell::new(0);
    let served = serve(caller, |wasi| work(wasi).map(|answer| answered.set(answer)));
    Ok(match served? {
        SUCCESS => answered.get().cast_signed(),
        errno => -errno,
    })
}

/// `(seconds, out)`: the date and time of day.
fn date(caller: Caller<'_>, seconds: i64, out: u32) -> HostResult<()> {
    serve(&caller, |wasi| wasi.write_date(seconds, out)).map(drop)
}

/// `(at) -> seconds`: the seconds of a date and time of day.
fn seconds(caller: Caller<'_>, at: u32) -> HostResult<i64> {
    let answered = Cell::new(-1);
    serve(&caller, |wasi| wasi.seconds_of_date(at).map(|seconds| answered.set(seconds)))?;
    Ok(answered.get())
}

/// `() -> milliseconds` since 1970.
fn real_time(caller: Caller<'_>) -> HostResult<f64> {
    milliseconds(&caller, REALTIME)
}

/// `() -> milliseconds` of the clock that never goes back.
fn running_time(caller: Caller<'_>) -> HostResult<f64> {
    milliseconds(&caller, MONOTONIC)
}

fn milliseconds(caller: &Caller<'_>, clock: u32) -> HostResult<f64> {
    let answered = Cell::new(0.0);
    serve(caller, |wasi| {
        answered.set(wasi.milliseconds(clock));
        Ok(())
    })?;
    Ok(answered.get())
}

/// `(milliseconds)`.
fn sleep(caller: Caller<'_>, milliseconds: f64) -> HostResult<()> {
    on_host(&caller, |env| {
        env.count_call();
        pause(env, Duration::try_from_secs_f64(milliseconds / 1000.0).unwrap_or_default());
        Ok(())
    })
    .map(drop)
}

fn pause(env: &GuestEnv, duration: Duration) {
    let wait = env.wasi.lock().clock.sleep(duration);
    if !wait.is_zero() {
        env.gate.wait(Some(wait), || false);
    }
}

/// `(descriptors, count, timeout) -> ready`, the timeout in milliseconds. What isn't ready now can't
/// become so, since the guest has one thread and no connections: only the timeout passes.
fn poll(caller: Caller<'_>, at: u32, count: u32, timeout: i32) -> HostResult {
    let ready = answer(&caller, |wasi| wasi.poll_now(at, count, timeout < 0))?;
    if ready == 0
        && let Ok(milliseconds) = u64::try_from(timeout)
    {
        on_host(&caller, |env| {
            pause(env, Duration::from_millis(milliseconds));
            Ok(())
        })?;
    }
    Ok(ready)
}

/// `poll_oneoff(subscriptions, events, count, out_count) -> errno`.
fn poll_oneoff(
    caller: Caller<'_>,
    subscriptions: u32,
    events: u32,
    count: u32,
    out_count: u32,
) -> HostResult {
    on_host(&caller, |env| {
        env.count_call();
        let is_alone = env.gate.gate().others() == 0;
        let (mut poll, mut wants, mut seen) = {
            let mut wasi = env.wasi.lock();
            let poll = wasi.poll_begin(subscriptions, count, is_alone)?;
            let wants = wasi.poll_wants(&poll);
            (poll, wants, env.changes())
        };
        while poll.wait.is_none_or(|wait| !wait.is_zero()) {
            let watch = Watch::begin(env.gate.gate(), &wants)?;
            let has_changed = || env.changes() != seen || watch.is_ready();
            if env.gate.wait(poll.wait, has_changed) != Woken::Ready {
                break;
            }
            let mut wasi = env.wasi.lock();
            seen = env.changes();
            wasi.poll_again(&mut poll);
            wants = wasi.poll_wants(&poll);
        }
        env.wasi.lock().poll_end(&poll, events, out_count)
    })
}

/// `futex_wait(at, expected, timeout, out_woken) -> errno`.
fn futex_wait(
    caller: Caller<'_>,
    at: u32,
    expected: u32,
    timeout: u32,
    out_woken: u32,
) -> HostResult {
    on_host(&caller, |env| {
        env.count_call();
        let timeout = env.wasi.lock().futex_begin(at, timeout, out_woken)?;
        let waited = env.gate.wait_for_word(at, Expected::Word(expected), timeout);
        futex_end(&env.guest, waited, out_woken)
    })
}

/// `futex_wake(at, out_woken) -> errno`.
fn futex_wake(caller: Caller<'_>, at: u32, out_woken: u32) -> HostResult {
    wake(&caller, at, 1, out_woken)
}

/// `futex_wake_all(at, out_woken) -> errno`.
fn futex_wake_all(caller: Caller<'_>, at: u32, out_woken: u32) -> HostResult {
    wake(&caller, at, u32::MAX, out_woken)
}

fn wake(caller: &Caller<'_>, at: u32, most: u32, out_woken: u32) -> HostResult {
    let gate = Arc::clone(caller.data().gate.gate());
    serve(caller, |wasi| {
        let woken = gate.wake_at(at, most);
        wasi.guest.write(out_woken, &[u8::from(woken > 0)])
    })
}

/// `proc_exit(code)`.
fn proc_exit(_caller: Caller<'_>, code: u32) -> HostResult<()> {
    Err(unwind(GuestExit(code)))
}

/// `thread_exit(code)`. A program ends with its main thread.
fn thread_exit(caller: Caller<'_>, _code: u32) -> HostResult<()> {
    match caller.data().gate.number() {
        MAIN => Err(unwind(GuestExit(0))),
        _ => Err(unwind(ThreadExit)),
    }
}

/// `thread_id(out) -> errno`.
fn thread_id(caller: Caller<'_>, out: u32) -> HostResult {
    let number = caller.data().gate.number();
    serve(&caller, |wasi| wasi.guest.write_u32(out, number))
}

/// `thread-spawn(argument) -> thread`, or an error number below zero.
fn thread_spawn(caller: Caller<'_>, argument: u32) -> HostResult {
    let env = caller.data();
    let spawned = env.gate.host(|| {
        env.count_call();
        env.threads
            .as_ref()
            .map_or(Err(Errno::Again), |threads| threads.spawn(ThreadStart::Export { argument }))
    });
    match spawned {
        Ok(Ok(number)) => Ok(number.cast_signed()),
        Ok(Err(errno)) => Ok(-errno.code()),
        Err(stopped) => Err(unwind(stopped)),
    }
}

/// `callback_signal(name, len)`. The export `__wasm_signal` is called, whatever the name.
fn callback_signal(caller: Caller<'_>, _name: u32, _len: u32) -> HostResult<()> {
    serve(&caller, |_| Ok(())).map(drop)
}

/// `proc_signal(process, signal) -> errno`.
fn proc_signal(caller: Caller<'_>, process: u32, signal: u32) -> HostResult {
    raise(caller, signal, |can_handle| process::to_process(process, signal, can_handle))
}

/// `thread_signal(thread, signal) -> errno`. A guest without threads has one, which is meant.
fn thread_signal(caller: Caller<'_>, thread: u32, signal: u32) -> HostResult {
    let env = caller.data();
    let is_self = env.threads.is_none() || env.gate.is_own(thread);
    raise(caller, signal, |can_handle| match is_self {
        true => process::to_self(signal, can_handle),
        false => Err(Errno::NotSupported),
    })
}

/// Does what a signal of the guest to itself does. While the guest handles one, another has its
/// default action. The C library's handler of a deadly signal raises it again.
fn raise(
    mut caller: Caller<'_>,
    signal: u32,
    judge: impl FnOnce(bool) -> Result<Effect>,
) -> HostResult {
    let gate = Arc::clone(&caller.data().gate);
    let raised = gate.host(|| {
        let env = caller.data_mut();
        env.count_call();
        let effect = match judge(env.handler.is_some()) {
            Ok(effect) => effect,
            Err(errno) => return Ok(errno.code()),
        };
        match (effect, env.handler.take()) {
            (Effect::Ends(code), _) => Err(unwind(GuestExit(code))),
            (Effect::Handled, Some(handler)) => {
                let handled =
                    gate.guest(|| handler.call(&mut caller.as_store_mut(), signal.cast_signed()));
                caller.data_mut().handler = Some(handler);
                match handled {
                    Ok(Ok(())) => Ok(SUCCESS),
                    Ok(Err(error)) => Err(ended_by(signal, error)),
                    Err(stopped) => Err(unwind(stopped)),
                }
            }
            (Effect::Nothing | Effect::Handled, handler) => {
                env.handler = handler;
                Ok(SUCCESS)
            }
        }
    });
    match raised {
        Ok(result) => result,
        Err(stopped) => Err(unwind(stopped)),
    }
}

/// Returns how a program ends whose handler of `signal` didn't return. The C library's handler of
/// deadly signals aborts.
fn ended_by(signal: u32, error: RuntimeError) -> RuntimeError {
    let aborted = GuestExit(process::exit_code(process::ABORT));
    let has_aborted = error.downcast_ref() == Some(&aborted)
        || error.clone().to_trap() == Some(TrapCode::UnreachableCodeReached);
    if has_aborted { unwind(GuestExit(process::exit_code(signal))) } else { error }
}
