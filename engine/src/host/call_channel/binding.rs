//! Binds `host.call` for wasmer. It copies a frame out of the guest, serves it by the call channel,
//! and copies the answer back.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use wasmer::{Function, FunctionEnv, RuntimeError, Store};

use super::{Ask, FrameEffect};
use crate::errno::Errno;
use crate::guest::agent::AgentFrame;
use crate::host::calls;
use crate::host::env::{Caller, GuestEnv, HostResult, unwind};
use crate::host::kernels::kernel_call;
use crate::host::threads::thread_call;
use crate::host::wasi::bytes::Buffer;
use crate::memory::GuestMemory;
use crate::python::module::kernels::LEAST_KERNEL_CALL;
use crate::python::module::threads::LEAST_THREAD_CALL;

/// What `host.call` returns when the frame is refused or a pointer is bad.
const FAULT: i32 = -2;
const DONE: i32 = 0;

/// On 32-bit systems, CPython treats an object as immortal from this reference count on. It gives
/// immortal objects the count `IMMORTAL` (`Include/refcount.h` of 3.14 and 3.15).
const LEAST_IMMORTAL: u32 = 1 << 30;
const IMMORTAL: u32 = 5 << 28;

/// Returns `host.call` for wasmer.
pub(crate) fn function(store: &mut Store, env: &FunctionEnv<GuestEnv>) -> Function {
    Function::new_typed_with_env(store, env, host_call)
}

/// `host.call(ptr, len, out_ptr_ptr, out_len_ptr) -> 0 | -2`.
///
/// The answer is written to memory from the guest's own allocator. Its address and length are
/// stored through the two out pointers. Calls of threads and of kernels are no frames.
fn host_call(
    mut caller: Caller<'_>,
    pointer: u32,
    length: u32,
    out_pointer: u32,
    out_length: u32,
) -> HostResult {
    if length >= LEAST_THREAD_CALL {
        return thread_call(&mut caller, pointer, length, [out_pointer, out_length]);
    }
    if length >= LEAST_KERNEL_CALL {
        return kernel_call(&caller, length, [pointer, out_pointer, out_length]);
    }
    let gate = Arc::clone(&caller.data().gate);
    // Another thread may end a wait of this call, for which it needs the interpreter's lock.
    let lock = caller.data().lock.clone().filter(|_| gate.gate().others() > 0);
    let state = lock.as_ref().map(|lock| lock.release(&mut caller)).transpose()?;
    let served = gate
        .host(|| serve(&mut caller, Buffer { at: pointer, len: length }, out_pointer, out_length));
    if served.is_ok()
        && let Some((lock, state)) = lock.zip(state)
    {
        lock.take(&mut caller, state)?;
    }
    match served {
        Ok(Ok(())) => Ok(DONE),
        Ok(Err(Refusal::Fault)) => Ok(FAULT),
        Ok(Err(Refusal::Unwind(error))) => Err(error),
        Err(stopped) => Err(unwind(stopped)),
    }
}

enum Refusal {
    Fault,
    Unwind(RuntimeError),
}

impl From<Errno> for Refusal {
    fn from(_: Errno) -> Self {
        Self::Fault
    }
}

/// Serves one frame of the guest and writes the answer to memory from its allocator.
fn serve(
    caller: &mut Caller<'_>,
    frame: Buffer,
    out_pointer: u32,
    out_length: u32,
) -> Result<(), Refusal> {
    let (env, mut store) = caller.data_and_store_mut();
    env.count_call();
    let answer = answer(env, frame).ok_or(Refusal::Fault)?;
    let length = u32::try_from(answer.len()).map_err(|_| Refusal::Fault)?;
    let mut target = env.channel.lock().take_room(length).unwrap_or(0);
    if length > 0 && target == 0 {
        let alloc = env.alloc.clone().ok_or(Refusal::Fault)?;
        let called = env.gate.guest(|| alloc.call(&mut store, length));
        target =
            called.map_err(|stopped| Refusal::Unwind(unwind(stopped)))?.map_err(Refusal::Unwind)?;
        // The allocator answers 0 when the guest is out of memory.
        if target == 0 {
            return Err(Refusal::Fault);
        }
    }
    let guest = &caller.data().guest;
    guest.write(target, &answer)?;
    guest.write_u32(out_pointer, target)?;
    guest.write_u32(out_length, length)?;
    Ok(())
}

/// Serves the frame in this part of the guest's memory; `None` if it is refused. On the host's side
/// of the gate.
pub(super) fn answer(env: &GuestEnv, frame: Buffer) -> Option<Arc<Vec<u8>>> {
    let [kind] = env.guest.read(frame.at).ok()?;
    let is_too_long = !env.channel.lock().admits(kind, frame.len as usize);
    let (served, calls) = if is_too_long && kind == AgentFrame::CALL {
        // Refused unread, whatever it contains.
        let length = (frame.len - 1) as usize;
        (FrameEffect::Asks(Ask::CallTooLong(length)), env.channel.lock().calls.clone())
    } else if is_too_long {
        return None;
    } else {
        let frame = env.guest.look(frame, <[u8]>::to_vec).ok()?;
        // Another thread may have changed it after the look at its kind.
        if frame.first() != Some(&kind) {
            return None;
        }
        let mut channel = env.channel.lock();
        (channel.serve(&frame)?, channel.calls.clone())
    };
    Some(match served {
        FrameEffect::Answer(answer) => answer,
        FrameEffect::ProgramBegins => {
            env.gate.gate().begin_program();
            Arc::default()
        }
        FrameEffect::ProgramOver => {
            env.gate.gate().end_program();
            Arc::default()
        }
        FrameEffect::Immortal(addresses) => {
            // Do it now, while the guest still holds a reference to each of them.
            let memory = env.guest.memory().ok()?;
            addresses.into_iter().for_each(|address| make_immortal(memory, address));
            Arc::default()
        }
        FrameEffect::Alarm(after) => {
            // Refused where the host can't interrupt.
            env.gate.gate().can_raise().then(|| env.control.set_alarm(after))?;
            Arc::default()
        }
        FrameEffect::Duplicate(fd, to) => {
            let copy = env.wasi.lock().duplicate(fd, to);
            let answer = copy.map_or_else(|errno| -errno.code(), u32::cast_signed);
            Arc::new(answer.to_le_bytes().to_vec())
        }
        FrameEffect::Asks(ask) => Arc::new(calls::serve(env, calls.as_ref(), ask)),
    })
}

/// Makes the object at `address` immortal, if it begins with a plausible reference count.
fn make_immortal(memory: &GuestMemory, address: u32) {
    memory.with_word(address, |count| {
        let counted = (1..LEAST_IMMORTAL).contains(&count.load(Ordering::Relaxed));
        if counted {
            count.store(IMMORTAL, Ordering::Relaxed);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_counts_become_immortal() {
        let memory = GuestMemory::new(crate::memory::WASM_PAGE_BYTES).unwrap();
        for (before, after) in [(0, 0), (1, IMMORTAL), (9999, IMMORTAL), (7 << 28, 7 << 28)] {
            memory.with_word(64, |word| word.store(before, Ordering::Relaxed));
            make_immortal(&memory, 64);
            assert_eq!(memory.with_word(64, |word| word.load(Ordering::Relaxed)), Some(after));
        }
        make_immortal(&memory, u32::MAX);
    }
}
