//! Stands in for `hatchery top --nats` in a build without the feature `nats`.

use crate::args::TopArguments;
use crate::exit::{Exit, UsageError};

/// Fails, since this build knows no servers.
#[expect(clippy::unused_async, reason = "a build with NATS waits for the server")]
pub(super) async fn run(_url: &str, _arguments: &TopArguments) -> anyhow::Result<Exit> {
    let text = "this binary was built without NATS; build it with the feature `nats`, which is on \
                by default";
    Err(UsageError(text.to_owned()).into())
}
