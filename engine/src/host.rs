//! Everything that a guest can reach.
//!
//! Owns the seam between an interpreter and what serves its imports. `reactor.rs` is our own host,
//! on the functions of `wasi.rs`; `wasix.rs` has wasmer-wasix serve files instead. The door of the
//! agent, clocks, sleeping and leaving are ours in both. `layout.rs` has the files that guests begin
//! with, `env.rs` what host functions work on. Every function that touches the guest's memory runs
//! on the host's side of the gate (`interrupt/gate.rs`). May use `guest/` and the wings below.

use wasmer::{FunctionEnv, Imports, Instance, Module, Store};

use crate::error::StartError;
use crate::run::outcome::Verdict;
use env::{GuestEnv, RunEffects, RunSetup};
use wasi::HostState;

mod calls;
pub(crate) mod door;
pub(crate) mod env;
pub(crate) mod layout;
pub(crate) mod reactor;
pub(crate) mod wasi;
#[cfg(feature = "wasix")]
pub(crate) mod wasix;
#[cfg(not(feature = "wasix"))]
#[path = "host/wasix_disabled.rs"]
pub(crate) mod wasix;

/// What serves the imports of one guest.
pub(crate) trait GuestHost {
    /// The import table. Every function in it that touches the guest's memory passes the gate.
    fn imports(
        &mut self,
        store: &mut Store,
        module: &Module,
        env: &FunctionEnv<GuestEnv>,
    ) -> Result<Imports, StartError>;

    /// Called once, before any export of the instance.
    fn attach(&mut self, store: &mut Store, instance: &Instance) -> Result<(), StartError>;

    /// Prepares a run: its streams, its files, its bounds.
    ///
    /// # Errors
    /// What the caller gave can't be put, and how the run ends therefore.
    fn begin_run(&mut self, setup: RunSetup<'_>) -> Result<(), Box<Verdict>>;

    /// Ends the run. What it did to files is kept if it `commits`, and else undone.
    fn end_run(&mut self, commits: bool) -> RunEffects;

    /// What it keeps from run to run, between two runs; `None` if that can't be put away.
    fn state(&self) -> Option<HostState>;

    /// Goes on from a state that `state` gave.
    fn set_state(&mut self, state: HostState);
}
