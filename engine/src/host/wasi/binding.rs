//! Binds the functions for wasmer: on the host's side of the gate, with calls counted and exceeded
//! limits reported.

use wasmer::{Function, FunctionEnv, FunctionEnvMut, RuntimeError, Store};

use super::Wasi;
use super::bytes::GuestBytes;
use crate::errno::Errno;
use crate::host::env::{GuestEnv, GuestExit, unwind};
use crate::interrupt::gate::Stopped;

const SUCCESS: i32 = 0;

/// Lists each function once with its parameters, for binding and for fuzzing.
macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ident),*);)*) => {
        /// Returns the function of this name for wasmer, if it is served.
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
                "poll_oneoff" => Function::new_typed_with_env(store, env, poll_oneoff),
                "proc_exit" => Function::new_typed_with_env(store, env, proc_exit),
                _ => return None,
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
            let names: &[&str] = &[$(stringify!($name)),*];
            match names[number % names.len()] {
                $(stringify!($name) => {
                    $(let $argument = pick(stringify!($argument)) as $type;)*
                    wasi.$name(guest, $($argument),*)
                })*
                _ => unreachable!("the index is in the list"),
            }
        }

        /// The functions with the names and types of their parameters.
        #[cfg(test)]
        pub(super) const FUNCTIONS: &[(&str, &[(&str, &str)])] =
            &[$((stringify!($name), &[$((stringify!($argument), stringify!($type))),*])),*];
    };
}

functions! {
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
    fd_seek(fd: u32, delta: i64, whence: u32, out: u32);
    fd_sync(fd: u32);
    fd_tell(fd: u32, out: u32);
    fd_write(fd: u32, buffers: u32, count: u32, out: u32);
    path_create_directory(fd: u32, path: u32, len: u32);
    path_filestat_get(fd: u32, flags: u32, path: u32, len: u32, out: u32);
    path_filestat_set_times(fd: u32, flags: u32, path: u32, len: u32, accessed: u64, modified: u64, times: u32);
    path_link(old_fd: u32, flags: u32, old_path: u32, old_len: u32, new_fd: u32, new_path: u32, new_len: u32);
    path_open(fd: u32, look: u32, path: u32, len: u32, how: u32, rights: u64, inherited: u64, flags: u32, out: u32);
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

fn answer(served: Result<Result<(), Errno>, Stopped>) -> Result<i32, RuntimeError> {
    match served {
        Ok(Ok(())) => Ok(SUCCESS),
        Ok(Err(errno)) => Ok(errno.code()),
        Err(stopped) => Err(unwind(stopped)),
    }
}

/// `poll_oneoff(subscriptions, events, count, out_count) -> errno`. The only function that waits.
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

/// `proc_exit(code)`.
fn proc_exit(_context: FunctionEnvMut<'_, GuestEnv>, code: u32) -> Result<(), RuntimeError> {
    Err(unwind(GuestExit(code)))
}
