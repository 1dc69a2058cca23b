//! Workers in processes of their own: a second wall around each interpreter.
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
//! pages of both. The embedding process holds transcripts, host functions, folders and the states of
//! sessions; a worker has the one interpreter, and asks for the rest (`message.rs`).
//!
//! The embedding process believes nothing that a worker sends. A worker that breaks the protocol or
//! falls silent is killed, and its job has failed by the sandbox (`life.rs`).
//!
//! - `source.rs`, `interpreter.rs`: the pool's seam, in the embedding process; `remote.rs`, `kept.rs`: a
//!   worker and the states that it keeps, from there; `copies.rs`: moving these out of it.
//! - `handle.rs`, `helper.rs`: a helper, from outside and inside; `helpers.rs`: the next one, once it has
//!   ended.
//! - `worker.rs`, `runs.rs`: a worker process, and its present run; `memory.rs`: what the kernel says of its memory.
//! - `groups.rs`: a control group for each worker, where one was delegated.
//! - `back_door.rs`: code of a test in a worker, in no release.

#[cfg(feature = "back-door")]
pub use back_door::{BACK_DOOR, open_back_door};
pub use error::ProcessError;
pub use helper::{Helper, be_helper};
pub use source::ProcessSource;

#[cfg(feature = "back-door")]
mod back_door;
#[cfg(not(feature = "back-door"))]
#[path = "back_door_disabled.rs"]
mod back_door;
mod clock;
mod copies;
mod ending;
mod error;
mod groups;
mod handle;
mod helper;
mod helpers;
mod interpreter;
mod kept;
mod life;
mod memory;
mod message;
mod remote;
mod runs;
mod source;
mod states;
mod stream;
mod system;
mod words;
mod worker;
