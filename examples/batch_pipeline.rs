//! A batch pipeline: an untrusted Python rule processes every order of a CSV, many at once, and the
//! totals are combined here.
//!
//! `cargo run --release --example batch_pipeline`

use std::collections::BTreeMap;
use std::error::Error;

use hatchery::{Hatchery, Job, Verdict};

const ORDERS: &str = include_str!("data/sales.csv");

/// The rule that a customer wrote: it gets one chunk of orders and returns revenue by region.
const RULE: &str = r#"
import csv, sys

revenue = {}
for order in csv.DictReader(sys.stdin):
    amount = int(order["units"]) * float(order["unit_price"])
    if order["product"] == "Mug" and int(order["units"]) > 20:
        amount *= 0.95
    revenue[order["region"]] = revenue.get(order["region"], 0.0) + amount
revenue
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let pool = Hatchery::builder().workers(2).start().await?;
    let mut lines = ORDERS.lines();
    let header = lines.next().ok_or("the file has no header")?;
    let orders: Vec<&str> = lines.collect();

    let mut tickets = Vec::new();
    for chunk in orders.chunks(30) {
        let stdin = format!("{header}\n{}\n", chunk.join("\n"));
        tickets.push(pool.submit(Job::code(RULE).named("rule.py").stdin(stdin)).await?);
    }
    println!("{} orders in {} jobs", orders.len(), tickets.len());

    let mut revenue = BTreeMap::<String, f64>::new();
    for ticket in tickets {
        match ticket.await.verdict {
            Verdict::Completed { value: Some(part), .. } => {
                for (region, amount) in part.as_object().ok_or("the rule returned no object")? {
                    *revenue.entry(region.clone()).or_default() += amount.as_f64().unwrap_or(0.0);
                }
            }
            verdict => return Err(format!("the rule failed: {verdict:?}").into()),
        }
    }
    for (region, amount) in revenue {
        println!("{region:6} {amount:12.2}");
    }
    pool.drain().await;
    Ok(())
}
