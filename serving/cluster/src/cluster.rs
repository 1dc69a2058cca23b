//! What a whole pool is doing: its queue, its workers, its dead letters.

use std::fmt;

use async_nats::jetstream::stream::Stream;
use futures_util::StreamExt;
use hatchery::error::counted;
use serde::Serialize;

use crate::connect::Connection;
use crate::error::Error;
use crate::names::PoolName;
use crate::streams::Streams;
use crate::worker::Presence;

/// The state of a pool on its server. As text, it is a table for people.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Cluster {
    /// Jobs in the queue, those that run included.
    pub jobs: u64,
    /// The lanes that had jobs at some time.
    pub lanes: Vec<LaneState>,
    /// Results that are kept.
    pub results: u64,
    /// Dead letters that are kept.
    pub dead_letters: u64,
    /// The workers that live.
    pub workers: Vec<Presence>,
}

/// The jobs of one tenant and priority.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LaneState {
    /// The tenant; `None` for jobs without one.
    pub tenant: Option<String>,
    /// The priority.
    pub priority: wire::Priority,
    /// Jobs that wait for a worker.
    pub waiting: u64,
    /// Jobs that a worker has claimed.
    pub claimed: u64,
}

/// Watches a pool, without taking part in it.
///
/// ```no_run
/// # async fn example() -> Result<(), cluster::Error> {
/// use cluster::{Connection, PoolName, Watcher};
///
/// let connection = Connection::new("nats://127.0.0.1:4222");
/// let watcher = Watcher::connect(&connection, PoolName::new("default")?).await?;
/// for worker in watcher.cluster().await?.workers {
///     println!("{}: {} of {} slots", worker.name, worker.running, worker.slots);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Watcher {
    streams: Streams,
}

impl Watcher {
    /// Connects to the server of a pool.
    ///
    /// # Errors
    /// There is no server, it refuses the credentials, or it has no pool of this name.
    pub async fn connect(connection: &Connection, pool: PoolName) -> Result<Self, Error> {
        Ok(Self { streams: Streams::find(connection.connect().await?, pool).await? })
    }

    /// Returns what the pool is doing.
    ///
    /// # Errors
    /// The server doesn't answer, or refuses.
    pub async fn cluster(&self) -> Result<Cluster, Error> {
        let streams = &self.streams;
        let mut lanes = Vec::new();
        let mut consumers = streams.jobs.consumers();
        while let Some(info) = consumers.next().await {
            let info = info.map_err(unknown)?;
            let Some(lane) = streams.subjects.parse_lane(&info.config.filter_subject) else {
                continue;
            };
            lanes.push(LaneState {
                tenant: lane.tenant(),
                priority: lane.priority,
                waiting: info.num_pending,
                claimed: info.num_ack_pending as u64,
            });
        }
        Ok(Cluster {
            jobs: count(&streams.jobs).await?,
            lanes,
            results: count(&streams.results).await?,
            dead_letters: count(&streams.dead).await?,
            workers: streams.presences().await?,
        })
    }
}

async fn count(stream: &Stream) -> Result<u64, Error> {
    Ok(stream.get_info().await.map_err(unknown)?.state.messages)
}

fn unknown(answer: impl fmt::Display) -> Error {
    Error::server("say what the pool is doing", answer)
}

/// Characters of a name. Longer ones are cut.
const NAME: usize = 32;

impl fmt::Display for Cluster {
    /// Writes tables of the lanes and workers. Names have no control characters that a terminal would
    /// obey, and at most 32 characters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { jobs, lanes, results, dead_letters, workers } = self;
        let running: usize = workers.iter().map(|worker| worker.running).sum();
        let slots: usize = workers.iter().map(|worker| worker.slots).sum();
        write!(
            f,
            "{} in the queue, {running} of {} run, {} and {} kept\n\n\
             {:NAME$}  {:8}  {:>9}  {:>9}",
            counted(jobs, "job"),
            counted(slots, "slot"),
            counted(results, "result"),
            counted(dead_letters, "dead letter"),
            "tenant",
            "priority",
            "waiting",
            "claimed"
        )?;
        for lane in lanes {
            let tenant = cut(lane.tenant.as_deref().unwrap_or("(none)"));
            let (priority, waiting, claimed) = (lane.priority, lane.waiting, lane.claimed);
            write!(f, "\n{tenant:NAME$}  {priority:8}  {waiting:>9}  {claimed:>9}")?;
        }
        write!(
            f,
            "\n\n{:NAME$}  {:8}  {:>9}  {:>9}  {:>9}",
            "worker", "version", "running", "slots", "done"
        )?;
        for worker in workers {
            let (name, version) = (cut(&worker.name), cut(&worker.version));
            let (running, slots, done) = (worker.running, worker.slots, worker.done);
            let draining = if worker.is_draining { "  drains" } else { "" };
            write!(
                f,
                "\n{name:NAME$}  {version:8}  {running:>9}  {slots:>9}  {done:>9}{draining}"
            )?;
        }
        Ok(())
    }
}

/// Cuts a name, and replaces what a terminal would obey: names come from the network.
fn cut(name: &str) -> String {
    let harmless = |character: char| if character.is_control() { '?' } else { character };
    name.chars().take(NAME).map(harmless).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_each_lane_and_obeys_no_name() {
        let lane = LaneState {
            tenant: Some(format!("\x1b[2J{}", "a".repeat(40))),
            priority: wire::Priority::Normal,
            waiting: 3,
            claimed: 2,
        };
        let cluster =
            Cluster { jobs: 5, lanes: vec![lane], results: 7, dead_letters: 1, workers: vec![] };
        let table = cluster.to_string();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(
            lines[0],
            "5 jobs in the queue, 0 of 0 slots run, 7 results and 1 dead letter kept"
        );
        assert_eq!(lines[3], format!("?[2J{}  normal            3          2", "a".repeat(28)));
        assert_eq!(lines.len(), 6);
    }
}
