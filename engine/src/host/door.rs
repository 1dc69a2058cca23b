//! The door: `host.call`, through which the agent fetches its request and posts its reply.
//!
//! Any code in the guest can use it. A frame is bounded before it is copied, an unknown one is
//! refused, and the last reply before the turn ends counts: the agent's own comes last.

use std::sync::Arc;

use wasmer::{FunctionEnvMut, RuntimeError};

use super::clock::address;
use super::{GuestEnv, HostFault, unwind};
use crate::agent::Frame;

/// What `host.call` answers when there is no such call, or a pointer is bad.
const FAULT: i32 = -2;
const DONE: i32 = 0;

/// What passes through the door in one run.
#[derive(Debug, Default)]
pub(crate) struct Door {
    request: Arc<Vec<u8>>,
    reply: Option<Vec<u8>>,
    reply_cap: usize,
}

impl Door {
    /// Lays out the request of a run, whose reply may have `reply_cap` bytes.
    pub(crate) fn open(&mut self, request: Vec<u8>, reply_cap: usize) {
        *self = Self { request: Arc::new(request), reply: None, reply_cap };
    }

    /// Takes the reply, and the request away.
    pub(crate) fn close(&mut self) -> Option<Vec<u8>> {
        std::mem::take(self).reply
    }

    /// Serves one frame; `None` if it isn't a frame that can be served.
    fn serve(&mut self, frame: &[u8]) -> Option<Arc<Vec<u8>>> {
        match Frame::parse(frame)? {
            (Frame::Fetch, _) => Some(Arc::clone(&self.request)),
            (Frame::Reply, reply) => {
                self.reply = Some(reply.to_vec());
                Some(Arc::default())
            }
        }
    }
}

/// `host.call(ptr, len, out_ptr_ptr, out_len_ptr) -> 0 | -2`.
///
/// The answer is put into memory that the guest's own allocator gives, and its address and length
/// are stored through the two out pointers.
pub(crate) fn host_call(
    mut context: FunctionEnvMut<'_, GuestEnv>,
    pointer: i32,
    length: i32,
    out_pointer: i32,
    out_length: i32,
) -> Result<i32, RuntimeError> {
    let gate = Arc::clone(&context.data().gate);
    let served = gate.host(|| serve(&mut context, pointer, length, out_pointer, out_length));
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

impl From<wasmer::MemoryAccessError> for Refusal {
    fn from(_: wasmer::MemoryAccessError) -> Self {
        Self::Fault
    }
}

impl From<HostFault> for Refusal {
    fn from(fault: HostFault) -> Self {
        match fault {
            HostFault::Memory => Self::Fault,
            HostFault::Stopped(stopped) => Self::Unwind(unwind(stopped)),
        }
    }
}

fn serve(
    context: &mut FunctionEnvMut<'_, GuestEnv>,
    pointer: i32,
    length: i32,
    out_pointer: i32,
    out_length: i32,
) -> Result<(), Refusal> {
    let (env, mut store) = context.data_and_store_mut();
    let guest = env.guest.clone().ok_or(Refusal::Fault)?;
    let length = length.cast_unsigned() as usize;
    if length > env.door.lock().reply_cap.saturating_add(1) {
        return Err(Refusal::Fault);
    }
    let mut frame = vec![0_u8; length];
    guest.memory.view(&store).read(address(pointer), &mut frame)?;
    let answer = env.door.lock().serve(&frame).ok_or(Refusal::Fault)?;
    let answer_length = i32::try_from(answer.len()).map_err(|_| Refusal::Fault)?;
    let target = if answer.is_empty() {
        0
    } else {
        let gate = Arc::clone(&env.gate);
        let target = gate
            .guest(|| guest.alloc.call(&mut store, answer_length))
            .map_err(HostFault::from)?
            .map_err(Refusal::Unwind)?;
        // The allocator answers 0 when the guest is out of memory.
        if target == 0 || gate.stop_requested().is_some() {
            return Err(Refusal::Fault);
        }
        target
    };
    let view = guest.memory.view(&store);
    view.write(address(target), &answer)?;
    view.write(address(out_pointer), &target.to_le_bytes())?;
    view.write(address(out_length), &answer_length.to_le_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_fetched_and_the_last_reply_counts() {
        let mut door = Door::default();
        door.open(b"request".to_vec(), 100);
        assert_eq!(door.serve(b"\x01").unwrap().as_slice(), b"request");
        assert!(door.serve(b"\x02forged").unwrap().is_empty());
        assert!(door.serve(b"\x02honest").unwrap().is_empty());
        assert!(door.serve(b"\x07").is_none());
        assert_eq!(door.close().unwrap(), b"honest");
        assert!(door.serve(b"\x01").unwrap().is_empty());
        assert_eq!(door.close(), None);
    }
}
