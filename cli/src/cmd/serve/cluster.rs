//! Stands in for the cluster on the page in a build without the feature `nats`.

use serve::http::Cluster;

use crate::args::AccessArguments;
use crate::exit::UsageError;

/// Fails, since this build can't talk to a NATS server.
#[expect(clippy::unused_async, reason = "a build with NATS waits for the server")]
pub(crate) async fn watched(_url: &str, _access: &AccessArguments) -> anyhow::Result<Cluster> {
    Err(UsageError(
        "this binary was built without NATS; build it with the feature `nats`, which is on by \
         default"
            .to_owned(),
    )
    .into())
}
