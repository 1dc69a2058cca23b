//! A job: a program with its inputs and limits.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use egress::Rule;
use engine::{
    Call, Destination, Deterministic, FolderDigests, InputFile, Interface, Limits, Mount,
    MountedFolder, Network, Program, ProgramEntry, Recording, Script, Value,
};
use scheduler::{JobRequest, Priority};

use self::wire::Asked;
use crate::failure::Error;
use crate::functions::HostFunction;
use crate::record::writer::TurnRecorder;
use crate::source;

mod script;
mod wire;

/// A job: a program with its inputs and limits.
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
    /// Without its limits, build, session and host functions.
    pub(crate) request: JobRequest,
    limits: Option<Limits>,
    timeout: Option<Duration>,
    cpu_time: Option<Duration>,
    /// What a caller asked for as JSON.
    asked: Option<Asked>,
    /// The name of the build that it runs on.
    pub(crate) python: Option<Arc<str>>,
    pub(crate) functions: Vec<HostFunction>,
    /// What it may connect to; without it, all that the pool allows.
    pub(crate) network: Option<Network>,
    /// The requests that it may make; without it, all that the pool allows.
    pub(crate) egress: Option<Vec<Rule>>,
    /// What records it, if it is recorded.
    pub(crate) turn: Option<TurnRecorder>,
    /// Whether its program has its functions already: those of a recording.
    pub(crate) has_functions: bool,
}

impl Job {
    /// Creates a job that runs this source. Tracebacks call it `<job>`.
    ///
    /// ```
    /// use hatchery::Job;
    ///
    /// let job = Job::code("import math; math.tau");
    /// ```
    pub fn code(source: impl Into<String>) -> Self {
        Self::of(Program { source: source.into(), ..Program::default() })
    }

    pub(crate) fn of(program: Program) -> Self {
        Self { request: JobRequest { program, ..JobRequest::default() }, ..Self::default() }
    }

    /// Creates a job that evaluates one expression. Any other source is a `SyntaxError`.
    ///
    /// ```
    /// use hatchery::Job;
    ///
    /// let job = Job::expression("price * count").variable("price", 87.5).variable("count", 2);
    /// ```
    pub fn expression(source: impl Into<String>) -> Self {
        let mut job = Self::code(source);
        job.request.program.entry = ProgramEntry::Expression;
        job
    }

    /// Creates a job that runs a command of the shell in the sandbox, such as `ls | wc -l`. Its exit
    /// code is the job's, and what it changes in files stays whatever that is. Its working directory
    /// is the job's, and [`Self::args`] are `$1` and so on. `cd` and variables end with the command.
    ///
    /// The shell is a part of the sandbox: it reads POSIX commands and some of bash, and has the usual
    /// programs for files and texts. `python` runs a program of its own, which finds no variables of
    /// the session. A command that isn't there exits with 127.
    ///
    /// ```
    /// use hatchery::Job;
    ///
    /// let job = Job::shell("sort names.txt | uniq -c").input("names.txt", "b\na\nb\n")?;
    /// # Ok::<(), hatchery::Error>(())
    /// ```
    pub fn shell(command: impl Into<String>) -> Self {
        Self::default().with_command(command.into())
    }

    fn with_command(mut self, command: String) -> Self {
        self.request.program.source = command;
        self.request.program.entry = ProgramEntry::Shell;
        self.keep_files()
    }

    /// Creates a job that calls a function, `module:function`, with positional arguments. The
    /// function's result is the job's value, and is awaited if it is awaitable. The module is
    /// imported from wherever the job finds modules: the image, packages, input files, mounts. In a
    /// session `__main__` has the functions that earlier jobs defined. [`Call`] supports keyword
    /// arguments as well.
    ///
    /// ```
    /// use hatchery::{Array, Call, Job, Value};
    /// let job = Job::call("numpy:sum", [Array::from_slice(&[1.0, 2.0])]);
    /// let job = Job::from(Call::new("json:dumps").arg(serde_json::json!([1])).keyword("indent", 2));
    /// ```
    pub fn call(target: &str, args: impl IntoIterator<Item = impl Into<Value>>) -> Self {
        args.into_iter().fold(Call::new(target), Call::arg).into()
    }

    /// Creates a job that runs a script of the host as `python path` does. Tracebacks show its
    /// path, and it can import modules from its folder.
    ///
    /// The program can read only the Python source below the script's folder, `*.py`. Folders with
    /// a dot in their names are hidden. The folder is mounted at `/script`, which is `sys.path[0]`,
    /// so `__file__` is `/script/NAME`. [`Self::alone`] disables that. The working directory is
    /// still the workspace. Jobs of scripts in one folder share the folder's descriptor.
    ///
    /// A pipe is read to its end, which blocks. One without a name, such as standard input, is a
    /// script without a folder.
    ///
    /// ```no_run
    /// use hatchery::Job;
    ///
    /// let job = Job::file("report.py")?.args(["--month", "2026-06"]);
    /// # Ok::<(), hatchery::Error>(())
    /// ```
    ///
    /// # Errors
    /// The file or its folder can't be read. Or the file is larger than 64 MiB, or can't be decoded
    /// by [`source::decode`].
    pub fn file(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let unreadable = |source| Error::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(unreadable)?;
        let bytes = script::read(file).map_err(unreadable)?;
        let source = source::decode(&bytes)
            .map_err(|cause| Error::NotText { path: path.to_owned(), cause })?;
        let mut job = Self::code(source).named(path.to_string_lossy());
        job.request.program.script =
            if script::has_place(path) { script::open(path)? } else { None };
        Ok(job)
    }

    /// Hides the script's folder from the program.
    pub fn alone(mut self) -> Self {
        self.request.program.script = None;
        self
    }

    /// Returns the source that the job runs.
    pub fn source(&self) -> &str {
        &self.request.program.source
    }

    /// Sets whose words messages about this job use, in place of those of
    /// [`Builder::interface`](crate::Builder::interface).
    pub fn interface(mut self, interface: Interface) -> Self {
        self.request.program.interface = Some(interface);
        self
    }

    /// Sets the name in tracebacks, `__file__` and `sys.argv[0]`.
    pub fn named(mut self, filename: impl Into<String>) -> Self {
        self.request.program.filename = Some(filename.into());
        self
    }

    /// Sets a variable of the program's main module to a JSON value, bytes, a NumPy array or a
    /// frame. The last three travel as raw bytes. In a session it stays. An invalid name is refused
    /// when the job is submitted.
    ///
    /// ```
    /// use hatchery::{Array, Job};
    /// let job = Job::code("prices * (1 + rate)")
    ///     .variable("rate", 0.2)
    ///     .variable("prices", Array::from_slice(&[1.0, 2.5]));
    /// ```
    pub fn variable(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.request.program.variables.insert(name.into(), value.into());
        self
    }

    /// Appends to `sys.argv[1:]`.
    ///
    /// ```
    /// use hatchery::Job;
    ///
    /// let job = Job::code("import sys; sys.argv[1:]").args(["a", "b"]);
    /// ```
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.request.program.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable. The host's own environment is never passed on. An invalid name
    /// is refused when the job is submitted.
    ///
    /// ```
    /// use hatchery::Job;
    ///
    /// let job = Job::code("import os; os.environ['MODE']").env("MODE", "test");
    /// ```
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.request.program.env.insert(name.into(), value.into());
        self
    }

    /// Sets standard input. Without it, standard input is empty.
    ///
    /// ```
    /// use hatchery::Job;
    ///
    /// let job = Job::code("input().upper()").stdin("a line\n");
    /// ```
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.request.program.stdin = bytes.into();
        self
    }

    /// Makes standard input come from a host function, line by line, as if a user typed it.
    /// Whenever the program needs input, it calls the function without arguments. That returns a
    /// text, usually a line with its newline. An empty text is an end of file, after which more can
    /// come; `None` raises `KeyboardInterrupt`. While the program waits for the function, its wall
    /// time and its deadline stand still. If the job can call no such function, reading raises an
    /// exception.
    pub fn stdin_from(mut self, function: impl Into<String>) -> Self {
        self.request.program.stdin_function = Some(function.into());
        self
    }

    /// Puts a file into the workspace, which is the program's working directory.
    ///
    /// ```
    /// use hatchery::Job;
    ///
    /// let job = Job::code("open('data/a.csv').read()").input("data/a.csv", "1,2\n")?;
    /// # Ok::<(), hatchery::Error>(())
    /// ```
    ///
    /// # Errors
    /// The path is not a plain relative path.
    pub fn input(
        self,
        path: impl Into<String>,
        contents: impl Into<Vec<u8>>,
    ) -> Result<Self, Error> {
        let file = InputFile::new(path, contents)?;
        Ok(self.with_file(file))
    }

    /// Adds the input files and folders of another job, so that many jobs share folders that were
    /// opened once. This job's own files and folders take precedence at the same paths.
    ///
    /// ```
    /// use hatchery::Job;
    /// let shared = Job::default().input("rates.csv", "a,1\n")?;
    /// let jobs = ["1 + 1", "2 + 2"].map(|code| Job::code(code).with_files_of(&shared));
    /// # Ok::<(), hatchery::Error>(())
    /// ```
    pub fn with_files_of(mut self, other: &Self) -> Self {
        // A later entry replaces an earlier one at the same path.
        self.request.program.files.splice(..0, other.request.program.files.iter().cloned());
        self.request.program.mounts.splice(..0, other.request.program.mounts.iter().cloned());
        let beside = || other.request.program.beside.clone();
        self.request.program.beside = self.request.program.beside.or_else(beside);
        self
    }

    /// Returns whether it reads folders of the host: [mounted](Self::mount) ones, or the one
    /// [beside](Self::beside) it. Then what it does depends on more than the job.
    ///
    /// ```
    /// use hatchery::Job;
    ///
    /// assert!(!Job::code("1 + 1").has_folders());
    /// assert!(Job::code("1 + 1").mount("/usr/share", "/share")?.has_folders());
    /// # Ok::<(), hatchery::Error>(())
    /// ```
    pub fn has_folders(&self) -> bool {
        !self.request.program.mounts.is_empty() || self.request.program.beside.is_some()
    }

    /// Returns a digest of what it can see in folders of the host, to keep results that depend on
    /// it. It covers paths, contents and modification times of files, and which folders they are.
    /// It reads these files, but remembers unchanged ones. `None` if a folder is gone, or has more
    /// than 10,000 files and folders or more than 1 GiB.
    ///
    /// ```
    /// use hatchery::Job;
    /// use hatchery::files::FolderDigests;
    ///
    /// let digests = FolderDigests::new(|name| name.ends_with(".tmp"));
    /// let job = Job::code("1 + 1").mount("examples/data", "/data")?;
    /// let before = job.folders_digest(&digests);
    /// assert!(before.is_some() && job.folders_digest(&digests) == before);
    /// # Ok::<(), hatchery::Error>(())
    /// ```
    pub fn folders_digest(&self, digests: &FolderDigests) -> Option<String> {
        let now = SystemTime::now();
        let mounts =
            self.request.program.mounts.iter().map(|mount| (mount.path.as_str(), &mount.folder));
        let beside = self.request.program.beside.iter().map(|folder| ("", folder));
        let digests = mounts.chain(beside).map(|(path, folder)| {
            let digest = digests.digest(folder, now)?;
            Some(digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + path + "\n")
        });
        digests.collect()
    }

    /// Returns the total size of its input files, in bytes.
    pub fn input_bytes(&self) -> usize {
        self.request.program.files.iter().map(|file| file.contents.len()).sum()
    }

    pub(crate) fn with_file(mut self, file: InputFile) -> Self {
        self.request.program.files.push(file);
        self
    }

    /// Makes it a server's test of its pool, which no statistics count.
    #[doc(hidden)]
    pub fn self_test(mut self) -> Self {
        self.request.is_self_test = true;
        self
    }

    /// Sets the working directory: a path in the workspace, or an absolute one. It is created if it
    /// is missing and programs can write there (`/workspace`, `/tmp`, `/home`). Default: the
    /// workspace, or, in a session, the directory in which the previous job ended.
    ///
    /// ```
    /// use hatchery::Job;
    ///
    /// let job = Job::code("open('a.txt', 'w').write('1')").workdir("results")?;
    /// # Ok::<(), hatchery::Error>(())
    /// ```
    ///
    /// # Errors
    /// The path is empty, or has a part that is empty, `.` or `..`.
    pub fn workdir(mut self, path: &str) -> Result<Self, Error> {
        self.request.program.workdir = Some(engine::workdir(path)?);
        Ok(self)
    }

    /// Lets the program read a folder of the host, at an absolute path such as `/data`. The program
    /// can't write there, and neither links nor `..` lead out of the folder. In a session the
    /// folder stays for later jobs.
    ///
    /// ```no_run
    /// use hatchery::Job;
    ///
    /// let job = Job::code("open('/data/sales.csv').read()").mount("examples/data", "/data")?;
    /// # Ok::<(), hatchery::Error>(())
    /// ```
    ///
    /// # Errors
    /// The folder can't be opened, or the path is not a plain absolute one.
    pub fn mount(
        mut self,
        folder: impl AsRef<Path>,
        path: impl Into<String>,
    ) -> Result<Self, Error> {
        let folder = Arc::new(Mount::open(folder)?);
        self.request.program.mounts.push(MountedFolder::new(path, folder)?);
        Ok(self)
    }

    /// Shows the program the contents of a folder of the host as if it ran there. Its files and
    /// folders appear in the workspace, and so in the working directory. An input file or a file of
    /// the session with the same name hides them. They are read-only, and symbolic links of the
    /// host lead nowhere. New files go into the workspace only. A [script](Self::file) in this
    /// folder can also import everything in it. In a session the folder stays for later jobs,
    /// without the files that are added to it later.
    ///
    /// ```no_run
    /// use hatchery::Job;
    ///
    /// let job = Job::code("open('sales.csv').read()").beside("examples/data")?;
    /// # Ok::<(), hatchery::Error>(())
    /// ```
    ///
    /// # Errors
    /// The folder can't be opened.
    pub fn beside(mut self, folder: impl AsRef<Path>) -> Result<Self, Error> {
        let folder = Arc::new(Mount::open(folder)?);
        let is_own = |script: &&mut Script| script.folder.is_same_folder(&folder);
        if let Some(script) = self.request.program.script.as_mut().filter(is_own) {
            script.folder = Arc::clone(&folder);
        }
        self.request.program.beside = Some(folder);
        Ok(self)
    }

    /// Makes the value of this job available to later jobs of the session as `_`, unless it is
    /// `None`. Python's prompt does that, too. A variable `_` takes precedence.
    pub fn prompt(mut self) -> Self {
        self.request.program.is_prompt = true;
        self
    }

    /// Prevents the program from changing any file, even in its own workspace.
    pub fn read_only(mut self) -> Self {
        self.request.program.is_read_only = true;
        self
    }

    /// Keeps the program's changes to files even if it fails or is stopped. By default they are
    /// undone then, and a session continues with its files from before.
    pub fn keep_files(mut self) -> Self {
        self.request.program.keeps_files = true;
        self
    }

    /// Makes the job reproducible. Its clock starts at a fixed instant and advances only with the
    /// program. Every random number derives from the seed. Hashes of texts are always the same, as
    /// their seed is part of the image. In a session the first job decides, and later ones continue
    /// with its clock and its random numbers.
    ///
    /// ```
    /// use hatchery::{Deterministic, Job};
    /// let job = Job::code("import uuid; uuid.uuid4()").deterministic(Deterministic::new(7));
    /// ```
    pub fn deterministic(mut self, deterministic: Deterministic) -> Self {
        self.request.program.deterministic = Some(deterministic);
        self
    }

    /// Records the job's calls of host functions, in
    /// [`Outcome::recording`](crate::Outcome::recording).
    pub fn record_host_calls(mut self) -> Self {
        self.request.program.records_calls = true;
        self
    }

    /// Answers the job's calls of host functions from a recording, in the recorded order. The
    /// program must find functions of the same names, but none is called. A deterministic job then
    /// gives the same bytes. A call that differs from the recorded one raises `ReplayError`, a
    /// `hatchery.HostFunctionError`, which says how it differs.
    pub fn replay_host_calls(mut self, recording: impl Into<Arc<Recording>>) -> Self {
        self.request.program.replays = Some(recording.into());
        self
    }

    /// Sets the job's limits, in place of the defaults of the [`Hatchery`](crate::Hatchery).
    ///
    /// ```
    /// use hatchery::{Job, Limits};
    ///
    /// let limits = Limits { memory_bytes: 256 << 20, ..Limits::default() };
    /// let job = Job::code("bytearray(10**9)").limits(limits);
    /// ```
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// Sets only the wall time.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use hatchery::Job;
    ///
    /// let job = Job::code("while True: pass").timeout(Duration::from_secs(1));
    /// ```
    pub fn timeout(mut self, wall_time: Duration) -> Self {
        self.timeout = Some(wall_time);
        self
    }

    /// Sets only the CPU time: a budget that doesn't depend on the load of the machine.
    pub fn cpu_time(mut self, cpu_time: Duration) -> Self {
        self.cpu_time = Some(cpu_time);
        self
    }

    /// Converts the job to a request to the scheduler, without a build, a session or host
    /// functions.
    pub(crate) fn into_request(self, defaults: &Limits) -> Result<Box<JobRequest>, Error> {
        self.request.program.check()?;
        let mut limits = self.limits.unwrap_or_else(|| defaults.clone());
        if let Some(timeout) = self.timeout {
            limits.wall_time = timeout;
        }
        if let Some(cpu_time) = self.cpu_time {
            limits.cpu_time = Some(cpu_time);
        }
        if let Some(asked) = &self.asked {
            asked.apply(&mut limits);
        }
        Ok(Box::new(JobRequest { limits, ..self.request }))
    }
}

impl From<Call> for Job {
    fn from(call: Call) -> Self {
        Self::of(Program { entry: ProgramEntry::Call(call), ..Program::default() })
    }
}

impl Job {
    /// Adds a host function that only this job can call. It comes before a function of the same
    /// name of the session or the pool. An invalid name, and two functions of the job with the same
    /// name, are refused when the job is submitted.
    ///
    /// A later job of the same session can't call it. A reference that the program kept then raises
    /// `AttributeError`, unless that job has a function of the same name. The closure is dropped
    /// once the job and its calls have ended and no clone of the job is left.
    ///
    /// ```no_run
    /// # async fn example(pool: hatchery::Hatchery) -> Result<(), hatchery::Error> {
    /// use hatchery::{HostError, HostFunction, Job};
    ///
    /// let user = "ada".to_owned();
    /// let name = HostFunction::sync("user", move |()| Ok::<_, HostError>(user.clone()));
    /// let source = "from hatchery import host; 'hello ' + host.user()";
    /// let outcome = pool.run(Job::code(source).function(name.no_parameters())).await?;
    /// assert!(outcome.is_success());
    /// # Ok(())
    /// # }
    /// ```
    pub fn function(mut self, function: HostFunction) -> Self {
        self.functions.push(function);
        self
    }

    /// Adds host functions that only this job can call, as [`Self::function`] does.
    ///
    /// ```
    /// use hatchery::{HostError, HostFunction, Job};
    ///
    /// let constants = [("e", 2.718), ("pi", 3.142)].map(|(name, value)| {
    ///     HostFunction::sync(name, move |()| Ok::<_, HostError>(value)).no_parameters()
    /// });
    /// let job = Job::code("from hatchery import host; host.pi() / 2").functions(constants);
    /// ```
    pub fn functions(mut self, functions: impl IntoIterator<Item = HostFunction>) -> Self {
        self.functions.extend(functions);
        self
    }

    /// Lets the job connect to these destinations alone, out of those that the pool allows
    /// ([`Builder::allow_connect`](crate::Builder::allow_connect)); without any, to nothing. A job
    /// that asks for another one is refused when it is submitted. Default: to all that the pool
    /// allows.
    ///
    /// A connection ends with the job, also in a session. A deterministic job, and one whose host
    /// calls are replayed, connects to nothing.
    ///
    /// ```
    /// use hatchery::{Destination, Job};
    ///
    /// let api: Destination = "api.example.com:443".parse()?;
    /// let job = Job::code("import socket").allow_connect([api]);
    /// # Ok::<(), hatchery::error::InvalidDestination>(())
    /// ```
    pub fn allow_connect(mut self, destinations: impl IntoIterator<Item = Destination>) -> Self {
        self.network = Some(destinations.into_iter().collect::<Network>());
        self
    }

    /// Lets the job make only the requests that these rules allow, out of those that the pool allows
    /// its tenant ([`Builder::egress`](crate::Builder::egress)); without any, none. Default: all that
    /// the pool allows its tenant.
    ///
    /// A connection ends with the job, also in a session. A deterministic job makes no requests. One
    /// whose host calls are replayed gets the responses of the recording.
    ///
    /// ```
    /// use hatchery::Job;
    ///
    /// let job = Job::code("import urllib.request").egress(["GET https://example.com/*".parse()?]);
    /// # Ok::<(), hatchery::egress::InvalidRule>(())
    /// ```
    pub fn egress(mut self, rules: impl IntoIterator<Item = Rule>) -> Self {
        self.egress = Some(rules.into_iter().collect());
        self
    }

    /// Sets the tenant whose job it is. Tenants share the CPU time by their weights, however many
    /// jobs each submits; see [`Builder::tenant`](crate::Builder::tenant). Any name is allowed.
    /// Default: [`DEFAULT_TENANT`](crate::DEFAULT_TENANT).
    ///
    /// ```
    /// use hatchery::Job;
    ///
    /// let job = Job::code("1 + 1").tenant("web");
    /// ```
    pub fn tenant(mut self, name: impl Into<Arc<str>>) -> Self {
        self.request.tenant = Some(name.into());
        self
    }

    /// Sets its priority among the jobs of its tenant. A job of normal priority counts as submitted
    /// 30 seconds later than it was, one of low priority 60. So no job starves. The turns of a
    /// session still run in order. Default: [`Priority::Normal`].
    ///
    /// ```
    /// use hatchery::{Job, Priority};
    ///
    /// let job = Job::code("1 + 1").priority(Priority::High);
    /// ```
    pub fn priority(mut self, priority: Priority) -> Self {
        self.request.priority = priority;
        self
    }

    /// Sets when the outcome is due, from submission. If it is zero, or the times of earlier jobs
    /// are longer, the job is refused with
    /// [`Refusal::DeadlineTooSoon`](crate::Refusal::DeadlineTooSoon). If the deadline passes while
    /// the job waits or runs, the job ends with the limit
    /// [`LimitKind::Deadline`](crate::LimitKind::Deadline). A running job is interrupted, as for
    /// any limit on time. An early deadline doesn't move a job ahead. Default: none.
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
        self.request.deadline = Some(from_submission);
        self
    }

    /// Sets whether the job may safely run twice. If so, it is retried in a fresh interpreter when
    /// the sandbox fails or its worker dies. [`Builder::retries`](crate::Builder::retries) says how
    /// often. A failure of the program itself is never retried. A job of a session is never
    /// retried. Readers of its events see [`EventKind::Retried`](crate::event::EventKind::Retried)
    /// between two tries. Default: yes for a job without a session that can call no host functions
    /// and reach no network.
    ///
    /// ```
    /// use hatchery::Job;
    ///
    /// // It calls a host function that sends a message, so it must not run twice.
    /// let job = Job::code("from hatchery import host; host.send(text='hi')").idempotent(false);
    /// ```
    pub fn idempotent(mut self, is_idempotent: bool) -> Self {
        self.request.idempotent = Some(is_idempotent);
        self
    }

    /// Sets the Python build of the job, by its name in the pool
    /// ([`Builder::python_named`](crate::Builder::python_named)); `default` is the default build. A
    /// job for a build that the pool doesn't have is refused with
    /// [`InvalidPython`](crate::error::InvalidPython), which lists those it has. In a session it
    /// can only be the session's build. Default: the session's build, else the default one.
    ///
    /// ```
    /// use hatchery::Job;
    ///
    /// let job = Job::code("import sys; sys.version").python("3.12");
    /// ```
    pub fn python(mut self, name: impl Into<Arc<str>>) -> Self {
        self.python = Some(name.into());
        self
    }
}
