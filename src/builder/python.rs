//! The Python builds of a pool, and the host that serves them.

use std::path::PathBuf;

use engine::{HostKind, PinnedModule};

use super::Builder;

impl Builder {
    /// Sets the default Python build: a WebAssembly file with its library beside it, their folder,
    /// or a wheel or a package `.webc` with one. Default: `$HATCHERY_PYTHON`, else the build that is
    /// fetched by name.
    pub fn python(mut self, path: impl Into<PathBuf>) -> Self {
        self.engine.python = Some(path.into());
        self
    }

    /// Adds another Python build under a name, by which jobs
    /// ([`Job::python`](crate::Job::python)) and sessions
    /// ([`Hatchery::session_on`](crate::Hatchery::session_on)) ask for it. A name has letters,
    /// digits, `.`, `_` and `-`, and `default` is taken. Preloads, the setup and packages go into the
    /// image of each build; if one of them can't be had, the start fails and says which.
    ///
    /// ```
    /// use hatchery::Hatchery;
    ///
    /// let builder = Hatchery::builder().python_named("3.12", "builds/python-3.12");
    /// ```
    pub fn python_named(mut self, name: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        self.pythons.push((name.into(), path.into()));
        self
    }

    /// Sets the wheel of the build that is fetched. Default: `$HATCHERY_PYTHON_WHEEL`, else pip fetches it.
    pub fn python_wheel(mut self, path: impl Into<PathBuf>) -> Self {
        self.engine.wheel = Some(path.into());
        self
    }

    /// Sets a file with the compiled Python build and its SHA-256 in hexadecimal, so that the first
    /// start on a machine needn't compile ([`EngineConfig::module`](crate::config::EngineConfig)).
    /// Default: `$HATCHERY_PYTHON_MODULE` with its `_SHA256`, else one installed with this program.
    pub fn python_module(mut self, path: impl Into<PathBuf>, sha256: impl Into<String>) -> Self {
        self.engine.module = Some(PinnedModule { path: path.into(), sha256: sha256.into() });
        self
    }

    /// Sets the host that serves the guests. Default: [`HostKind::Auto`].
    pub fn host(mut self, host: HostKind) -> Self {
        self.engine.host = host;
        self
    }

    /// Sets whether a first start on a machine takes jobs before all of Python is compiled. It then
    /// compiles CPython and what NumPy and pandas use most, a seventh of the code, and takes jobs while
    /// the rest is compiled in the background ([`Progress::StartedEarly`](crate::progress::Progress::StartedEarly)). A program
    /// that calls something of the rest waits for it, and the wait doesn't count as its time. An
    /// interrupt waits too, and after its grace period the run is stopped.
    /// [`finish_compiling`](crate::Hatchery::finish_compiling) waits until everything is compiled and cached; if the process
    /// ends before, the next start begins anew. With the default build on Linux and x86-64, and
    /// with workers on threads; else this changes nothing. Default: no.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), hatchery::Error> {
    /// use hatchery::{Hatchery, Job};
    ///
    /// let pool = Hatchery::builder().starts_early(true).start().await?;
    /// println!("{}", pool.run(Job::code("print('first')")).await?.stdout_text());
    /// pool.finish_compiling().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn starts_early(mut self, early: bool) -> Self {
        self.engine.starts_early = early;
        self
    }
}
