//! What commands for many machines share: the connection, and what is said of it. `top.rs` shows a
//! whole cluster in the terminal, `page.rs` on the page of a server.

use std::path::Path;

use anyhow::Context;
use cluster::{Connection, Error, PoolName, Settings};

use crate::args::{AccessArguments, NatsArguments};
use crate::exit::UsageError;
use crate::terminal;

pub(crate) mod page;
pub(crate) mod top;

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
        Error::Url { .. }
            | Error::Credentials { .. }
            | Error::Read { .. }
            | Error::Name { .. }
            | Error::NoPool { .. }
            | Error::NoWheel { .. }
            | Error::OtherImage { .. }
    );
    let error = anyhow::Error::from(error);
    if is_usage { error.context(UsageError("can't use this `--nats`".to_owned())) } else { error }
}
