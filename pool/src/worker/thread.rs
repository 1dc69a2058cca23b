//! The OS thread that owns an interpreter: tasks come in through a channel, events go out.
//!
//! The wasmer store lives and dies here. Whatever happens on this thread, panics included, its
//! last event is `Ended`, after the interpreter has been dropped.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use crossbeam_channel::Receiver;
use engine::Afterwards;

use super::message::ThreadEvent;
use crate::event::GoneReason;
use crate::interpreter::InterpreterSource;
use crate::task::{Task, WorkerId, WorkerKind};

/// Host functions run on this stack, while the guest has one of its own. Address space until used.
const STACK_BYTES: usize = 8 << 20;

/// Starts the thread. It ends when the sender of `tasks` is dropped, or when it can't go on.
pub(super) fn spawn(
    worker: WorkerId,
    kind: WorkerKind,
    source: Arc<dyn InterpreterSource>,
    tasks: Receiver<Task>,
    report: impl Fn(ThreadEvent) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    Builder::new().name(format!("hatchery-{worker}")).stack_size(STACK_BYTES).spawn(move || {
        let served =
            catch_unwind(AssertUnwindSafe(|| serve(kind, source.as_ref(), &tasks, &report)));
        let reason = served.unwrap_or_else(|panic| GoneReason::Died(panic_text(&*panic)));
        report(ThreadEvent::Ended(reason));
    })
}

fn serve(
    kind: WorkerKind,
    source: &dyn InterpreterSource,
    tasks: &Receiver<Task>,
    report: &dyn Fn(ThreadEvent),
) -> GoneReason {
    let keeps_state = matches!(kind, WorkerKind::Session(_));
    loop {
        let mut interpreter = match source.start() {
            Ok(interpreter) => interpreter,
            Err(error) => return GoneReason::StartFailed(error.to_string()),
        };
        report(ThreadEvent::Started);
        loop {
            let Ok(task) = tasks.recv() else { return GoneReason::Stopped };
            let (outcome, afterwards) = interpreter.run(&task, !keeps_state);
            let outcome = Box::new(outcome);
            report(ThreadEvent::Finished { job: task.job, outcome, afterwards });
            match (keeps_state, afterwards) {
                (true, Afterwards::Usable) => {}
                (true, Afterwards::Lost) => return GoneReason::InterpreterLost,
                (false, _) => break,
            }
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a text".to_owned())
}
