//! Opens or creates what is kept on the server, for as long as a server may need to get ready.

use std::time::Duration;

use async_nats::jetstream::object_store::{self, ObjectStore};
use async_nats::jetstream::stream::{Config, Stream};
use async_nats::jetstream::{self, Context, kv};

use crate::clock::{now, sleep};
use crate::error::{Cause, Error};

/// How long setting up is tried for. A server that has just started isn't ready at once.
const SETUP: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(200);

/// `ObjectStore` has no `Debug`.
#[derive(Clone)]
pub(crate) struct ObjectStoreHandle(pub(crate) ObjectStore);

impl std::fmt::Debug for ObjectStoreHandle {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ObjectStore")
    }
}

/// Something that is opened or created on the server.
pub(crate) trait Opens {
    type Opened;

    /// Tries it once.
    fn open(&self, context: &Context) -> impl Future<Output = Result<Self::Opened, Cause>> + Send;
}

/// Tries until it succeeds or the time is over.
pub(crate) async fn patiently<O: Opens>(
    name: String,
    context: &Context,
    opens: O,
) -> Result<O::Opened, Error> {
    let until = now() + SETUP;
    loop {
        match opens.open(context).await {
            Ok(opened) => return Ok(opened),
            // What the server refuses, it refuses again; what it isn't ready for, it may do later.
            Err(source) if now() >= until || is_final(source.as_ref()) => {
                return Err(Error::Setup { name, source });
            }
            Err(_) => sleep(PAUSE).await,
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

pub(crate) struct OpensStream(Config);

pub(crate) fn opened(config: Config) -> OpensStream {
    OpensStream(config)
}

impl Opens for OpensStream {
    type Opened = Stream;

    async fn open(&self, context: &Context) -> Result<Stream, Cause> {
        match context.get_or_create_stream(self.0.clone()).await {
            Ok(stream) => Ok(stream),
            // Somebody else created it meanwhile, with other settings.
            Err(error) => match context.get_stream(&self.0.name).await {
                Ok(stream) => Ok(stream),
                Err(_) => Err(error.into()),
            },
        }
    }
}

pub(crate) struct OpensBucket(kv::Config);

pub(crate) fn store(config: kv::Config) -> OpensBucket {
    OpensBucket(config)
}

impl Opens for OpensBucket {
    type Opened = kv::Store;

    async fn open(&self, context: &Context) -> Result<kv::Store, Cause> {
        if let Ok(store) = context.get_key_value(&self.0.bucket).await {
            return Ok(store);
        }
        Ok(context.create_key_value(self.0.clone()).await?)
    }
}

pub(crate) struct OpensObjects(object_store::Config);

pub(crate) fn objects(config: object_store::Config) -> OpensObjects {
    OpensObjects(config)
}

impl Opens for OpensObjects {
    type Opened = ObjectStoreHandle;

    async fn open(&self, context: &Context) -> Result<ObjectStoreHandle, Cause> {
        if let Ok(store) = context.get_object_store(&self.0.bucket).await {
            return Ok(ObjectStoreHandle(store));
        }
        Ok(ObjectStoreHandle(context.create_object_store(self.0.clone()).await?))
    }
}
