//! Confines a process to what a worker of Hatchery needs.
//!
//! A guest may take over its worker process. Before the worker runs guest code, it opens and maps
//! what it needs, and then calls [`confine`]. From then on the kernel refuses files, networks,
//! other processes and further executable memory. It refuses every system call that [`CALLS`]
//! doesn't list. A refused call ends the process with `SIGSYS`. A [`RefusedCall`] tells the parent
//! which call that was.
//!
//! The process that forks workers calls [`use_one_heap`] first of all, and [`separate`] once, which
//! makes namespaces for all of them. [`reuse_large_blocks`] is for programs that start often.
//!
//! The [`Report`] lists what the kernel doesn't offer. On systems other than Linux on x86-64 with
//! the GNU C library, that is everything.
//!
//! - `confinement.rs`: what a caller asks for.
//! - `report.rs`: what the kernel granted.
//! - `refused.rs`: a refused call, as the parent reads it.
//! - `call.rs`, `process/table.rs`: the system calls that run, and why.
//! - `process.rs` and its folder: applying it all.

pub use call::{Answer, Argument, Call, Is, Rule};
pub use confinement::{ConfineError, Confinement, Separation};

pub use process::{CALLS, confine, reuse_large_blocks, separate, use_one_heap};
pub use refused::RefusedCall;
pub use report::{Layer, Report};

mod call;
mod confinement;
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
mod process;
#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")))]
#[path = "process_disabled.rs"]
mod process;
mod refused;
mod report;
