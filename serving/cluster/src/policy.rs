//! The decisions of a queue's worker, as pure functions: claims and their lanes, the meaning of a
//! job's history, and the sessions it owns.
//!
//! Nothing here waits, reads a clock or sends; a time is the duration since a moment that the
//! caller chooses. The worker carries the decisions out, and so does the simulation
//! in `examples/simulation/`. They are public only for the simulation, and may change at any time.

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub mod session;

/// Signs of life in the time of a claim: two may be lost before the claim is.
pub const SIGNS: u32 = 3;

// Who started a job, and whether it is at fault.
//
// The first start isn't recorded, so that a job that ends well costs nothing here. From the second
// claim on, each start is. A start counts against the job if its worker is dead.

/// A start of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Start {
    /// The worker's name; `None` for a first start, of which nobody keeps a record.
    pub worker: Option<String>,
    /// The worker's process.
    pub instance: Option<String>,
    /// Whether nothing else ran there.
    pub alone: bool,
}

impl Start {
    /// Returns the start of a job by a worker of this name and process.
    pub fn new(worker: &str, instance: &str, alone: bool) -> Self {
        Self { worker: Some(worker.to_owned()), instance: Some(instance.to_owned()), alone }
    }

    fn unknown() -> Self {
        Self { worker: None, instance: None, alone: false }
    }
}

/// Starts whose workers died, after which a job runs alone.
const ALONE_FROM: usize = 2;
/// Starts whose workers died, after which a job becomes a dead letter.
const MOST_STARTS: usize = 3;
/// Starts in a record. More aren't made of a job that kills, and those of a job that doesn't are
/// dropped from the front.
const MOST_RECORDED: usize = 16;
/// How often a job that somebody else still runs is put off.
const MOST_WAITS: u32 = 100;

/// What is known of a job's claims.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobHistory {
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

impl JobHistory {
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

/// How long a lane that was empty isn't asked again, unless a client says that it has jobs. Jobs
/// that others give back, or that the dead have claimed, wait up to this long.
pub const EMPTY: Duration = Duration::from_secs(1);

/// What a worker knows of its lanes, which are named by their index.
#[derive(Debug, Clone, Default)]
pub struct Shares {
    lanes: Vec<LaneShare>,
}

#[derive(Debug, Clone)]
struct LaneShare {
    /// 0 for the most urgent.
    rank: u8,
    weight: f64,
    /// Jobs claimed so far, divided by the weight.
    claimed: f64,
    /// Until when it isn't asked.
    empty_until: Option<Duration>,
}

impl Shares {
    /// Adds a lane, and returns its index. The most urgent ones have rank 0. It begins level with
    /// the others.
    pub fn add(&mut self, rank: u8, weight: f64) -> usize {
        let claimed = self.lanes.iter().map(|lane| lane.claimed).fold(f64::INFINITY, f64::min);
        let claimed = if claimed.is_finite() { claimed } else { 0.0 };
        self.lanes.push(LaneShare { rank, weight, claimed, empty_until: None });
        self.lanes.len() - 1
    }

    /// Returns the lane to ask next, of those that weren't asked for the present jobs.
    pub fn next(&self, asked: &[usize], now: Duration) -> Option<usize> {
        let may_have = |lane: &LaneShare| lane.empty_until.is_none_or(|until| until <= now);
        let lanes = self.lanes.iter().enumerate();
        let left = lanes.filter(|(index, lane)| may_have(lane) && !asked.contains(index));
        let next = left.min_by(|(_, one), (_, other)| {
            one.rank.cmp(&other.rank).then(one.claimed.total_cmp(&other.claimed))
        })?;
        Some(next.0)
    }

    /// Counts what a lane has given; if that was less than was asked for, until when it isn't asked
    /// again.
    pub fn account(&mut self, index: usize, got: usize, empty_until: Option<Duration>) {
        // A long idle lane gets no credit for it.
        let least = (self.lanes.iter().enumerate())
            .filter(|(other, lane)| *other != index && lane.empty_until.is_none())
            .map(|(_, lane)| lane.claimed)
            .fold(f64::INFINITY, f64::min);
        let Some(lane) = self.lanes.get_mut(index) else { return };
        if got > 0 && lane.empty_until.is_some() && least.is_finite() {
            lane.claimed = lane.claimed.max(least);
        }
        lane.claimed += got as f64 / lane.weight;
        lane.empty_until = empty_until;
    }

    /// Notes that a lane has jobs.
    pub fn wake(&mut self, index: usize) {
        if let Some(lane) = self.lanes.get_mut(index) {
            lane.empty_until = None;
        }
    }

    /// Returns how long no lane is to be asked, after none gave any.
    pub fn wait(&self, now: Duration) -> Duration {
        let waits = self.lanes.iter().map(|lane| match lane.empty_until {
            Some(until) => until.saturating_sub(now),
            // It didn't answer.
            None => EMPTY,
        });
        waits.min().unwrap_or(EMPTY).max(Duration::from_millis(1))
    }
}

// Which worker asks for the turns of which partition.
//
// Every worker decides for itself, from the same list of who lives: of each partition it is the one
// with the largest digest of both names. So when a worker comes or goes, only partitions move that
// are its own, and nobody has to agree on anything. Lists may differ for a while; then two workers
// ask for one partition, and the server pins one of them.

/// Returns whether this worker is to ask for a partition, given the instances that live. Its own
/// needn't be among them.
pub fn owns_partition<'a>(
    partition: u8,
    own: &str,
    living: impl IntoIterator<Item = &'a str>,
) -> bool {
    let weight = |instance: &str| {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&[partition]).update(instance.as_bytes());
        *hasher.finalize().as_bytes()
    };
    let mine = weight(own);
    living.into_iter().all(|other| other == own || weight(other) < mine)
}

/// How long jobs that were claimed ahead may be expected to wait for a slot, and urgent ones that
/// come meanwhile.
const AHEAD: Duration = Duration::from_millis(32);
/// The most jobs that are claimed ahead for each slot.
pub const MOST_AHEAD: usize = 64;
/// How many mean times of a run a result waits for others.
const RUNS_HELD: u64 = 4;
/// The longest that a result waits for others.
const LONGEST_HELD: Duration = Duration::from_millis(8);
/// The weight of the latest run in the mean, as a power of two.
const WEIGHT_BITS: u32 = 3;

/// Returns how many jobs to claim now, given how many are claimed and the mean time of a run in
/// microseconds, which is 0 if none has ended yet.
pub fn claim_budget(slots: usize, claimed: usize, mean_us: u64) -> usize {
    let ahead = ahead(slots, mean_us);
    let room = (slots + ahead).saturating_sub(claimed);
    // In few requests, unless a slot is free.
    if claimed >= slots && room <= ahead / 2 { 0 } else { room }
}

/// Returns how long a result may wait for others, given the mean time of a run in microseconds. Those
/// of programs that take longer than that together gain nothing.
pub fn held(mean_us: u64) -> Duration {
    let held = Duration::from_micros(mean_us.saturating_mul(RUNS_HELD));
    if Duration::from_micros(mean_us) > LONGEST_HELD {
        Duration::ZERO
    } else {
        held.min(LONGEST_HELD)
    }
}

/// Returns how many jobs to claim beyond the slots.
fn ahead(slots: usize, mean_us: u64) -> usize {
    if mean_us == 0 {
        return 0;
    }
    let each = AHEAD.as_micros() / u128::from(mean_us);
    slots * usize::try_from(each).unwrap_or(MOST_AHEAD).min(MOST_AHEAD)
}

/// Returns the mean time of a run in microseconds, after another run; it is at least 1.
pub fn mean_after(mean_us: u64, run: Duration) -> u64 {
    let time = u64::try_from(run.as_micros()).unwrap_or(u64::MAX).max(1);
    // A long run counts at once: others may follow it.
    let is_longer = mean_us == 0 || time > mean_us;
    let mean = if is_longer { time } else { mean_us - (mean_us - time) / (1 << WEIGHT_BITS) };
    mean.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(_: &str) -> bool {
        false
    }

    fn record(starts: &[(&str, bool)]) -> JobHistory {
        let starts = starts.iter().map(|(worker, alone)| Start::new(worker, worker, *alone));
        JobHistory { starts: starts.collect(), ..JobHistory::default() }
    }

    #[test]
    fn a_job_that_kills_runs_alone_and_is_then_given_up() {
        assert_eq!(JobHistory::default().decide(1, dead), Decision::Run);
        // The first start has no record.
        assert_eq!(JobHistory::default().decide(2, dead), Decision::Run);
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
        assert_eq!(JobHistory::default().decide(50, dead), Decision::Run);
        let mut given_back = JobHistory::default();
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
        let mut record = JobHistory::default();
        for _ in 0..100 {
            record.add(Start::new("a", "a", false));
        }
        assert_eq!((record.starts.len(), record.given_back), (MOST_RECORDED, 84));
    }

    const SECOND: Duration = Duration::from_secs(1);

    /// Takes jobs one at a time from lanes that never end, and counts them.
    fn served(shares: &mut Shares, lanes: usize, jobs: usize) -> Vec<usize> {
        let mut counts = vec![0; lanes];
        for _ in 0..jobs {
            let index = shares.next(&[], Duration::ZERO).unwrap();
            shares.account(index, 1, None);
            counts[index] += 1;
        }
        counts
    }

    #[test]
    fn tenants_of_one_priority_share_by_weight() {
        let mut shares = Shares::default();
        for weight in [1.0, 2.0, 5.0] {
            shares.add(1, weight);
        }
        assert_eq!(served(&mut shares, 3, 800), [100, 200, 500]);
    }

    #[test]
    fn urgent_lanes_come_first_and_empty_ones_are_left_alone() {
        let mut shares = Shares::default();
        let (low, high) = (shares.add(2, 1.0), shares.add(0, 1.0));
        assert_eq!(shares.next(&[], Duration::ZERO), Some(high));
        assert_eq!(shares.next(&[high], Duration::ZERO), Some(low));
        shares.account(high, 0, Some(SECOND));
        assert_eq!(shares.next(&[], Duration::ZERO), Some(low));
        shares.account(low, 0, Some(2 * SECOND));
        assert_eq!(shares.next(&[], Duration::ZERO), None);
        assert_eq!(shares.wait(SECOND / 2), SECOND / 2);
        shares.wake(low);
        assert_eq!(shares.next(&[], Duration::ZERO), Some(low));
        assert_eq!(shares.next(&[], SECOND), Some(high));
    }

    #[test]
    fn a_long_idle_lane_saves_nothing_up() {
        let mut shares = Shares::default();
        let (busy, resting) = (shares.add(1, 1.0), shares.add(1, 1.0));
        shares.account(resting, 0, Some(SECOND));
        for _ in 0..1000 {
            shares.account(busy, 1, None);
        }
        shares.account(resting, 1, None);
        let counts = served(&mut shares, 2, 100);
        assert!(counts[busy].abs_diff(counts[resting]) <= 2, "{counts:?}");
    }

    const PARTITIONS: u8 = 64;

    fn homes(living: &[String]) -> Vec<Vec<usize>> {
        let home = |partition| {
            let owns_partition =
                |own: &String| owns_partition(partition, own, living.iter().map(String::as_str));
            (0..living.len()).filter(|at| owns_partition(&living[*at])).collect()
        };
        (0..PARTITIONS).map(home).collect()
    }

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("instance-{number}")).collect()
    }

    #[test]
    fn each_partition_has_one_home_and_each_worker_its_share() {
        for count in [1, 2, 3, 8] {
            let homes = homes(&names(count));
            assert!(homes.iter().all(|home| home.len() == 1), "{homes:?}");
            for worker in 0..count {
                let own = homes.iter().filter(|home| home[0] == worker).count();
                let share = usize::from(PARTITIONS) / count;
                assert!(own >= share / 3 && own <= share * 3, "{count}: {own} of {share}");
            }
        }
    }

    #[test]
    fn when_a_worker_goes_only_its_own_partitions_move() {
        let before = homes(&names(5));
        let after = homes(&names(4));
        for (before, after) in before.iter().zip(&after) {
            assert!(before[0] == 4 || before == after);
        }
    }

    #[test]
    fn a_worker_that_nobody_knows_yet_asks_for_its_share() {
        let living = names(3);
        let asks = |own: &str| {
            let living = || living.iter().map(String::as_str);
            (0..PARTITIONS).filter(|partition| owns_partition(*partition, own, living())).count()
        };
        assert!((5..30).contains(&asks("new")), "{}", asks("new"));
    }

    #[test]
    fn as_many_are_claimed_as_slots_are_free() {
        assert_eq!(claim_budget(3, 0, 0), 3);
        assert_eq!(claim_budget(3, 1, 50_000), 2);
        assert_eq!(claim_budget(3, 3, 50_000), 0);
        assert_eq!(claim_budget(3, 5, 50_000), 0);
    }

    #[test]
    fn short_jobs_are_claimed_ahead_in_few_requests() {
        assert_eq!(claim_budget(2, 0, 4000), 2 + 16);
        assert_eq!(claim_budget(2, 8, 4000), 10);
        assert_eq!(claim_budget(2, 10, 4000), 0);
        assert_eq!(claim_budget(2, 1, 4000), 17);
        assert_eq!(claim_budget(2, 0, 10), 2 + 2 * MOST_AHEAD);
    }

    #[test]
    fn results_of_short_runs_wait_for_each_other() {
        assert_eq!(held(0), Duration::ZERO);
        assert_eq!(held(100), Duration::from_micros(400));
        assert_eq!(held(6000), LONGEST_HELD);
        assert_eq!(held(50_000), Duration::ZERO);
    }

    #[test]
    fn a_long_run_counts_at_once_and_short_ones_slowly() {
        let ms = Duration::from_millis;
        assert_eq!(mean_after(0, ms(2)), 2000);
        assert_eq!(mean_after(500, ms(50)), 50_000);
        assert_eq!(mean_after(8000, Duration::ZERO), 7001);
        let mean = (0..100).fold(50_000, |mean, _| mean_after(mean, ms(1)));
        assert!((1000..1010).contains(&mean), "{mean}");
    }
}
