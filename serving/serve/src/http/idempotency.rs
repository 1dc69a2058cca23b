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
/// The most answers that are kept. Beyond it the tenant with the most loses its oldest, so that none
/// pushes out what others have within an equal share.
const MOST: usize = 4096;
/// The most bytes of kept answers, likewise.
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
    kept: Arc<Mutex<AnswerTable>>,
}

#[derive(Debug, Default)]
struct AnswerTable {
    by_key: HashMap<Key, KnownRequest>,
    /// Those that have answers.
    tenants: HashMap<Option<String>, OfTenant>,
}

/// The answers of one tenant.
#[derive(Debug, Default)]
struct OfTenant {
    /// Their keys by when they came, the oldest first.
    order: VecDeque<(Instant, String)>,
    bytes: usize,
}

#[derive(Debug)]
struct KnownRequest {
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
        let entry = KnownRequest { request, answer: answer.clone(), bytes: None };
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

impl AnswerTable {
    fn keep(&mut self, key: &Key, bytes: usize, now: Instant) {
        // What is too large takes the place of everything else for nothing.
        if bytes > MOST_BYTES {
            return;
        }
        let Some(entry) = self.by_key.get_mut(key) else { return };
        entry.bytes = Some(bytes);
        let (tenant, name) = key;
        let own = self.tenants.entry(tenant.clone()).or_default();
        own.bytes += bytes;
        own.order.push_back((now, name.clone()));
        self.keep_to(MOST, |own| own.order.len());
        self.keep_to(MOST_BYTES, |own| own.bytes);
    }

    /// Drops answers of the tenants with the largest part of `most` until that suffices for all.
    fn keep_to(&mut self, most: usize, part: impl Fn(&OfTenant) -> usize) {
        while self.tenants.values().map(&part).sum::<usize>() > most {
            let largest = self.tenants.iter().max_by_key(|(_, own)| part(own));
            let Some(tenant) = largest.map(|(tenant, _)| tenant.clone()) else { return };
            self.drop_oldest(&tenant);
        }
    }

    fn drop_old(&mut self, now: Instant) {
        let is_old = |at: &Instant| now.saturating_duration_since(*at) >= KEPT;
        let tenants: Vec<_> = self.tenants.keys().cloned().collect();
        for tenant in tenants {
            while let Some((at, _)) = self.tenants.get(&tenant).and_then(|own| own.order.front())
                && is_old(at)
            {
                self.drop_oldest(&tenant);
            }
        }
    }

    fn drop_oldest(&mut self, tenant: &Option<String>) {
        let Some(own) = self.tenants.get_mut(tenant) else { return };
        if let Some((_, name)) = own.order.pop_front()
            && let Some(entry) = self.by_key.remove(&(tenant.clone(), name))
        {
            own.bytes -= entry.bytes.unwrap_or_default();
        }
        if own.order.is_empty() {
            self.tenants.remove(tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: blake3::Hash = blake3::Hash::from_bytes([1; 32]);

    fn key(name: &str) -> Key {
        (Some("ada".to_owned()), name.to_owned())
    }

    fn answer(bytes: usize, is_final: bool) -> Settled {
        let result = vec![b'x'; bytes].into();
        Ok(Arc::new(Answer { status: StatusCode::OK, result, job: JobId(1), is_final }))
    }

    fn slot(answers: &Answers, name: &str, now: Instant) -> Slot {
        match answers.begin(key(name), HASH, now) {
            Begun::New(slot, _) => slot,
            begun => panic!("{begun:?}"),
        }
    }

    fn is_again(answers: &Answers, name: &str, now: Instant) -> bool {
        matches!(answers.begin(key(name), HASH, now), Begun::Again(_))
    }

    #[test]
    fn a_key_stands_for_one_request_of_one_tenant_for_ten_minutes() {
        let (answers, now) = (Answers::default(), Instant::now());
        let first = slot(&answers, "a", now);
        assert!(is_again(&answers, "a", now), "while it runs");
        let other = answers.begin(key("a"), blake3::hash(b"2"), now);
        assert!(matches!(other, Begun::Other));
        let another = answers.begin((None, "a".to_owned()), blake3::hash(b"2"), now);
        assert!(matches!(another, Begun::New(..)));
        first.settle(answer(1, true), now);
        assert!(is_again(&answers, "a", now + KEPT / 2));
        drop(slot(&answers, "a", now + KEPT));
        assert!(answers.kept.lock().tenants.is_empty());
    }

    #[test]
    fn what_may_succeed_later_is_not_kept() {
        let (answers, now) = (Answers::default(), Instant::now());
        slot(&answers, "a", now).settle(answer(1, false), now);
        slot(&answers, "a", now).settle(Err(Failure::usage("no")), now);
        drop(slot(&answers, "a", now));
        assert!(answers.kept.lock().by_key.is_empty());
    }

    #[test]
    fn one_tenant_does_not_push_out_the_answers_of_another() {
        let (answers, now) = (Answers::default(), Instant::now());
        let of_bob = || answers.begin((Some("bob".to_owned()), "b".to_owned()), HASH, now);
        let Begun::New(slot_of_bob, _) = of_bob() else { panic!("it is new") };
        slot_of_bob.settle(answer(MOST_BYTES / 4, true), now);
        for index in 0..=MOST {
            slot(&answers, &index.to_string(), now).settle(answer(1, true), now);
        }
        for index in 0..4 {
            slot(&answers, &format!("large {index}"), now)
                .settle(answer(MOST_BYTES / 4, true), now);
        }
        assert!(matches!(of_bob(), Begun::Again(_)));
        assert!(!is_again(&answers, "large 0", now) && is_again(&answers, "large 3", now));
    }

    #[test]
    fn the_oldest_give_way() {
        let (answers, now) = (Answers::default(), Instant::now());
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
