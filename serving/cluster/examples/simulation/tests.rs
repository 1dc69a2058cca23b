//! A small run of the simulated cluster: what holds for a hundred workers in any order of events.
//! The example runs the large one.

use crate::cluster::Cluster;
use crate::scenario::{Report, Scenario, Tenant};

const WEIGHTS: [u32; 4] = [1, 2, 4, 8];
const LIMIT: u32 = 20;

fn scenario(seed: u64) -> Scenario {
    let of = |weight: &u32| Tenant {
        weight: *weight,
        jobs: weight * 4000,
        mean_seconds: if weight.is_multiple_of(4) { 1.0 } else { 3.0 },
        limit: u32::MAX,
    };
    let mut tenants: Vec<Tenant> = WEIGHTS.iter().map(of).collect();
    tenants.push(Tenant { weight: 8, jobs: 1000, mean_seconds: 1.0, limit: LIMIT });
    Scenario { seed, workers: 100, slots: 4, tenants, poison: 5, urgent: 200, vanishing: 1.0 / 3.0 }
}

fn runs() -> impl Iterator<Item = (Scenario, Report)> {
    (1..=5).map(|seed| (scenario(seed), Cluster::new(scenario(seed)).run()))
}

#[test]
fn every_job_has_one_result_and_only_poison_is_a_dead_letter() {
    for (scenario, report) in runs() {
        // A second result of a job would have ended the run.
        assert_eq!(report.results, u64::from(scenario.jobs()));
        let mut dead = report.dead_letters.clone();
        dead.sort_unstable();
        let poison: Vec<u32> =
            (0..scenario.jobs()).filter(|job| scenario.is_poison(*job)).collect();
        assert_eq!(dead, poison, "seed {}", scenario.seed);
        assert!(report.lost_runs > 100, "a third of the workers vanished: {report:?}");
    }
}

#[test]
fn slots_are_busy_while_there_are_jobs_and_a_loss_of_workers_costs_little_more_than_their_slots() {
    for (_, report) in runs() {
        assert!(report.idle < 0.02, "{report:?}");
        let most = report.ideal_drain_seconds * 1.1 + 60.0;
        assert!((report.ideal_drain_seconds..most).contains(&report.drain_seconds), "{report:?}");
    }
}

#[test]
fn tenants_get_jobs_by_weight_within_their_limits_and_urgent_ones_come_first() {
    for (_, report) in runs() {
        let each: Vec<f64> = (report.at_a_quarter.iter().zip(WEIGHTS))
            .map(|(results, weight)| *results as f64 / f64::from(weight))
            .collect();
        let mean = each.iter().sum::<f64>() / each.len() as f64;
        assert!(each.iter().all(|each| (each / mean - 1.0).abs() < 0.1), "{each:?}");
        assert_eq!(report.most_claimed[WEIGHTS.len()], LIMIT);
        assert!(report.urgent_seconds < 10.0, "{report:?}");
    }
}

#[test]
fn the_server_passes_few_messages_for_a_job() {
    for (_, report) in runs() {
        let each = report.messages.total() as f64 / report.results as f64;
        assert!((8.0..14.0).contains(&each), "{each}: {report:?}");
    }
}

#[test]
fn a_seed_gives_the_same_run() {
    let report = |seed| format!("{:?}", Cluster::new(scenario(seed)).run());
    assert_eq!(report(7), report(7));
    assert_ne!(report(7), report(8));
}
