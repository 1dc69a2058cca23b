//! Pools on many machines, which take their jobs from NATS JetStream.
//!
//! A [`Worker`] is a pool of this machine. It takes jobs from a queue on a NATS server, and stores
//! their results there. A [`Client`] submits jobs and receives the results. Each job has exactly
//! one, even if workers die. A program may run more than once, if its worker died or was considered
//! dead; only the first result counts.
//!
//! A [`Session`] keeps a state in the cluster from job to job. Its jobs are applied exactly once
//! and in order, on any worker.
//!
//! Jobs are those of [`wire`], results those of a local pool as JSON. Events while a job runs are
//! lossy.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use hatchery::Hatchery;
//! use cluster::{Client, Connection, PoolName, Worker, WorkerConfig};
//!
//! let connection = Connection::new("nats://127.0.0.1:4222");
//! let pool = PoolName::new("default")?;
//!
//! // On each of the machines.
//! let hatchery = Hatchery::builder().workers(2).start().await?;
//! let worker = Worker::connect(&connection, pool.clone(), hatchery, WorkerConfig::new(2)).await?;
//! tokio::spawn(worker.run(std::future::pending()));
//!
//! // Anywhere else.
//! let client = Client::connect(&connection, pool).await?;
//! let result = client.submit(&wire::Job::code("6 * 7")).await?.await?;
//! assert_eq!(result.json()["value"], 42);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub use client::{Batch, Client, Ticket, Wants};
pub use cluster::{Cluster, LaneState, Watcher};
pub use connect::{Connection, Notice};
pub use error::Error;
pub use images::{ImageSource, Images, PoolImage};
pub use names::{BatchName, JobKey, PoolName};
pub use policy::Start;
pub use result::{Event, EventKind, EventStream, JobResult};
pub use session::Session;
pub use streams::Settings;
pub use worker::{Presence, Tally, Worker, WorkerConfig};

mod client;
mod clock;
mod cluster;
mod connect;
mod error;
mod images;
mod names;
mod payload;
#[doc(hidden)]
pub mod policy;
mod result;
mod session;
mod sessions;
mod stores;
mod streams;
mod worker;
