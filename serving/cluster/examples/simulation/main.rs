//! Simulates what one machine can't run: a thousand workers and ten million jobs on a queue.
//! Workers decide by the functions of real ones. So it shows whether slots stay busy, whether
//! tenants get their shares, how long recovery from a loss of workers takes, and how many messages
//! the server passes for each job.
//!
//! It doesn't measure the server, the network or Python. A request takes 1 ms, the server answers
//! any number of them, and times of jobs have exponential distributions. The server never fails
//! here; tests with a real one cover that.
//!
//! `cargo run --release --example simulation [JOBS [WORKERS [SEED]]]`

use std::time::Instant;

use crate::cluster::Cluster;
use crate::scenario::{Scenario, Tenant};

mod cluster;
mod queue;
mod scenario;
#[cfg(test)]
mod tests;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u32>());
    let mut next = |default: u32| arguments.next().and_then(Result::ok).unwrap_or(default);
    let (jobs, workers, seed) = (next(10_000_000), next(1000), next(1));
    // Jobs of two lengths for each weight, and one tenant that may have few at once.
    let weights = [1, 1, 2, 2, 4, 4, 8, 8];
    let unit = jobs / 31;
    let mut tenants: Vec<Tenant> = (weights.iter().zip([1.0, 4.0].iter().cycle()))
        .map(|(weight, mean_seconds)| Tenant {
            weight: *weight,
            jobs: weight * unit,
            mean_seconds: *mean_seconds,
            limit: u32::MAX,
        })
        .collect();
    tenants.push(Tenant { weight: 8, jobs: unit, mean_seconds: 2.0, limit: workers / 10 });
    let (poison, urgent) = (20, workers * 4);
    let scenario = Scenario {
        seed: u64::from(seed),
        workers,
        slots: 4,
        tenants,
        poison,
        urgent,
        vanishing: 1.0 / 3.0,
    };
    println!("{workers} workers with 4 slots, {} jobs, seed {seed}", scenario.jobs());
    let begin = Instant::now();
    let report = Cluster::new(scenario.clone()).run();
    let took = begin.elapsed().as_secs_f64();

    println!("simulated {:.0} s in {took:.1} s, {} events", report.seconds, report.events);
    println!("idle slots while jobs waited: {:.4} % of the time", 100.0 * report.idle);
    let fair = &report.at_a_quarter[..weights.len()];
    let each: Vec<f64> = (fair.iter().zip(weights))
        .map(|(results, weight)| *results as f64 / f64::from(weight))
        .collect();
    let mean = each.iter().sum::<f64>() / each.len() as f64;
    let worst = each.iter().map(|each| (each / mean - 1.0).abs()).fold(0.0, f64::max);
    println!("shares by weight after a quarter: {fair:?}, at most {:.2} % off", 100.0 * worst);
    let limited = report.most_claimed[weights.len()];
    println!("most claimed at once by the limited tenant: {limited} of {}", workers / 10);
    println!("{urgent} urgent jobs all started after {:.2} s", report.urgent_seconds);
    println!(
        "after a third of the workers vanished: {:.0} s to the last result, {:.0} s if evenly divided",
        report.drain_seconds, report.ideal_drain_seconds
    );
    let (dead, lost) = (report.dead_letters.len(), report.lost_runs);
    let innocent = report.dead_letters.iter().filter(|job| !scenario.is_poison(**job)).count();
    println!("{dead} dead letters, {innocent} of them innocent; {lost} runs lost");
    let of = |count: u64| count as f64 / report.results as f64;
    let messages = report.messages;
    println!(
        "messages a job: {:.2} (jobs and results {:.2}, requests {:.2}, claims {:.2}, progress \
         {:.3}, presence {:.3}, records {:.4}); {:.0} a second",
        of(messages.total()),
        of(messages.jobs),
        of(messages.requests),
        of(messages.claims),
        of(messages.progress),
        of(messages.presence),
        of(messages.records),
        messages.total() as f64 / report.seconds
    );
}
