//! What can be imported from a build, and for which Python its packages are.
//!
//! The default build's archive says so. For a user's build an interpreter says so, since its
//! library may be inside of its module.

use std::sync::Arc;

use serde::Deserialize;

use super::engine::Engine;
use crate::cause::{Cause, chain};
use crate::config::HostKind;
use crate::error::{EngineError, StartError};
use crate::interrupt::stop::StopHandle;
use crate::limits::Limits;
use crate::python::module::imports::{SLEEP, WASIX};
use crate::python::module::shape::{Shape, shared_memory};
use crate::python::module::threads;
use crate::python::module::writes;
use crate::python::packages::info::{self, Inventory, PackageInfo, PackageOrigin, PythonTarget};
use crate::run::outcome::Verdict;
use crate::run::program::Program;

/// A program whose value is a `Survey`.
const QUESTIONS: &str = "\
import importlib.metadata, pkgutil, sys
{
    'version': list(sys.version_info[:3]),
    'platform': sys.platform,
    'packages': [[d.metadata['Name'], d.version] for d in importlib.metadata.distributions()],
    'modules': [*sys.builtin_module_names, *(module.name for module in pkgutil.iter_modules())],
}";

/// What a build says of itself.
#[derive(Debug, Deserialize)]
struct Survey {
    version: [u32; 3],
    platform: String,
    packages: Vec<(String, String)>,
    modules: Vec<String>,
}

/// What is known of a build's Python and its library.
#[derive(Debug)]
pub(super) struct Surveyed {
    target: PythonTarget,
    inventory: Inventory,
}

impl Engine {
    /// Returns for which Python packages are chosen. For most builds that the user brings this starts
    /// an interpreter, once.
    ///
    /// # Errors
    /// The build doesn't start.
    pub fn target(&self) -> Result<PythonTarget, EngineError> {
        match self.inner.build.linkable() {
            Some(version) => Ok(PythonTarget::of_emscripten(version)),
            None if self.inner.build.is_default() => Ok(PythonTarget::default()),
            None => Ok(self.surveyed()?.target.clone()),
        }
    }

    /// Returns the packages of the build whose versions are known, by name. For a build that the
    /// user brings this starts an interpreter, once.
    ///
    /// # Errors
    /// The build doesn't start, or the default build's archive is damaged.
    pub fn packages(&self) -> Result<Vec<PackageInfo>, EngineError> {
        self.with_inventory(|inventory| inventory.distributions.clone())
    }

    /// Gives `use_` what can be imported from the build.
    pub(crate) fn with_inventory<T>(
        &self,
        use_: impl FnOnce(&Inventory) -> T,
    ) -> Result<T, EngineError> {
        match self.inner.build.is_default() {
            true => Ok(use_(&info::inventory(self.inner.library.archives())?)),
            false => Ok(use_(&self.surveyed()?.inventory)),
        }
    }

    fn surveyed(&self) -> Result<&Surveyed, EngineError> {
        match self.inner.survey.get() {
            Some(surveyed) => Ok(surveyed),
            None => {
                let surveyed = self.ask()?;
                Ok(self.inner.survey.get_or_init(|| surveyed))
            }
        }
    }

    /// Runs a program in an interpreter that starts for it. Returns how it ended, and whether it
    /// could have been interrupted.
    fn run_alone(&self, source: &str) -> Result<(Verdict, bool), EngineError> {
        let mut interpreter = self.start()?;
        let program = Program { source: source.to_owned(), ..Program::default() };
        let (limits, stop) = (Limits::default(), StopHandle::default());
        let (outcome, _) = interpreter.run(&program, &limits, &Arc::default(), &stop, true);
        Ok((outcome.verdict, self.offsets(&interpreter.memory()).is_some()))
    }

    fn ask(&self) -> Result<Surveyed, EngineError> {
        let unanswered = |why: Cause| {
            StartError::Boot(Cause::because("it doesn't say which packages it has", why))
        };
        let value = match self.run_alone(QUESTIONS)?.0 {
            Verdict::Completed { value: Some(value), .. } => value,
            Verdict::Raised(exception) => {
                return Err(unanswered(exception.traceback.trim_end().into()).into());
            }
            verdict => return Err(unanswered(verdict.name().into()).into()),
        };
        let survey: Survey =
            serde_json::from_value(value).map_err(|error| unanswered(Cause::new(error)))?;
        let mut distributions: Vec<_> = survey.packages.into_iter().map(package).collect();
        distributions.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Surveyed {
            target: PythonTarget::new(survey.version, survey.platform),
            inventory: Inventory { distributions, modules: survey.modules.into_iter().collect() },
        })
    }

    /// Starts an interpreter and finds out what the build is and can do. Takes 0.1 to 0.3 s.
    ///
    /// # Errors
    /// The build doesn't start, or its module can't be read.
    pub fn describe_build(&self) -> Result<BuildInfo, EngineError> {
        let (verdict, is_interruptible) = self.run_alone(VERSION)?;
        let version = match verdict {
            Verdict::Completed { value: Some(serde_json::Value::String(version)), .. } => version,
            _ => "unknown".to_owned(),
        };
        let module = self.inner.module.module();
        let images = match self.takes_images() {
            true => writes::check(&self.inner.build.wasm()?)
                .err()
                .map(|error| chain(&error).to_string()),
            false => Some("the host `wasix` has none".to_owned()),
        };
        let interrupts = (!is_interruptible).then(|| {
            "this CPython has no table of offsets that Hatchery knows (3.13 to 3.15 have): a run \
             is stopped by force, and a session goes back to before its turn"
                .to_owned()
        });
        let has_threads = shared_memory(module).is_some() || threads::are_given(module);
        let threads = (!has_threads).then(|| "it has one thread".to_owned());
        let linkable = self.inner.build.linkable().map(PythonTarget::of_emscripten);
        let has_wheels = linkable.is_some_and(|target| !target.machine_code().is_empty());
        let machine_code = (!has_wheels).then(|| "only Pyodide links them".to_owned());
        Ok(BuildInfo {
            name: self.inner.build.name().to_owned(),
            version,
            kind: if Shape::of(module).is_command() { "command" } else { "reactor" },
            interfaces: {
                let imports = |name| module.imports().any(|import| import.module() == name);
                let is_of_emscripten = module.imports().any(|import| import.name() == SLEEP);
                match (imports(WASIX), is_of_emscripten) {
                    (_, true) => "WASI preview 1 and Emscripten, without JavaScript",
                    (true, false) => "WASI preview 1 and WASIX",
                    (false, false) => "WASI preview 1",
                }
            },
            host: match self.inner.config.host {
                HostKind::Wasix => "wasix",
                HostKind::Own => "own",
            },
            features: vec![
                ("images, resets, sessions and forks", images),
                ("interrupts that keep a session", interrupts),
                ("packages with machine code", machine_code),
                ("threads", threads),
                ("connections, if allowed", self.lacks_connections().map(str::to_owned)),
            ],
        })
    }
}

fn package((name, version): (String, String)) -> PackageInfo {
    PackageInfo { name, version: Some(version), origin: PackageOrigin::Build }
}

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
