//! A cluster as a sequence of events: workers claim jobs from lanes and run them, some vanish, and
//! some jobs kill their worker. What workers decide is [`cluster::policy`]; times and places come
//! from a seed.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use cluster::policy::{
    Decision, EMPTY, JobHistory, SIGNS, Shares, Start, claim_budget, mean_after,
};

use super::queue::{Job, Lane};
use super::scenario::{Report, Scenario};

/// Microseconds since the start.
type Time = u64;

const SECOND: Time = 1_000_000;
/// From a request to its answer.
const ROUND_TRIP: Time = 1_000;
/// How long a claim lasts without a sign of life, as in the worker's default settings.
const CLAIM: Time = 30 * SECOND;
/// Until a worker that a job took down is back.
const RESTART: Time = 5 * SECOND;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A worker looks for jobs, of its present life.
    Look { worker: u32, life: u32 },
    /// The server answers a request.
    Answer { worker: u32, life: u32, lane: u32, wanted: u32 },
    /// A run ends.
    End { worker: u32, life: u32, job: Job },
    /// A claim whose worker died runs out.
    RunOut { job: Job },
    /// A worker is back.
    Restart { worker: u32 },
}

#[derive(Debug, Default)]
struct Worker {
    life: u32,
    is_alive: bool,
    /// Whether it asks, or waits for its next look.
    is_asking: bool,
    claims: HashMap<Job, Time>,
    /// Claimed jobs that haven't started, in their order; whether they run alone.
    waiting: VecDeque<(Job, bool)>,
    running: u32,
    runs_alone: bool,
    mean_us: u64,
    shares: Shares,
    asked: Vec<usize>,
    /// Jobs that the present requests have brought.
    got: u32,
}

/// What is known of a job that was claimed more than once.
#[derive(Debug, Default)]
struct Again {
    claims: u64,
    record: JobHistory,
}

pub(crate) struct Cluster {
    scenario: Scenario,
    now: Time,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    lanes: Vec<Lane>,
    /// The first job of each lane.
    firsts: Vec<Job>,
    workers: Vec<Worker>,
    again: HashMap<Job, Again>,
    has_result: Vec<bool>,
    results_of: Vec<u64>,
    /// Work whose result isn't there yet, in microseconds.
    left: u64,
    running: u64,
    slots: u64,
    idle: f64,
    offered: f64,
    urgent_since: Time,
    vanished_at: Option<Time>,
    report: Report,
}

/// A number that depends on the seed and on what it is for.
fn hashed(seed: u64, of: u64) -> u64 {
    let mut value = seed ^ of.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl Cluster {
    pub(crate) fn new(scenario: Scenario) -> Self {
        let mut lanes = Vec::new();
        let mut firsts = Vec::new();
        let mut end = 0;
        for tenant in &scenario.tenants {
            firsts.push(end);
            lanes.push(Lane::new(end..end + tenant.jobs, tenant.limit));
            end += tenant.jobs;
        }
        // The urgent lane is empty until its jobs come.
        firsts.push(end);
        lanes.push(Lane::new(end..end, u32::MAX));
        let all = scenario.jobs() as usize;
        let slots = u64::from(scenario.workers) * u64::from(scenario.slots);
        let mut cluster = Self {
            now: 0,
            events: BinaryHeap::new(),
            lanes,
            firsts,
            workers: (0..scenario.workers).map(|_| Worker::default()).collect(),
            again: HashMap::new(),
            has_result: vec![false; all],
            results_of: vec![0; scenario.tenants.len() + 1],
            left: 0,
            running: 0,
            slots,
            idle: 0.0,
            offered: 0.0,
            urgent_since: 0,
            vanished_at: None,
            report: Report::default(),
            scenario,
        };
        cluster.left = (0..all as Job).map(|job| cluster.time_of(job)).sum();
        for worker in 0..cluster.scenario.workers {
            cluster.begin(worker);
        }
        cluster
    }

    /// Runs until every job has its result.
    ///
    /// # Panics
    /// A job has two results, or gets none.
    pub(crate) fn run(mut self) -> Report {
        let all = self.has_result.len() as u64;
        let (mut is_measured, mut drain_from) = (false, (0, 0.0));
        while self.report.results < all {
            let Some(Reverse((time, _, event))) = self.events.pop() else {
                panic!("{} of {all} jobs have results, and nothing progresses", self.report.results)
            };
            self.pass(time);
            self.report.events += 1;
            self.handle(event);
            if !is_measured && self.report.results >= all / 4 {
                is_measured = true;
                self.report.at_a_quarter.clone_from(&self.results_of);
                self.add_urgent();
            }
            if self.vanished_at.is_none() && self.report.results >= all / 2 {
                self.vanished_at = Some(self.now);
                self.vanish();
                drain_from = (self.now, self.left as f64 / self.slots as f64);
            }
        }
        let seconds = |time: f64| time / SECOND as f64;
        let report = &mut self.report;
        report.seconds = seconds(self.now as f64);
        report.idle = self.idle / self.offered;
        report.drain_seconds = seconds((self.now - drain_from.0) as f64);
        report.ideal_drain_seconds = seconds(drain_from.1);
        report.most_claimed = self.lanes.iter().map(|lane| lane.most_claimed).collect();
        // A worker says that it lives three times in the half of a claim that it counts as alive.
        let lives = self.slots / u64::from(self.scenario.slots) * self.now / (CLAIM / 6);
        report.messages.presence += 2 * lives;
        // Submitted and stored, both acknowledged, and fetched by the submitter.
        report.messages.jobs += 5 * all;
        self.report
    }

    fn push(&mut self, after: Time, event: Event) {
        let number = self.report.events << 20 | self.events.len() as u64;
        self.events.push(Reverse((self.now + after, number, event)));
    }

    /// Lets time pass, and counts the slots that are idle although a job could be claimed.
    fn pass(&mut self, time: Time) {
        if time > self.now {
            let passed = (time - self.now) as f64;
            self.offered += passed * self.slots as f64;
            if self.lanes.iter().any(Lane::is_open) {
                self.idle += passed * (self.slots - self.running) as f64;
            }
            self.now = time;
        }
    }

    /// How long a job runs.
    fn time_of(&self, job: Job) -> Time {
        let tenant = self.scenario.tenants.get(self.lane_of(job)).copied();
        let mean = tenant.map_or(1.0, |tenant| tenant.mean_seconds);
        let unit = (hashed(self.scenario.seed, u64::from(job)) >> 11) as f64 / (1_u64 << 53) as f64;
        let seconds = (-(1.0 - unit).ln() * mean).clamp(0.05, 60.0);
        (seconds * SECOND as f64) as Time
    }

    fn lane_of(&self, job: Job) -> usize {
        self.firsts.partition_point(|first| *first <= job) - 1
    }

    fn is_poison(&self, job: Job) -> bool {
        self.scenario.is_poison(job)
    }

    fn begin(&mut self, index: u32) {
        let mut shares = Shares::default();
        for tenant in &self.scenario.tenants {
            shares.add(1, f64::from(tenant.weight));
        }
        shares.add(0, 1.0);
        let worker = &mut self.workers[index as usize];
        let life = worker.life + 1;
        *worker = Worker { life, is_alive: true, is_asking: true, shares, ..Worker::default() };
        // They don't start in one moment.
        let delay = hashed(self.scenario.seed, u64::from(index) << 32) % (100 * ROUND_TRIP);
        self.push(delay, Event::Look { worker: index, life });
    }

    /// Returns the worker, if it still lives this life.
    fn living(&mut self, index: u32, life: u32) -> Option<&mut Worker> {
        let worker = &mut self.workers[index as usize];
        (worker.is_alive && worker.life == life).then_some(worker)
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Look { worker, life } => {
                if self.living(worker, life).is_some() {
                    self.look(worker);
                }
            }
            Event::Answer { worker, life, lane, wanted } => {
                // What is given to a worker that died on its way waits until the claim runs out.
                self.answer(worker, life, lane as usize, wanted);
            }
            Event::End { worker, life, job } => {
                if self.living(worker, life).is_some() {
                    self.end(worker, job);
                }
            }
            Event::RunOut { job } => {
                let lane = self.lane_of(job);
                self.lanes[lane].offer_again(job);
            }
            Event::Restart { worker } => {
                self.slots += u64::from(self.scenario.slots);
                self.begin(worker);
            }
        }
    }

    /// Asks a lane for as many jobs as there is room for, or waits.
    fn look(&mut self, index: u32) {
        let slots = self.scenario.slots as usize;
        let now = Duration::from_micros(self.now);
        let worker = &mut self.workers[index as usize];
        let life = worker.life;
        let wanted = claim_budget(slots, worker.claims.len(), worker.mean_us);
        worker.is_asking = wanted > 0;
        if wanted == 0 {
            worker.asked.clear();
            worker.got = 0;
            return;
        }
        match worker.shares.next(&worker.asked, now) {
            Some(lane) => {
                worker.asked.push(lane);
                self.report.messages.requests += 1;
                let (lane, wanted) = (lane as u32, wanted as u32);
                self.push(ROUND_TRIP, Event::Answer { worker: index, life, lane, wanted });
            }
            None => {
                let wait = if worker.got > 0 { Duration::ZERO } else { worker.shares.wait(now) };
                worker.asked.clear();
                worker.got = 0;
                self.push(wait.as_micros() as Time, Event::Look { worker: index, life });
            }
        }
    }

    fn answer(&mut self, index: u32, life: u32, lane: usize, wanted: u32) {
        let mut jobs = Vec::new();
        while jobs.len() < wanted as usize
            && let Some(job) = self.lanes[lane].claim()
        {
            jobs.push(job);
        }
        let got = jobs.len();
        self.report.messages.claims += got as u64;
        let is_empty = got < wanted as usize;
        self.report.messages.requests += u64::from(is_empty);
        let empty_until = is_empty.then(|| Duration::from_micros(self.now) + EMPTY);
        let Some(worker) = self.living(index, life) else {
            for job in jobs {
                self.again.entry(job).or_default().claims += 1;
                self.push(CLAIM, Event::RunOut { job });
            }
            return;
        };
        worker.shares.account(lane, got, empty_until);
        worker.got += got as u32;
        for job in jobs {
            self.claim(index, job);
        }
        self.start(index);
        self.look(index);
    }

    /// Takes a claimed job, unless its history says otherwise.
    fn claim(&mut self, index: u32, job: Job) {
        let (now, life) = (self.now, self.workers[index as usize].life);
        let again = self.again.entry(job).or_default();
        again.claims += 1;
        let claims = again.claims;
        let decision = if claims == 1 {
            Decision::Run
        } else {
            self.report.messages.records += 4;
            if self.has_result[job as usize] {
                self.acknowledge(job);
                return;
            }
            let workers = &self.workers;
            let lives = |instance: &str| {
                let (worker, life) = instance.split_once('.').unwrap_or_default();
                let worker = worker.parse().ok().and_then(|worker: usize| workers.get(worker));
                worker.is_some_and(|w| w.is_alive && w.life.to_string() == life)
            };
            self.again[&job].record.decide(claims, lives)
        };
        let is_alone = match decision {
            Decision::Run => false,
            Decision::RunAlone => true,
            Decision::GiveUp(_) => {
                self.report.dead_letters.push(job);
                self.store(job);
                self.acknowledge(job);
                return;
            }
            // Claims run out only when their worker is dead.
            decision => panic!("job {job} of a dead worker: {decision:?}"),
        };
        if claims > 1 {
            self.report.messages.records += 4;
            let start = Start::new(&index.to_string(), &format!("{index}.{life}"), is_alone);
            if let Some(again) = self.again.get_mut(&job) {
                again.record.add(start);
            }
        }
        let worker = &mut self.workers[index as usize];
        worker.claims.insert(job, now);
        worker.waiting.push_back((job, is_alone));
    }

    /// Starts what may start: in order, since a job that runs alone holds back those behind.
    fn start(&mut self, index: u32) {
        loop {
            let worker = &mut self.workers[index as usize];
            let Some((job, is_alone)) = worker.waiting.front().copied() else { return };
            let is_free = worker.running < self.scenario.slots;
            if worker.runs_alone || is_alone && worker.running > 0 || !is_free {
                return;
            }
            worker.waiting.pop_front();
            worker.running += 1;
            worker.runs_alone = is_alone;
            let life = worker.life;
            self.running += 1;
            let is_first = self.again.get(&job).is_some_and(|again| again.claims == 1);
            if is_first && self.lane_of(job) == self.scenario.tenants.len() {
                let waited = (self.now - self.urgent_since) as f64 / SECOND as f64;
                self.report.urgent_seconds = self.report.urgent_seconds.max(waited);
            }
            let time = self.time_of(job);
            self.push(time, Event::End { worker: index, life, job });
        }
    }

    fn end(&mut self, index: u32, job: Job) {
        if self.is_poison(job) {
            self.die(index);
            self.push(RESTART, Event::Restart { worker: index });
            return;
        }
        let time = Duration::from_micros(self.time_of(job));
        let now = self.now;
        let worker = &mut self.workers[index as usize];
        worker.mean_us = mean_after(worker.mean_us, time);
        worker.running -= 1;
        worker.runs_alone = false;
        let claimed_at = worker.claims.remove(&job).unwrap_or(now);
        let must_look = !std::mem::replace(&mut worker.is_asking, true);
        self.running -= 1;
        self.report.messages.progress += (now - claimed_at) / (CLAIM / Time::from(SIGNS));
        match self.has_result[job as usize] {
            true => self.report.lost_runs += 1,
            false => self.store(job),
        }
        self.acknowledge(job);
        self.start(index);
        if must_look {
            self.look(index);
        }
    }

    fn store(&mut self, job: Job) {
        assert!(!std::mem::replace(&mut self.has_result[job as usize], true), "two results");
        self.report.results += 1;
        self.left -= self.time_of(job);
        let lane = self.lane_of(job);
        self.results_of[lane] += 1;
    }

    fn acknowledge(&mut self, job: Job) {
        let lane = self.lane_of(job);
        self.lanes[lane].acknowledge();
        self.report.messages.claims += 1;
        if self.again.remove(&job).is_some_and(|again| again.claims > 1) {
            self.report.messages.records += 2;
        }
    }

    /// A worker is gone, with everything that it runs. Its claims run out after their last sign of
    /// life.
    fn die(&mut self, index: u32) {
        let worker = &mut self.workers[index as usize];
        worker.is_alive = false;
        self.running -= u64::from(worker.running);
        self.report.lost_runs += u64::from(worker.running);
        self.slots -= u64::from(self.scenario.slots);
        let mut claims: Vec<_> = std::mem::take(&mut worker.claims).into_iter().collect();
        claims.sort_unstable();
        for (job, claimed_at) in claims {
            let since = (self.now - claimed_at) % (CLAIM / Time::from(SIGNS));
            self.push(CLAIM - since, Event::RunOut { job });
        }
    }

    fn vanish(&mut self) {
        let threshold = (self.scenario.vanishing * u64::MAX as f64) as u64;
        for index in 0..self.scenario.workers {
            let is_chosen = hashed(self.scenario.seed ^ 1, u64::from(index)) < threshold;
            if is_chosen && self.workers[index as usize].is_alive {
                self.die(index);
            }
        }
    }

    /// Urgent jobs come, and every worker hears of it.
    fn add_urgent(&mut self) {
        let lane = self.lanes.len() - 1;
        let first = self.firsts[lane];
        self.lanes[lane] = Lane::new(first..first + self.scenario.urgent, u32::MAX);
        self.urgent_since = self.now;
        for worker in &mut self.workers {
            worker.shares.wake(lane);
        }
        self.report.messages.presence += u64::from(self.scenario.workers);
    }
}
