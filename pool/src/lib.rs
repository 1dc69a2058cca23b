//! Workers: each is one actor, one OS thread and one interpreter.
//!
//! ```text
//!  owner (the scheduler)                              supervisor
//!   ^   |                                                | spawns, watches, replaces
//!   |   | WorkerPermit::send(Command)                     v
//!   |   |                                           worker actor   (life and death only)
//!   |   v                                                | spawns, joins
//!   |  WorkerControl: what may follow what               v
//!   |   +----- crossbeam channel, one command ---> worker thread   (owns the wasmer store)
//!   +---- PoolEvent::{Ready, Finished, ..} -----------------+
//! ```
//!
//! A worker is `Starting`, `Ready`, `Running`, `Resetting`, `Leaving` or `Ended`
//! (`worker/state.rs`). A ready worker offers a `WorkerPermit`. A permit is for exactly one command
//! and sends it straight to the thread (`worker/control.rs`). All workers are alike. After an
//! isolated job, a worker resets its interpreter. After a job of a session, the state stays until
//! the worker gets another command and suspends it (`worker/slot.rs`). A job of another Python build
//! (`builds.rs`) replaces the interpreter. A `SessionCell` says where a session's state is
//! (`session.rs`); the scheduler and the threads share it. A suspended state can be compressed
//! (`packed.rs`) and offloaded to disk (`offload.rs`).
//!
//! The owner decides how many workers there are and which states are compressed or offloaded.
//! Supervision rule: when a worker ends unexpectedly, the owner gets `Gone` and settles the job
//! that ran there. The supervisor replaces the worker, at once or after a backoff.

#![forbid(unsafe_code)]

pub use self::metrics::describe as describe_metrics;
pub use builds::{Builds, DEFAULT_PYTHON};
pub use channel::SpinWait;
pub use config::PoolConfig;

pub use event::{Offer, OffloadError, PoolEvent, PoolOwner};
pub use ids::{BuildId, JobId, SessionId, WorkerId};
pub use interpreter::{
    Branched, Interpreter, InterpreterSource, PackedBytes, Readiness, Suspended, SuspendedState,
};
pub use isolation::{IsolationStatus, MissingLayer, WorkerProcess, WorkersIn};
pub use pool::Pool;
pub use session::{Away, Discarded, SessionCell, SessionPlace, Tier};
pub use status::{WorkerActivity, WorkerStatus, as_seconds};
pub use supervisor::spawn_cause;
pub use task::Task;
pub use worker::control::{Command, WorkerPermit};
pub use worker::state::GoneReason;

mod builds;
mod config;
mod event;
mod ids;
mod interpreter;
mod isolation;
pub mod metrics;
mod offload;
mod packed;
mod pool;
mod session;
mod status;
mod supervisor;
mod task;
mod worker;
