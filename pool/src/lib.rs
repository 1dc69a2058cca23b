//! Workers: each is one actor, one OS thread and one interpreter.
//!
//! ```text
//!  owner (the scheduler)                              supervisor
//!   ^   |                                                | spawns, watches, replaces
//!   |   | Seat::{assign, park, vacate, renew, dismiss}   v
//!   |   |                                           worker actor   (life and death only)
//!   |   v                                                | spawns, joins
//!   |  the worker's desk: what may follow what           v
//!   |   +----- crossbeam channel, one order -----> worker thread   (owns the wasmer store)
//!   +---- PoolEvent::{Ready, Finished, ..} -----------------+
//! ```
//!
//! A worker is `Starting`, `Ready`, `Running`, `Resetting`, `Leaving` or `Ended`
//! (`worker/state.rs`). It offers a `Seat` when it is ready; a seat takes exactly one order, and
//! hands it to the thread itself (`worker/desk.rs`). Workers are all alike: each runs isolated jobs,
//! after which its interpreter is reset, and jobs of any session, whose state stays until something
//! else is ordered and is then parked (`worker/slot.rs`). A session's state is where its
//! `SessionCell` says (`session.rs`), which scheduler and threads share; while it rests it can be
//! compressed (`stowed.rs`), and written to disk (`spill.rs`).
//!
//! How many workers there are, and what is stowed, is up to the owner. Supervision rule: when a
//! worker ends and wasn't told to, the owner hears `Gone`, so that it can settle what ran there, and
//! the worker is replaced, at once or after a back-off (`supervisor/restart.rs`).

#![forbid(unsafe_code)]

pub use self::metrics::describe as describe_metrics;
pub use config::PoolConfig;
pub use error::{PoolError, StowError};
pub use event::PoolEvent;
pub use ids::{JobId, SessionId, WorkerId};
pub use interpreter::{Interpreter, InterpreterSource, Packed, Parked, ParkedState};
pub use pool::Pool;
pub use session::{Away, Discarded, SessionCell, SessionPlace, Stowage};
pub use status::{WorkerActivity, WorkerStatus};
pub use task::Task;
pub use worker::seat::Seat;
pub use worker::state::GoneReason;

mod clock;
mod config;
mod error;
mod event;
mod ids;
pub mod interpreter;
pub mod metrics;
mod pool;
mod session;
mod spill;
mod status;
mod stowed;
mod supervisor;
mod task;
#[cfg(feature = "fake")]
pub mod threads;
mod worker;
