//! `hatchery top --nats`: the queue and the workers of a pool on many machines.

use std::io::IsTerminal;

use cluster::Watcher;

use crate::args::TopArguments;
use crate::exit::Exit;
use crate::{signals, terminal};

/// Moves to the upper left corner and erases what is there.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Shows the cluster once, or until Ctrl-C.
pub(crate) async fn run(url: &str, arguments: &TopArguments) -> anyhow::Result<Exit> {
    let (connection, pool) = super::connection(url, &arguments.access, "top")?;
    let watcher = Watcher::connect(&connection, pool.clone()).await.map_err(super::explained)?;
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
