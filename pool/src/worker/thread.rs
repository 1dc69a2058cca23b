//! The OS thread that owns an interpreter: it receives commands through a channel and sends events.
//!
//! The wasmer store never leaves this thread. However the thread ends, panics included, it reports
//! its end last: after it has dropped the interpreter and parked or given up its session.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use engine::{Cause, StartError};

use super::control::{CommandQueue, WorkerControl};
use super::slot::{Next, Slot};
use super::state::GoneReason;

/// The stack of host code; the guest has its own. Only used pages take memory.
const STACK_BYTES: usize = 8 << 20;

/// Starts the thread. It ends when no more commands can come, when it is told to, or when it has no
/// interpreter and can't start one.
pub(super) fn spawn(
    control: Arc<WorkerControl>,
    rollback_bytes: u64,
    commands: CommandQueue,
    ended: impl FnOnce(GoneReason) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let name = format!("hatchery-{}", control.worker());
    Builder::new().name(name).stack_size(STACK_BYTES).spawn(move || {
        let serve = || serve(&control, rollback_bytes, &commands);
        let served = catch_unwind(AssertUnwindSafe(serve));
        let reason = match served {
            Ok(Ok(reason)) => reason,
            Ok(Err(error)) => GoneReason::StartFailed(Cause::new(error)),
            Err(panic) => GoneReason::Died(panic_text(&*panic).into()),
        };
        control.ended();
        ended(reason);
    })
}

fn serve(
    control: &Arc<WorkerControl>,
    rollback_bytes: u64,
    commands: &CommandQueue,
) -> Result<GoneReason, StartError> {
    let mut slot = Slot::start(control, rollback_bytes)?;
    loop {
        slot.offer();
        let Some(command) = commands.next() else {
            slot.vacate();
            return Ok(GoneReason::Stopped);
        };
        if slot.execute(command)? == Next::End {
            return Ok(GoneReason::Dismissed);
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}
