//! Binds the functions for wasmer: on the host's side of the gate, with calls counted and exceeded
//! limits reported.

use std::sync::Arc;

use wasmer::sys::vm::TrapCode;
use wasmer::{AsStoreMut, Function, FunctionEnv, FunctionEnvMut, RuntimeError, Store};

use super::Wasi;
use super::bytes::GuestBytes;
use super::futex::FutexWait;
use super::signal::{self, Effect};
use crate::build::module::imports::{self, Judgement, THREAD_SPAWN, THREADS, WASIX};
use crate::errno::Errno;
use crate::host::env::{GuestEnv, GuestExit, unwind};
use crate::interrupt::gate::Stopped;

const SUCCESS: i32 = 0;

/// Lists each function once with its parameters, for binding and for fuzzing: those that are served,
/// then those that always fail.
macro_rules! functions {
    (
        served { $($name:ident($($argument:ident: $type:ident),*);)* }
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
                    |context: FunctionEnvMut<'_, GuestEnv>, $($argument: $type),*| {
                        serve(&context, |wasi, guest| wasi.$name(guest, $($argument),*))
                    },
                ),)*
                $(stringify!($refused) => Function::new_typed_with_env(
                    store,
                    env,
                    |context: FunctionEnvMut<'_, GuestEnv>, $($ignored: $ignored_type),*| {
                        $(let _ = $ignored;)*
                        serve(&context, |_, _| refuse(stringify!($refused)))
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
            guest: GuestBytes<'_>,
            pick: &mut dyn FnMut(&str) -> u64,
        ) -> Result<(), Errno> {
            match FUNCTIONS[number].0 {
                $(stringify!($name) => {
                    $(let $argument = pick(stringify!($argument)) as $type;)*
                    wasi.$name(guest, $($argument),*)
                })*
                name => refuse(name),
            }
        }

        /// The functions with the names and types of their parameters.
        #[cfg(test)]
        pub(super) const FUNCTIONS: &[(&str, &[(&str, &str)])] = &[
            $((stringify!($name), &[$((stringify!($argument), stringify!($type))),*]),)*
            $((stringify!($refused), &[$((stringify!($ignored), stringify!($ignored_type))),*]),)*
        ];
    };
}

/// Returns a function that isn't one of plain data: it waits, ends the program or calls the guest,
/// or has no error number as its result.
fn bound_only(store: &mut Store, env: &FunctionEnv<GuestEnv>, name: &str) -> Option<Function> {
    Some(match name {
        "callback_signal" => Function::new_typed_with_env(store, env, callback_signal),
        "futex_wait" => Function::new_typed_with_env(store, env, futex_wait),
        "poll_oneoff" => Function::new_typed_with_env(store, env, poll_oneoff),
        "proc_exit" | "proc_exit2" => Function::new_typed_with_env(store, env, proc_exit),
        "proc_signal" => Function::new_typed_with_env(store, env, proc_signal),
        "thread-spawn" => Function::new_typed_with_env(store, env, thread_spawn),
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
    futex_wake(at: u32, out: u32);
    futex_wake_all(at: u32, out: u32);
    proc_id(out: u32);
    proc_parent(process: u32, out: u32);
    proc_raise_interval(signal: u32, interval: u64, repeats: u32);
    proc_signals_get(out: u32);
    proc_signals_sizes_get(out: u32);
    sock_addr_local(fd: u32, out: u32);
    sock_addr_peer(fd: u32, out: u32);
    sock_get_opt_flag(fd: u32, option: u32, out: u32);
    sock_get_opt_size(fd: u32, option: u32, out: u32);
    sock_get_opt_time(fd: u32, option: u32, out: u32);
    sock_pair(family: u32, kind: u32, protocol: u32, first: u32, second: u32);
    sock_recv_from(fd: u32, buffers: u32, count: u32, flags: u32, out: u32, out_flags: u32, out_address: u32);
    sock_set_opt_flag(fd: u32, option: u32, value: u32);
    sock_set_opt_size(fd: u32, option: u32, size: u64);
    thread_id(out: u32);
    thread_parallelism(out: u32);
    tty_get(out: u32);
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
    resolve(host: u32, len: u32, port: u32, addresses: u32, count: u32, out: u32);
    sock_accept_v2(fd: u32, flags: u32, out: u32, out_address: u32);
    sock_bind(fd: u32, address: u32);
    sock_connect(fd: u32, address: u32);
    sock_listen(fd: u32, backlog: u32);
    sock_open(family: u32, kind: u32, protocol: u32, out: u32);
    sock_send_file(fd: u32, from: u32, offset: u64, size: u64, out: u32);
    sock_send_to(fd: u32, buffers: u32, count: u32, flags: u32, address: u32, out: u32);
    sock_set_opt_time(fd: u32, option: u32, time: u32);
    tty_set(terminal: u32);
}
}

/// Returns the error of a function that always fails.
fn refuse(name: &str) -> Result<(), Errno> {
    match imports::judgement(WASIX, name) {
        Judgement::Refused(errno) => Err(errno),
        judgement => unreachable!("`{name}` is listed as refused here, but is {judgement:?}"),
    }
}

/// Runs one function and answers the guest with its error number.
pub(in crate::host) fn serve(
    context: &FunctionEnvMut<'_, GuestEnv>,
    work: impl FnOnce(&mut Wasi, GuestBytes<'_>) -> Result<(), Errno>,
) -> Result<i32, RuntimeError> {
    let env = context.data();
    let served = env.gate.host(|| {
        let Some(memory) = &env.memory else { return Err(Errno::Fault) };
        let mut wasi = env.wasi.lock();
        wasi.count_call();
        let result = work(&mut wasi, GuestBytes(memory));
        if let Some(exceeded) = wasi.take_exceeded() {
            env.control.request_stop(exceeded);
        }
        result
    });
    answer(served)
}

pub(in crate::host) fn answer(
    served: Result<Result<(), Errno>, Stopped>,
) -> Result<i32, RuntimeError> {
    match served {
        Ok(Ok(())) => Ok(SUCCESS),
        Ok(Err(errno)) => Ok(errno.code()),
        Err(stopped) => Err(unwind(stopped)),
    }
}

/// `poll_oneoff(subscriptions, events, count, out_count) -> errno`.
fn poll_oneoff(
    context: FunctionEnvMut<'_, GuestEnv>,
    subscriptions: u32,
    events: u32,
    count: u32,
    out_count: u32,
) -> Result<i32, RuntimeError> {
    let env = context.data();
    let served = env.gate.host(|| {
        let Some(memory) = &env.memory else { return Err(Errno::Fault) };
        let guest = GuestBytes(memory);
        let poll = {
            let mut wasi = env.wasi.lock();
            wasi.count_call();
            wasi.poll_begin(guest, subscriptions, count)?
        };
        if !poll.wait.is_zero() {
            env.gate.sleep(poll.wait);
        }
        let mut wasi = env.wasi.lock();
        if let Some(exceeded) = wasi.take_exceeded() {
            env.control.request_stop(exceeded);
        }
        wasi.poll_end(guest, &poll, events, out_count)
    });
    answer(served)
}

/// `futex_wait(at, expected, timeout, out_woken) -> errno`. An interrupt ends a wait that has a
/// timeout, as if that were over. One without is never over for the C library, which would wait
/// again, so only a stop ends it.
fn futex_wait(
    context: FunctionEnvMut<'_, GuestEnv>,
    at: u32,
    expected: u32,
    timeout: u32,
    out_woken: u32,
) -> Result<i32, RuntimeError> {
    let env = context.data();
    let served = env.gate.host(|| {
        let Some(memory) = &env.memory else { return Err(Errno::Fault) };
        let wait = {
            let mut wasi = env.wasi.lock();
            wasi.count_call();
            if let Some(exceeded) = wasi.take_exceeded() {
                env.control.request_stop(exceeded);
            }
            wasi.futex_begin(GuestBytes(memory), at, expected, timeout, out_woken)?
        };
        match wait {
            FutexWait::Changed => {}
            FutexWait::For(duration) => env.gate.sleep(duration),
            FutexWait::Forever => env.gate.wait_for_stop(),
        }
        Ok(())
    });
    answer(served)
}

/// `proc_exit(code)`.
fn proc_exit(_context: FunctionEnvMut<'_, GuestEnv>, code: u32) -> Result<(), RuntimeError> {
    Err(unwind(GuestExit(code)))
}

/// `thread_exit(code)`. A program ends with its only thread.
fn thread_exit(_context: FunctionEnvMut<'_, GuestEnv>, _code: u32) -> Result<(), RuntimeError> {
    Err(unwind(GuestExit(0)))
}

/// `thread-spawn(arguments) -> thread`, or an error number below zero.
fn thread_spawn(
    context: FunctionEnvMut<'_, GuestEnv>,
    _arguments: u32,
) -> Result<i32, RuntimeError> {
    let Judgement::Refused(errno) = imports::judgement(THREADS, THREAD_SPAWN) else {
        unreachable!("threads are refused here");
    };
    serve(&context, |_, _| Err(errno)).map(|code| -code)
}

/// `callback_signal(name, len)`. The export `__wasm_signal` is called, whatever the name.
fn callback_signal(
    context: FunctionEnvMut<'_, GuestEnv>,
    _name: u32,
    _len: u32,
) -> Result<(), RuntimeError> {
    serve(&context, |_, _| Ok(())).map(drop)
}

/// `proc_signal(process, signal) -> errno`.
fn proc_signal(
    context: FunctionEnvMut<'_, GuestEnv>,
    process: u32,
    signal: u32,
) -> Result<i32, RuntimeError> {
    raise(context, signal, |can_handle| signal::to_process(process, signal, can_handle))
}

/// `thread_signal(thread, signal) -> errno`. There is one thread, so it is the one meant.
fn thread_signal(
    context: FunctionEnvMut<'_, GuestEnv>,
    _thread: u32,
    signal: u32,
) -> Result<i32, RuntimeError> {
    raise(context, signal, |can_handle| signal::to_self(signal, can_handle))
}

/// Does what a signal of the guest to itself does. While the guest handles one, another has its
/// default action: the C library's handler of a deadly signal raises it again.
fn raise(
    mut context: FunctionEnvMut<'_, GuestEnv>,
    signal: u32,
    judge: impl FnOnce(bool) -> Result<Effect, Errno>,
) -> Result<i32, RuntimeError> {
    let gate = Arc::clone(&context.data().gate);
    let raised = gate.host(|| {
        let env = context.data_mut();
        let mut wasi = env.wasi.lock();
        wasi.count_call();
        if let Some(exceeded) = wasi.take_exceeded() {
            env.control.request_stop(exceeded);
        }
        drop(wasi);
        let effect = match judge(env.handler.is_some()) {
            Ok(effect) => effect,
            Err(errno) => return Ok(errno.code()),
        };
        match (effect, env.handler.take()) {
            (Effect::Ends(code), _) => Err(unwind(GuestExit(code))),
            (Effect::Handled, Some(handler)) => {
                let handled =
                    gate.guest(|| handler.call(&mut context.as_store_mut(), signal.cast_signed()));
                context.data_mut().handler = Some(handler);
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
    let aborted = GuestExit(signal::exit_code(signal::ABORT));
    let has_aborted = error.downcast_ref() == Some(&aborted)
        || error.clone().to_trap() == Some(TrapCode::UnreachableCodeReached);
    if has_aborted { unwind(GuestExit(signal::exit_code(signal))) } else { error }
}
