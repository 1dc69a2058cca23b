//! Watches pools.
//!
//! A [`Monitor`] serves what there is to see of a pool: metrics for Prometheus, the status as JSON and
//! decisions, and nothing that changes anything. A [`Source`] fetches the status from there or from a
//! server of `hatchery-serve`, and a [`Screen`] shows a status: as text, as a widget of ratatui, or
//! live in the terminal ([`watch`]).
//!
//! ```no_run
//! use hatchery::{Hatchery, Job};
//! use monitor::{Monitor, Screen};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! // Before the pool, so that no metric is missed.
//! let mut monitor = Monitor::start("127.0.0.1:9184").await?;
//! let pool = Hatchery::builder().workers(2).start().await?;
//! monitor.show(&pool);
//! pool.run(Job::code("6 * 7")).await?;
//!
//! // The same table that `hatchery top 127.0.0.1:9184` shows.
//! let mut screen = Screen::new("this process");
//! screen.take(Ok(Some(serde_json::to_value(pool.status())?)));
//! print!("{}", screen.as_text(100));
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub use error::{InvalidAddress, MonitorError, SourceError};
pub use screen::Screen;
pub use server::{Monitor, metrics_page};
pub use source::{Answer, Source};
pub use watch::{screen_width, watch};

mod draw;
mod error;
mod numbers;
#[cfg(test)]
mod samples;
mod screen;
mod server;
mod source;
mod view;
mod watch;
