//! What the server keeps, as the pool uses it: streams, buckets and object stores. They are opened
//! with patience, and created if they are missing.

use std::time::Duration;

use async_nats::jetstream::context::{GetStreamError, GetStreamErrorKind};
use async_nats::jetstream::object_store::{self, GetErrorKind, ObjectMetadata, ObjectStore};
use async_nats::jetstream::stream::{Config, DiscardPolicy, Stream};
use async_nats::jetstream::{self, Context, kv};
use futures_util::TryStreamExt;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use crate::clock::{now, sleep};
use crate::error::{Cause, Error};
use crate::names::Subjects;

/// How long setting up is tried for. A server that has just started isn't ready at once.
const SETUP: Duration = Duration::from_secs(30);
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// How long the server remembers the ids of messages. Later repeats are found by their subjects.
const REPEATS: Duration = Duration::from_secs(600);
/// Bytes of a part of an object.
const PART: usize = 128 << 10;
/// How long reading an object may take. Parts that are missing are waited for without end.
const READ: Duration = Duration::from_secs(300);

/// Returns the settings of the pool's stream of this kind, which takes one message of each subject.
pub(crate) fn one_of_each(subjects: &Subjects, kind: &str, num_replicas: usize) -> Config {
    Config {
        name: subjects.store(kind),
        subjects: vec![subjects.of(kind, ">")],
        num_replicas,
        discard: DiscardPolicy::New,
        max_messages_per_subject: 1,
        discard_new_per_subject: true,
        duplicate_window: REPEATS,
        allow_direct: true,
        ..Config::default()
    }
}

/// Returns a stream; `None` if the server has none of this name.
pub(crate) async fn found(context: &Context, name: &str) -> Result<Option<Stream>, GetStreamError> {
    match context.get_stream(name).await {
        Ok(stream) => Ok(Some(stream)),
        Err(error) => match error.kind() {
            GetStreamErrorKind::JetStream(answer) if answer.code() == 404 => Ok(None),
            _ => Err(error),
        },
    }
}

/// Opens a stream.
pub(crate) async fn stream(context: &Context, config: Config) -> Result<Stream, Error> {
    let open = || async {
        match context.get_or_create_stream(config.clone()).await {
            Ok(stream) => Ok(stream),
            // Somebody else created it meanwhile, with other settings.
            Err(error) => context.get_stream(&config.name).await.map_err(|_| Cause::from(error)),
        }
    };
    patiently(&config.name, open).await
}

/// Opens a bucket that keeps the last entry of each key for this time.
pub(crate) async fn bucket(
    context: &Context,
    name: String,
    max_age: Duration,
    max_value_size: i32,
    num_replicas: usize,
) -> Result<kv::Store, Error> {
    let config = kv::Config {
        bucket: name,
        history: 1,
        max_age,
        max_value_size,
        num_replicas,
        ..kv::Config::default()
    };
    let open = || async {
        match context.get_key_value(&config.bucket).await {
            Ok(store) => Ok(store),
            Err(_) => context.create_key_value(config.clone()).await.map_err(Cause::from),
        }
    };
    patiently(&config.bucket, open).await
}

/// Returns the keys of a bucket, also of entries that were removed.
///
/// The bucket's own list makes a consumer each time, and servers limit how many there are.
pub(crate) async fn keys(bucket: &kv::Store) -> Result<Vec<String>, Cause> {
    let subjects = bucket.stream.info_with_subjects(format!("{}>", bucket.prefix)).await?;
    let key = |subject: String| subject.strip_prefix(&bucket.prefix).map(str::to_owned);
    let keys = subjects.try_filter_map(async |(subject, _)| Ok(key(subject)));
    Ok(keys.try_collect().await?)
}

/// An object store: bytes by name.
#[derive(Clone, derive_more::Debug)]
pub(crate) struct Objects(#[debug(skip)] pub(crate) ObjectStore);

impl Objects {
    /// Opens the store of this name, whose objects are kept for this time; zero is for good.
    pub(crate) async fn open(
        context: &Context,
        name: String,
        max_age: Duration,
        num_replicas: usize,
    ) -> Result<Self, Error> {
        let config = object_store::Config {
            bucket: name,
            max_age,
            num_replicas,
            ..object_store::Config::default()
        };
        let open = || async {
            match context.get_object_store(&config.bucket).await {
                Ok(store) => Ok(Self(store)),
                Err(_) => {
                    let created = context.create_object_store(config.clone()).await;
                    created.map(Self).map_err(Cause::from)
                }
            }
        };
        patiently(&config.bucket, open).await
    }

    /// Stores an object, and returns what the server calls its parts.
    pub(crate) async fn put(&self, name: &str, mut bytes: &[u8]) -> Result<String, Cause> {
        let metadata = ObjectMetadata {
            name: name.to_owned(),
            chunk_size: Some(PART),
            ..ObjectMetadata::default()
        };
        Ok(self.0.put(metadata, &mut bytes).await?.nuid)
    }

    /// Stores bytes under their digest, unless they are there.
    pub(crate) async fn keep(&self, digest: &str, bytes: &[u8]) -> Result<(), Cause> {
        let there = self.0.info(digest).await;
        if there.is_ok_and(|info| info.size == bytes.len() && !info.deleted) {
            return Ok(());
        }
        self.put(digest, bytes).await.map(drop)
    }

    /// Returns the bytes of an object, of a larger one than `most` its beginning; `None` if it is
    /// missing.
    pub(crate) async fn get(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, Cause> {
        let read = async {
            let object = match self.0.get(name).await {
                Ok(object) => object,
                Err(error) if error.kind() == GetErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            let mut bytes = Vec::new();
            object.take(most + 1).read_to_end(&mut bytes).await?;
            Ok(Some(bytes))
        };
        timeout(READ, read).await.unwrap_or_else(|_| Err("timed out".into()))
    }
}

/// Tries to open something of this name until it succeeds or the time is over.
async fn patiently<T, F: Future<Output = Result<T, Cause>>>(
    name: &str,
    open: impl Fn() -> F,
) -> Result<T, Error> {
    let until = now() + SETUP;
    loop {
        match open().await {
            Ok(opened) => return Ok(opened),
            // What the server refuses, it refuses again; what it isn't ready for, it may do later.
            Err(source) if now() >= until || is_final(source.as_ref()) => {
                return Err(Error::Setup(name.to_owned(), source));
            }
            Err(_) => sleep(RETRY_PAUSE).await,
        }
    }
}

/// Returns whether an error is the server's refusal for a reason that stays.
fn is_final(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(answer) = error.downcast_ref::<jetstream::Error>() {
            return answer.code() < 500;
        }
        cause = error.source();
    }
    // Some kinds of errors have the answer as a value, not as their source.
    error.to_string().contains("code 400")
}
