//! Who started a job, and whether it is at fault.
//!
//! The first start isn't recorded, so that a job that ends well costs nothing here. From the second
//! claim on, each start is. A start counts against the job if whoever made it is dead.

use serde::{Deserialize, Serialize};

use crate::history::Start;

/// Starts of which whoever made them died, after which a job runs alone.
const ALONE_FROM: usize = 2;
/// Starts of which whoever made them died, after which a job is given up.
const MOST_STARTS: usize = 3;
/// Starts in a record. More aren't made of a job that kills, and those of a job that doesn't are
/// dropped from the front.
const MOST_RECORDED: usize = 16;
/// How often a job that somebody else still runs is put off.
const MOST_WAITS: u32 = 100;

/// What is known of a job's claims.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Claims that ended without a start, or with the worker alive.
    given_back: u32,
    /// How often the job was put off, since somebody else seemed to run it.
    waits: u32,
    starts: Vec<Start>,
}

/// What is to be done with a job.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// Run it beside others.
    Run,
    /// Run it once nothing else runs here, and nothing beside it.
    RunAlone,
    /// Put it off: somebody who lives has started it.
    Wait,
    /// Give it up, with this history.
    GiveUp(Vec<Start>),
}

impl Record {
    /// Decides, given how often the job was claimed, this time included, and who lives.
    pub fn decide(&self, claims: u64, lives: impl Fn(&str) -> bool) -> Decision {
        let earlier = usize::try_from(claims.saturating_sub(1)).unwrap_or(usize::MAX);
        let recorded = self.starts.len() + self.given_back as usize + self.waits as usize;
        let lives = |start: &Start| start.instance.as_deref().is_some_and(&lives);
        if self.starts.iter().any(&lives) && self.waits < MOST_WAITS {
            return Decision::Wait;
        }
        // Of claims without a record one may be the first start; others were lost on their way.
        let mut history: Vec<Start> = Vec::new();
        if earlier > recorded {
            history.push(Start::unknown());
        }
        history.extend(self.starts.iter().filter(|start| !lives(start)).cloned());
        match history.len() {
            deaths
                if deaths >= MOST_STARTS && self.starts.last().is_some_and(|last| last.alone) =>
            {
                Decision::GiveUp(history)
            }
            deaths if deaths >= ALONE_FROM => Decision::RunAlone,
            _ => Decision::Run,
        }
    }

    /// Returns whether some start may count against the job.
    pub fn instances(&self) -> impl Iterator<Item = &str> {
        self.starts.iter().filter_map(|start| start.instance.as_deref())
    }

    /// Adds a start.
    pub fn add(&mut self, start: Start) {
        self.starts.push(start);
        if self.starts.len() > MOST_RECORDED {
            self.starts.remove(0);
            self.given_back += 1;
        }
    }

    /// Counts that the job was put off.
    pub fn put_off(&mut self) {
        self.waits = self.waits.saturating_add(1);
    }

    /// Takes a claim back that this process has made, with its start if there was one.
    pub fn give_back(&mut self, instance: &str) {
        let own = |start: &Start| start.instance.as_deref() == Some(instance);
        if let Some(at) = self.starts.iter().rposition(own) {
            self.starts.remove(at);
        }
        self.given_back = self.given_back.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(_: &str) -> bool {
        false
    }

    fn record(starts: &[(&str, bool)]) -> Record {
        let starts = starts.iter().map(|(worker, alone)| Start::new(worker, worker, *alone));
        Record { starts: starts.collect(), ..Record::default() }
    }

    #[test]
    fn a_job_that_kills_runs_alone_and_is_then_given_up() {
        assert_eq!(Record::default().decide(1, dead), Decision::Run);
        // The first start has no record.
        assert_eq!(Record::default().decide(2, dead), Decision::Run);
        assert_eq!(record(&[("a", false)]).decide(3, dead), Decision::RunAlone);
        let given_up = record(&[("a", false), ("b", true)]).decide(4, dead);
        let Decision::GiveUp(history) = given_up else { panic!("{given_up:?}") };
        assert_eq!(history[0], Start::unknown());
        assert_eq!(history[1..], record(&[("a", false), ("b", true)]).starts);
    }

    #[test]
    fn a_job_is_never_given_up_before_it_has_run_alone() {
        let many = record(&[("a", false), ("b", false), ("c", false), ("d", false)]);
        assert_eq!(many.decide(6, dead), Decision::RunAlone);
    }

    #[test]
    fn deliveries_that_started_nothing_do_not_count() {
        // A server that went away and came back may deliver a job many times.
        assert_eq!(Record::default().decide(50, dead), Decision::Run);
        let mut given_back = Record::default();
        for claim in 1..50 {
            assert_eq!(given_back.decide(claim, dead), Decision::Run);
            given_back.give_back("a");
        }
        assert_eq!(given_back.starts, []);
        let mut started = record(&[("a", false)]);
        started.give_back("a");
        assert_eq!(started.decide(3, dead), Decision::Run);
    }

    #[test]
    fn what_somebody_runs_is_put_off_for_a_while() {
        let mut record = record(&[("a", false)]);
        assert_eq!(record.decide(3, |worker| worker == "a"), Decision::Wait);
        for _ in 0..MOST_WAITS {
            record.put_off();
        }
        assert_eq!(record.decide(200, |worker| worker == "a"), Decision::Run);
    }

    #[test]
    fn a_record_stays_short() {
        let mut record = Record::default();
        for _ in 0..100 {
            record.add(Start::new("a", "a", false));
        }
        assert_eq!((record.starts.len(), record.given_back), (MOST_RECORDED, 84));
    }
}
