//! Programs, on their way to a worker process.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::encoding::{InvalidMessage, optional_text};

use crate::files::mount::{FolderIdentity, FolderServer, Mount, ProxiedFolder};
use crate::limits::advice::Interface;
use crate::run::egress::NetworkPeer;
use crate::run::functions::{Callee, HostFunctions, Recording, Signature};
use crate::run::network::Network;
use crate::run::program::{Deterministic, InputFile, MountedFolder, Program, ProgramEntry, Script};
use crate::run::value::Variables;

/// A program as plain data.
#[derive(Debug, Serialize, Deserialize)]
pub struct ProgramMessage {
    #[serde(with = "ProgramFields")]
    program: Program,
    files: Vec<(String, ByteBuf)>,
    mounts: Vec<(String, WireFolder)>,
    beside: Option<WireFolder>,
    script: Option<(String, WireFolder)>,
    functions: Vec<Signature>,
    has_egress: bool,
    #[serde(with = "optional_text")]
    replays: Option<Recording>,
}

/// The fields that are sent as they are.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Program")]
struct ProgramFields {
    source: String,
    entry: ProgramEntry,
    variables: Variables,
    filename: Option<String>,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    #[serde(with = "serde_bytes")]
    stdin: Vec<u8>,
    stdin_function: Option<String>,
    #[serde(skip)]
    files: Vec<InputFile>,
    #[serde(skip)]
    mounts: Vec<MountedFolder>,
    #[serde(skip)]
    beside: Option<Arc<Mount>>,
    #[serde(skip)]
    script: Option<Script>,
    workdir: Option<String>,
    is_prompt: bool,
    is_read_only: bool,
    keeps_files: bool,
    deterministic: Option<Deterministic>,
    /// A confined process reaches no network, and its pool refuses to grant one.
    #[serde(skip)]
    network: Network,
    #[serde(skip)]
    egress: Option<Arc<dyn NetworkPeer>>,
    #[serde(skip)]
    functions: HostFunctions,
    /// Its pool knows what happened.
    #[serde(skip)]
    interface: Option<Interface>,
    records_calls: bool,
    #[serde(skip)]
    replays: Option<Arc<Recording>>,
}

/// A folder by its number in the process that has opened it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct WireFolder {
    number: u64,
    identity: Option<FolderIdentity>,
}

/// Stands in for what stays in the process that sent a program.
pub trait Proxies {
    /// Returns what answers questions about folders.
    fn folders(&self) -> Arc<dyn FolderServer>;

    /// Returns what begins calls of the function of this name.
    fn callee(&self, name: &str) -> Arc<dyn Callee>;

    /// Returns what serves the streams of the program.
    fn network(&self) -> Arc<dyn NetworkPeer>;
}

impl ProgramMessage {
    /// Copies a program. `number_of` numbers its folders.
    pub fn new(program: &Program, mut number_of: impl FnMut(&Arc<Mount>) -> u64) -> Self {
        let mut folder = |mount: &Arc<Mount>| WireFolder {
            number: number_of(mount),
            identity: mount.identity(),
        };
        let file =
            |InputFile { path, contents }: &InputFile| (path.clone(), contents.to_vec().into());
        let Program { files, mounts, beside, script, functions, replays, .. } = program;
        Self {
            program: program.clone(),
            files: files.iter().map(file).collect(),
            mounts: mounts
                .iter()
                .map(|mount| (mount.path.clone(), folder(&mount.folder)))
                .collect(),
            beside: beside.as_ref().map(&mut folder),
            script: script.as_ref().map(|script| (script.name.clone(), folder(&script.folder))),
            functions: functions.signatures().cloned().collect(),
            has_egress: program.egress.is_some(),
            // The exchanges stay with who serves them.
            replays: replays
                .as_deref()
                .map(|recording| Recording { network: None, ..recording.clone() }),
        }
    }

    /// Returns the program, which runs here with `proxies` for the rest.
    ///
    /// # Errors
    /// It isn't one that [`Self::new`] made.
    pub fn program(self, proxies: &dyn Proxies) -> Result<Program, InvalidMessage> {
        let folder = |WireFolder { number, identity }| {
            let identity = identity.ok_or_else(|| InvalidMessage::new("a folder that is gone"))?;
            let folder = ProxiedFolder::new(number, identity, proxies.folders());
            Ok(Arc::new(Mount::proxied(folder)))
        };
        let mut program = self.program;
        for (path, contents) in self.files {
            let file = InputFile::new(path, contents.into_vec());
            program.files.push(file.map_err(|error| InvalidMessage::because("a file", &error))?);
        }
        for (path, number) in self.mounts {
            let mount = MountedFolder::new(path, folder(number)?);
            program.mounts.push(mount.map_err(|error| InvalidMessage::because("a mount", &error))?);
        }
        program.beside = self.beside.map(folder).transpose()?;
        let script = |(name, number)| folder(number).map(|folder| Script { folder, name });
        program.script = self.script.map(script).transpose()?;
        let functions = self.functions.into_iter().map(|signature| {
            let callee = proxies.callee(&signature.name);
            (signature, callee)
        });
        program.functions = HostFunctions::new(functions)
            .map_err(|error| InvalidMessage::because("a host function", &error))?;
        program.egress = self.has_egress.then(|| proxies.network());
        program.replays = self.replays.map(Arc::new);
        program.check().map_err(|error| InvalidMessage::because("a program", &error))?;
        Ok(program)
    }
}
