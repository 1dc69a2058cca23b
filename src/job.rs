//! A job: a program, what it is given and what it may use.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use engine::{Deterministic, InputFile, Limits, Mount, MountedFolder, Program, Recording};

use crate::error::Error;

/// A job: a program, what it is given and what it may use.
///
/// ```
/// use std::time::Duration;
/// let job = hatchery::Job::code("import sys; print(sys.argv[1:])")
///     .args(["a", "b"])
///     .env("MODE", "test")
///     .timeout(Duration::from_secs(2));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Job {
    program: Program,
    limits: Option<Limits>,
    timeout: Option<Duration>,
    cpu_time: Option<Duration>,
}

impl Job {
    /// A job that runs this source. Tracebacks call it `<job>`.
    pub fn code(source: impl Into<String>) -> Self {
        let program = Program { source: source.into(), ..Program::default() };
        Self { program, ..Self::default() }
    }

    /// A job that runs the source in a file of the host. Only the source goes into the sandbox,
    /// not its folder.
    ///
    /// # Errors
    /// The file can't be read or is no UTF-8.
    pub fn file(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let bytes =
            fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        let source =
            String::from_utf8(bytes).map_err(|_| Error::NotText { path: path.to_owned() })?;
        // CPython skips the mark that some editors put in front of UTF-8.
        let source = source.strip_prefix('\u{feff}').unwrap_or(&source);
        Ok(Self::code(source).named(path.to_string_lossy()))
    }

    /// The source that the job runs.
    pub fn source(&self) -> &str {
        &self.program.source
    }

    /// Sets the name in tracebacks, `__file__` and `sys.argv[0]`.
    pub fn named(mut self, filename: impl Into<String>) -> Self {
        self.program.filename = Some(filename.into());
        self
    }

    /// Adds to `sys.argv[1:]`.
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.program.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable of the environment. The host's own environment is never passed on. A name
    /// that no environment can hold is refused when the job is submitted.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.program.env.insert(name.into(), value.into());
        self
    }

    /// Sets standard input. Without it, standard input is empty.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.program.stdin = bytes.into();
        self
    }

    /// Puts a file into the workspace, which is the working directory of the program.
    ///
    /// # Errors
    /// The path is not a plain relative path.
    pub fn input(
        mut self,
        path: impl Into<String>,
        contents: impl Into<Vec<u8>>,
    ) -> Result<Self, Error> {
        self.program.files.push(InputFile::new(path, contents)?);
        Ok(self)
    }

    /// Lets the program read a folder of the host, at an absolute path such as `/data`. It can't
    /// write there, and no link and no `..` leads it out of the folder. In a session the folder
    /// stays for later jobs.
    ///
    /// # Errors
    /// The folder can't be opened, or the path is not a plain absolute one.
    pub fn mount(
        mut self,
        folder: impl AsRef<Path>,
        path: impl Into<String>,
    ) -> Result<Self, Error> {
        let folder = Arc::new(Mount::open(folder)?);
        self.program.mounts.push(MountedFolder::new(path, folder)?);
        Ok(self)
    }

    /// Lets the program change no file at all, not even its own workspace.
    pub fn read_only(mut self) -> Self {
        self.program.is_read_only = true;
        self
    }

    /// Keeps what the program does to files also if it fails or is ended. Else that is undone, and
    /// a session goes on with the files from before.
    pub fn keep_files(mut self) -> Self {
        self.program.keeps_files = true;
        self
    }

    /// Makes the job the same at every run: its clock starts at the same instant and moves with the
    /// program alone, and every random number in it, hash seeds included, comes from the seed. In
    /// a session the first job decides, and later ones go on with its clock and its numbers.
    ///
    /// ```
    /// use hatchery::{Deterministic, Job};
    /// let job = Job::code("import uuid; uuid.uuid4()").deterministic(Deterministic::new(7));
    /// ```
    pub fn deterministic(mut self, deterministic: Deterministic) -> Self {
        self.program.deterministic = Some(deterministic);
        self
    }

    /// Has the outcome keep the job's calls of host functions, as
    /// [`Outcome::recording`](crate::Outcome::recording).
    pub fn record_host_calls(mut self) -> Self {
        self.program.records_calls = true;
        self
    }

    /// Answers the job's calls of host functions from a recording, in the order in which they were
    /// answered there; the functions themselves need not be there. A deterministic job then gives
    /// the same bytes. A call that isn't the recorded one raises `ReplayError`, which is a
    /// `hatchery.HostFunctionError`, and says how it differs.
    pub fn replay_host_calls(mut self, recording: impl Into<Arc<Recording>>) -> Self {
        self.program.replays = Some(recording.into());
        self
    }

    /// Sets what the job may use, instead of the defaults of the [`Hatchery`](crate::Hatchery).
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// Sets the wall time alone.
    pub fn timeout(mut self, wall_time: Duration) -> Self {
        self.timeout = Some(wall_time);
        self
    }

    /// Sets the CPU time alone: a budget that doesn't depend on what else the machine does.
    pub fn cpu_time(mut self, cpu_time: Duration) -> Self {
        self.cpu_time = Some(cpu_time);
        self
    }

    pub(crate) fn into_parts(self, defaults: &Limits) -> Result<(Program, Limits), Error> {
        self.program.check()?;
        let mut limits = self.limits.unwrap_or_else(|| defaults.clone());
        if let Some(timeout) = self.timeout {
            limits.wall_time = timeout;
        }
        if let Some(cpu_time) = self.cpu_time {
            limits.cpu_time = cpu_time;
        }
        Ok((self.program, limits))
    }
}
