//! A cluster as text for people: a line on the queue, its lanes, and its workers.

use std::fmt;

use hatchery::error::counted;

use super::Cluster;
use crate::names::priority_token;

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
            let priority = priority_token(lane.priority);
            let (waiting, claimed) = (lane.waiting, lane.claimed);
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
    use crate::cluster::LaneState;

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
