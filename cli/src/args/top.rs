//! Arguments of `hatchery top`.

use std::time::Duration;

use clap::Args;

use super::nats::AccessArguments;

/// The address to watch by default; the help of `batch --metrics` suggests the same.
const DEFAULT_ADDRESS: &str = "127.0.0.1:9184";

#[derive(Debug, Args)]
pub(crate) struct TopArguments {
    /// The address of the batch's metrics, or of the server.
    #[arg(value_name = "ADDR", default_value = DEFAULT_ADDRESS)]
    pub(crate) address: String,

    /// Watch the pools of a queue on this NATS server instead.
    #[arg(long, value_name = "URL", conflicts_with = "address")]
    pub(crate) nats: Option<String>,

    #[command(flatten)]
    pub(crate) access: AccessArguments,

    /// Time between updates, such as `500ms` or `2s`.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    pub(crate) interval: Duration,

    /// Print the current state as text, and exit.
    #[arg(long)]
    pub(crate) once: bool,

    /// Print the current state as one JSON object, and exit; that of one pool has the fields of
    /// docs/status.md.
    #[arg(long)]
    pub(crate) json: bool,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let allowed = Duration::from_millis(100)..=Duration::from_secs(3600);
    let interval = humantime::parse_duration(text).ok().filter(|time| allowed.contains(time));
    interval.ok_or_else(|| {
        "write a number with a unit, such as 500ms or 2s; at least 100ms and at most 1h".to_owned()
    })
}
