//! Programs, on their way to a worker process.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::encoding::{InvalidMessage, optional_text};

use crate::files::mount::{FolderIdentity, FolderServer, Mount, ProxiedFolder};
use crate::run::functions::{Callee, HostFunctions, Recording, Signature};
use crate::run::network::Network;
use crate::run::program::{Deterministic, InputFile, MountedFolder, Program, ProgramEntry, Script};
use crate::run::value::Variables;

/// A program as plain data.
#[derive(Debug, Serialize, Deserialize)]
pub struct ProgramMessage {
    source: String,
    entry: ProgramEntry,
    filename: Option<String>,
    /// `None` if none of it is set: most programs are source alone, and a frame of few fields is
    /// written and read faster.
    rest: Option<Box<RareFields>>,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct RareFields {
    variables: Variables,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    #[serde(with = "serde_bytes")]
    stdin: Vec<u8>,
    stdin_function: Option<String>,
    files: Vec<WireFile>,
    mounts: Vec<(String, WireFolder)>,
    beside: Option<WireFolder>,
    script: Option<(String, WireFolder)>,
    workdir: Option<String>,
    is_prompt: bool,
    is_read_only: bool,
    keeps_files: bool,
    deterministic: Option<Deterministic>,
    functions: Vec<Signature>,
    records_calls: bool,
    #[serde(with = "optional_text")]
    replays: Option<Recording>,
}

/// A folder by its number in the process that has opened it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct WireFolder {
    number: u64,
    identity: Option<FolderIdentity>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct WireFile {
    path: String,
    #[serde(with = "serde_bytes")]
    contents: Vec<u8>,
}

/// Stands in for what stays in the process that sent a program.
pub trait Proxies {
    /// Returns what answers questions about folders.
    fn folders(&self) -> Arc<dyn FolderServer>;

    /// Returns what begins calls of the function of this name.
    fn callee(&self, name: &str) -> Arc<dyn Callee>;
}

impl ProgramMessage {
    /// Copies a program. `number_of` numbers its folders.
    pub fn new(program: &Program, mut number_of: impl FnMut(&Arc<Mount>) -> u64) -> Self {
        let mut folder = |mount: &Arc<Mount>| WireFolder {
            number: number_of(mount),
            identity: mount.identity(),
        };
        let Program {
            source,
            entry,
            variables,
            filename,
            args,
            env,
            stdin,
            stdin_function,
            files,
            mounts,
            beside,
            script,
            workdir,
            is_prompt,
            is_read_only,
            keeps_files,
            deterministic,
            // A process that is confined reaches no network, and its pool refuses to grant one.
            network: _,
            functions,
            // Its pool tells what happened.
            interface: _,
            records_calls,
            replays,
        } = program;
        let rest = RareFields {
            variables: variables.clone(),
            args: args.clone(),
            env: env.clone(),
            stdin: stdin.clone(),
            stdin_function: stdin_function.clone(),
            files: files
                .iter()
                .map(|InputFile { path, contents }| WireFile {
                    path: path.clone(),
                    contents: contents.to_vec(),
                })
                .collect(),
            mounts: mounts
                .iter()
                .map(|mount| (mount.path.clone(), folder(&mount.folder)))
                .collect(),
            beside: beside.as_ref().map(&mut folder),
            script: script.as_ref().map(|script| (script.name.clone(), folder(&script.folder))),
            workdir: workdir.clone(),
            is_prompt: *is_prompt,
            is_read_only: *is_read_only,
            keeps_files: *keeps_files,
            deterministic: *deterministic,
            functions: functions.signatures().cloned().collect(),
            records_calls: *records_calls,
            replays: replays.as_deref().cloned(),
        };
        Self {
            source: source.clone(),
            entry: entry.clone(),
            filename: filename.clone(),
            rest: (rest != RareFields::default()).then(|| Box::new(rest)),
        }
    }

    /// Returns the program, which runs here with `proxies` for the rest.
    ///
    /// # Errors
    /// It isn't one that [`Self::new`] made.
    pub fn program(self, proxies: &dyn Proxies) -> Result<Program, InvalidMessage> {
        let rest = self.rest.map(|rest| *rest).unwrap_or_default();
        let folder = |WireFolder { number, identity }| {
            let identity = identity.ok_or_else(|| InvalidMessage::new("a folder that is gone"))?;
            let folder = ProxiedFolder::new(number, identity, proxies.folders());
            Ok(Arc::new(Mount::proxied(folder)))
        };
        let mut mounts = Vec::with_capacity(rest.mounts.len());
        for (path, number) in rest.mounts {
            let mount = MountedFolder::new(path, folder(number)?);
            mounts.push(mount.map_err(|error| InvalidMessage::because("a mount", &error))?);
        }
        let beside = rest.beside.map(folder).transpose()?;
        let script = rest
            .script
            .map(|(name, number)| folder(number).map(|folder| Script { folder, name }))
            .transpose()?;
        let functions = rest.functions.into_iter().map(|signature| {
            let callee = proxies.callee(&signature.name);
            (signature, callee)
        });
        let functions = HostFunctions::new(functions)
            .map_err(|error| InvalidMessage::because("a host function", &error))?;
        let files: Result<Vec<_>, _> =
            rest.files.into_iter().map(|file| InputFile::new(file.path, file.contents)).collect();
        let program = Program {
            source: self.source,
            entry: self.entry,
            variables: rest.variables,
            filename: self.filename,
            args: rest.args,
            env: rest.env,
            stdin: rest.stdin,
            stdin_function: rest.stdin_function,
            files: files.map_err(|error| InvalidMessage::because("a file", &error))?,
            mounts,
            beside,
            script,
            workdir: rest.workdir,
            is_prompt: rest.is_prompt,
            is_read_only: rest.is_read_only,
            keeps_files: rest.keeps_files,
            deterministic: rest.deterministic,
            network: Network::default(),
            functions,
            interface: None,
            records_calls: rest.records_calls,
            replays: rest.replays.map(Arc::new),
        };
        program.check().map_err(|error| InvalidMessage::because("a program", &error))?;
        Ok(program)
    }
}
