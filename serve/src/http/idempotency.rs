//! Answers that are kept for callers who ask again with the same `Idempotency-Key`.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use bytes::Bytes;
use hatchery::JobId;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::failure::Failure;

/// How long an answer is kept.
const KEPT: Duration = Duration::from_secs(600);
/// The most answers that are kept.
const MOST: usize = 4096;
/// The most bytes of kept answers.
const MOST_BYTES: usize = 64 << 20;
/// The longest key.
pub(super) const MOST_KEY_BYTES: usize = 255;

/// A caller's key: the tenant, and what it sent.
pub(super) type Key = (Option<String>, String);

/// What a job was answered with.
#[derive(Debug)]
pub(super) struct Answer {
    /// The status of the response.
    pub(super) status: StatusCode,
    /// The result.
    pub(super) result: Bytes,
    /// The job.
    pub(super) job: JobId,
    /// Whether asking again can't help.
    pub(super) is_final: bool,
}

/// How a job was answered, for all who wait for it.
pub(super) type Settled = Result<Arc<Answer>, Failure>;

/// The answers by their keys. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Answers {
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    by_key: HashMap<Key, Entry>,
    /// Keys of answers by when they came, the oldest first.
    order: VecDeque<(Instant, Key)>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    request: blake3::Hash,
    answer: watch::Receiver<Option<Settled>>,
    /// Bytes of the result; `None` while there is none.
    bytes: Option<usize>,
}

/// What is known of a key.
#[derive(Debug)]
pub(super) enum Begun {
    /// Nothing. The caller answers the request through the slot.
    New(Slot, watch::Receiver<Option<Settled>>),
    /// The same request was sent before.
    Again(watch::Receiver<Option<Settled>>),
    /// Another request was sent under this key.
    Other,
}

/// The place of an answer that is yet to come. Dropping it frees the key.
#[derive(Debug)]
pub(super) struct Slot {
    answers: Answers,
    key: Key,
    settled: watch::Sender<Option<Settled>>,
}

impl Answers {
    /// Begins a request, of which this is the digest.
    pub(super) fn begin(&self, key: Key, request: blake3::Hash, now: Instant) -> Begun {
        let mut kept = self.kept.lock();
        kept.drop_old(now);
        if let Some(entry) = kept.by_key.get(&key) {
            return match entry.request == request {
                true => Begun::Again(entry.answer.clone()),
                false => Begun::Other,
            };
        }
        let (settled, answer) = watch::channel(None);
        let entry = Entry { request, answer: answer.clone(), bytes: None };
        kept.by_key.insert(key.clone(), entry);
        Begun::New(Slot { answers: self.clone(), key, settled }, answer)
    }
}

impl Slot {
    /// Answers everybody who waits, and keeps the answer if asking again can't help.
    pub(super) fn settle(self, settled: Settled, now: Instant) {
        if let Ok(answer) = &settled
            && answer.is_final
        {
            self.answers.kept.lock().keep(&self.key, answer.result.len(), now);
        }
        self.settled.send_replace(Some(settled));
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut kept = self.answers.kept.lock();
        if kept.by_key.get(&self.key).is_some_and(|entry| entry.bytes.is_none()) {
            kept.by_key.remove(&self.key);
        }
    }
}

impl Kept {
    fn keep(&mut self, key: &Key, bytes: usize, now: Instant) {
        // What is too large takes the place of everything else for nothing.
        if bytes > MOST_BYTES {
            return;
        }
        let Some(entry) = self.by_key.get_mut(key) else { return };
        entry.bytes = Some(bytes);
        self.bytes += bytes;
        self.order.push_back((now, key.clone()));
        while self.order.len() > MOST || self.bytes > MOST_BYTES {
            self.drop_oldest();
        }
    }

    fn drop_old(&mut self, now: Instant) {
        let is_old = |at: &Instant| now.saturating_duration_since(*at) >= KEPT;
        while self.order.front().is_some_and(|(at, _)| is_old(at)) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((_, key)) = self.order.pop_front()
            && let Some(entry) = self.by_key.remove(&key)
        {
            self.bytes -= entry.bytes.unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        (Some("ada".to_owned()), name.to_owned())
    }

    fn answer(bytes: usize, is_final: bool) -> Settled {
        let result = vec![b'x'; bytes].into();
        Ok(Arc::new(Answer { status: StatusCode::OK, result, job: JobId(1), is_final }))
    }

    fn slot(answers: &Answers, name: &str, now: Instant) -> Slot {
        match answers.begin(key(name), blake3::hash(b"1"), now) {
            Begun::New(slot, _) => slot,
            begun => panic!("{begun:?}"),
        }
    }

    fn is_again(answers: &Answers, name: &str, now: Instant) -> bool {
        matches!(answers.begin(key(name), blake3::hash(b"1"), now), Begun::Again(_))
    }

    #[test]
    fn a_key_stands_for_one_request_of_one_tenant_for_ten_minutes() {
        let (answers, now) = (Answers::default(), super::super::clock::now());
        let first = slot(&answers, "a", now);
        assert!(is_again(&answers, "a", now), "while it runs");
        let other = answers.begin(key("a"), blake3::hash(b"2"), now);
        assert!(matches!(other, Begun::Other));
        let another = answers.begin((None, "a".to_owned()), blake3::hash(b"2"), now);
        assert!(matches!(another, Begun::New(..)));
        first.settle(answer(1, true), now);
        assert!(is_again(&answers, "a", now + KEPT / 2));
        drop(slot(&answers, "a", now + KEPT));
        assert_eq!(answers.kept.lock().bytes, 0);
    }

    #[test]
    fn what_may_succeed_later_is_not_kept() {
        let (answers, now) = (Answers::default(), super::super::clock::now());
        slot(&answers, "a", now).settle(answer(1, false), now);
        slot(&answers, "a", now).settle(Err(Failure::usage("no")), now);
        drop(slot(&answers, "a", now));
        assert!(answers.kept.lock().by_key.is_empty());
    }

    #[test]
    fn the_oldest_give_way() {
        let (answers, now) = (Answers::default(), super::super::clock::now());
        for index in 0..=MOST {
            slot(&answers, &index.to_string(), now).settle(answer(1, true), now);
        }
        assert!(!is_again(&answers, "0", now) && is_again(&answers, "1", now));
        slot(&answers, "large", now).settle(answer(MOST_BYTES, true), now);
        assert!(!is_again(&answers, "1", now) && is_again(&answers, "large", now));
        slot(&answers, "larger", now).settle(answer(MOST_BYTES + 1, true), now);
        assert!(!is_again(&answers, "larger", now) && is_again(&answers, "large", now));
    }
}
