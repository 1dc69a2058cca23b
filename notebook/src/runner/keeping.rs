//! What a running notebook writes in the background: its copy after each cell, and states for later
//! commands.

use std::sync::Arc;

use hatchery::Session;
use tokio::task::{JoinHandle, JoinSet};

use crate::document::Notebook;
use crate::error::Error;
use crate::places::Places;
use crate::prefixes::key::Key;
use crate::prefixes::shelf::Shelf;
use crate::prefixes::state::{Kept, Traces};

/// How many states are written at once. Each holds a session's memory until it is written.
const AT_ONCE: usize = 2;

/// Writes a notebook's copy, one write at a time.
#[derive(Debug)]
pub(super) struct CopyWriter {
    places: Places,
    writing: Option<JoinHandle<Result<(), Error>>>,
}

impl CopyWriter {
    pub(super) fn new(places: Places) -> Self {
        Self { places, writing: None }
    }

    /// Begins to write the notebook once the previous write has ended. An error is left to
    /// [`finish`](Self::finish), which writes again.
    pub(super) async fn write(&mut self, notebook: &Notebook) {
        let _ = self.end().await;
        let (places, bytes) = (self.places.clone(), notebook.write());
        self.writing = Some(tokio::task::spawn_blocking(move || places.write_copy(&bytes)));
    }

    /// Writes the notebook.
    pub(super) async fn finish(&mut self, notebook: &Notebook) -> Result<(), Error> {
        self.write(notebook).await;
        self.end().await
    }

    async fn end(&mut self) -> Result<(), Error> {
        match self.writing.take() {
            Some(writing) => writing.await.expect("a write doesn't panic"),
            None => Ok(()),
        }
    }
}

/// Writes states to the shelf.
#[derive(Debug, Default)]
pub(super) struct StateWriter {
    writing: JoinSet<()>,
    /// Whether any state was written.
    has_written: bool,
}

impl StateWriter {
    /// Begins to write the session's present state after `count` cells. What can't be kept isn't: the
    /// notebook doesn't depend on it.
    pub(super) async fn write(
        &mut self,
        shelf: &Arc<Shelf>,
        key: Key,
        session: &Session,
        notebook: &Notebook,
        count: usize,
        traces: &Traces,
    ) {
        while self.writing.len() >= AT_ONCE {
            let _ = self.writing.join_next().await;
        }
        if shelf.has(key) {
            return;
        }
        let name = format!("{} after cell {count}", session.name());
        let Ok(fork) = session.fork(&name).await else { return };
        let kept = Kept::of(notebook, count, traces);
        let shelf = Arc::clone(shelf);
        self.has_written = true;
        self.writing.spawn(async move {
            if let Ok(place) = shelf.place(key)
                && fork.save(place).await.is_ok()
            {
                let keep = tokio::task::spawn_blocking(move || shelf.keep(key, &kept));
                let _ = keep.await;
            }
            fork.close();
        });
    }

    /// Waits until all is written, and brings the shelf back to its bound.
    pub(super) async fn finish(&mut self, shelf: &Arc<Shelf>) {
        while self.writing.join_next().await.is_some() {}
        if self.has_written {
            let shelf = Arc::clone(shelf);
            let _ = tokio::task::spawn_blocking(move || shelf.tidy()).await;
        }
    }
}
