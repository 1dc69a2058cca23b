//! A Jupyter kernel whose Python runs in a session of a Hatchery pool.
//!
//! [`Kernel`] speaks the protocol of Jupyter's front ends (version 5.4) over the sockets that a
//! [`Connection`] names. [`install`] makes it known to them. Programs get what IPython gives them
//! by the guest's side of `hatchery-notebook`. [`assistance`] serves completions and descriptions,
//! for the kernel and for `hatchery repl`.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use hatchery::{Hatchery, Job, Limits};
//! use jupyter::{Connection, Kernel};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let connection = Connection::read(Path::new("connection.json"))?;
//! // Front ends connect while the pool starts.
//! let kernel = Kernel::bind(&connection).await?;
//! let pool = Hatchery::builder().workers(1).start().await?;
//! kernel.serve(pool.clone(), Limits::default(), Job::default()).await?;
//! pool.drain().await;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub use connection::{Connection, InstallLocation, KernelSpec, install};
pub use error::{ConnectionError, InstallError, KernelError};
pub use kernel::Kernel;

pub mod assistance;
mod commands;
mod connection;
mod control;
mod error;
mod execute;
mod guest;
mod history;
mod kernel;
mod message;
mod outputs;
mod sessions;
mod shell;
mod sockets;
