//! Names of sessions on the server, and the subjects of their turns.

use std::fmt;

use crate::error::Error;
use crate::names::{JobKey, Lane, Subjects};

/// Partitions of the sessions of a pool. Whoever submits and whoever runs must agree on it.
pub(crate) const PARTITIONS: u8 = 64;
/// The most bytes of a session's name.
const MOST_NAME_BYTES: usize = 128;
/// The context of digests of turns, which no job's text has.
const TURN: &str = "hatchery-cluster turn of a session";
/// Characters of a digest: 128 bits, so that no two sessions share one.
const DIGITS: usize = 32;

/// A session, told apart from those of other tenants.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SessionKey {
    /// The tenant's token.
    tenant: String,
    /// Of the tenant and the name.
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
        let tenant = lane.tenant_token().to_owned();
        let mut hasher = blake3::Hasher::new();
        // No token has this byte.
        hasher.update(tenant.as_bytes()).update(b".").update(name.as_bytes());
        let digest = hasher.finalize().to_hex()[..DIGITS].to_owned();
        Ok(Self { tenant, digest })
    }

    /// Returns what stands in a turn's key for the digest of its text: turns of several sessions may
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

/// The digest, which is the name of the session's record.
impl fmt::Display for SessionKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.digest)
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
        format!("hatchery.turns.{}.{}.{lane}.{session}.{key}", self.0, session.partition())
    }

    pub(crate) fn turns(&self) -> String {
        format!("hatchery.turns.{}.>", self.0)
    }

    pub(crate) fn turns_in(&self, partition: u8) -> String {
        format!("hatchery.turns.{}.{partition}.>", self.0)
    }

    /// Returns the subjects of the turns of one session, whatever their priorities.
    pub(crate) fn turns_of(&self, session: &SessionKey) -> String {
        let (partition, tenant) = (session.partition(), &session.tenant);
        format!("hatchery.turns.{}.{partition}.{tenant}.*.{session}.>", self.0)
    }

    /// Reads the subject of a turn. `None` as well if it is in a partition that isn't its own.
    pub(crate) fn parse_turn(&self, subject: &str) -> Option<Turn> {
        let mut tokens = self.rest(subject, "turns")?.splitn(5, '.');
        let partition: u8 = tokens.next()?.parse().ok()?;
        let (tenant, priority) = (tokens.next()?, tokens.next()?);
        let lane = Lane::parse(&format!("{tenant}.{priority}"))?;
        let digest = tokens.next()?;
        let is_digest = digest.len() == DIGITS
            && digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let key = JobKey::parse(tokens.next()?)?;
        let session = SessionKey { tenant: tenant.to_owned(), digest: digest.to_owned() };
        (is_digest && session.partition() == partition).then_some(Turn { session, lane, key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{BatchName, PoolName};

    fn lane(tenant: Option<&str>) -> Lane {
        let tenant = tenant.map(str::to_owned);
        Lane::of(&wire::Job { tenant, ..wire::Job::code("") }).unwrap()
    }

    fn key(lane: &Lane) -> JobKey {
        JobKey::of(&BatchName::random(), lane, &blake3::hash(b"text"), 0)
    }

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
