//! Sessions of a cluster: each has an owner, and its state outlives that worker.
//!
//! A turn is a job of a session. It waits in a separate stream, whose subjects name one of 64
//! partitions, the tenant and the session. The partition follows from the session's name. Each
//! partition has one consumer, which the server pins to one worker at a time: the owner of its
//! sessions. `policy.rs` divides the partitions among the live workers.
//!
//! | name | what it holds |
//! |---|---|
//! | `hatchery-POOL-turns` | turns, until their results are stored |
//! | `hatchery-POOL-sessions` | a record of each session: its last turn, its state, its owner |
//! | `hatchery-POOL-states` | the states, as `Session::save` writes them |
//!
//! The pin only avoids duplicate work. The guarantees rest on the record, which is only replaced by
//! compare-and-set, in these steps:
//!
//! 1. The owner looks for the first turn of the session in the stream. Consumers report that there
//!    is one, never which, since a stream keeps its order despite redeliveries.
//! 2. If the record isn't the owner's, it *takes over*: it writes itself into the record. From then
//!    on, all writes of an earlier owner fail.
//! 3. It runs the turn on the state that the record names, and stores the new state under a unique
//!    name.
//! 4. It *commits*: the turn's number, key and result, and the digest of the state go into the
//!    record together. An owner that fails here drops its copy and the state that it stored.
//! 5. It stores the result, and then removes the turn. A turn whose key is that of the record is in
//!    the state already. So an owner that finds one goes on here.
//!
//! So turns are applied exactly once and in order, each with its result. A turn may run more often, if
//! an owner dies or is considered dead before step 4.
//!
//! The first turn of a pool creates all of these. The server drops a record without writes for as
//! long as results are kept, and its state later.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, PriorityPolicy, PullConsumer, pull};
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{
    Config, LastRawMessageErrorKind, RawMessageErrorKind, RetentionPolicy, Stream,
};
use async_nats::jetstream::{Context, kv};
use base64::prelude::{BASE64_URL_SAFE, Engine as _};
use bytes::Bytes;
use futures_util::StreamExt;

use crate::clock::sleep;
use crate::error::{Cause, Error};
use crate::names::{BatchName, JobKey, Lane, Subjects, is_digest};
use crate::policy::session::{RECORD_VERSION, SessionRecord, StoredState};
use crate::stores::{Objects, bucket, one_of_each, stream};

/// Partitions of the sessions of a pool. Submitters and workers must agree on it.
pub(crate) const PARTITIONS: u8 = 64;
/// The most bytes of a session's name.
const MOST_NAME_BYTES: usize = 128;
/// The context of digests of turns, which no job's text has.
const TURN: &str = "hatchery-cluster turn of a session";
/// Characters of a digest: 128 bits, so that no two sessions share one.
const DIGITS: usize = 32;

/// A session, told apart from those of other tenants.
#[derive(Debug, derive_more::Display, Clone, PartialEq, Eq, Hash)]
#[display("{digest}")]
pub(crate) struct SessionKey {
    /// The tenant's token.
    tenant: String,
    /// Of the tenant and the name: the name of the session's record.
    digest: String,
}

impl SessionKey {
    /// Returns the key of the session of this name that the lane's tenant has.
    pub(crate) fn of(lane: &Lane, name: &str) -> Result<Self, Error> {
        let is_allowed = (1..=MOST_NAME_BYTES).contains(&name.len()) && !name.chars().any(char::is_control)
            // Headers lose them.
            && name.trim() == name;
        if !is_allowed {
            let name = name.chars().filter(|character| !character.is_control()).take(32).collect();
            return Err(Error::SessionName { name, most: MOST_NAME_BYTES });
        }
        let tenant = lane.tenant.clone();
        let mut hasher = blake3::Hasher::new();
        // No token has this byte.
        hasher.update(tenant.as_bytes()).update(b".").update(name.as_bytes());
        let digest = hasher.finalize().to_hex()[..DIGITS].to_owned();
        Ok(Self { tenant, digest })
    }

    /// Returns what stands in a turn's key for the digest of its text. Turns of several sessions may
    /// have the same text.
    pub(crate) fn text(&self, text: &blake3::Hash) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_derive_key(TURN);
        hasher.update(self.digest.as_bytes()).update(text.as_bytes());
        hasher.finalize()
    }

    /// Returns the number of its partition.
    pub(crate) fn partition(&self) -> u8 {
        // Digests have no other digits, and more than two.
        u8::from_str_radix(&self.digest[..2], 16).unwrap_or(0) % PARTITIONS
    }
}

/// What the subject of a turn says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) session: SessionKey,
    pub(crate) lane: Lane,
    pub(crate) key: JobKey,
}

impl Subjects {
    /// `hatchery.turns.POOL.PARTITION.TENANT.PRIORITY.SESSION.BATCH.DIGEST`
    pub(crate) fn turn(&self, session: &SessionKey, lane: &Lane, key: &JobKey) -> String {
        self.of("turns", format_args!("{}.{lane}.{session}.{key}", session.partition()))
    }

    /// Returns the subjects of the turns of one session, whatever their priorities.
    pub(crate) fn turns_of(&self, session: &SessionKey) -> String {
        let (partition, tenant) = (session.partition(), &session.tenant);
        self.of("turns", format_args!("{partition}.{tenant}.*.{session}.>"))
    }

    /// Reads the subject of a turn. `None` as well if it is in a partition that isn't its own.
    pub(crate) fn parse_turn(&self, subject: &str) -> Option<Turn> {
        let mut tokens = self.rest(subject, "turns")?.splitn(5, '.');
        let partition: u8 = tokens.next()?.parse().ok()?;
        let (tenant, priority) = (tokens.next()?, tokens.next()?);
        let lane = Lane::parse(&format!("{tenant}.{priority}"))?;
        let digest = tokens.next()?;
        let is_digest = is_digest(digest, DIGITS);
        let key = JobKey::parse(tokens.next()?)?;
        let session = SessionKey { tenant: tenant.to_owned(), digest: digest.to_owned() };
        (is_digest && session.partition() == partition).then_some(Turn { session, lane, key })
    }
}

/// The header of an entry that is a note of its removal.
const OPERATION: &str = "KV-Operation";
/// The group of a partition's consumer.
pub(crate) const GROUP: &str = "home";
/// The longest and the shortest time for which a worker that doesn't ask stays pinned.
const HAND_OVER: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(500)..=Duration::from_secs(10);
/// Turns of a partition that its owner learns of at once. It finds the others by itself.
const MOST_TOLD: i64 = 256;
/// The largest record. The result of the last turn is kept in it, or by the name of its object.
const MOST_RECORD_BYTES: i32 = 512 << 10;
/// The largest state.
pub(crate) const LARGEST_STATE: u64 = 256 << 20;
/// The most sessions of a pool.
const MOST_SESSIONS: u64 = 100_000;
/// Between two attempts to reach the server.
const PAUSE: Duration = Duration::from_millis(200);
/// The most sessions that one look at a partition finds.
const MOST_FOUND: usize = 10_000;

/// The sessions of a pool on the server.
#[derive(Debug, Clone)]
pub(crate) struct Sessions {
    pub(crate) subjects: Subjects,
    pub(crate) turns: Stream,
    results: Stream,
    records: kv::Store,
    states: Objects,
    /// The stream behind `states`.
    objects: Stream,
    /// How long a record is kept that nobody writes.
    keep: Duration,
    /// How long a worker that doesn't ask stays pinned to a partition.
    pub(crate) hand_over: Duration,
}

/// A record, as the server had it at some time.
#[derive(Debug, Clone)]
pub(crate) struct Revised {
    pub(crate) record: SessionRecord,
    /// 0 if there is none.
    revision: u64,
}

impl Revised {
    /// Returns whether the session has no record yet.
    pub(crate) fn is_new(&self) -> bool {
        self.record.turn == 0 && self.record.owner.is_none()
    }

    /// Returns whether nobody has written the record in between.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.revision == other.revision
    }
}

impl Sessions {
    /// Opens what the server keeps of sessions, and creates what is missing, as the pool's jobs and
    /// results are kept.
    pub(crate) async fn open(
        context: &Context,
        subjects: &Subjects,
        jobs: &Stream,
        results: &Stream,
        claim_time: Duration,
    ) -> Result<Self, Error> {
        let jobs = &jobs.cached_info().config;
        let keep = results.cached_info().config.max_age;
        let replicas = jobs.num_replicas;
        let turns = Config {
            retention: RetentionPolicy::WorkQueue,
            max_messages: jobs.max_messages,
            max_bytes: jobs.max_bytes,
            ..one_of_each(subjects, "turns", replicas)
        };
        let turns = stream(context, turns).await?;
        let records = subjects.store("sessions");
        let records = bucket(context, records, keep, MOST_RECORD_BYTES, replicas).await?;
        let name = subjects.store("states");
        // Of a session that goes on, states are stored again before this.
        let states = Objects::open(context, name.clone(), keep * 2, replicas).await?;
        let name = format!("OBJ_{name}");
        let objects = context.get_stream(&name).await;
        let objects = objects.map_err(|error| Error::setup(name, error))?;
        let keep = records.stream.cached_info().config.max_age;
        let hand_over = (claim_time / 3).clamp(*HAND_OVER.start(), *HAND_OVER.end());
        let (subjects, results) = (subjects.clone(), results.clone());
        Ok(Self { subjects, turns, results, records, states, objects, keep, hand_over })
    }

    /// Returns the consumer of a partition. It tells its owner that there are turns. The turns
    /// themselves are read from the stream, in its order, and taken out of it when they have ended.
    pub(crate) async fn consumer(&self, partition: u8) -> Result<PullConsumer, Cause> {
        let name = format!("partition_{partition}");
        let config = pull::Config {
            durable_name: Some(name.clone()),
            filter_subject: self.subjects.of("turns", format_args!("{partition}.>")),
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.hand_over,
            max_deliver: -1,
            max_ack_pending: MOST_TOLD,
            headers_only: true,
            priority_policy: PriorityPolicy::PinnedClient,
            priority_groups: vec![GROUP.to_owned()],
            priority_timeout: self.hand_over,
            ..pull::Config::default()
        };
        Ok(self.turns.get_or_create_consumer(&name, config).await?)
    }

    /// Returns the sessions of a partition that have turns.
    pub(crate) async fn waiting(&self, partition: u8) -> Result<Vec<SessionKey>, Cause> {
        let subjects = self.subjects.of("turns", format_args!("{partition}.>"));
        let mut listed = self.turns.info_with_subjects(subjects).await?;
        let mut found: Vec<SessionKey> = Vec::new();
        while let Some(subject) = listed.next().await {
            let (subject, _) = subject?;
            let turn = self.subjects.parse_turn(&subject);
            found.extend(turn.map(|turn| turn.session).filter(|session| !found.contains(session)));
            if found.len() >= MOST_FOUND {
                break;
            }
        }
        Ok(found)
    }

    /// Returns the first turn of a session in the stream, as the stream's leader has it. A replica
    /// may not have it yet.
    pub(crate) async fn first(&self, session: &SessionKey) -> Result<Option<StreamMessage>, Cause> {
        let subject = self.subjects.turns_of(session);
        match self.turns.get_first_raw_message_by_subject(subject, 1).await {
            Ok(message) => Ok(Some(message)),
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether a turn has its result, as the leader has it. A turn that was sent again long
    /// after it ended has, and one that was cancelled before it ran.
    pub(crate) async fn has_result(&self, key: &JobKey) -> Result<bool, Cause> {
        let subject = self.subjects.result(key);
        match self.results.get_last_raw_message_by_subject(&subject).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes a turn out of the stream. Repeats until the server has done so: the next turn must not
    /// begin while this one is there.
    pub(crate) async fn remove(&self, sequence: u64) {
        loop {
            match self.turns.delete_message(sequence).await {
                Ok(_) => return,
                Err(error) => tracing::info!("can't take a turn out of its stream: {error}"),
            }
            // It is gone if an answer got lost.
            match self.turns.get_raw_message(sequence).await {
                Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => return,
                _ => sleep(PAUSE).await,
            }
        }
    }

    /// Returns the record of a session, or that of a fresh one with this name.
    ///
    /// # Errors
    /// The server doesn't answer, or the record isn't one that this version reads.
    pub(crate) async fn record(
        &self,
        session: &SessionKey,
        name: &str,
    ) -> Result<Revised, RecordError> {
        let entry = self.entry(&session.to_string()).await.map_err(RecordError::Server)?;
        let (revision, text) = entry;
        let record = match text {
            None => SessionRecord::fresh(name),
            Some(text) => match serde_json::from_slice::<SessionRecord>(&text) {
                Ok(record) if record.version == RECORD_VERSION => record,
                _ => return Err(RecordError::Foreign),
            },
        };
        Ok(Revised { record, revision })
    }

    /// Returns the revision and the text of a record as the leader has them. An owner that took an older
    /// revision for the last would think that it has failed.
    async fn entry(&self, name: &str) -> Result<(u64, Option<Bytes>), Cause> {
        let subject = format!("$KV.{}.{name}", self.subjects.store("sessions"));
        let message = match self.records.stream.get_last_raw_message_by_subject(&subject).await {
            Ok(message) => message,
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => {
                return Ok((0, None));
            }
            Err(error) => return Err(error.into()),
        };
        let is_put = message.headers.get(OPERATION).is_none();
        Ok((message.sequence, is_put.then_some(message.payload)))
    }

    /// Returns whether the pool has room for another session.
    pub(crate) async fn has_room(&self) -> Result<bool, Cause> {
        Ok(self.records.stream.get_info().await?.state.messages < MOST_SESSIONS)
    }

    /// Replaces a record, and returns the new one; `None` if another owner has replaced it. Repeats until
    /// the server has answered.
    pub(crate) async fn replace(
        &self,
        session: &SessionKey,
        before: &Revised,
        record: SessionRecord,
    ) -> Option<Revised> {
        // Plain data without maps can always be written.
        let text = Bytes::from(serde_json::to_vec(&record).unwrap_or_default());
        let name = session.to_string();
        loop {
            let updated = self.records.update(&name, text.clone(), before.revision).await;
            let error = match updated {
                Ok(revision) => return Some(Revised { record, revision }),
                Err(error) => error,
            };
            match self.entry(&name).await {
                // An earlier attempt has succeeded.
                Ok((revision, Some(found))) if found == text => {
                    return Some(Revised { record, revision });
                }
                Ok((revision, _)) if revision != before.revision => return None,
                _ => {}
            }
            tracing::info!("can't write the record of a session: {error}");
            sleep(PAUSE).await;
        }
    }

    /// Returns whether a state with this digest needn't be stored again. `time_ms` is the server's
    /// clock, in milliseconds since 1970.
    pub(crate) fn is_kept(
        &self,
        state: Option<&StoredState>,
        digest: &blake3::Hash,
        time_ms: u64,
    ) -> bool {
        let Some(state) = state else { return false };
        let age = Duration::from_millis(time_ms.saturating_sub(state.stored_ms));
        age < self.keep / 2 && state.digest == digest.to_hex().as_str()
    }

    /// Stores a state, at this time of the server's clock in milliseconds since 1970.
    pub(crate) async fn put(
        &self,
        session: &SessionKey,
        digest: &blake3::Hash,
        bytes: &[u8],
        time_ms: u64,
    ) -> Result<StoredState, Cause> {
        let object = format!("{session}.{}.{}", digest.to_hex(), BatchName::random().as_str());
        Ok(StoredState {
            parts: self.states.put(&object, bytes).await?,
            object,
            digest: digest.to_hex().to_string(),
            bytes: bytes.len() as u64,
            stored_ms: time_ms,
        })
    }

    /// Returns the bytes of a state, which are those that were stored.
    ///
    /// # Errors
    /// `Damaged` if they aren't or are gone, otherwise they can't be had now.
    pub(crate) async fn state(&self, state: &StoredState) -> Result<Vec<u8>, Error> {
        let read = self.states.get(&state.object, LARGEST_STATE).await;
        let bytes = read.map_err(|error| Error::server("read the state of a session", error))?;
        let is_whole = |bytes: &Vec<u8>| blake3::hash(bytes).to_hex().as_str() == state.digest;
        let damaged = || Error::Damaged("the state of a session".to_owned());
        bytes.filter(is_whole).ok_or_else(damaged)
    }

    /// Deletes a state. What stays is dropped by its age.
    pub(crate) async fn delete(&self, object: &str, parts: &str) {
        // Not by the store's own way, which keeps a note of each deleted object.
        let (bucket, name) = (self.subjects.store("states"), BASE64_URL_SAFE.encode(object));
        for subject in [format!("$O.{bucket}.M.{name}"), format!("$O.{bucket}.C.{parts}")] {
            if let Err(error) = self.objects.purge().filter(subject).await {
                tracing::info!("can't delete the old state of a session: {error}");
            }
        }
    }

    /// Forgets a session: its record, and then its state.
    pub(crate) async fn forget(&self, session: &SessionKey) -> Result<(), Cause> {
        let state = match self.record(session, "").await {
            Ok(found) => found.record.state,
            Err(RecordError::Foreign) => None,
            Err(RecordError::Server(cause)) => return Err(cause),
        };
        self.records.purge(session.to_string()).await?;
        if let Some(state) = state {
            self.delete(&state.object, &state.parts).await;
        }
        Ok(())
    }
}

/// Why there is no record.
#[derive(Debug)]
pub(crate) enum RecordError {
    /// It is damaged, or of a later version.
    Foreign,
    /// The server doesn't answer.
    Server(Cause),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::PoolName;
    use crate::names::tests::{key, lane};

    #[test]
    fn subjects_of_turns_are_read_as_they_are_written() {
        let subjects = Subjects(PoolName::new("a").unwrap());
        for tenant in [None, Some(""), Some("t.1")] {
            let lane = lane(tenant);
            let session = SessionKey::of(&lane, "my session").unwrap();
            let key = key(&lane);
            let subject = subjects.turn(&session, &lane, &key);
            let turn = Turn { session: session.clone(), lane, key };
            assert_eq!(subjects.parse_turn(&subject), Some(turn), "{subject}");
            let prefix = subjects.turns_of(&session).replace(".*.", ".normal.");
            assert!(subject.starts_with(prefix.trim_end_matches('>')), "{subject} {prefix}");
        }
    }

    #[test]
    fn a_turn_in_a_foreign_partition_is_refused() {
        let subjects = Subjects(PoolName::new("a").unwrap());
        let session = SessionKey::of(&lane(None), "s").unwrap();
        let key = key(&lane(None));
        let subject =
            |partition: u8| format!("hatchery.turns.a.{partition}.=.normal.{session}.{key}");
        assert!(subjects.parse_turn(&subject(session.partition())).is_some());
        assert_eq!(subjects.parse_turn(&subject((session.partition() + 1) % PARTITIONS)), None);
        for wrong in ["hatchery.turns.a.1", "hatchery.turns.a.x.=.normal.s.b.k", "hatchery.turns.b"]
        {
            assert_eq!(subjects.parse_turn(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn sessions_of_tenants_are_told_apart_and_spread() {
        let of = |tenant, name: &str| SessionKey::of(&lane(tenant), name).unwrap();
        let keys = [of(None, "s"), of(Some(""), "s"), of(Some("a"), "s"), of(None, "t")];
        for (at, key) in keys.iter().enumerate() {
            assert!(keys.iter().skip(at + 1).all(|other| other.digest != key.digest));
        }
        let mut partitions: Vec<u8> =
            (0..1000).map(|number| of(None, &number.to_string()).partition()).collect();
        partitions.sort_unstable();
        partitions.dedup();
        assert_eq!(partitions.len(), usize::from(PARTITIONS));
        for invalid in ["", "a\nb", &"x".repeat(129)] {
            let error = SessionKey::of(&lane(None), invalid).unwrap_err();
            assert!(error.to_string().contains("session"), "{error}");
        }
    }
}
