//! Which job is next: priorities, shares, caps, and bounds on waiting.

use std::collections::BTreeMap;

use super::*;
use crate::config::TenantConfig;

fn weighted(weights: &[(&str, u32)]) -> SchedulerConfig {
    let config = |weight| TenantConfig { weight, ..TenantConfig::default() };
    let tenants = weights.iter().map(|(name, weight)| ((*name).to_owned(), config(*weight)));
    SchedulerConfig { tenants: tenants.collect(), ..roomy() }
}

fn dispatched(effects: &[Effect]) -> Option<u64> {
    effects.iter().find_map(|effect| match effect {
        Effect::Dispatch { job, .. } => Some(job.0),
        _ => None,
    })
}

/// Two workers that never run out of jobs, and a record of how each tenant's jobs fare.
struct Saturated {
    harness: Harness,
    tenant_of: BTreeMap<u64, usize>,
    names: Vec<&'static str>,
    /// Each worker's job: when it ends, its id and its CPU time.
    runs: Vec<Option<(Time, u64, Duration)>>,
    cpu: Vec<Duration>,
    order: Vec<u64>,
}

impl Saturated {
    fn new(weights: &[(&'static str, u32)], jobs_each: u64) -> Self {
        let mut harness = Harness::new(weighted(weights));
        let mut tenant_of = BTreeMap::new();
        for round in 0..jobs_each {
            for (at, (name, _)) in weights.iter().enumerate() {
                let job = round * weights.len() as u64 + at as u64 + 1;
                let queued = Queued { tenant: Arc::from(*name), ..queued() };
                let _ = harness.model.submit(JobId(job), queued, harness.now);
                tenant_of.insert(job, at);
            }
        }
        let names = weights.iter().map(|(name, _)| *name).collect();
        let cpu = vec![Duration::ZERO; weights.len()];
        Self { harness, tenant_of, names, runs: vec![None; 2], cpu, order: Vec::new() }
    }

    /// Runs this many jobs; each takes as long as `took` says for its tenant.
    fn run(&mut self, jobs: usize, mut took: impl FnMut(usize) -> Duration) {
        for worker in 0..2 {
            self.begin(worker, &mut took);
        }
        for _ in 0..jobs {
            let ends = |run: &Option<(Time, u64, Duration)>| run.map(|(at, _, _)| at);
            let worker = (0..2).min_by_key(|worker| ends(&self.runs[*worker])).unwrap();
            let Some((at, job, took_it)) = self.runs[worker].take() else { return };
            self.harness.now = at;
            self.cpu[self.tenant_of[&job]] += took_it;
            let report = Report { wall: took_it, cpu: took_it, ..Report::default() };
            let _ = self.harness.model.finish(id_of(worker), JobId(job), &report, at);
            self.begin(worker, &mut took);
        }
    }

    fn begin(&mut self, worker: usize, took: &mut impl FnMut(usize) -> Duration) {
        let ready = Event::Ready {
            worker: id_of(worker),
            build: BuildId::default(),
            memory_bytes: 0,
            kept_bytes: 0,
            stays: false,
        };
        let effects = self.harness.model.handle(ready, self.harness.now);
        let Some(job) = dispatched(&effects) else { return };
        self.order.push(job);
        let took = took(self.tenant_of[&job]);
        self.runs[worker] = Some((self.harness.now + took, job, took));
    }

    fn share(&self, of: &str, to: &str) -> f64 {
        let cpu = |name| {
            let at = self.names.iter().position(|other| *other == name).unwrap();
            self.cpu[at].as_secs_f64()
        };
        cpu(of) / cpu(to)
    }
}

fn id_of(worker: usize) -> WorkerId {
    WorkerId(worker as u64 + 1)
}

#[test]
fn twice_the_weight_is_twice_the_cpu_time_while_both_want_it() {
    let constant = |millis: u64| move |_: usize| Duration::from_millis(millis);
    let mut even = Saturated::new(&[("two", 2), ("one", 1)], 4_000);
    even.run(3_000, constant(10));
    let mut random = Random(7);
    let mut varied = Saturated::new(&[("two", 2), ("one", 1)], 4_000);
    varied.run(3_000, |_| Duration::from_micros(100 + random.below(40_000)));
    // With short jobs against long ones, time is shared, not turns.
    let mut uneven = Saturated::new(&[("two", 2), ("one", 1)], 20_000);
    uneven.run(12_000, |tenant| Duration::from_millis([2, 30][tenant]));
    let mut random = Random(8);
    let mut bursty = Saturated::new(&[("two", 2), ("one", 1)], 20_000);
    bursty.run(12_000, |tenant| {
        Duration::from_millis(if random.one_in(10) { [90, 3][tenant] } else { 2 })
    });
    for (name, saturated) in
        [("even", even), ("varied", varied), ("uneven", uneven), ("bursty", bursty)]
    {
        let share = saturated.share("two", "one");
        assert!((1.9..=2.1).contains(&share), "{name}: {share}");
    }
}

#[test]
fn many_tenants_get_what_they_weigh() {
    let weights = [("a", 1), ("b", 2), ("c", 3), ("d", 5)];
    let mut saturated = Saturated::new(&weights, 4_000);
    let mut random = Random(3);
    saturated.run(6_000, |_| Duration::from_micros(500 + random.below(5_000)));
    for (name, weight) in weights {
        let share = saturated.share(name, "a") / f64::from(weight);
        assert!((0.95..=1.05).contains(&share), "{name}: {share}");
    }
}

#[test]
fn nothing_is_overtaken_by_more_than_the_shares_allow() {
    let weights = [("a", 1), ("b", 2), ("c", 5)];
    let mut saturated = Saturated::new(&weights, 1_000);
    saturated.run(2_000, |_| Duration::from_millis(5));
    let total: u32 = weights.iter().map(|(_, weight)| weight).sum();
    let mut seen = [0_u64; 3];
    for (at, job) in saturated.order.iter().enumerate() {
        let tenant = saturated.tenant_of[job];
        // A tenant's n-th job begins within n rounds of the summed weights, give or take running
        // jobs.
        let rounds = (seen[tenant] + 1) * u64::from(total) / u64::from(weights[tenant].1);
        let slack = weights.len() as u64 + 2;
        assert!(at as u64 <= rounds + slack, "job {job} of tenant {tenant} came as number {at}");
        seen[tenant] += 1;
    }
}

#[test]
fn the_jobs_of_a_tenant_go_by_age_and_priority_and_none_waits_for_ever() {
    let config = SchedulerConfig { concurrent: 1, priority_step: seconds(10), ..roomy() };
    let mut harness = Harness::new(config);
    let as_priority = |priority| Queued { priority, ..queued() };
    let _ = harness.submit_as(1, as_priority(Priority::Low));
    let _ = harness.submit_as(2, as_priority(Priority::Normal));
    let _ = harness.submit_as(3, as_priority(Priority::High));
    harness.now = seconds(9);
    let _ = harness.submit_as(4, as_priority(Priority::High));
    harness.now = seconds(20);
    let _ = harness.submit_as(5, as_priority(Priority::High));
    let _ = harness.ready(1);
    let mut order = vec![3];
    for _ in 0..4 {
        let job = *order.last().unwrap();
        let _ = harness.finish(1, job);
        order.extend(dispatched(&harness.ready(1)));
    }
    // Twenty seconds later, nothing overtakes even a job of low priority.
    assert_eq!(order, [3, 4, 2, 1, 5]);
}

#[test]
fn a_tenant_runs_no_more_than_it_may_and_others_go_on() {
    let mut config = roomy();
    let capped = TenantConfig { concurrent: 1, ..TenantConfig::default() };
    config.tenants.insert("capped".to_owned(), capped);
    let mut harness = Harness::new(config);
    let _ = harness.ready(1);
    let _ = harness.ready(2);
    assert_eq!(dispatched(&harness.submit_of(1, "capped").1), Some(1));
    assert_eq!(harness.submit_of(2, "capped"), admitted([]));
    assert_eq!(dispatched(&harness.submit_of(3, "other").1), Some(3));
    assert_eq!(harness.finish(2, 1), concluded([]));
    assert_eq!(dispatched(&harness.ready(2)), Some(2));
}

#[test]
fn a_tenant_without_jobs_saves_up_no_credit() {
    let mut harness = Harness::new(SchedulerConfig { concurrent: 1, ..roomy() });
    let _ = harness.ready(1);
    for job in 1..=100 {
        harness.run(job, Queued { tenant: Arc::from("busy"), ..queued() }, seconds(1));
    }
    let _ = harness.submit_of(101, "busy");
    let mut order = Vec::new();
    for job in (102..122).step_by(2) {
        let _ = harness.submit_of(job, "busy");
        let _ = harness.submit_of(job + 1, "new");
    }
    let mut job = 101;
    for _ in 0..10 {
        harness.now += seconds(1);
        let report = Report { wall: seconds(1), cpu: seconds(1), ..Report::default() };
        let _ = harness.finish_as(1, job, report);
        job = dispatched(&harness.ready(1)).unwrap();
        order.push(job);
    }
    let new = order.iter().filter(|job| **job % 2 == 1).count();
    assert!((4..=6).contains(&new), "{order:?}");
}

#[test]
fn tenants_that_are_gone_are_forgotten() {
    let mut harness = Harness::new(SchedulerConfig { concurrent: 1, ..roomy() });
    let _ = harness.ready(1);
    for job in 1..=2_000 {
        let tenant = Arc::from(format!("tenant-{job}"));
        harness.run(job, Queued { tenant, ..queued() }, Duration::from_millis(1));
    }
    // The invariants bound how many tenants are remembered.
    assert_eq!(harness.model.check_invariants(), Ok(()));
    assert!(harness.model.fair_queue.tenant("tenant-1").is_none());
}

#[test]
fn tenants_that_are_ahead_of_one_that_runs_are_forgotten_too() {
    let mut harness = Harness::new(roomy());
    let _ = (harness.ready(2), harness.ready(1));
    let _ = harness.submit_of(1, "long");
    for job in 2..=2_500 {
        let tenant = Arc::from(format!("tenant-{job}"));
        harness.run(job, Queued { tenant, ..queued() }, Duration::from_millis(1));
    }
    assert_eq!(harness.model.check_invariants(), Ok(()));
    let is_remembered =
        |job: &u64| harness.model.fair_queue.tenant(&format!("tenant-{job}")).is_some();
    assert_eq!((2..=2_500).filter(is_remembered).count(), 2_000);
}

#[test]
fn waiting_jobs_end_at_their_deadlines_and_running_ones_know_theirs() {
    let mut harness = Harness::small(1, 10);
    let due = |due| Queued { deadline: Some(seconds(due)), ..queued() };
    let _ = harness.ready(1);
    let runs = Effect::Dispatch {
        job: JobId(1),
        worker: WorkerId(1),
        due_in: Some(seconds(3)),
        cut: None,
    };
    assert_eq!(harness.submit_as(1, due(3)), admitted([runs]));
    let _ = harness.submit_as(2, due(5));
    let _ = harness.submit_as(3, due(4));
    assert_eq!(harness.model.next_wake(), Some(seconds(4)));
    assert_eq!(harness.pass(seconds(3)), []);
    let passed = |allowed, waited| Settlement::DeadlinePassed {
        allowed: seconds(allowed),
        waited: seconds(waited),
    };
    assert_eq!(harness.pass(seconds(1)), [settle(3, passed(4, 4))]);
    // A worker that becomes ready too late finds no job.
    harness.now = seconds(6);
    assert_eq!(harness.finish(1, 1), concluded([settle(2, passed(5, 6))]));
    assert_eq!(harness.model.next_wake(), None);
}
