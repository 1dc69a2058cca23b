//! Workers: each is one actor, one OS thread and one interpreter.
//!
//! ```text
//!  owner (the scheduler)                         supervisor
//!     ^  PoolEvent::{Ready, Finished, ..}           | spawns, watches, replaces
//!     |                                             v
//!     +------------------------------------ worker actor  (mailbox, state, no decisions)
//!     |  Seat::{assign, park} ----------------->    | crossbeam channel, one order at a time
//!                                                   v
//!                                              worker thread (owns the wasmer store)
//! ```
//!
//! A worker is `Starting`, `Ready`, `Running`, `Resetting` or `Ended` (`worker/state.rs`). It offers
//! a `Seat` when it is ready; a seat takes exactly one order. Workers are all alike: each runs
//! isolated jobs, after which its interpreter is reset, and jobs of any session, whose state stays
//! until something else is ordered and is then parked (`worker/slot.rs`). A session's state is where
//! its `SessionCell` says (`session.rs`), which scheduler and threads share.
//!
//! Supervision rule: when a worker ends and wasn't told to, the owner hears `Gone`, so that it can
//! settle what ran there, and the worker is replaced, at once or after a back-off
//! (`supervisor/restart.rs`).

#![forbid(unsafe_code)]

pub use config::PoolConfig;
pub use error::PoolError;
pub use event::{GoneReason, PoolEvent};
pub use interpreter::{Interpreter, InterpreterSource, Parked};
pub use pool::Pool;
pub use session::{Away, SessionCell, SessionPlace};
pub use status::{WorkerActivity, WorkerStatus};
pub use task::{JobId, SessionId, Task, WorkerId};
pub use worker::Seat;

mod config;
mod error;
mod event;
pub mod interpreter;
mod pool;
mod session;
mod status;
mod supervisor;
mod task;
mod worker;
