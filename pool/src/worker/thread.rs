//! The OS thread that owns an interpreter: orders come in through a channel, events go out.
//!
//! The wasmer store lives and dies here. Whatever happens on this thread, panics included, its
//! last event is `Ended`, after the interpreter has been dropped and the session that it held was
//! parked or given up.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use crossbeam_channel::Receiver;
use engine::StartError;

use super::message::{Order, ThreadEvent};
use super::slot::Slot;
use crate::event::GoneReason;
use crate::interpreter::InterpreterSource;
use crate::task::WorkerId;

/// Host functions run on this stack, while the guest has one of its own. Address space until used.
const STACK_BYTES: usize = 8 << 20;

/// Starts the thread. It ends when the sender of `orders` is dropped, or when it can't go on.
pub(super) fn spawn(
    worker: WorkerId,
    source: Arc<dyn InterpreterSource>,
    orders: Receiver<Order>,
    report: impl Fn(ThreadEvent) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    Builder::new().name(format!("hatchery-{worker}")).stack_size(STACK_BYTES).spawn(move || {
        let served =
            catch_unwind(AssertUnwindSafe(|| serve(worker, source.as_ref(), &orders, &report)));
        let reason = match served {
            Ok(Ok(())) => GoneReason::Stopped,
            Ok(Err(error)) => GoneReason::StartFailed(error.to_string()),
            Err(panic) => GoneReason::Died(panic_text(&*panic)),
        };
        report(ThreadEvent::Ended(reason));
    })
}

fn serve(
    worker: WorkerId,
    source: &dyn InterpreterSource,
    orders: &Receiver<Order>,
    report: &dyn Fn(ThreadEvent),
) -> Result<(), StartError> {
    let mut slot = Slot::start(worker, source)?;
    loop {
        report(ThreadEvent::Idle);
        let Ok(order) = orders.recv() else {
            slot.vacate();
            return Ok(());
        };
        slot.follow(order, report)?;
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a text".to_owned())
}
