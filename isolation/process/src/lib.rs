//! Worker processes: a second layer of isolation around each interpreter.
//!
//! ```text
//! embedding process                      helper (one thread)           worker process
//! -----------------                      --------------------          --------------
//! ProcessSource  -- program, image --->  loads build and image
//!   start()      -- channel's file --->  forks ----------------------> attaches, starts
//! ProcessInterpreter <----------------- ring in shared memory -------> engine::Interpreter
//! ```
//!
//! The helper is a process of the same program, which called [`be_helper`] first in `main`, or
//! another one that does. It loads the build and its image once and forks workers, which share all
//! pages of both. The embedding process holds transcripts, host functions, folders and the states
//! of sessions. A worker has the one interpreter, and asks for the rest (`message.rs`).
//!
//! The embedding process trusts nothing that a worker sends. A worker that breaks the protocol or
//! stops responding is killed, and its job ends as a sandbox failure (`exit_state.rs`).
//!
//! - `parent/`, in the embedding process: `source.rs` and `interpreter.rs` are the pool's seam.
//!   `remote.rs` is a worker, `snapshot.rs` and `offloader.rs` the copies of states that it keeps.
//!   `control.rs` sends messages to its runs, and `exit_state.rs` has its end. `handle.rs` is the
//!   helper, and the next one once it has ended. `groups.rs` makes a control group for each worker.
//! - `child/`: `helper.rs` is the helper, `worker.rs` a worker process and its present run.
//!   `test_hook.rs` runs code of a test in a worker, in no release.
//! - Both sides: `message.rs`, `states.rs`, `memory.rs`, `system.rs`.

pub use child::helper::{Helper, be_helper};
#[cfg(feature = "test-hook")]
pub use child::test_hook::{TEST_HOOK, open_test_hook};
pub use error::ProcessError;
pub use parent::source::ProcessSource;

mod child;
mod error;
mod memory;
mod message;
mod parent;
mod states;
mod system;
