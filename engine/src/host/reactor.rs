//! Hatchery's own host. It serves exactly the functions of WASI preview 1 and WASIX that Python
//! builds import. It keeps files in memory, and undoes a failed run's changes to them.

use std::sync::Arc;

use parking_lot::Mutex;
use wasmer::{ExternType, FunctionEnv, Imports, Instance, Memory, Module, Store};

use super::GuestHost;
use super::call_channel;
use super::env::{GuestEnv, RunEffects, RunSetup};
use super::layout::{put_beside, put_input, put_mount, put_workdir};
use super::network::RunNetwork;
use super::wasi::{HostState, RunStreams, Wasi, binding, process};
use crate::errno::Errno;
use crate::error::StartError;
use crate::files::changes::{LeftOutFiles, changes, left_out};
use crate::files::quota::FileQuota;
use crate::files::tree::Tree;
use crate::places::{BESIDE_FOLDER, SCRIPT_FOLDER};
use crate::python::module::imports::{self, HOST, HOST_CALL, WASI};
use crate::python::module::shape::Shape;
use crate::run::network::Network;
use crate::run::outcome::{SandboxFailure, Verdict};

/// Serves one guest from memory.
pub(crate) struct ReactorHost {
    wasi: Arc<Mutex<Wasi>>,
    /// During a run, the files before it, and after its input files were written. Later they would
    /// keep deleted files in memory.
    before: Option<Tree>,
    given: Option<Tree>,
    /// The environment of the functions, once there are imports.
    env: Option<FunctionEnv<GuestEnv>>,
}

impl ReactorHost {
    pub(crate) fn new(wasi: Arc<Mutex<Wasi>>) -> Self {
        Self { wasi, before: None, given: None, env: None }
    }
}

impl GuestHost for ReactorHost {
    fn imports(
        &mut self,
        store: &mut Store,
        module: &Module,
        env: &FunctionEnv<GuestEnv>,
        memory: Option<Memory>,
    ) -> Result<Imports, StartError> {
        self.env = Some(env.clone());
        served(store, module, env, memory)
    }

    fn attach(&mut self, store: &mut Store, instance: &Instance) -> Result<(), StartError> {
        if let Some(env) = &self.env {
            let handler = instance.exports.get_typed_function(store, process::HANDLER);
            env.as_mut(store).handler = handler.ok();
        }
        Ok(())
    }

    fn begin_run(&mut self, setup: RunSetup<'_>) -> Result<(), Box<Verdict>> {
        let RunSetup { program, limits, transcript } = setup;
        let mut wasi = self.wasi.lock();
        // What comes from a network can't be had again.
        let is_open = program.deterministic.is_none() && program.replays.is_none();
        let network = if is_open { program.network.clone() } else { Network::default() };
        wasi.begin_run(RunStreams {
            transcript,
            stdin: program.stdin.clone(),
            stops_at_output_limit: limits.stop_at_output_limit,
            most_calls: limits.host_calls,
            network: RunNetwork::new(network, limits.network_bytes),
        });
        let (workspace, now) = (wasi.workspace, wasi.clock.timestamp());
        let tree = &mut wasi.tree;
        let quota = FileQuota::of(limits);
        // Only a session that ran under wider limits, or was loaded from a file, can exceed the
        // quota.
        if let Some(hit) = tree.exceeds(quota) {
            return Err(Box::new(Verdict::Limit(hit)));
        }
        tree.begin(quota, false);
        let before = self.before.insert(tree.clone());
        let put = (|| {
            for mount in &program.mounts {
                put_mount(tree, &mount.path, &mount.folder, now)
                    .map_err(|errno| (mount.path.clone(), errno))?;
            }
            if let Some(script) = &program.script {
                put_mount(tree, SCRIPT_FOLDER, &script.folder, now)
                    .map_err(|errno| (SCRIPT_FOLDER.to_owned(), errno))?;
            }
            if let Some(folder) = &program.beside {
                put_beside(tree, workspace, folder, &program.files, now)
                    .map_err(|errno| (BESIDE_FOLDER.to_owned(), errno))?;
            }
            if let Some(workdir) = &program.workdir {
                put_workdir(tree, workdir, now).map_err(|errno| (workdir.clone(), errno))?;
            }
            // Mounts and the working directory stay, however the run ends.
            *before = tree.clone();
            for file in &program.files {
                put_input(tree, workspace, file, now)
                    .map_err(|errno| (file.path.clone(), errno))?;
            }
            Ok(())
        })();
        let refused = tree.refusals().all().next();
        tree.begin(quota, program.is_read_only);
        self.given = Some(tree.clone());
        put.map_err(|(path, errno): (String, Errno)| {
            Box::new(match refused {
                Some(hit) => Verdict::Limit(hit),
                None => {
                    let cause = explain(errno).into();
                    Verdict::SandboxFailed(SandboxFailure::Workspace { path, cause })
                }
            })
        })
    }

    fn end_run(&mut self, commits: bool) -> RunEffects {
        let mut wasi = self.wasi.lock();
        let (calls, workspace) = (wasi.calls(), wasi.workspace);
        let network = wasi.end_run();
        let refusals = wasi.tree.refusals().all().chain(network.refusal()).collect();
        let (before, given) = (self.before.take(), self.given.take());
        let growth = |given: &Tree| wasi.tree.peak_bytes().saturating_sub(given.file_bytes());
        let file_growth_bytes = given.as_ref().map_or(0, growth);
        let left_out_files = given.as_ref().map_or_else(LeftOutFiles::default, |given| {
            left_out(given, &wasi.tree, workspace, !commits)
        });
        let files = match (commits, before, given) {
            (true, _, Some(given)) => changes(&given, &wasi.tree, workspace),
            (false, Some(before), _) => {
                wasi.undo_to(&before);
                Vec::new()
            }
            // Nothing was given to it.
            _ => Vec::new(),
        };
        RunEffects {
            files,
            left_out_files,
            host_calls: calls,
            file_growth_bytes,
            network_bytes: network.used_bytes(),
            sought: std::mem::take(&mut wasi.sought),
            refusals,
        }
    }

    fn state(&self) -> Option<HostState> {
        Some(self.wasi.lock().state())
    }

    fn stdin_number(&mut self) -> i64 {
        self.wasi.lock().stdin_number()
    }

    fn set_state(&mut self, state: HostState) {
        self.wasi.lock().set_state(state);
    }
}

/// Returns the import table of one thread's instance. `memory` is the one that threads share.
pub(super) fn served(
    store: &mut Store,
    module: &Module,
    env: &FunctionEnv<GuestEnv>,
    memory: Option<Memory>,
) -> Result<Imports, StartError> {
    let mut served = Imports::new();
    let is_wasix = imports::is_wasix(module);
    let is_command = Shape::of(module).is_command();
    let device = |store: &mut Store, name: &str| {
        is_command.then(|| call_channel::device::function(store, env, name)).flatten()
    };
    for import in module.imports() {
        let (namespace, name) = (import.module(), import.name());
        let function = match (namespace, name) {
            _ if matches!(import.ty(), ExternType::Memory(_)) => continue,
            (HOST, HOST_CALL) => Some(call_channel::binding::function(store, env)),
            // WASIX gave this function another meaning.
            (WASI, "fd_renumber") if !is_wasix => binding::function(store, env, "fd_move"),
            _ if imports::is_allowed(namespace, name) => {
                device(store, name).or_else(|| binding::function(store, env, name))
            }
            _ => None,
        };
        let refused = || StartError::Host(format!("nothing serves `{namespace}.{name}`").into());
        served.define(namespace, name, function.ok_or_else(refused)?);
    }
    if let Some(memory) = memory {
        let (namespace, name) = imports::MEMORY;
        served.define(namespace, name, memory);
    }
    Ok(served)
}

/// Explains why an input file or a mount can't be put in place.
fn explain(errno: Errno) -> &'static str {
    match errno {
        Errno::Exists | Errno::IsFolder => "something else is there",
        Errno::NotFolder => "a file is in the way",
        Errno::NoEntry => "it doesn't exist",
        Errno::NameTooLong => "its name is too long or too deep",
        Errno::ReadOnly => "it can't be written to",
        _ => "the path can't be used",
    }
}
