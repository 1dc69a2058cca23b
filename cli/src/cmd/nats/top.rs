//! `hatchery top --nats`: the queue and the workers of a pool on many machines.

use std::fmt::Write;
use std::io::{IsTerminal, Write as _};

use remote::{Cluster, Watcher};

use crate::args::TopArguments;
use crate::exit::Exit;
use crate::{signals, terminal};

/// Characters of a name. Longer ones are cut.
const NAME: usize = 32;
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
    let is_live = std::io::stdout().is_terminal() && !arguments.once;
    if !is_live {
        terminal::print(screen(pool.as_str(), &cluster))?;
        return Ok(Exit::Success);
    }
    let mut interrupts = signals::interrupts(2)?;
    let mut ticks = tokio::time::interval(arguments.interval);
    loop {
        tokio::select! {
            exit = interrupts.first() => return Ok(exit),
            _ = ticks.tick() => match watcher.cluster().await {
                Ok(cluster) => {
                    std::io::stdout().lock().write_all(CLEAR.as_bytes())?;
                    terminal::print(screen(pool.as_str(), &cluster))?;
                }
                Err(error) => terminal::note(error),
            },
        }
    }
}

/// Returns the screen as text.
fn screen(pool: &str, cluster: &Cluster) -> String {
    let mut text = String::new();
    let running: usize = cluster.workers.iter().map(|worker| worker.running).sum();
    let slots: usize = cluster.workers.iter().map(|worker| worker.slots).sum();
    // Writing to a string doesn't fail.
    let _ = writeln!(
        text,
        "pool {pool}: {} jobs in the queue, {running} of {slots} slots run, {} results and {} dead \
         letters kept",
        cluster.jobs, cluster.results, cluster.dead_letters
    );
    let _ = writeln!(
        text,
        "\n{:NAME$}  {:8}  {:>9}  {:>9}",
        "tenant", "priority", "waiting", "claimed"
    );
    for lane in &cluster.lanes {
        let tenant = cut(lane.tenant.as_deref().unwrap_or("(none)"));
        let priority = format!("{:?}", lane.priority).to_lowercase();
        let _ = writeln!(
            text,
            "{tenant:NAME$}  {priority:8}  {:>9}  {:>9}",
            lane.waiting, lane.claimed
        );
    }
    let _ = writeln!(
        text,
        "\n{:NAME$}  {:8}  {:>9}  {:>9}  {:>9}",
        "worker", "version", "running", "slots", "done"
    );
    for worker in &cluster.workers {
        let (name, version) = (cut(&worker.name), cut(&worker.version));
        let draining = if worker.is_draining { "  drains" } else { "" };
        let _ = writeln!(
            text,
            "{name:NAME$}  {version:8}  {:>9}  {:>9}  {:>9}{draining}",
            worker.running, worker.slots, worker.done
        );
    }
    text.truncate(text.trim_end().len());
    text
}

/// Cuts a name, and replaces what a terminal would obey: names come from the network.
fn cut(name: &str) -> String {
    let harmless = |character: char| if character.is_control() { '?' } else { character };
    name.chars().take(NAME).map(harmless).collect()
}
