//! Programs, on their way to a worker process.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::error::InvalidSent;
use super::text::Text;
use super::value::SentValue;
use crate::files::mount::{FolderIdentity, FolderServer, LentFolder, Mount};
use crate::run::functions::{Callee, HostFunctions, Parameter, Recording, Signature};
use crate::run::network::Network;
use crate::run::program::{
    Call, Deterministic, InputFile, MountedFolder, Program, ProgramEntry, Script,
};
use crate::run::value::{Value, Variables};

/// A program as plain data.
#[derive(Debug, Serialize, Deserialize)]
pub struct SentProgram {
    source: String,
    entry: SentEntry,
    filename: Option<String>,
    /// `None` if none of it is set: most programs are source alone, and a frame of few fields is
    /// written and read faster.
    rest: Option<Box<Rest>>,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Rest {
    variables: Vec<(String, SentValue)>,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    #[serde(with = "serde_bytes")]
    stdin: Vec<u8>,
    stdin_function: Option<String>,
    files: Vec<SentFile>,
    mounts: Vec<(String, SentFolder)>,
    beside: Option<SentFolder>,
    script: Option<(String, SentFolder)>,
    workdir: Option<String>,
    is_prompt: bool,
    is_read_only: bool,
    keeps_files: bool,
    deterministic: Option<Deterministic>,
    functions: Vec<SentSignature>,
    records_calls: bool,
    replays: Option<Text<Recording>>,
}

/// A folder by its number in the process that has opened it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct SentFolder {
    number: u64,
    identity: Option<FolderIdentity>,
}

#[derive(Debug, Serialize, Deserialize)]
enum SentEntry {
    Statements,
    Expression,
    Call {
        module: String,
        function: String,
        args: Vec<SentValue>,
        keywords: Vec<(String, SentValue)>,
    },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct SentFile {
    path: String,
    #[serde(with = "serde_bytes")]
    contents: Vec<u8>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct SentSignature {
    name: String,
    doc: String,
    parameters: Option<Vec<SentParameter>>,
    returns: String,
    is_tagged: bool,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct SentParameter {
    name: String,
    hint: String,
    default: Option<Text<serde_json::Value>>,
}

/// Stands in for what stays in the process that sent a program.
pub trait Lent {
    /// Returns what answers questions about folders.
    fn folders(&self) -> Arc<dyn FolderServer>;

    /// Returns what begins calls of the function of this name.
    fn callee(&self, name: &str) -> Arc<dyn Callee>;
}

impl SentProgram {
    /// Copies a program. `lend` numbers its folders.
    pub fn new(program: &Program, mut lend: impl FnMut(&Arc<Mount>) -> u64) -> Self {
        let mut folder =
            |mount: &Arc<Mount>| SentFolder { number: lend(mount), identity: mount.identity() };
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
        let rest = Rest {
            variables: sent(variables),
            args: args.clone(),
            env: env.clone(),
            stdin: stdin.clone(),
            stdin_function: stdin_function.clone(),
            files: files.iter().map(SentFile::from).collect(),
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
            functions: functions.signatures().map(SentSignature::from).collect(),
            records_calls: *records_calls,
            replays: replays.as_ref().map(|recording| Text((**recording).clone())),
        };
        Self {
            source: source.clone(),
            entry: entry.into(),
            filename: filename.clone(),
            rest: (rest != Rest::default()).then(|| Box::new(rest)),
        }
    }

    /// Returns the program, which runs here with what was lent to it.
    ///
    /// # Errors
    /// It isn't one that [`Self::new`] made.
    pub fn program(self, lent: &dyn Lent) -> Result<Program, InvalidSent> {
        let rest = self.rest.map(|rest| *rest).unwrap_or_default();
        let folder = |SentFolder { number, identity }| {
            let identity = identity.ok_or_else(|| InvalidSent::new("a folder that is gone"))?;
            let folder = LentFolder::new(number, identity, lent.folders());
            Ok(Arc::new(Mount::lent(folder)))
        };
        let mut mounts = Vec::with_capacity(rest.mounts.len());
        for (path, number) in rest.mounts {
            let mount = MountedFolder::new(path, folder(number)?);
            mounts.push(mount.map_err(|error| InvalidSent::because("a mount", &error))?);
        }
        let beside = rest.beside.map(folder).transpose()?;
        let script = rest
            .script
            .map(|(name, number)| folder(number).map(|folder| Script { folder, name }))
            .transpose()?;
        let functions = rest.functions.into_iter().map(|signature| {
            let callee = lent.callee(&signature.name);
            (Signature::from(signature), callee)
        });
        let functions = HostFunctions::new(functions)
            .map_err(|error| InvalidSent::because("a host function", &error))?;
        let files: Result<Vec<_>, _> =
            rest.files.into_iter().map(|file| InputFile::new(file.path, file.contents)).collect();
        let program = Program {
            source: self.source,
            entry: self.entry.try_into()?,
            variables: received(rest.variables)?,
            filename: self.filename,
            args: rest.args,
            env: rest.env,
            stdin: rest.stdin,
            stdin_function: rest.stdin_function,
            files: files.map_err(|error| InvalidSent::because("a file", &error))?,
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
            replays: rest.replays.map(|Text(recording)| Arc::new(recording)),
        };
        program.check().map_err(|error| InvalidSent::because("a program", &error))?;
        Ok(program)
    }
}

fn sent(values: &Variables) -> Vec<(String, SentValue)> {
    values.iter().map(|(name, value)| (name.clone(), value.into())).collect()
}

fn received(values: Vec<(String, SentValue)>) -> Result<Variables, InvalidSent> {
    values.into_iter().map(|(name, value)| Ok((name, value.try_into()?))).collect()
}

impl From<&ProgramEntry> for SentEntry {
    fn from(entry: &ProgramEntry) -> Self {
        match entry {
            ProgramEntry::Statements => Self::Statements,
            ProgramEntry::Expression => Self::Expression,
            ProgramEntry::Call(Call { module, function, args, keywords }) => Self::Call {
                module: module.clone(),
                function: function.clone(),
                args: args.iter().map(SentValue::from).collect(),
                keywords: sent(keywords),
            },
        }
    }
}

impl TryFrom<SentEntry> for ProgramEntry {
    type Error = InvalidSent;

    fn try_from(entry: SentEntry) -> Result<Self, InvalidSent> {
        Ok(match entry {
            SentEntry::Statements => Self::Statements,
            SentEntry::Expression => Self::Expression,
            SentEntry::Call { module, function, args, keywords } => {
                let args: Result<Vec<Value>, _> = args.into_iter().map(Value::try_from).collect();
                Self::Call(Call { module, function, args: args?, keywords: received(keywords)? })
            }
        })
    }
}

impl From<&InputFile> for SentFile {
    fn from(file: &InputFile) -> Self {
        Self { path: file.path.clone(), contents: file.contents.to_vec() }
    }
}

impl From<&Signature> for SentSignature {
    fn from(Signature { name, doc, parameters, returns, is_tagged }: &Signature) -> Self {
        let parameters = parameters.as_ref().map(|parameters| {
            let sent = |Parameter { name, hint, default }: &Parameter| SentParameter {
                name: name.clone(),
                hint: hint.clone(),
                default: default.clone().map(Text),
            };
            parameters.iter().map(sent).collect()
        });
        let (name, doc, returns) = (name.clone(), doc.clone(), returns.clone());
        Self { name, doc, parameters, returns, is_tagged: *is_tagged }
    }
}

impl From<SentSignature> for Signature {
    fn from(sent: SentSignature) -> Self {
        let SentSignature { name, doc, parameters, returns, is_tagged } = sent;
        let parameter = |SentParameter { name, hint, default }| Parameter {
            name,
            hint,
            default: default.map(|Text(json)| json),
        };
        let parameters =
            parameters.map(|parameters| parameters.into_iter().map(parameter).collect());
        Self { name, doc, parameters, returns, is_tagged }
    }
}
