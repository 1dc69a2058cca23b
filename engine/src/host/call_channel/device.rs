//! The call channel of command builds, which can't import `host.call`: a device file.
//!
//! Writing a frame to the device serves it. Seeking to the end tells the length of the answer, and
//! reading takes it. The device reports a position that no file has. So the agent can tell it from
//! a file put in its place. Each thread of the guest gets its own answers.

use std::sync::Arc;

use wasmer::{Function, FunctionEnv, Store};

use super::binding::answer;
use crate::errno::Errno;
use crate::guest::agent::boot::CALL_DEVICE_POSITION;
use crate::host::env::{Caller, GuestEnv, HostResult};
use crate::host::wasi::binding::{on_host, serve};

const SEEK_CURRENT: u32 = 1;
const SEEK_END: u32 = 2;

/// Returns the function of this name for a command build, if it serves the device too.
pub(crate) fn function(
    store: &mut Store,
    env: &FunctionEnv<GuestEnv>,
    name: &str,
) -> Option<Function> {
    Some(match name {
        "fd_read" => Function::new_typed_with_env(store, env, fd_read),
        "fd_write" => Function::new_typed_with_env(store, env, fd_write),
        "fd_seek" => Function::new_typed_with_env(store, env, fd_seek),
        _ => return None,
    })
}

fn fd_read(caller: Caller<'_>, fd: u32, buffers: u32, count: u32, out: u32) -> HostResult {
    if !is_call_device(&caller, fd) {
        return serve(&caller, |wasi| wasi.fd_read(fd, buffers, count, out));
    }
    on_host(&caller, |env| {
        let mut total = 0;
        let (whole, read) = &mut *env.answer.lock();
        for buffer in env.guest.buffers(buffers, count)? {
            let rest = &whole[*read..];
            let part = &rest[..rest.len().min(buffer.len as usize)];
            env.guest.write(buffer.at, part)?;
            *read += part.len();
            total += part.len();
        }
        env.guest.write_u32(out, total as u32)
    })
}

fn fd_write(caller: Caller<'_>, fd: u32, buffers: u32, count: u32, out: u32) -> HostResult {
    if !is_call_device(&caller, fd) {
        return serve(&caller, |wasi| wasi.fd_write(fd, buffers, count, out));
    }
    on_host(&caller, |env| {
        env.count_call();
        *env.answer.lock() = (Arc::default(), 0);
        if count != 1 {
            return Err(Errno::Invalid);
        }
        let frame = env.guest.buffer(buffers)?;
        let answer = answer(env, frame).ok_or(Errno::Fault)?;
        *env.answer.lock() = (answer, 0);
        env.guest.write_u32(out, frame.len)
    })
}

fn fd_seek(caller: Caller<'_>, fd: u32, delta: i64, whence: u32, out: u32) -> HostResult {
    if !is_call_device(&caller, fd) {
        return serve(&caller, |wasi| wasi.fd_seek(fd, delta, whence, out));
    }
    on_host(&caller, |env| {
        let position = match (whence, delta) {
            (SEEK_CURRENT, 0) => CALL_DEVICE_POSITION,
            (SEEK_END, 0) => env.answer.lock().0.len() as u64,
            _ => return Err(Errno::Invalid),
        };
        env.guest.write_u64(out, position)
    })
}

fn is_call_device(caller: &Caller<'_>, fd: u32) -> bool {
    caller.data().wasi.lock().is_call_device(fd)
}
