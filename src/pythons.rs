//! The Python builds of a running pool, by name.

use std::sync::Arc;

use engine::{Engine, Image, ImageInfo, PackageInfo};
use pool::{BuildId, Builds, DEFAULT_PYTHON, InterpreterSource};
use process::ProcessSource;

use crate::failure::Error;
use crate::learning::Learner;
use crate::network::NetworkError;

/// The longest name of a build, in bytes.
const MOST_NAME_BYTES: usize = 64;

/// A job, a session or a pool can't have the Python build of this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidPython {
    /// The pool has no build of this name.
    #[error(
        "this pool has no Python build `{name}`: it has `{}`; add others where the pool starts",
        known.join("`, `")
    )]
    Unknown {
        /// The name.
        name: String,
        /// The names of the pool's builds.
        known: Vec<String>,
    },
    /// The session runs on another build.
    #[error(
        "the session always runs on the Python build `{session}`, not on `{name}`: leave `python` \
         out, or use another session"
    )]
    OfSession {
        /// The name.
        name: String,
        /// The name of the session's build.
        session: String,
    },
    /// The checkpoint is of another build than the session.
    #[error(
        "the checkpoint needs the Python build `{name}`, and the session runs on `{session}`: \
         restore it in a session on `{name}`"
    )]
    OfCheckpoint {
        /// The name of the checkpoint's build.
        name: String,
        /// The name of the session's build.
        session: String,
    },
    /// No build can have this name.
    #[error(
        "`{0}` can't name a Python build: use 1 to {MOST_NAME_BYTES} letters, digits, `.`, `_` \
         and `-`, but not `default`"
    )]
    Name(String),
    /// Two builds have this name.
    #[error("two Python builds have the name `{0}`: give each its own")]
    Twice(String),
}

/// Checks that a build beside the default one can have this name.
pub(crate) fn check_name(name: &str) -> Result<(), InvalidPython> {
    let is_part = |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
    let is_name = (1..=MOST_NAME_BYTES).contains(&name.len()) && name.chars().all(is_part);
    match is_name && name != DEFAULT_PYTHON {
        true => Ok(()),
        false => Err(InvalidPython::Name(name.to_owned())),
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Python {
    /// Interpreters begin from its image.
    Image {
        image: Image,
        /// What starts them in processes, if they are to be there.
        processes: Option<Arc<ProcessSource>>,
    },
    /// The host has no images.
    Engine(Engine),
}

impl Python {
    fn engine(&self) -> &Engine {
        match self {
            Self::Image { image, .. } => image.engine(),
            Self::Engine(engine) => engine,
        }
    }

    pub(crate) fn source(&self) -> Arc<dyn InterpreterSource> {
        match self.clone() {
            Self::Image { processes: Some(processes), .. } => processes,
            Self::Image { image, processes: None } => Arc::new(image),
            Self::Engine(engine) => Arc::new(engine),
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Pythons {
    pub(crate) builds: Builds,
    /// In the same order.
    loaded: Arc<[Python]>,
    /// What makes images of what jobs import, if that is wanted.
    pub(crate) learner: Option<Arc<Learner>>,
}

impl Pythons {
    pub(crate) fn default_engine(&self) -> &Engine {
        self.loaded[0].engine()
    }

    /// Returns the builds of a pool that has only this default build.
    pub(crate) fn new(default: Python) -> Self {
        Self { builds: Builds::new(default.source()), loaded: [default].into(), learner: None }
    }

    /// Returns these builds and another one.
    pub(crate) fn with(&self, name: &str, python: Python) -> Self {
        let builds = self.builds.with(name, python.source());
        Self {
            builds,
            loaded: self.loaded.iter().cloned().chain([python]).collect(),
            learner: None,
        }
    }

    /// Returns these builds with what makes images of what jobs import.
    pub(crate) fn learning(self, learner: impl FnOnce(Builds) -> (Learner, Builds)) -> Self {
        let (learner, builds) = learner(self.builds);
        Self { builds, learner: Some(Arc::new(learner)), ..self }
    }

    /// Checks that programs of at least one build can connect to anything.
    pub(crate) fn check_connects(&self) -> Result<(), NetworkError> {
        let engines = self.names().zip(self.loaded.iter().map(Python::engine));
        let reasons: Vec<Option<String>> = engines
            .map(|(name, engine)| Some(format!("`{name}`: {}", engine.lacks_connections()?)))
            .collect();
        match reasons.into_iter().collect() {
            Some(reasons) => Err(NetworkError::Build { reasons }),
            None => Ok(()),
        }
    }

    pub(crate) fn find(&self, name: &str) -> Result<BuildId, InvalidPython> {
        self.builds.id(name).ok_or_else(|| InvalidPython::Unknown {
            name: name.to_owned(),
            known: self.names().map(str::to_owned).collect(),
        })
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.builds.names().map(|name| &**name)
    }

    pub(crate) fn name(&self, build: BuildId) -> &str {
        self.builds.name(build)
    }

    /// Returns the build on which a job runs, in a session of the build `session` if it is in one.
    pub(crate) fn of_job(
        &self,
        wanted: Option<&str>,
        session: Option<BuildId>,
    ) -> Result<BuildId, InvalidPython> {
        let Some(name) = wanted else { return Ok(session.unwrap_or_default()) };
        match (self.find(name)?, session) {
            (wanted, Some(session)) if wanted != session => Err(InvalidPython::OfSession {
                name: name.to_owned(),
                session: self.name(session).to_owned(),
            }),
            (wanted, _) => Ok(wanted),
        }
    }

    /// Returns the image of a build; `None` if the host has no images.
    pub(crate) fn image(&self, build: BuildId) -> Option<&Image> {
        match self.loaded.get(usize::from(build.0))? {
            Python::Image { image, .. } => Some(image),
            Python::Engine(_) => None,
        }
    }

    pub(crate) fn image_info(&self, build: BuildId) -> Option<&ImageInfo> {
        self.image(build).map(Image::info)
    }

    /// Returns the modules that the image of a build has imported, and hides.
    pub(crate) fn hidden_by(&self, build: BuildId) -> Vec<String> {
        let learned = self.learner.as_ref().and_then(|learner| learner.hidden_by(build));
        let of_image = || self.image_info(build).map(|image| image.hidden.clone());
        learned.or_else(of_image).unwrap_or_default()
    }

    pub(crate) fn packages(&self, build: BuildId) -> Result<Vec<PackageInfo>, Error> {
        Ok(match self.loaded.get(usize::from(build.0)) {
            None => Vec::new(),
            Some(Python::Engine(engine)) => engine.packages()?,
            Some(Python::Image { image, .. }) => {
                let mut packages = image.info().packages.clone();
                packages.extend(image.engine().packages()?);
                packages
            }
        })
    }

    /// Returns the images of the builds that have one, and the builds at the same places.
    pub(crate) fn images(&self) -> (Vec<BuildId>, Vec<Image>) {
        let ids = (0..=u16::MAX).map(BuildId);
        let image = |(build, python): (BuildId, &Python)| match python {
            Python::Image { image, .. } => Some((build, image.clone())),
            Python::Engine(_) => None,
        };
        ids.zip(self.loaded.iter()).filter_map(image).unzip()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_not_that_of_the_default_build() {
        for name in ["3.12", "wasix", "py_3-13", "a", &"x".repeat(64)] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for name in ["", "default", "a b", "a=b", "a/b", "größe", &"x".repeat(65)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
