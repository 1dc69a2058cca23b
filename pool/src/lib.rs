//! Workers: each is one actor, one OS thread and one interpreter.
//!
//! ```text
//!  owner (the scheduler)                         supervisor
//!     ^  PoolEvent::{Ready, Finished, Gone}         | spawns, watches, replaces
//!     |                                             v
//!     +------------------------------------ worker actor  (mailbox, state, no decisions)
//!     |  Seat::assign(task) ------------------->    | crossbeam channel, one task at a time
//!                                                   v
//!                                              worker thread (owns the wasmer store)
//! ```
//!
//! A worker is `Starting`, `Ready`, `Running` or `Ended` (`worker/state.rs`). It offers a `Seat`
//! when it is ready; a seat takes exactly one task. An isolated worker makes a new interpreter
//! after every task; a session worker keeps its own and ends with it.
//!
//! Supervision rule: when a worker ends and wasn't told to, the owner hears `Gone`, so that it can
//! settle the task that ran there, and an isolated worker is replaced, at once or after a back-off
//! (`supervisor/restart.rs`).

#![forbid(unsafe_code)]

pub use config::PoolConfig;
pub use error::PoolError;
pub use event::{GoneReason, PoolEvent};
pub use interpreter::{Interpreter, InterpreterSource};
pub use pool::Pool;
pub use status::{WorkerActivity, WorkerStatus};
pub use task::{JobId, SessionId, Task, WorkerId, WorkerKind};
pub use worker::Seat;

mod config;
mod error;
mod event;
pub mod interpreter;
mod pool;
mod status;
mod supervisor;
mod task;
mod worker;
