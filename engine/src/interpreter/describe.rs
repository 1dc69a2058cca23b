//! What a Python build is, and which features it can have.

use std::sync::Arc;

use super::engine::Engine;
use crate::cause::chain;
use crate::config::HostKind;
use crate::error::EngineError;
use crate::interrupt::stop::StopHandle;
use crate::limits::Limits;
use crate::python::module::shape::{Shape, shared_memory};
use crate::python::module::writes;
use crate::run::outcome::Verdict;
use crate::run::program::Program;

/// Prints nothing; its value is the version.
const VERSION: &str = "import sys\n'.'.join(map(str, sys.version_info[:3]))";

/// A Python build, as it was found when it was started.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BuildInfo {
    /// The requirement of the default build, or the name of the file and the beginning of its
    /// SHA-256.
    pub name: String,
    /// The version of CPython, such as `3.12.0`.
    pub version: String,
    /// How it is entered: `reactor`, through functions that it exports for it, or `command`, an
    /// ordinary program with `_start`.
    pub kind: &'static str,
    /// What serves it: `WASI preview 1`, and `WASIX` if it imports that too.
    pub interfaces: &'static str,
    /// The host that serves it, as the option `--host` names it: `own` or `wasix`.
    pub host: &'static str,
    /// Features, each with the reason if the build can't have it.
    pub features: Vec<(&'static str, Option<String>)>,
}

impl Engine {
    /// Starts an interpreter and finds out what the build is and can do. Takes 0.1 to 0.3 s.
    ///
    /// # Errors
    /// The build doesn't start, or its module can't be read.
    pub fn describe_build(&self) -> Result<BuildInfo, EngineError> {
        let mut interpreter = self.start()?;
        let program = Program { source: VERSION.to_owned(), ..Program::default() };
        let stop = StopHandle::default();
        let (outcome, _) =
            interpreter.run(&program, &Limits::default(), &Arc::default(), &stop, true);
        let version = match outcome.verdict {
            Verdict::Completed { value: Some(serde_json::Value::String(version)), .. } => version,
            _ => "unknown".to_owned(),
        };
        let module = self.module().module();
        let images = match self.takes_images() {
            true => writes::check(&self.read_wasm()?).err().map(|error| chain(&error).to_string()),
            false => Some("the host `wasix` has none".to_owned()),
        };
        let interrupts = self.offsets(&interpreter.memory()).is_none().then(|| {
            "this CPython has no table of offsets that Hatchery knows (3.13 and 3.15 have): a run \
             is stopped by force, and a session goes back to before its turn"
                .to_owned()
        });
        let threads = shared_memory(module).is_none().then(|| "it has one thread".to_owned());
        Ok(BuildInfo {
            name: self.build().name().to_owned(),
            version,
            kind: if Shape::of(module).is_command() { "command" } else { "reactor" },
            interfaces: match module.imports().any(|import| import.module().starts_with("wasix")) {
                true => "WASI preview 1 and WASIX",
                false => "WASI preview 1",
            },
            host: match self.host_kind() {
                HostKind::Wasix => "wasix",
                HostKind::Own | HostKind::Auto => "own",
            },
            features: vec![
                ("images, resets, sessions and forks", images),
                ("interrupts that keep a session", interrupts),
                ("threads", threads),
                ("connections, if allowed", self.lacks_connections().map(str::to_owned)),
            ],
        })
    }
}
