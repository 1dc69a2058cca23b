//! Confines a process to what a worker of Hatchery needs.
//!
//! A worker process runs code that a guest may have taken over. Before it runs anything of a guest,
//! it opens and maps what it needs, and then calls [`confine`]. From then on the kernel refuses it
//! all else: files, networks, other processes, further executable memory, and every system call that
//! [`CALLS`] doesn't list. A refused call ends the process with `SIGSYS`, and its parent learns which
//! call that was from a [`RefusedCall`].
//!
//! The process that forks workers calls [`use_one_heap`] first of all, and [`separate`] once, which
//! makes namespaces for all of them.
//!
//! What the kernel doesn't offer is in the [`Report`]. On other systems than Linux on x86-64 with the
//! GNU C library, that is everything.
//!
//! - `confinement.rs`: what a caller asks for.
//! - `report.rs`: what the kernel granted.
//! - `refused.rs`: a refused call, as the parent reads it.
//! - `call.rs`, `process/table.rs`: the system calls that run, and why.
//! - `process.rs` and its folder: applying it all.

pub use call::{Answer, Argument, Call, Is, Rule};
pub use confinement::{ConfineError, Confinement, Separation};

pub use process::{CALLS, confine, separate, use_one_heap};
pub use refused::RefusedCall;
pub use report::{Layer, LayerState, Report};

mod call;
mod confinement;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod process;
#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")))]
#[path = "process_disabled.rs"]
mod process;
mod refused;
mod report;
