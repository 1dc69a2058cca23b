//! What a running notebook writes in the background: its copy after each cell, and states for later
//! commands.

use std::sync::Arc;
use std::time::Duration;

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
/// How many bytes of states a notebook writes whatever they are worth. Those of small sessions are
/// 2 to 3 MB each, so that each of 20 cells has one.
const FREE_BYTES: u64 = 64 << 20;
/// The bytes of states that a second of cells is worth: about what a disk writes in that time.
/// Beyond the free ones, running cells again is cheaper than a state that is larger.
const BYTES_PER_SECOND: f64 = 64e6;

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

/// The cells up to a state.
pub(super) struct Cells<'a> {
    pub(super) notebook: &'a Notebook,
    /// How many they are.
    pub(super) count: usize,
    pub(super) traces: &'a Traces,
    /// How long the last of them took.
    pub(super) took: Duration,
    /// Whether no cell follows.
    pub(super) is_last: bool,
}

/// Writes states to the shelf.
#[derive(Debug, Default)]
pub(super) struct StateWriter {
    /// The bytes of each state; 0 if it couldn't be written.
    writing: JoinSet<u64>,
    written_bytes: u64,
    last_bytes: u64,
    /// How long the cells took since the last state that was written.
    since: Duration,
}

impl StateWriter {
    /// Begins to write the session's present state, if it is worth its place. What can't be kept
    /// isn't: the notebook doesn't depend on it.
    pub(super) async fn write(
        &mut self,
        shelf: &Arc<Shelf>,
        key: Key,
        session: &Session,
        cells: Cells<'_>,
    ) {
        let Cells { notebook, count, traces, took, is_last } = cells;
        while let Some(written) = self.writing.try_join_next() {
            self.count(written.unwrap_or(0));
        }
        self.since += took;
        let worth = self.since.as_secs_f64() * BYTES_PER_SECOND;
        let is_worth_it = self.written_bytes < FREE_BYTES || self.last_bytes as f64 <= worth;
        if shelf.has(key) || !(is_worth_it || is_last) {
            return;
        }
        if self.writing.len() >= AT_ONCE
            && let Some(written) = self.writing.join_next().await
        {
            self.count(written.unwrap_or(0));
        }
        let name = format!("{} after cell {count}", session.name());
        let Ok(fork) = session.fork(&name).await else { return };
        let kept = Kept::of(notebook, count, traces);
        let shelf = Arc::clone(shelf);
        self.since = Duration::ZERO;
        self.writing.spawn(async move {
            let mut bytes = 0;
            if let Ok(place) = shelf.place(key)
                && let Ok(saved) = fork.save(&place).await
            {
                bytes = saved;
                let keep = tokio::task::spawn_blocking(move || shelf.keep(key, &place, kept));
                let _ = keep.await;
            }
            fork.close();
            bytes
        });
    }

    fn count(&mut self, bytes: u64) {
        self.written_bytes += bytes;
        self.last_bytes = bytes;
    }

    /// Waits until all is written, and brings the shelf back to its bound.
    pub(super) async fn finish(&mut self, shelf: &Arc<Shelf>) {
        while let Some(written) = self.writing.join_next().await {
            self.count(written.unwrap_or(0));
        }
        if self.written_bytes > 0 {
            let shelf = Arc::clone(shelf);
            let _ = tokio::task::spawn_blocking(move || shelf.tidy()).await;
        }
    }
}
