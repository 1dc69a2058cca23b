//! Names on the server: of pools, lanes, batches and jobs, and the subjects made of them.
//!
//! A subject is a sequence of tokens. A name from outside, such as a tenant's, is encoded as
//! exactly one token. Input from the network is checked first.

use std::fmt::Display;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use wire::Priority;

use crate::error::Error;

/// The most characters of a pool's name, which is part of every stream's.
const MOST_POOL_CHARACTERS: usize = 32;
/// The most characters of an encoded tenant.
const MOST_TENANT_CHARACTERS: usize = 128;
/// Characters of the name of a batch: 64 bits, of which nobody needs to guess one.
const BATCH_DIGITS: usize = 16;
/// Characters of a key: 128 bits, so that no two jobs share one.
const KEY_DIGITS: usize = 32;

/// The token of jobs without a tenant. No encoded name is like it.
const NO_TENANT: &str = "=";
/// The token of the tenant whose name is empty.
const EMPTY_TENANT: &str = "==";

/// The name of a pool: workers of one name share its jobs.
#[derive(Debug, derive_more::Display, Clone, PartialEq, Eq, Hash)]
pub struct PoolName(String);

impl PoolName {
    /// Takes a name of letters, digits, `-` and `_`.
    ///
    /// # Errors
    /// It is empty, longer than 32 characters, or has other ones.
    ///
    /// ```
    /// use cluster::PoolName;
    ///
    /// assert!(PoolName::new("default").is_ok());
    /// assert!(PoolName::new("a.b").is_err());
    /// ```
    pub fn new(name: impl Into<String>) -> Result<Self, Error> {
        let name = name.into();
        if is_plain(&name, MOST_POOL_CHARACTERS) {
            return Ok(Self(name));
        }
        let name = name.chars().take(MOST_POOL_CHARACTERS).collect();
        Err(Error::Name { name, of: "pool", most: MOST_POOL_CHARACTERS })
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns whether a text is a token without any character that has a meaning.
fn is_plain(text: &str, most: usize) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=most).contains(&text.len()) && text.bytes().all(is_plain)
}

/// One submission of jobs, whose results are told apart from those of others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BatchName(String);

impl BatchName {
    /// Returns a name that nobody else has.
    pub fn random() -> Self {
        let mut bytes = [0; BATCH_DIGITS / 2];
        // Without the system's random numbers nothing here could be told apart.
        getrandom::fill(&mut bytes).expect("the system has random numbers");
        Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Returns the name that [`Self::as_str`] returned; `None` if it can't have.
    pub fn parse(text: &str) -> Option<Self> {
        is_digest(text, BATCH_DIGITS).then(|| Self(text.to_owned()))
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

pub(crate) fn is_digest(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The key of a job. It is made of batch, lane and text, and of how often the batch had that text.
///
/// Everything that a key is made of is in the message, so that workers recompute it. So nobody can
/// submit another job under a key that he knows, nor the same job in another lane.
#[derive(Debug, derive_more::Display, Clone, PartialEq, Eq, Hash)]
#[display("{}.{digest}", batch.0)]
pub struct JobKey {
    pub(crate) batch: BatchName,
    digest: String,
}

impl JobKey {
    /// Returns the key of the `nth` job of the batch, from 0, whose text has this digest.
    pub(crate) fn of(batch: &BatchName, lane: &Lane, text: &blake3::Hash, nth: u64) -> Self {
        let mut hasher = blake3::Hasher::new();
        // All but the last are of one length each, so that no two jobs are read as one.
        hasher.update(batch.0.as_bytes()).update(&nth.to_le_bytes()).update(text.as_bytes());
        hasher.update(lane.to_string().as_bytes());
        let digest = hasher.finalize().to_hex()[..KEY_DIGITS].to_owned();
        Self { batch: batch.clone(), digest }
    }

    /// Reads what [`Display`] writes, `BATCH.DIGEST` as in subjects; `None` if it is anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let (batch, digest) = text.split_once('.')?;
        let batch = BatchName::parse(batch)?;
        is_digest(digest, KEY_DIGITS).then(|| Self { batch, digest: digest.to_owned() })
    }
}

/// The jobs of one tenant and priority, in their order.
#[derive(Debug, derive_more::Display, Clone, PartialEq, Eq, Hash)]
#[display("{tenant}.{priority}")]
pub(crate) struct Lane {
    /// An encoded name.
    pub(crate) tenant: String,
    pub(crate) priority: Priority,
}

impl Lane {
    /// Returns the lane of a job.
    pub(crate) fn of(job: &wire::Job) -> Result<Self, Error> {
        let priority = job.priority.unwrap_or(Priority::Normal);
        let tenant = match &job.tenant {
            None => NO_TENANT.to_owned(),
            Some(name) => encoded(name),
        };
        if tenant.len() > MOST_TENANT_CHARACTERS {
            let name = job.tenant.iter().flat_map(|name| name.chars()).take(32).collect();
            return Err(Error::Name { name, of: "tenant", most: MOST_TENANT_CHARACTERS });
        }
        Ok(Self { tenant, priority })
    }

    /// Reads `TENANT.PRIORITY`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (tenant, priority) = text.split_once('.')?;
        let priority = priority.parse().ok()?;
        let is_tenant = is_plain(&tenant.replace('=', "_"), MOST_TENANT_CHARACTERS);
        is_tenant.then(|| Self { tenant: tenant.to_owned(), priority })
    }

    /// Returns the tenant's name; `None` if the jobs have none.
    pub(crate) fn tenant(&self) -> Option<String> {
        match self.tenant.as_str() {
            NO_TENANT => None,
            EMPTY_TENANT => Some(String::new()),
            token => {
                let token = token.replace('=', "%");
                Some(percent_decode_str(&token).decode_utf8_lossy().into_owned())
            }
        }
    }

    /// Returns the name of its consumer.
    pub(crate) fn consumer(&self) -> String {
        format!("{}_{}", self.tenant, self.priority)
    }
}

/// What is escaped in a token.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');

/// Encodes a name as one token, and different names differently. Bytes other than letters, digits,
/// `-` and `_` become `=` and two digits.
pub(crate) fn encoded(name: &str) -> String {
    let token = utf8_percent_encode(name, ESCAPED).to_string().replace('%', "=");
    if token.is_empty() { EMPTY_TENANT.to_owned() } else { token }
}

/// The subjects and names of one pool.
#[derive(Debug, Clone)]
pub(crate) struct Subjects(pub(crate) PoolName);

impl Subjects {
    /// Returns the subject of this kind: `hatchery.KIND.POOL.REST`.
    pub(crate) fn of(&self, kind: &str, rest: impl Display) -> String {
        format!("hatchery.{kind}.{}.{rest}", self.0)
    }

    pub(crate) fn job(&self, lane: &Lane, key: &JobKey) -> String {
        self.of("jobs", format_args!("{lane}.{key}"))
    }

    pub(crate) fn lane(&self, lane: &Lane) -> String {
        self.of("jobs", format_args!("{lane}.>"))
    }

    /// Reads the subject of a job.
    pub(crate) fn parse_job(&self, subject: &str) -> Option<(Lane, JobKey)> {
        let rest = self.rest(subject, "jobs")?;
        let (end, _) = rest.match_indices('.').nth(1)?;
        Some((Lane::parse(&rest[..end])?, JobKey::parse(&rest[end + 1..])?))
    }

    /// Reads the subject of a consumer.
    pub(crate) fn parse_lane(&self, filter: &str) -> Option<Lane> {
        Lane::parse(self.rest(filter, "jobs")?.strip_suffix(".>")?)
    }

    pub(crate) fn result(&self, key: &JobKey) -> String {
        self.of("results", key)
    }

    pub(crate) fn results_of(&self, batch: &BatchName) -> String {
        self.of("results", format_args!("{}.*", batch.0))
    }

    /// Where clients say that there are jobs in a lane.
    pub(crate) fn wake(&self) -> String {
        format!("hatchery.wake.{}", self.0)
    }

    /// Returns the subject of a tenant's permit of this number, or of all its permits by `*`.
    pub(crate) fn permits_of(&self, tenant: &str, which: impl Display) -> String {
        self.of("permits", format_args!("{}.{which}", encoded(tenant)))
    }

    /// Returns the name of a stream or a bucket of the pool.
    pub(crate) fn store(&self, what: &str) -> String {
        format!("hatchery-{}-{what}", self.0)
    }

    /// Returns what follows the pool in a subject of this kind.
    pub(crate) fn rest<'a>(&self, subject: &'a str, kind: &str) -> Option<&'a str> {
        let rest = subject.strip_prefix("hatchery.")?.strip_prefix(kind)?.strip_prefix('.')?;
        rest.strip_prefix(self.0.as_str())?.strip_prefix('.')
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn lane(tenant: Option<&str>) -> Lane {
        let tenant = tenant.map(str::to_owned);
        Lane::of(&wire::Job { tenant, ..wire::Job::code("") }).unwrap()
    }

    pub(crate) fn key(lane: &Lane) -> JobKey {
        JobKey::of(&BatchName::random(), lane, &blake3::hash(b"text"), 0)
    }

    #[test]
    fn every_tenant_has_a_token_of_its_own() {
        let names = [None, Some(""), Some("="), Some("a"), Some("a.b"), Some("a=2eb"), Some("ä>*")];
        let mut tokens: Vec<String> = names.map(|name| lane(name).to_string()).into();
        assert_eq!(tokens[4], "a=2Eb.normal");
        for (token, name) in tokens.iter().zip(names) {
            let read = Lane::parse(token).unwrap();
            assert_eq!(read, lane(name), "{token}");
            assert_eq!(read.tenant().as_deref(), name, "{token}");
        }
        tokens.sort();
        tokens.dedup();
        assert_eq!(tokens.len(), names.len());
        let long = wire::Job { tenant: Some("x".repeat(129)), ..wire::Job::code("") };
        assert!(Lane::of(&long).unwrap_err().to_string().contains("tenant"));
    }

    #[test]
    fn subjects_are_read_as_they_are_written() {
        let subjects = Subjects(PoolName::new("a").unwrap());
        let lane = lane(Some("t.1"));
        let key = key(&lane);
        assert_eq!(
            subjects.parse_job(&subjects.job(&lane, &key)),
            Some((lane.clone(), key.clone()))
        );
        assert_eq!(subjects.parse_lane(&subjects.lane(&lane)), Some(lane));
        let result = subjects.result(&key);
        assert_eq!(subjects.rest(&result, "results").and_then(JobKey::parse), Some(key));
    }

    #[test]
    fn subjects_of_others_are_refused() {
        let subjects = Subjects(PoolName::new("a").unwrap());
        let key = key(&lane(None)).to_string();
        for wrong in [
            format!("hatchery.jobs.ab.=.normal.{key}"),
            format!("hatchery.jobs.a.=.urgent.{key}"),
            format!("hatchery.jobs.a.t t.normal.{key}"),
            format!("hatchery.jobs.a.=.normal.{key}.x"),
            format!("hatchery.jobs.a.=.normal.{}", &key[1..]),
            "hatchery.jobs.a".to_owned(),
            String::new(),
        ] {
            assert_eq!(subjects.parse_job(&wrong), None, "{wrong}");
        }
        let longer = format!("hatchery.results.a.{key}0");
        assert_eq!(subjects.rest(&longer, "results").and_then(JobKey::parse), None);
    }

    #[test]
    fn keys_differ_by_everything_that_they_are_made_of() {
        let (one, other) = (BatchName::random(), BatchName::random());
        let (mine, yours) = (lane(Some("a")), lane(Some("b")));
        let text = blake3::hash(b"text");
        let key = JobKey::of(&one, &mine, &text, 0);
        assert_eq!(key, JobKey::of(&one, &mine, &text, 0));
        assert_ne!(key, JobKey::of(&one, &mine, &text, 1));
        assert_ne!(key, JobKey::of(&one, &mine, &blake3::hash(b"other"), 0));
        assert_ne!(key, JobKey::of(&one, &yours, &text, 0));
        assert_ne!(key, JobKey::of(&other, &mine, &text, 0));
        assert_eq!(BatchName::parse(one.as_str()), Some(one));
        assert_eq!(BatchName::parse("../../etc/passwd"), None);
    }
}
