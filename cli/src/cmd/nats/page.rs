//! The cluster on the page of `hatchery serve`.

use std::sync::Arc;

use cluster::Watcher;
use serve::http::{Cluster, ClusterState};

use crate::args::AccessArguments;

/// Returns what asks for the state of a pool on many machines, once its server is there.
pub(crate) async fn watched(url: &str, access: &AccessArguments) -> anyhow::Result<Cluster> {
    let (connection, pool) = super::connection(url, access, "serve")?;
    let watcher = Watcher::connect(&connection, pool.clone()).await.map_err(super::explained)?;
    Ok(Arc::new(move || -> ClusterState {
        let (watcher, pool) = (watcher.clone(), pool.clone());
        Box::pin(async move {
            let state = watcher.cluster().await.map_err(|error| error.to_string())?;
            let mut state = serde_json::to_value(state).map_err(|error| error.to_string())?;
            state["pool"] = pool.as_str().into();
            Ok(state)
        })
    }))
}
