//! The life of a worker process, as the embedding process sees it.

use std::time::{Duration, Instant};

use channel::Closer;
use parking_lot::{Condvar, Mutex};

/// How long the helper's word is awaited after the channel of a worker has ended.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether a worker lives, and how it ended.
#[derive(Debug)]
pub(crate) struct ExitState {
    closers: [Closer; 2],
    how: Mutex<Option<String>>,
    ended: Condvar,
}

impl ExitState {
    pub(crate) fn new(closers: [Closer; 2]) -> Self {
        Self { closers, how: Mutex::default(), ended: Condvar::new() }
    }

    /// Says how it ended, and ends waits for it. The first word counts.
    pub(crate) fn end(&self, how: String) {
        self.how.lock().get_or_insert(how);
        self.closers.iter().for_each(Closer::close);
        self.ended.notify_all();
    }

    /// Returns how it ended, once that is known.
    pub(crate) fn how(&self) -> String {
        let mut how = self.how.lock();
        let until = Instant::now() + PATIENCE;
        while how.is_none() && !self.ended.wait_until(&mut how, until).timed_out() {}
        how.clone().unwrap_or_else(|| "how it ended is unknown".to_owned())
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.how.lock().is_some()
    }
}
