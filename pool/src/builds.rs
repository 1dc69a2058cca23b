//! The Python builds of a pool: a source of interpreters for each, by name.

use std::sync::{Arc, OnceLock};

use crate::ids::BuildId;
use crate::interpreter::InterpreterSource;
use crate::isolation::IsolationStatus;

/// The name of the build that every pool has.
pub const DEFAULT_PYTHON: &str = "default";

/// The Python builds of a pool. The first one is the default. Cheap to clone; clones share
/// everything.
#[derive(Clone, derive_more::Debug)]
#[debug("Builds({:?})", self.names().collect::<Vec<_>>())]
pub struct Builds {
    builds: Arc<[Build]>,
}

#[derive(Clone)]
struct Build {
    name: Arc<str>,
    source: Arc<OnceLock<Arc<dyn InterpreterSource>>>,
}

impl Builds {
    /// Returns the builds of a pool that has only the default one.
    pub fn new(source: Arc<dyn InterpreterSource>) -> Self {
        let (name, source) = (Arc::from(DEFAULT_PYTHON), Arc::new(OnceLock::from(source)));
        Self { builds: [Build { name, source }].into() }
    }

    /// Returns these builds and another one. No build has its name yet.
    #[must_use]
    pub fn with(&self, name: &str, source: Arc<dyn InterpreterSource>) -> Self {
        debug_assert_eq!(self.id(name), None, "each build has a name of its own");
        self.and(Build { name: Arc::from(name), source: Arc::new(OnceLock::from(source)) })
    }

    /// Returns these builds and a further one under the name of the default one. Until it gets a
    /// source ([`Self::provide`]), its interpreters are those of the default build.
    #[must_use]
    pub fn with_later(&self) -> (Self, BuildId) {
        let later = Build { name: Arc::from(DEFAULT_PYTHON), source: Arc::default() };
        let id = u16::try_from(self.builds.len()).map_or_else(|_| BuildId::default(), BuildId);
        (self.and(later), id)
    }

    /// Gives a build of [`Self::with_later`] its source, for all clones. It then never changes.
    pub fn provide(&self, build: BuildId, source: Arc<dyn InterpreterSource>) {
        let is_first = self.get(build).source.set(source).is_ok();
        debug_assert!(is_first, "a build gets one source");
    }

    fn and(&self, other: Build) -> Self {
        Self { builds: self.builds.iter().cloned().chain([other]).collect() }
    }

    /// Returns the build with this name.
    pub fn id(&self, name: &str) -> Option<BuildId> {
        let place = self.builds.iter().position(|build| *build.name == *name)?;
        u16::try_from(place).ok().map(BuildId)
    }

    /// Returns the name of a build.
    pub fn name(&self, build: BuildId) -> &Arc<str> {
        &self.get(build).name
    }

    /// Returns the names of all builds, that of the default one first.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        let has_own = |(id, build): &(usize, &Build)| *id == 0 || *build.name != *DEFAULT_PYTHON;
        self.builds.iter().enumerate().filter(has_own).map(|(_, build)| &build.name)
    }

    /// Returns the memory that the interpreters of each build share, in bytes, summed over builds.
    pub fn shared_bytes(&self) -> u64 {
        let sources = self.builds.iter().filter_map(|build| build.source.get());
        sources.map(|source| source.shared_bytes()).sum()
    }

    /// Returns where the interpreters run, of all builds.
    pub fn isolation(&self) -> IsolationStatus {
        self.source(BuildId::default()).isolation()
    }

    /// Returns where the interpreters of a build come from.
    pub(crate) fn source(&self, build: BuildId) -> &dyn InterpreterSource {
        let default = || self.builds[0].source.get().expect("it has one from its start");
        &**self.get(build).source.get().unwrap_or_else(default)
    }

    fn get(&self, build: BuildId) -> &Build {
        // Ids come from `id`; another pool's would be a mistake of the facade.
        self.builds.get(usize::from(build.0)).unwrap_or(&self.builds[0])
    }
}
