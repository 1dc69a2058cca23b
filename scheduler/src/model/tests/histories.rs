//! Random histories, in which every invariant must hold.

use std::collections::BTreeMap;
use std::time::Duration;

use super::world::{KINDS, World};
use super::{Random, roomy};
use crate::config::{SchedulerConfig, SessionsConfig, TenantConfig, WorkersConfig};

/// The number of histories, and the most steps of each.
const HISTORIES: u64 = 100_000;
const MOST_STEPS: u64 = 60;

/// A configuration in which everything is scarce, in random proportions.
fn scarce(random: &mut Random, others: SchedulerConfig) -> SchedulerConfig {
    let max = 1 + random.below(4) as usize;
    let min = random.below(max as u64 + 1) as usize;
    let concurrent = 1 + random.below(max as u64) as usize;
    let millis = |millis| Duration::from_millis(millis);
    let capped = TenantConfig {
        weight: 1 + random.below(3) as u32,
        concurrent: 1 + random.below(2) as usize,
        queued_count: 3,
        queued_bytes: 1_000,
        ..TenantConfig::default()
    };
    SchedulerConfig {
        concurrent,
        workers: WorkersConfig {
            min,
            max,
            spares: random.below(max as u64 + 1) as usize,
            shrink_after: millis(random.below(4_000)),
            retry_after: millis(random.below(4_000)),
        },
        queued_count: random.below(10) as usize,
        queued_bytes: 2_000,
        tenants: BTreeMap::from([("ants".to_owned(), capped)]),
        priority_step: millis(random.below(2_000)),
        retries: random.below(3) as u32,
        sessions: SessionsConfig {
            open: 9,
            in_memory: concurrent + random.below(3) as usize,
            disk_bytes: random.below(2_000),
            suspend_after: millis(random.below(3_000)),
            offload_after: millis(random.below(6_000)),
            close_after: random.one_in(3).then(|| millis(random.below(8_000))),
            depth: 3,
        },
        memory_bytes: 500 + random.below(4_000),
        retire_above_bytes: 1_000,
        ..others
    }
}

#[test]
fn every_admitted_job_ends_exactly_once_and_no_invariant_breaks() {
    // Computing the defaults reads the machine's memory, which takes longer than a history.
    let others = roomy();
    let mut asked = [0_u32; KINDS as usize];
    for seed in 0..HISTORIES {
        let mut random = Random(seed);
        let config = scarce(&mut random, others.clone());
        let mut world = World::new(config, seed);
        for _ in 0..random.below(MOST_STEPS) {
            world.step();
        }
        if seed % 2 == 0 {
            world.drain();
            for _ in 0..8 {
                world.step();
            }
        }
        world.settle();
        world.check_end();
        for (kind, count) in asked.iter_mut().enumerate() {
            *count += world.asked >> kind & 1;
        }
    }
    assert!(asked.iter().all(|count| *count > 1_000), "every kind of effect occurs: {asked:?}");
}
