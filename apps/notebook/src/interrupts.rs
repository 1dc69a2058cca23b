//! Requests of the user to end: the first one interrupts the running cells, the second stops them.

use tokio::sync::watch;

/// Counts how often the user asked the notebooks to end, for example by Ctrl-C. Clones share the
/// count.
#[derive(Debug, Clone)]
pub struct Interrupts(watch::Receiver<u32>);

impl Interrupts {
    /// Follows a count that only grows.
    pub fn new(counts: watch::Receiver<u32>) -> Self {
        Self(counts)
    }

    /// Returns the present count.
    pub fn count(&self) -> u32 {
        *self.0.borrow()
    }

    /// Waits until the count is above `heard`, and returns it. Waits for ever if nobody counts any
    /// more. Cancel-safe.
    pub async fn more_than(&mut self, heard: u32) -> u32 {
        let count = self.0.wait_for(|count| *count > heard).await.map(|count| *count);
        match count {
            Ok(count) => count,
            Err(_) => std::future::pending().await,
        }
    }
}
