//! Stands in for the monitor in a build without the feature `monitor`.

use std::net::SocketAddr;
use std::sync::Arc;

use hatchery::Hatchery;

use crate::exit::UsageError;

/// A monitor, of which this build has none.
pub(crate) enum Monitor {}

/// Fails, since this build can't serve metrics.
#[expect(clippy::unused_async, reason = "a build with metrics waits for the system")]
pub(crate) async fn start(_address: &str, _pool: Option<&str>) -> anyhow::Result<Monitor> {
    Err(absent("`--metrics`").into())
}

impl Monitor {
    pub(crate) fn address(&self) -> SocketAddr {
        match *self {}
    }

    pub(crate) fn show(&mut self, _pool: &Hatchery) {
        match *self {}
    }
}

/// Returns no metrics, of which this build has none.
#[expect(clippy::unnecessary_wraps, reason = "a build with metrics can fail to have them")]
pub(crate) fn page() -> anyhow::Result<Option<Arc<dyn Fn() -> String + Send + Sync>>> {
    Ok(None)
}

/// Returns the error for a command or an option that needs the feature.
pub(crate) fn absent(what: &str) -> UsageError {
    UsageError(format!(
        "this binary was built without {what}; build it with the feature `monitor`, which is on by \
         default"
    ))
}
