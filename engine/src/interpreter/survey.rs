//! What can be imported from a build, and for which Python its packages are.
//!
//! The default build's archive says so. A build that the user brings is asked: its library may be
//! inside of its module, where only its interpreter finds it.

use std::sync::Arc;

use serde::Deserialize;

use super::engine::Engine;
use crate::cause::Cause;
use crate::error::{EngineError, StartError};
use crate::interrupt::stop::StopHandle;
use crate::limits::Limits;
use crate::python::packages::info::Inventory;
use crate::python::packages::info::PythonTarget;
use crate::python::packages::info::{PackageInfo, PackageOrigin};
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
    /// Returns for which Python packages are chosen. For a build that the user brings this starts
    /// an interpreter, once.
    ///
    /// # Errors
    /// The build doesn't start.
    pub fn target(&self) -> Result<PythonTarget, EngineError> {
        match self.build().is_default() {
            true => Ok(PythonTarget::default()),
            false => Ok(self.surveyed()?.target.clone()),
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
        match self.build().is_default() {
            true => Ok(use_(&self.archived()?)),
            false => Ok(use_(&self.surveyed()?.inventory)),
        }
    }

    fn surveyed(&self) -> Result<&Surveyed, EngineError> {
        match self.survey().get() {
            Some(surveyed) => Ok(surveyed),
            None => {
                let surveyed = self.ask()?;
                Ok(self.survey().get_or_init(|| surveyed))
            }
        }
    }

    fn ask(&self) -> Result<Surveyed, EngineError> {
        let mut interpreter = self.start()?;
        let program = Program { source: QUESTIONS.to_owned(), ..Program::default() };
        let stop = StopHandle::default();
        let (outcome, _) =
            interpreter.run(&program, &Limits::default(), &Arc::default(), &stop, true);
        let unanswered = |why: Cause| {
            StartError::Boot(Cause::because("it doesn't say which packages it has", why))
        };
        let value = match outcome.verdict {
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
}

fn package((name, version): (String, String)) -> PackageInfo {
    PackageInfo { name, version: Some(version), origin: PackageOrigin::Build }
}
