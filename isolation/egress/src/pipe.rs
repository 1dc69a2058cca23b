//! The bytes between a program and the HTTP server that reads its requests.
//!
//! The program's side never waits, except for readiness. Each direction has room for
//! [`PIPE_BYTES`], so a slow side slows the other down.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use hyper::rt::{Read, ReadBufCursor, Write};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::failure::{Failure, FailureReason};

/// How much each direction holds.
pub(crate) const PIPE_BYTES: usize = 64 << 10;

/// To be ready for reading or for writing, as bits.
pub(crate) const READABLE: u8 = 1;
pub(crate) const WRITABLE: u8 = 2;

#[derive(Debug, Default)]
pub(crate) struct Pipe {
    state: Mutex<PipeState>,
    /// Wakes the program's side.
    changed: Notify,
}

#[derive(Debug, Default)]
struct PipeState {
    /// From the program.
    up: BytesMut,
    is_up_over: bool,
    /// To the program.
    down: BytesMut,
    is_down_over: bool,
    /// What the program gets after the bytes before it.
    failure: Option<Failure>,
    /// Wakers of the host's side.
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl PipeState {
    fn readiness(&self) -> u8 {
        let is_over = self.is_down_over || self.failure.is_some();
        let is_readable = is_over || !self.down.is_empty();
        let is_writable = is_over || self.is_up_over || self.up.len() < PIPE_BYTES;
        u8::from(is_readable) * READABLE + u8::from(is_writable) * WRITABLE
    }
}

fn would_block() -> Failure {
    Failure::new(FailureReason::WouldBlock, "not yet")
}

impl Pipe {
    /// Takes as many bytes as there is room for, at least one.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<usize, Failure> {
        let mut state = self.state.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        if state.is_up_over || state.is_down_over {
            let text = "the stream was closed for writing";
            return Err(Failure::new(FailureReason::Closed, text));
        }
        let count = bytes.len().min(PIPE_BYTES - state.up.len());
        if count == 0 && !bytes.is_empty() {
            return Err(would_block());
        }
        state.up.extend_from_slice(&bytes[..count]);
        let reader = state.reader.take();
        drop(state);
        reader.into_iter().for_each(Waker::wake);
        Ok(count)
    }

    /// Returns bytes for the program, none at the end.
    pub(crate) fn read(&self, most: usize) -> Result<Bytes, Failure> {
        let mut state = self.state.lock();
        let count = most.min(state.down.len());
        if count > 0 {
            let bytes = state.down.split_to(count).freeze();
            let writer = state.writer.take();
            drop(state);
            writer.into_iter().for_each(Waker::wake);
            return Ok(bytes);
        }
        match (&state.failure, state.is_down_over) {
            _ if !state.down.is_empty() => Ok(Bytes::new()),
            (Some(failure), _) => Err(failure.clone()),
            (None, true) => Ok(Bytes::new()),
            (None, false) => Err(would_block()),
        }
    }

    /// Waits until one of these is possible, and returns which are.
    pub(crate) async fn ready(&self, interest: u8) -> u8 {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let found = self.state.lock().readiness() & interest;
            if found != 0 {
                return found;
            }
            changed.await;
        }
    }

    /// Returns which of these are possible now.
    pub(crate) fn readiness(&self, interest: u8) -> u8 {
        self.state.lock().readiness() & interest
    }

    pub(crate) fn end_writing(&self) {
        let mut state = self.state.lock();
        state.is_up_over = true;
        let reader = state.reader.take();
        drop(state);
        reader.into_iter().for_each(Waker::wake);
    }

    /// Ends the stream for the program. The first failure counts.
    pub(crate) fn fail(&self, failure: &Failure) {
        self.state.lock().failure.get_or_insert_with(|| failure.clone());
        self.changed.notify_waiters();
    }

    pub(crate) fn end(&self) {
        self.state.lock().is_down_over = true;
        self.changed.notify_waiters();
    }
}

/// The host's side.
#[derive(Debug)]
pub(crate) struct HostEnd(pub(crate) Arc<Pipe>);

impl Read for HostEnd {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.0.state.lock();
        let count = into.remaining().min(state.up.len());
        if count == 0 && !state.is_up_over {
            state.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        into.put_slice(&state.up.split_to(count));
        drop(state);
        self.0.changed.notify_waiters();
        Poll::Ready(Ok(()))
    }
}

impl Write for HostEnd {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.0.state.lock();
        let count = bytes.len().min(PIPE_BYTES - state.down.len());
        if count == 0 && !bytes.is_empty() {
            state.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        state.down.extend_from_slice(&bytes[..count]);
        drop(state);
        self.0.changed.notify_waiters();
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.end();
        Poll::Ready(Ok(()))
    }
}
