//! A queue of messages whose handler runs on the senders' threads: one message at a time, in the
//! order of their arrival.
//!
//! A sender that finds the handler free handles what is queued, its own message included; if
//! another thread is handling a message, that thread goes on with the new one. So a message wakes
//! no thread to be decided on, and many messages that come at once are handled in one go. This is
//! known as flat combining.
//!
//! An actor stands behind it. It goes on when a sender has handled its share, and whoever ends it
//! ends the combiner: it owns the [`EndsCombiner`].
//!
//! No lock is held while a message is handled. The handler is out of its place meanwhile, so a
//! message that is sent by handling another one is queued, and no message can be overlooked: who
//! puts the handler back looks at the queue under the same lock.

use std::any::Any;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

#[cfg(test)]
mod tests;

/// The most messages that a sender handles before it leaves the rest to others. At some 10 µs a
/// message, nobody is kept for long, and waking the actor costs little by comparison.
const SHARE_COUNT: usize = 32;

/// Handles messages.
pub(crate) trait Handler<M>: Send {
    /// Handles a message. After `Break` the handler is dropped, and no message is accepted.
    fn handle(&mut self, message: M) -> ControlFlow<()>;
}

/// What the actor behind a combiner is asked to do.
#[derive(Debug)]
pub(crate) enum Call {
    /// Messages are left in the queue: call [`Combiner::go_on`].
    GoOn,
    /// Handling a message panicked with this payload, and no message is accepted any more: end.
    Failed(Box<dyn Any + Send>),
}

/// No more messages are accepted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ended;

/// A queue of messages whose handler runs on the senders' threads.
pub(crate) struct Combiner<M> {
    inbox: Mutex<Inbox<M>>,
    /// Calls the actor. Set when the handler begins.
    actor: OnceLock<Box<dyn Fn(Call) + Send + Sync>>,
}

struct Inbox<M> {
    queue: VecDeque<M>,
    /// `None` before it begins, while it handles a message, and after the end.
    handler: Option<Box<dyn Handler<M>>>,
    /// The actor was called and has not gone on yet.
    is_called: bool,
    has_ended: bool,
}

/// Ends a combiner when it is dropped.
pub(crate) struct EndsCombiner<M>(pub(crate) Arc<Combiner<M>>);

impl<M> Drop for EndsCombiner<M> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl<M> std::fmt::Debug for Combiner<M> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Combiner").finish_non_exhaustive()
    }
}

impl<M> Combiner<M> {
    /// Returns a combiner that queues messages until its handler begins.
    pub(crate) fn new() -> Arc<Self> {
        let inbox =
            Inbox { queue: VecDeque::new(), handler: None, is_called: false, has_ended: false };
        Arc::new(Self { inbox: Mutex::new(inbox), actor: OnceLock::new() })
    }

    /// Lets the handler begin with what is queued. Called once.
    pub(crate) fn begin(
        &self,
        handler: Box<dyn Handler<M>>,
        actor: impl Fn(Call) + Send + Sync + 'static,
    ) {
        let set = self.actor.set(Box::new(actor));
        debug_assert!(set.is_ok(), "a combiner begins once");
        self.serve(handler);
    }

    /// Sends a message, and handles it before returning, unless another thread is handling one.
    /// The caller must hold no lock that handling a message takes.
    pub(crate) fn send(&self, message: M) -> Result<(), Ended> {
        let handler = {
            let mut inbox = self.inbox.lock();
            if inbox.has_ended {
                return Err(Ended);
            }
            inbox.queue.push_back(message);
            inbox.handler.take()
        };
        if let Some(handler) = handler {
            self.serve(handler);
        }
        Ok(())
    }

    /// Sends a message that another thread will handle, for callers that must not be kept, or that
    /// may hold any lock.
    pub(crate) fn post(&self, message: M) -> Result<(), Ended> {
        let is_first_call = {
            let mut inbox = self.inbox.lock();
            if inbox.has_ended {
                return Err(Ended);
            }
            inbox.queue.push_back(message);
            // Otherwise the thread that has it handles this message as well.
            inbox.handler.is_some() && !std::mem::replace(&mut inbox.is_called, true)
        };
        if is_first_call {
            self.call(Call::GoOn);
        }
        Ok(())
    }

    /// Handles what is queued, unless another thread does. The actor calls this when it is called.
    pub(crate) fn go_on(&self) {
        let handler = {
            let mut inbox = self.inbox.lock();
            inbox.is_called = false;
            inbox.handler.take()
        };
        if let Some(handler) = handler {
            self.serve(handler);
        }
    }

    /// Accepts no more messages, and drops those that wait, and the handler. If a thread is
    /// handling a message, it drops the handler afterwards.
    pub(crate) fn end(&self) {
        let left = {
            let mut inbox = self.inbox.lock();
            inbox.has_ended = true;
            (inbox.handler.take(), std::mem::take(&mut inbox.queue))
        };
        // What is dropped may send messages.
        drop(left);
    }

    /// Handles queued messages up to a share, then puts the handler back for the next sender.
    fn serve(&self, mut handler: Box<dyn Handler<M>>) {
        for _ in 0..SHARE_COUNT {
            let message = {
                let mut inbox = self.inbox.lock();
                if inbox.has_ended {
                    break;
                }
                let Some(message) = inbox.queue.pop_front() else {
                    inbox.handler = Some(handler);
                    return;
                };
                message
            };
            match catch_unwind(AssertUnwindSafe(|| handler.handle(message))) {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => self.end(),
                Err(panic) => {
                    self.end();
                    self.call(Call::Failed(panic));
                }
            }
        }
        let is_first_call = {
            let mut inbox = self.inbox.lock();
            if inbox.has_ended {
                drop(inbox);
                discard(handler);
                return;
            }
            inbox.handler = Some(handler);
            !inbox.queue.is_empty() && !std::mem::replace(&mut inbox.is_called, true)
        };
        if is_first_call {
            self.call(Call::GoOn);
        }
    }

    fn call(&self, call: Call) {
        if let Some(actor) = self.actor.get() {
            actor(call);
        }
    }
}

/// Drops a handler on a thread that has nothing to do with it, which must survive that.
fn discard<M>(handler: Box<dyn Handler<M>>) {
    if catch_unwind(AssertUnwindSafe(|| drop(handler))).is_err() {
        tracing::error!("dropping the scheduler's state panicked");
    }
}
