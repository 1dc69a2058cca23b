//! A queue of messages whose handler runs on the senders' threads, one message at a time, in order
//! of arrival.
//!
//! A sender that finds the handler free handles the queued messages, including its own. If another
//! thread is handling a message, that thread handles the new one next. So a message wakes no
//! thread, and many messages that come at once are handled together. This is known as flat
//! combining.
//!
//! An actor backs it. It resumes when a sender has reached its batch limit. It owns the
//! [`EndsCombiner`], so its end ends the combiner.
//!
//! No lock is held while a message is handled. The handler is taken out meanwhile, so a message
//! sent while handling another one is queued. No message is overlooked: returning the handler and
//! looking for it happen under one lock, which also covers the queue.

use std::any::Any;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

#[cfg(test)]
mod tests;

/// The most messages that a sender handles before it leaves the rest to others. At about 10 µs a
/// message, nobody is kept for long, and waking the actor costs little by comparison.
const BATCH_LIMIT: usize = 32;

/// What follows a decision, and may run a caller's code: answers somebody, or drops a job.
pub(crate) type Answer = Box<dyn FnOnce() + Send>;

/// Handles messages.
pub(crate) trait Handler<M>: Send {
    /// Handles a message. After `Break` the handler is dropped, and no message is accepted.
    fn handle(&mut self, message: M) -> ControlFlow<()>;

    /// Takes the answers that are due after the last message. They are given once the handler is
    /// free again. The receiver of one often sends a message next, and waking it takes as long as
    /// handling a message.
    fn answers(&mut self) -> Vec<Answer>;
}

/// What the actor behind a combiner is asked to do.
#[derive(Debug)]
pub(crate) enum Call {
    /// Messages are left in the queue: call [`Combiner::resume`].
    Resume,
    /// Handling a message panicked with this payload, and no message is accepted any more: end.
    Failed(Box<dyn Any + Send>),
}

/// No more messages are accepted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ended;

/// A queue of messages whose handler runs on the senders' threads.
#[derive(derive_more::Debug)]
#[debug("Combiner")]
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

    /// Sends a message that another thread will handle, for callers that can't wait or may hold any
    /// lock.
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
            self.call(Call::Resume);
        }
        Ok(())
    }

    /// Handles what is queued, unless another thread does. The actor calls this when it is called.
    pub(crate) fn resume(&self) {
        let handler = {
            let mut inbox = self.inbox.lock();
            inbox.is_called = false;
            inbox.take_for_queued()
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
        // After the lock is released: what is dropped may send messages.
        drop_guarded(left);
    }

    /// Handles queued messages up to the batch limit, then puts the handler back for the next sender.
    fn serve(&self, mut handler: Box<dyn Handler<M>>) {
        for _ in 0..BATCH_LIMIT {
            let message = {
                let mut inbox = self.inbox.lock();
                let Some(message) = inbox.queue.pop_front() else {
                    let ended = inbox.put_back(handler);
                    drop(inbox);
                    drop_guarded(ended);
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
            let answers = handler.answers();
            if answers.is_empty() {
                continue;
            }
            let ended = self.inbox.lock().put_back(handler);
            deliver(answers);
            drop_guarded(ended);
            match self.inbox.lock().take_for_queued() {
                Some(again) => handler = again,
                // The thread that has it, or takes it next, handles what is queued.
                None => return,
            }
        }
        let (ended, is_first_call) = {
            let mut inbox = self.inbox.lock();
            let ended = inbox.put_back(handler);
            (ended, !inbox.queue.is_empty() && !std::mem::replace(&mut inbox.is_called, true))
        };
        drop_guarded(ended);
        if is_first_call {
            self.call(Call::Resume);
        }
    }

    fn call(&self, call: Call) {
        if let Some(actor) = self.actor.get() {
            actor(call);
        }
    }
}

impl<M> Inbox<M> {
    /// Puts the handler back for the next sender. After the end, returns it to be dropped.
    #[must_use]
    fn put_back(&mut self, handler: Box<dyn Handler<M>>) -> Option<Box<dyn Handler<M>>> {
        if self.has_ended {
            return Some(handler);
        }
        self.handler = Some(handler);
        None
    }

    /// Takes the handler, unless nothing is queued or another thread has it.
    fn take_for_queued(&mut self) -> Option<Box<dyn Handler<M>>> {
        if self.queue.is_empty() { None } else { self.handler.take() }
    }
}

/// Gives answers to those who wait for them, whatever their wakers do.
pub(crate) fn deliver(answers: Vec<Answer>) {
    for answer in answers {
        if catch_unwind(AssertUnwindSafe(answer)).is_err() {
            tracing::error!(parent: None, "waking the receiver of an answer panicked");
        }
    }
}

/// Drops what is left after the end, on a thread that must survive that.
fn drop_guarded<T>(left: T) {
    if catch_unwind(AssertUnwindSafe(|| drop(left))).is_err() {
        tracing::error!(parent: None, "dropping the scheduler's state panicked");
    }
}
