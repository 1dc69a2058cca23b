//! Runs batches: a job in each line of the input, a result in each line of the output.
//!
//! Every line that isn't empty has exactly one result; that of an invalid line says what is wrong.
//! Results are written as jobs end or, if the batch is [ordered](Batch::ordered), in the order of
//! the lines. `id` ties a result to its line. Overload of the pool delays a line, but never loses
//! it. A killed batch leaves complete results and at most one incomplete one; [`Output::resume`]
//! continues from there.
//!
//! A [`Runner`] decides where jobs run: a [`PoolRunner`] runs them in a pool of this process.
//! Several processes can each run a [`Shard`] of the lines; [`Merge`] merges their results.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use batch::{Batch, Event, Lines, Output, PoolRunner};
//! use hatchery::Hatchery;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! // The batch itself limits what waits, so the pool needn't refuse large jobs.
//! let builder = Hatchery::builder().workers(4).queue_limit_bytes(usize::MAX);
//! let pool = builder.start().await?;
//! let lines = Lines::open(Path::new("jobs.jsonl")).await?;
//! let output = Output::resume(Path::new("results.jsonl"), None)?;
//! let runner = PoolRunner::new(pool.clone(), 4).cut_stragglers(10.0);
//! let summary = Batch::new(runner)
//!     .ordered()
//!     .run(lines, output, |event| {
//!         if let Event::Done { tally, .. } = event {
//!             println!("{} done", tally.done());
//!         }
//!     })
//!     .await?;
//! pool.drain().await;
//! println!("{} succeeded", summary.tally.succeeded());
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub use batch::{Batch, Summary};
pub use error::{Error, InvalidResults};
pub use line::RepeatedIds;
pub use lines::{Lines, TooLong, count_lines};
pub use merge::{Merge, Missing, Parts, ResultPlace, Surplus};
pub use output::{Output, Resumed};
pub use pool_runner::PoolRunner;
pub use runner::{Ahead, Line, Parsed, Prepared, Ran, RunError, Runner};
pub use scripts::NoJob;
pub use shard::{InvalidShard, Shard};
pub use tally::{Ending, Event, Pace, Tally};

mod batch;
mod error;
mod line;
mod lines;
mod merge;
mod output;
mod pool_runner;
mod report;
mod runner;
mod scripts;
mod shard;
mod tally;
