//! What commands for many machines share: the connection, its messages, and the view of the
//! cluster.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use cluster::{Connection, Error, PoolName, Settings, Watcher};
use serve::http::{Cluster, ClusterState};

use crate::args::{AccessArguments, NatsArguments, TopArguments};
use crate::exit::{Exit, UsageError};
use crate::{signals, terminal};

/// Returns how to connect, and to which pool.
pub(super) fn connection(
    url: &str,
    arguments: &AccessArguments,
    name: &str,
) -> anyhow::Result<(Connection, PoolName)> {
    let pool = PoolName::new(arguments.pool.as_str())
        .context(UsageError("can't use this `--pool`".to_owned()))?;
    let mut connection = Connection::new(url).name(format!("hatchery {name}"));
    if let Some(path) = &arguments.nats_creds {
        connection = connection.credentials_file(path);
    }
    if let Some(path) = &arguments.nats_token_file {
        connection = connection.token(secret(path, "--nats-token-file")?);
    }
    if let Some(path) = &arguments.nats_nkey_file {
        connection = connection.nkey(secret(path, "--nats-nkey-file")?);
    }
    if let Some(path) = &arguments.nats_tls_ca {
        connection = connection.authority(path);
    }
    if let (Some(certificate), Some(key)) = (&arguments.nats_tls_cert, &arguments.nats_tls_key) {
        connection = connection.certificate(certificate, key);
    }
    Ok((connection.on_notice(terminal::note), pool))
}

/// Reads a secret, which is all of a file but the ends of its lines.
fn secret(path: &Path, option: &str) -> anyhow::Result<String> {
    let unusable = || UsageError(format!("can't read `{option} {}`", path.display()));
    let text = std::fs::read_to_string(path).with_context(unusable)?;
    let secret = text.trim();
    if secret.is_empty() {
        return Err(anyhow::anyhow!("it is empty").context(unusable()));
    }
    Ok(secret.to_owned())
}

/// Returns how to keep the pool on the server.
pub(super) fn settings(arguments: &NatsArguments) -> Settings {
    Settings {
        replicas: arguments.replicas.into(),
        claim_time: arguments.claim_time,
        queue: arguments.server_queue,
        keep: arguments.keep,
        ..Settings::default()
    }
}

/// Makes an error of the server the user's, if it is one.
pub(super) fn explained(error: Error) -> anyhow::Error {
    let is_usage = matches!(
        error,
        Error::Url(..)
            | Error::Credentials { .. }
            | Error::Read(..)
            | Error::Name { .. }
            | Error::NoPool(..)
            | Error::NoWheel(..)
            | Error::OtherImage { .. }
    );
    let error = anyhow::Error::from(error);
    if is_usage { error.context(UsageError("can't use this `--nats`".to_owned())) } else { error }
}

/// Returns what asks for the state of a pool on many machines, once its server is there.
pub(crate) async fn watched(url: &str, access: &AccessArguments) -> anyhow::Result<Cluster> {
    let (connection, pool) = connection(url, access, "serve")?;
    let watcher = Watcher::connect(&connection, pool.clone()).await.map_err(explained)?;
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

/// Moves to the upper left corner and erases what is there.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Shows the cluster once, or until Ctrl-C.
pub(crate) async fn run_top(url: &str, arguments: &TopArguments) -> anyhow::Result<Exit> {
    let (connection, pool) = connection(url, &arguments.access, "top")?;
    let watcher = Watcher::connect(&connection, pool.clone()).await.map_err(explained)?;
    let cluster = watcher.cluster().await?;
    if arguments.json {
        terminal::print(serde_json::to_string(&cluster)?)?;
        return Ok(Exit::Success);
    }
    if arguments.once || !std::io::stdout().is_terminal() {
        terminal::print(format_args!("pool {}: {cluster}", pool.as_str()))?;
        return Ok(Exit::Success);
    }
    let mut interrupts = signals::interrupts(2)?;
    let mut ticks = tokio::time::interval(arguments.interval);
    loop {
        tokio::select! {
            exit = interrupts.first() => return Ok(exit),
            _ = ticks.tick() => match watcher.cluster().await {
                Ok(cluster) => {
                    terminal::write(CLEAR.as_bytes())?;
                    terminal::print(format_args!("pool {}: {cluster}", pool.as_str()))?;
                }
                Err(error) => terminal::note(error),
            },
        }
    }
}
