//! Host functions: an untrusted program composes offers from prices and stock that this program
//! provides, with many calls in flight at once.
//!
//! `cargo run --release --example host_functions`

use std::error::Error;
use std::time::Duration;

use hatchery::{Hatchery, HostError, HostFunction, Job, Verdict};

#[derive(serde::Deserialize)]
struct Item {
    item: String,
}

const PRICES: [(&str, f64); 3] = [("chair", 87.5), ("lamp", 23.75), ("rug", 120.0)];

const PROGRAM: &str = r#"
import asyncio
from hatchery import host

async def offer(item):
    try:
        price, stock = await asyncio.gather(host.price.aio(item), host.stock.aio(item))
    except KeyError:
        return f"{item:<8}unknown"
    return f"{item:<8}{price:7.2f}{stock:5}"

async def main():
    print(*await asyncio.gather(*map(offer, ["chair", "lamp", "sofa"])), sep="\n")

asyncio.run(main())
host.price("rug")
"#;

fn price(Item { item }: Item) -> Result<f64, HostError> {
    let found = PRICES.iter().find(|(name, _)| *name == item);
    found.map(|(_, price)| *price).ok_or_else(|| HostError::new("KeyError", item))
}

#[expect(clippy::disallowed_methods, reason = "stands for a query to a warehouse")]
async fn stock(Item { item }: Item) -> Result<usize, HostError> {
    tokio::time::sleep(Duration::from_millis(50)).await;
    Ok(item.len())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let price = HostFunction::sync("price", price)
        .doc("Returns the price of an item.")
        .parameter("item", "str")
        .returns("float");
    let stock = HostFunction::future("stock", stock)
        .doc("Returns how many are in stock.")
        .parameter("item", "str")
        .returns("int");
    let pool = Hatchery::builder().workers(1).function(price).function(stock).start().await?;
    let outcome = pool.run(Job::code(PROGRAM).record_host_calls()).await?;
    print!("{}", outcome.stdout_text());
    let Verdict::Completed { value: Some(value), .. } = outcome.verdict else {
        return Err(format!("{:?}", outcome.verdict).into());
    };
    println!("a rug costs {value}");

    // Replay it without any of the functions.
    let recording = outcome.recording.ok_or("the run was not recorded")?;
    println!("{} calls", recording.calls.len());
    let again = pool.run(Job::code(PROGRAM).replay_host_calls(recording)).await?;
    if again.stdout != outcome.stdout {
        return Err("the replay printed something else".into());
    }
    pool.drain().await;
    Ok(())
}
