//! The server on which a batch, or the pool of a worker, can be watched.

use serve::monitor::{Monitor, MonitorError};

use crate::exit::UsageError;

/// Serves at `address` from now on, and records the metrics of pools that start later: of one pool, or
/// with the name of many.
pub(crate) async fn start(address: &str, pool: Option<&str>) -> anyhow::Result<Monitor> {
    Monitor::start_in(address, pool).await.map_err(|error| match &error {
        MonitorError::Address { source, .. } => {
            anyhow::Error::msg(source.to_string()).context(UsageError(error.to_string()))
        }
        _ => error.into(),
    })
}
