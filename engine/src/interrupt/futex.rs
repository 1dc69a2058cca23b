//! Threads that wait for a word of the guest's memory, in order of arrival.

/// The number of a guest's thread; the first one is `MAIN`.
pub(crate) type ThreadNumber = u32;
pub(crate) const MAIN: ThreadNumber = 1;

/// The waits of one guest. A thread has one at a time.
#[derive(Debug, Default)]
pub(super) struct Futexes {
    waits: Vec<Wait>,
}

#[derive(Debug)]
struct Wait {
    thread: ThreadNumber,
    at: u32,
    is_over: bool,
}

impl Futexes {
    pub(super) fn begin(&mut self, thread: ThreadNumber, at: u32) {
        self.waits.push(Wait { thread, at, is_over: false });
    }

    /// Ends the waits of at most `most` threads at `at`, the longest first. Returns the threads.
    pub(super) fn wake(&mut self, at: u32, most: u32) -> Vec<ThreadNumber> {
        let waits = self.waits.iter_mut().filter(|wait| wait.at == at && !wait.is_over);
        let ended = waits.take(most as usize).map(|wait| {
            wait.is_over = true;
            wait.thread
        });
        ended.collect()
    }

    /// Whether another thread has ended the wait of this one.
    pub(super) fn is_over(&self, thread: ThreadNumber) -> bool {
        self.waits.iter().any(|wait| wait.thread == thread && wait.is_over)
    }

    /// Forgets the wait of a thread. Returns whether another thread has ended it.
    pub(super) fn end(&mut self, thread: ThreadNumber) -> bool {
        let is_over = self.is_over(thread);
        self.waits.retain(|wait| wait.thread != thread);
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_waits_at_an_address_end_first_and_once() {
        let mut futexes = Futexes::default();
        for (thread, at) in [(1, 8), (2, 16), (3, 8), (4, 8)] {
            futexes.begin(thread, at);
        }
        assert_eq!(futexes.wake(8, 2), [1, 3]);
        assert!(futexes.is_over(3) && !futexes.is_over(4));
        assert_eq!(futexes.wake(8, u32::MAX), [4]);
        assert!(futexes.wake(8, 1).is_empty() && futexes.wake(16, 0).is_empty());
        assert!(futexes.end(1) && !futexes.end(2));
        assert!(!futexes.is_over(1) && futexes.wake(16, 1).is_empty());
    }
}
