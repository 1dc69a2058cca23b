//! Hatchery's part in the comparison with its peers: an example of a program that serves another
//! one. It reads requests as lines of JSON, runs them through the public library, asserts what the
//! programs print, and answers each with a line that has the seconds of every job.
//!
//! `run.py` starts it. By hand:
//!
//! ```sh
//! echo '{"op": "fresh", "count": 5, "science": false, "code": "print(7)", "expect": "7\n"}' |
//!     cargo run --release --example peers
//! ```

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::error::Error;
use std::io::{self, BufRead, Write};
use std::time::Instant;

use hatchery::{Hatchery, Job, Outcome};
use serde_json::{Value, json};

/// As many as the other peers get.
const WORKERS: usize = 2;

/// The modules of a job with `science`.
const SCIENCE: [&str; 2] = ["numpy", "pandas"];

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[tokio::main]
async fn main() -> Result<()> {
    // Also compiles the build and makes its image where that hasn't been done yet.
    let mut pools = BTreeMap::from([(false, start(false).await?)]);
    reply(&json!({ "ready": true }))?;
    for line in io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        let science = request["science"] == true;
        let pool = match pools.entry(science) {
            Entry::Occupied(started) => started.into_mut(),
            Entry::Vacant(place) => place.insert(start(science).await?),
        };
        match answer(pool, &request).await {
            Ok(seconds) => reply(&json!({ "seconds": seconds }))?,
            Err(error) => reply(&json!({ "failed": error.to_string() }))?,
        }
    }
    for pool in pools.values() {
        pool.drain().await;
    }
    Ok(())
}

async fn start(science: bool) -> Result<Hatchery> {
    let preload = if science { &SCIENCE[..] } else { &[] };
    let pool = Hatchery::builder().workers(WORKERS).preload(preload.iter().copied());
    Ok(pool.start().await?)
}

fn reply(line: &Value) -> Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    Ok(stdout.flush()?)
}

/// Runs what a request asks for, and returns how long each job took, in seconds.
async fn answer(pool: &Hatchery, request: &Value) -> Result<Vec<f64>> {
    let text = |key: &str| request[key].as_str().ok_or(format!("`{key}` is no text"));
    let count = request["count"].as_u64().ok_or("`count` isn't a number")?;
    let mut seconds = Vec::new();
    match text("op")? {
        "fresh" => {
            let (code, expected) = (text("code")?, text("expect")?);
            for _ in 0..count {
                let started = Instant::now();
                let outcome = pool.run(Job::code(code)).await?;
                seconds.push(started.elapsed().as_secs_f64());
                check(&outcome, expected)?;
            }
        }
        "session" => {
            let turns = request["turns"].as_array().ok_or("`turns` is no list")?;
            for _ in 0..count {
                let started = Instant::now();
                let session = pool.session("turns").await?;
                let mut last = None;
                for turn in turns.iter().filter_map(Value::as_str) {
                    last = Some(session.run(Job::code(turn)).await?);
                }
                seconds.push(started.elapsed().as_secs_f64());
                session.close();
                check(&last.ok_or("`turns` is empty")?, text("expect")?)?;
            }
        }
        "turns" => {
            let session = pool.session("turns").await?;
            check(&session.run(Job::code(text("setup")?)).await?, "")?;
            for number in 1..=count {
                let started = Instant::now();
                let outcome = session.run(Job::code(text("code")?)).await?;
                seconds.push(started.elapsed().as_secs_f64());
                check(&outcome, &text("expect")?.replace("NUMBER", &number.to_string()))?;
            }
            session.close();
        }
        "many" => {
            let code = text("code")?;
            let started = Instant::now();
            let mut tickets = Vec::new();
            for number in 0..count {
                let job = Job::code(code.replace("NUMBER", &number.to_string()));
                tickets.push(pool.submit(job).await?);
            }
            let mut outcomes = Vec::new();
            for ticket in tickets {
                outcomes.push(ticket.await);
            }
            seconds.push(started.elapsed().as_secs_f64());
            for (number, outcome) in (0..count).zip(&outcomes) {
                check(outcome, &format!("{}\n", number * number))?;
            }
        }
        other => return Err(format!("there is no row `{other}`").into()),
    }
    Ok(seconds)
}

fn check(outcome: &Outcome, expected: &str) -> Result<()> {
    if outcome.is_success() && outcome.stdout_text() == expected {
        return Ok(());
    }
    let (verdict, printed) = (&outcome.verdict, outcome.stdout_text());
    Err(format!("ended as {verdict:?} and printed {printed:?}, not {expected:?}").into())
}
