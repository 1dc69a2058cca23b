//! A job: a program, what it is given and what it may use.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use scheduler::{JobRequest, Priority};

use engine::{
    BadProgram, Call, Deterministic, Entry, InputFile, Limits, Mount, MountedFolder, Program,
    Recording, Script, Value,
};

use crate::error::Error;
use crate::source::decode_source;

/// Bytes of a script that are read at most, so that a device doesn't fill the memory: far above what
/// `Limits::source_bytes` is by default.
const LONGEST_SCRIPT_BYTES: u64 = 64 << 20;

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
    /// A wall time that is taken if the limits have no shorter one.
    at_most: Option<Duration>,
    cpu_time: Option<Duration>,
    tenant: Option<Arc<str>>,
    priority: Priority,
    deadline: Option<Duration>,
    idempotent: Option<bool>,
}

impl Job {
    /// A job that runs this source. Tracebacks call it `<job>`.
    pub fn code(source: impl Into<String>) -> Self {
        let program = Program { source: source.into(), ..Program::default() };
        Self { program, ..Self::default() }
    }

    /// A job that runs one expression, which is its value. Other source is a `SyntaxError`.
    pub fn expression(source: impl Into<String>) -> Self {
        let mut job = Self::code(source);
        job.program.entry = Entry::Expression;
        job
    }

    /// A job that calls a function, `module:function`, with arguments by position; what it returns
    /// is the value, and is awaited if it can be. The module is imported from wherever the job
    /// finds modules: the image, packages, input files, mounts. In a session `__main__` has the
    /// functions that earlier jobs defined. [`Call`] has arguments by name as well.
    ///
    /// ```
    /// use hatchery::{Array, Call, Job, Value};
    /// let job = Job::call("numpy:sum", [Array::from_slice(&[1.0, 2.0])]);
    /// let job = Job::from(Call::new("json:dumps").arg(serde_json::json!([1])).keyword("indent", 2));
    /// ```
    pub fn call(target: &str, args: impl IntoIterator<Item = impl Into<Value>>) -> Self {
        args.into_iter().fold(Call::new(target), Call::arg).into()
    }

    /// A job that runs a script of the host as `python path` does: tracebacks have its path, and it
    /// imports modules that lie beside it.
    ///
    /// For that the program can read the Python source below the script's folder, `*.py` in folders
    /// without a dot in their names, and nothing else there. It is mounted at `/script`, which is
    /// `sys.path[0]`, so `__file__` is `/script/NAME`. [`Self::alone`] leaves all of that out. The
    /// working directory is the workspace all the same. Jobs of scripts in one folder share it: they
    /// hold one descriptor together, however many there are.
    ///
    /// A pipe is read to its end, which blocks until it comes; one without a name, such as standard
    /// input, is a script with nothing beside it.
    ///
    /// # Errors
    /// The file can't be read, is larger than 64 MiB, or can't be read as [`decode_source`] does, or
    /// its folder can't be read.
    pub fn file(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let unreadable = |source| Error::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(unreadable)?;
        let bytes = read(file).map_err(unreadable)?;
        let source = decode_source(&bytes)
            .map_err(|cause| Error::NotText { path: path.to_owned(), cause })?;
        let mut job = Self::code(source).named(path.to_string_lossy());
        job.program.script = if has_place(path) { script(path)? } else { None };
        Ok(job)
    }

    /// Gives the program nothing of its script's folder.
    pub fn alone(mut self) -> Self {
        self.program.script = None;
        self
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

    /// Gives the program a variable of its main module: anything that JSON holds, bytes, a NumPy
    /// array or a frame, which travel as raw bytes. In a session it stays. A name that no variable
    /// can have is refused when the job is submitted.
    ///
    /// ```
    /// use hatchery::{Array, Job};
    /// let job = Job::code("prices * (1 + rate)")
    ///     .variable("rate", 0.2)
    ///     .variable("prices", Array::from_slice(&[1.0, 2.5]));
    /// ```
    pub fn variable(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.program.variables.insert(name.into(), value.into());
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

    /// Has standard input come from a host function, as lines come that somebody types. It is called
    /// without arguments whenever the program reads on and gives a text, most often a line with its
    /// end; an empty one is an end, after which more can come, and `None` raises
    /// `KeyboardInterrupt`. While the program waits for it, its wall time stands still, and so does a
    /// deadline. A function that the pool doesn't have raises an exception when the program reads.
    pub fn stdin_from(mut self, function: impl Into<String>) -> Self {
        self.program.stdin_function = Some(function.into());
        self
    }

    /// Puts a file into the workspace, which is the working directory of the program.
    ///
    /// # Errors
    /// The path is not a plain relative path.
    pub fn input(
        self,
        path: impl Into<String>,
        contents: impl Into<Vec<u8>>,
    ) -> Result<Self, Error> {
        let file = InputFile::new(path, contents)?;
        Ok(self.file_given(file))
    }

    /// Gives the program the input files and the folders of another job as well, so that many jobs
    /// share folders that were opened once. Its own take the place of those at the same paths.
    ///
    /// ```
    /// use hatchery::Job;
    /// let shared = Job::default().input("rates.csv", "a,1\n")?;
    /// let jobs = ["1 + 1", "2 + 2"].map(|code| Job::code(code).with_files_of(&shared));
    /// # Ok::<(), hatchery::Error>(())
    /// ```
    pub fn with_files_of(mut self, other: &Self) -> Self {
        // What comes later takes the place of what is there.
        self.program.files.splice(..0, other.program.files.iter().cloned());
        self.program.mounts.splice(..0, other.program.mounts.iter().cloned());
        let beside = || other.program.beside.clone();
        self.program.beside = self.program.beside.or_else(beside);
        self
    }

    /// How large its input files are together, in bytes.
    pub fn input_bytes(&self) -> usize {
        self.program.files.iter().map(|file| file.contents.len()).sum()
    }

    pub(crate) fn file_given(mut self, file: InputFile) -> Self {
        self.program.files.push(file);
        self
    }

    /// Sets the working directory: a path in the workspace, or an absolute one. Where programs can
    /// write (`/workspace`, `/tmp`, `/home`) it is made if it isn't there. Without it that is the
    /// workspace, or, in a session, where the job before ended.
    ///
    /// # Errors
    /// The path is empty, or has a part that is empty, `.` or `..`.
    pub fn workdir(mut self, path: &str) -> Result<Self, Error> {
        self.program.workdir = Some(engine::workdir(path)?);
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

    /// Shows the program what lies in a folder of the host as if it ran there: the files and folders
    /// in it are in the workspace, and so in the working directory, where an input file or a file of
    /// the session doesn't take their names. They can be read and not changed, and links of the host
    /// lead nowhere. New files go into the workspace alone. A [script](Self::file) that lies in this
    /// folder finds all of it beside itself as well. In a session the folder stays for later jobs,
    /// but for what comes to lie in it later.
    ///
    /// # Errors
    /// The folder can't be opened.
    pub fn beside(mut self, folder: impl AsRef<Path>) -> Result<Self, Error> {
        let folder = Arc::new(Mount::open(folder)?);
        let is_own = |script: &&mut Script| script.folder.is_same_folder(&folder);
        if let Some(script) = self.program.script.as_mut().filter(is_own) {
            script.folder = Arc::clone(&folder);
        }
        self.program.beside = Some(folder);
        Ok(self)
    }

    /// Has later jobs of the session find the value that this one ends in as `_`, unless that is
    /// `None`: what is typed at Python's own prompt is run so. A variable `_` comes before it.
    pub fn prompt(mut self) -> Self {
        self.program.is_prompt = true;
        self
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
    /// program alone, and every random number in it comes from the seed. Hashes of texts are always the
    /// same: their seed is that of the image. In
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

    /// Says whose job it is. Tenants share the CPU time by their weights, whatever each submits;
    /// see [`Builder::tenant`](crate::Builder::tenant). Any text will do. Without one it
    /// is the tenant `default`.
    pub fn tenant(mut self, name: impl Into<Arc<str>>) -> Self {
        self.tenant = Some(name.into());
        self
    }

    /// Says how urgent it is among the jobs of its tenant. Nothing waits for ever: a normal job
    /// counts as submitted 30 seconds later than it was, one of low priority 60. The turns of a
    /// session keep their order all the same. Default: [`Priority::Normal`].
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Says when the outcome is due, from submission. If by the measured times it can't be had by
    /// then, the job is refused at once with the estimate,
    /// [`Refusal::DeadlineTooSoon`](crate::Refusal::DeadlineTooSoon), as is one that is due in no
    /// time; if the time comes while the job waits or runs, it ends with the limit
    /// [`LimitKind::Deadline`](crate::LimitKind::Deadline), by an interrupt as at any limit on
    /// time. A job doesn't go first because it is due soon. Default: none.
    ///
    /// ```
    /// use std::time::Duration;
    /// use hatchery::{Job, Priority};
    /// let job = Job::code("1 + 1")
    ///     .tenant("notebook")
    ///     .priority(Priority::High)
    ///     .deadline(Duration::from_millis(200));
    /// ```
    pub fn deadline(mut self, from_submission: Duration) -> Self {
        self.deadline = Some(from_submission);
        self
    }

    /// Says whether running the job twice does no harm. Then it is tried again, on a fresh
    /// interpreter, when the sandbox fails or its worker dies, as often as
    /// [`Builder::retries`](crate::Builder::retries) says; what the program itself does is never a
    /// reason. A job of a session is never tried again. A reader of its events finds
    /// [`EventKind::Retried`](crate::EventKind::Retried) between two tries.
    /// Default: yes for a job without a session, in a pool without host functions.
    pub fn idempotent(mut self, is_idempotent: bool) -> Self {
        self.idempotent = Some(is_idempotent);
        self
    }

    /// Shortens the wall time to this, if it is longer.
    pub(crate) fn at_most(mut self, wall_time: Duration) -> Self {
        self.at_most = Some(wall_time);
        self
    }

    pub(crate) fn check(&self) -> Result<(), BadProgram> {
        self.program.check()
    }

    /// What the scheduler is asked for, in no session and without host functions.
    pub(crate) fn into_request(self, defaults: &Limits) -> Result<JobRequest, Error> {
        self.check()?;
        let mut limits = self.limits.unwrap_or_else(|| defaults.clone());
        if let Some(timeout) = self.timeout {
            limits.wall_time = timeout;
        }
        if let Some(at_most) = self.at_most {
            limits.wall_time = limits.wall_time.min(at_most);
        }
        if let Some(cpu_time) = self.cpu_time {
            limits.cpu_time = Some(cpu_time);
        }
        let Self { program, tenant, priority, deadline, idempotent, .. } = self;
        Ok(JobRequest { program, limits, session: None, tenant, priority, deadline, idempotent })
    }
}

impl From<Call> for Job {
    fn from(call: Call) -> Self {
        let program = Program { entry: Entry::Call(call), ..Program::default() };
        Self { program, ..Self::default() }
    }
}

fn read(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let length = file.take(LONGEST_SCRIPT_BYTES + 1).read_to_end(&mut bytes)?;
    if length as u64 > LONGEST_SCRIPT_BYTES {
        let problem = "it is larger than 64 MiB; a script has to be smaller";
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, problem));
    }
    Ok(bytes)
}

/// Whether an open file lies in a folder. What only a descriptor names doesn't: a pipe, or a file
/// that was removed, as shells make long here-documents.
fn has_place(path: &Path) -> bool {
    !path.canonicalize().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Where a script lies, with links followed, as CPython does; `None` where that can't be granted.
fn script(path: &Path) -> Result<Option<Script>, Error> {
    let unreadable = |source| Error::Read { path: path.to_owned(), source };
    let path = path.canonicalize().map_err(unreadable)?;
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
    // A program can't be told a name that is no UTF-8.
    let Some(name) = name.to_str() else { return Ok(None) };
    match Mount::open_modules(folder, name) {
        Ok(folder) => Ok(Some(Script { folder: Arc::new(folder), name: name.to_owned() })),
        Err(bad) if bad.cause.kind() == io::ErrorKind::Unsupported => Ok(None),
        Err(bad) => Err(bad.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_of_a_script_is_bounded() {
        let error = Job::file("/dev/zero").unwrap_err().to_string();
        assert!(error.contains("`/dev/zero`") && error.contains("larger than 64 MiB"), "{error}");
        assert!(Job::file("/").is_err());
    }

    #[test]
    fn a_pipe_without_a_name_has_nothing_beside_it() {
        use std::io::Write;
        use std::os::fd::AsRawFd;
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"1").unwrap();
        drop(writer);
        let job = Job::file(format!("/dev/fd/{}", reader.as_raw_fd())).unwrap();
        assert_eq!(job.source(), "1");
        assert!(job.program.script.is_none());
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("a.py");
        std::fs::write(&script, "1").unwrap();
        assert!(Job::file(script).unwrap().program.script.is_some());
    }
}
