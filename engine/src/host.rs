//! The host: everything that a guest can reach.
//!
//! Owns the interface between an interpreter and the code that serves its imports. `reactor.rs` is
//! Hatchery's own host, built on the functions in `wasi.rs`; `wasix.rs` lets wasmer-wasix serve
//! files instead. Hatchery serves the agent's call channel, clocks, sleeping and exiting in both.
//! `layout.rs` defines the files that guests start with, `env.rs` the data that host functions work
//! on. Every function that touches guest memory runs on the host's side of the gate
//! (`interrupt/gate.rs`). May use `guest/` and the wings below.

use wasmer::{FunctionEnv, Imports, Instance, Memory, Module, Store};

use crate::error::StartError;
use crate::run::outcome::Verdict;
use env::{GuestEnv, RunEffects, RunSetup};
use wasi::HostState;

pub(crate) mod call_channel;
mod calls;
pub(crate) mod env;
mod kernels;
pub(crate) mod layout;
pub(crate) mod network;
pub(crate) mod reactor;
pub(crate) mod threads;
pub(crate) mod wasi;
#[cfg(feature = "wasix")]
pub(crate) mod wasix;

/// Serves the imports of one guest.
pub(crate) trait GuestHost {
    /// Returns the import table. Every function in it that touches guest memory passes the gate.
    /// `memory` is the one that the guest's threads share.
    fn imports(
        &mut self,
        store: &mut Store,
        module: &Module,
        env: &FunctionEnv<GuestEnv>,
        memory: Option<Memory>,
    ) -> Result<Imports, StartError>;

    /// Attaches the instance. Called once, before any of its exports.
    fn attach(&mut self, store: &mut Store, instance: &Instance) -> Result<(), StartError>;

    /// Prepares a run: its streams, files and limits.
    ///
    /// # Errors
    /// The run can't start, for example because an input file can't be put in place. The error is
    /// the run's verdict.
    fn begin_run(&mut self, setup: RunSetup<'_>) -> Result<(), Box<Verdict>>;

    /// Ends the run. Keeps its changes to files if `commits`, otherwise undoes them.
    fn end_run(&mut self, commits: bool) -> RunEffects;

    /// Returns the state that lasts from run to run; `None` if it can't be saved. Called between
    /// runs.
    fn state(&self) -> Option<HostState>;

    /// Returns a number that no other state of standard input has. It changes when the guest reads
    /// or closes it, and when the guest gets another state. Zero means that this isn't known.
    fn stdin_number(&mut self) -> i64 {
        0
    }

    /// Restores a state that `state` returned.
    fn set_state(&mut self, state: HostState);
}
