//! Two tenants on one pool: one floods it, the other submits occasional jobs, and both follow their
//! jobs.
//!
//! `cargo run --release --example tenants`

use std::error::Error;
use std::time::Duration;

use hatchery::decision::{DecisionKind, NextDecision};
use hatchery::{Hatchery, Job, Priority, TenantConfig, Verdict};

/// Half a million additions.
const BATCH: &str = "sum(range(500_000))";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The notebooks have twice the share of the batch, which may never take both workers.
    let notebook = TenantConfig { weight: 2, ..TenantConfig::default() };
    let batch = TenantConfig { concurrent: 1, queued_count: 40, ..TenantConfig::default() };
    let pool = Hatchery::builder()
        .workers(2)
        .tenant("notebook", notebook)
        .tenant("batch", batch)
        .start()
        .await?;
    let mut decisions = pool.decisions();
    // The first job waits for the workers to start.
    pool.run(Job::code("1")).await?;

    let (mut tickets, mut refused) = (Vec::new(), None);
    while refused.is_none() {
        let job = Job::code(BATCH).tenant("batch").priority(Priority::Low);
        match pool.submit(job).await {
            Ok(ticket) => tickets.push(ticket),
            Err(error) if error.is_overloaded() => refused = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(error) = refused {
        println!("batch, job {}: {error}", tickets.len() + 1);
    }
    // Until a worker has taken the first one, all of them wait for a worker.
    if let Some(first) = tickets.first() {
        first.events().next().await;
    }
    if let Some(last) = tickets.last()
        && let Some(explanation) = pool.explain(last.job_id()).await
    {
        println!("{explanation}");
    }

    for question in ["6 * 7", "sum(range(10))"] {
        let job = Job::code(question).tenant("notebook").deadline(Duration::from_secs(60));
        let outcome = pool.run(job).await?;
        let Verdict::Completed { value: Some(value), .. } = outcome.verdict else {
            return Err(format!("{question} ended as {:?}", outcome.verdict).into());
        };
        println!("notebook: {question} = {value}");
    }
    for tenant in pool.status().tenants {
        let waiting: usize = tenant.queued.iter().map(|queued| queued.depth).sum();
        println!("{}: {} run, {waiting} wait", tenant.tenant, tenant.running);
    }

    let count = tickets.len();
    // Jobs that aren't finished by then are stopped.
    pool.drain_for(Duration::from_secs(120)).await;
    for ticket in tickets {
        if !ticket.await.is_success() {
            return Err("a job of the batch did not finish".into());
        }
    }
    println!("batch: {count} jobs finished");
    let mut refusals = 0;
    while let Some(next) = decisions.next().await {
        if let NextDecision::Decision(decision) = next
            && let DecisionKind::Refused { reason, .. } = decision.kind
        {
            println!("{:.3} s: refused, {reason}", decision.at.as_secs_f64());
            refusals += 1;
        }
    }
    if refusals == 1 { Ok(()) } else { Err(format!("{refusals} jobs were refused").into()) }
}
