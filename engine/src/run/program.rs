//! The inputs of a run: source, arguments, files and everything else that it is given.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::files::mount::Mount;
use crate::files::{InvalidPath, check_path};
use crate::limits::advice::Interface;
use crate::places::{BESIDE_FOLDER, SCRIPT_FOLDER, SITE, WORKSPACE};
use crate::run::egress::NetworkPeer;
use crate::run::functions::{HostFunctions, Recording};
use crate::run::names::is_name;
use crate::run::network::Network;
use crate::run::value::{Value, Variables, number};

/// One program with all its inputs.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// Python source, or a command of the shell; empty for a call.
    pub source: String,
    /// Which part of it runs.
    pub entry: ProgramEntry,
    /// Variables in its main module. In a session they stay.
    pub variables: Variables,
    /// The name in tracebacks and `sys.argv[0]`; `__file__` is its path in the workspace. Without
    /// one, tracebacks say `<job>` and there is no `__file__`, and neither for names such as `<x>`.
    pub filename: Option<String>,
    /// `sys.argv[1:]`. In a session `sys.argv` stays as it is until a job is given others.
    pub args: Vec<String>,
    /// The environment, in addition to the few variables that CPython needs and those that earlier
    /// jobs of the session set.
    pub env: BTreeMap<String, String>,
    /// Standard input; it ends after these bytes. If empty, a session keeps the `sys.stdin` that an
    /// earlier job set.
    pub stdin: Vec<u8>,
    /// The host function that provides standard input instead of these bytes. It returns a text for
    /// each read, an empty text at the end, or `None`, which raises `KeyboardInterrupt`. While the
    /// program waits for it, its wall time is paused.
    pub stdin_function: Option<String>,
    /// Files that are put into the workspace before the program begins.
    pub files: Vec<InputFile>,
    /// Folders of the host that the program can read.
    pub mounts: Vec<MountedFolder>,
    /// A folder of the host whose files and folders the program can also read in its workspace.
    pub beside: Option<Arc<Mount>>,
    /// The folder and name of the source, if it is a script with modules beside it.
    pub script: Option<Script>,
    /// The working directory, an absolute path. Default: the workspace, or in a session the
    /// directory in which the last job ended.
    pub workdir: Option<String>,
    /// Whether its last value becomes `_` for later jobs of its session, as at Python's prompt.
    pub is_prompt: bool,
    /// Whether the program is denied every change of files.
    pub is_read_only: bool,
    /// Whether its changes of files stay even if it fails. Otherwise a failure undoes them, input
    /// files included.
    pub keeps_files: bool,
    /// Makes the clock and random numbers the same at every run. An interpreter keeps those that it
    /// began with, so in a session the first job decides.
    pub deterministic: Option<Deterministic>,
    /// What it may connect to over TCP, if its build has sockets. A deterministic run, and one
    /// whose calls are answered from a recording, reaches nothing.
    pub network: Network,
    /// What serves its HTTP, if it may make requests.
    pub egress: Option<Arc<dyn NetworkPeer>>,
    /// Functions of the host that the program can call.
    pub functions: HostFunctions,
    /// The interface through which it came; without one, the pool's.
    pub interface: Option<Interface>,
    /// Whether its outcome includes a recording of its calls.
    pub records_calls: bool,
    /// The recording that answers its calls, instead of the host.
    pub replays: Option<Arc<Recording>>,
}

/// A folder of the host that a program can read.
#[derive(Debug, Clone)]
pub struct MountedFolder {
    /// The absolute path at which the program finds it.
    pub path: String,
    /// The folder.
    pub folder: Arc<Mount>,
}

/// Makes every run the same: its clock, and all random numbers of the guest. The order of sets
/// comes from the image and is the same anyway. Sleeping advances the clock and takes no time. The
/// contents and `stat` of mounted folders are the host's, whatever the seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Deterministic {
    /// Determines every random number.
    pub seed: u64,
    /// The clock's time when the interpreter starts, in nanoseconds since 1970.
    pub start: u64,
}

impl Deterministic {
    /// The default start: noon on 1 January 2026, UTC.
    pub const DEFAULT_START: u64 = 1_767_268_800_000_000_000;

    /// Creates a setting with this seed that starts at [`Self::DEFAULT_START`].
    pub fn new(seed: u64) -> Self {
        Self { seed, start: Self::DEFAULT_START }
    }

    /// Sets the clock's time when the interpreter starts, in nanoseconds since 1970.
    pub fn starting_at(self, start: u64) -> Self {
        Self { start, ..self }
    }
}

impl Program {
    /// Checks the inputs of the program.
    ///
    /// # Errors
    /// An environment name is empty or has a `=`, or a text has a NUL. A name of a variable or a
    /// call is invalid. A value is nested too deep or has a number that can't be passed exactly. Or
    /// an input file is below another one.
    pub fn check(&self) -> Result<(), InvalidProgram> {
        for (name, value) in &self.env {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return Err(InvalidProgram::Variable(name.clone()));
            }
        }
        self.variables.iter().try_for_each(|(name, value)| check_given(name, value))?;
        if let ProgramEntry::Call(call) = &self.entry {
            call.check()?;
        }
        match self.args.iter().chain(&self.filename).find(|text| text.contains('\0')) {
            Some(text) => Err(InvalidProgram::Text(text.clone())),
            None => self.check_files(),
        }
    }

    fn check_files(&self) -> Result<(), InvalidProgram> {
        let paths: HashSet<_> = self.files.iter().map(|file| &*file.path).collect();
        let mut clashes = paths.iter().filter_map(|below| {
            let folders = below.match_indices('/').map(|(end, _)| &below[..end]);
            folders.into_iter().find(|folder| paths.contains(folder)).zip(Some(below))
        });
        match clashes.next() {
            Some((file, below)) => {
                Err(InvalidProgram::Clash { file: file.to_owned(), below: (*below).to_owned() })
            }
            None => Ok(()),
        }
    }
}

/// A file that a program finds in its workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputFile {
    /// Path relative to the workspace, with `/` between its parts.
    pub path: String,
    /// The contents, which copies share.
    pub contents: Arc<Vec<u8>>,
}

/// Paths that programs need, so nothing can be mounted there.
const TAKEN: [&str; 7] =
    ["/usr", SITE, "/tmp", "/home", "/workspace", SCRIPT_FOLDER, BESIDE_FOLDER];

/// Those of them below which nothing can be mounted either.
const CLOSED: [&str; 2] = ["/usr", SITE];

impl MountedFolder {
    /// Mounts a folder at `path`, such as `/data`.
    ///
    /// # Errors
    /// The path is not absolute, has a part that is empty, `.` or `..`, or is one that programs
    /// need: `/tmp`, `/home`, `/workspace`, `/script`, `/beside`, and everything below `/usr` and
    /// `/hatchery-packages`.
    pub fn new(path: impl Into<String>, folder: Arc<Mount>) -> Result<Self, InvalidMountPath> {
        let path = path.into();
        let is_taken = |taken: &str| {
            let below = path.strip_prefix(taken);
            let is_within = |rest: &str| CLOSED.contains(&taken) && rest.starts_with('/');
            below.is_some_and(|rest| rest.is_empty() || is_within(rest))
        };
        match path.strip_prefix('/').map(check_path) {
            Some(Ok(())) if !TAKEN.iter().any(|taken| is_taken(taken)) => Ok(Self { path, folder }),
            _ => Err(InvalidMountPath { path }),
        }
    }
}

impl InputFile {
    /// Creates a file at `path`, relative to the workspace.
    ///
    /// # Errors
    /// The path is empty, absolute, too long, or has a part that is empty, `.` or `..`.
    pub fn new(path: impl Into<String>, contents: impl Into<Vec<u8>>) -> Result<Self, InvalidPath> {
        let path = path.into();
        check_path(&path)?;
        Ok(Self { path, contents: Arc::new(contents.into()) })
    }
}

/// Returns the absolute path of a working directory; a relative path is below the workspace.
///
/// # Errors
/// The path is empty, too long, or has a part that is empty, `.` or `..`.
pub fn workdir(path: &str) -> Result<String, InvalidPath> {
    let checked = match path.strip_prefix('/') {
        Some(below) => check_path(below).map(|()| path.to_owned()),
        None => check_path(path).map(|()| format!("{WORKSPACE}/{path}")),
    };
    checked.map_err(|_| InvalidPath { path: path.to_owned(), is_workdir: true })
}

/// An input of a program is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidProgram {
    /// An environment variable has an invalid name or value.
    #[error(
        "`{0}` can't be a variable of the environment: its name must not be empty or have a `=`, \
         and neither name nor value may have a NUL"
    )]
    Variable(String),
    /// A variable or an argument of a call has an invalid name.
    #[error("`{0}` can't be a name in a program: use letters, digits and `_`, and no keyword")]
    Name(String),
    /// The target of a call is invalid.
    #[error("`{0}` can't be called: write `module:function`, such as `math:sqrt`")]
    Call(String),
    /// A variable or an argument is nested too deep.
    #[error("the value of `{0}` is nested too deep: at most 100 levels are allowed")]
    Depth(String),
    /// A variable or an argument has a number that can't be passed exactly.
    #[error("the value of `{name}` has {problem}")]
    Number {
        /// Its name.
        name: String,
        /// What is wrong with the number.
        problem: String,
    },
    /// An argument or the file name has a NUL.
    #[error("`{0}` can't be an argument or a file name, since it has a NUL")]
    Text(String),
    /// An input file has the path of another one's folder.
    #[error("`{file}` can't be both an input file and the folder of `{below}`: rename one of them")]
    Clash {
        /// The file.
        file: String,
        /// The other one.
        below: String,
    },
}

/// A folder can't be mounted at this path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{path}` can't be where a folder is mounted: use an absolute path such as /data, \
     without `..` or empty parts, and not /tmp, /home, /workspace, /script, /beside, /usr or \
     /hatchery-packages"
)]
#[non_exhaustive]
pub struct InvalidMountPath {
    /// The path that was given.
    pub path: String,
}

/// Which part of a program runs.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ProgramEntry {
    /// Its source, statement by statement; if the last one is an expression, its value is the
    /// result.
    #[default]
    Statements,
    /// Its source, which has to be one expression.
    Expression,
    /// A function of a module, instead of source.
    Call(Call),
    /// Its source, which is a command of the shell in the sandbox.
    Shell,
}

/// A call of a function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Call {
    /// The module, such as `json` or `__main__`.
    pub module: String,
    /// The function in it, such as `dumps` or `Class.method`.
    pub function: String,
    /// Positional arguments.
    pub args: Vec<Value>,
    /// Keyword arguments.
    pub keywords: BTreeMap<String, Value>,
}

impl Call {
    /// Creates a call of `target`, such as `json:dumps`, without arguments. An invalid target is
    /// refused when the job is submitted.
    pub fn new(target: &str) -> Self {
        let (module, function) = target.split_once(':').unwrap_or((target, ""));
        let (module, function) = (module.to_owned(), function.to_owned());
        Self { module, function, args: Vec::new(), keywords: BTreeMap::new() }
    }

    /// Adds a positional argument.
    pub fn arg(mut self, value: impl Into<Value>) -> Self {
        self.args.push(value.into());
        self
    }

    /// Adds a keyword argument.
    pub fn keyword(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.keywords.insert(name.into(), value.into());
        self
    }

    /// Checks the names and values of the call.
    ///
    /// # Errors
    /// The module or the function isn't a dotted name, or an argument is invalid.
    fn check(&self) -> Result<(), InvalidProgram> {
        let Self { module, function, args, keywords } = self;
        if ![module, function].into_iter().all(|dotted| dotted.split('.').all(is_name)) {
            // As the user wrote it: without a function there may have been no colon.
            let target = match function.as_str() {
                "" => module.clone(),
                function => format!("{module}:{function}"),
            };
            return Err(InvalidProgram::Call(target));
        }
        keywords.iter().try_for_each(|(name, value)| check_given(name, value))?;
        args.iter().try_for_each(|value| check_value("an argument", value))
    }
}

/// The place of a script, so that the program finds the modules beside it.
#[derive(Debug, Clone)]
pub struct Script {
    /// The folder, of which only modules are visible.
    pub folder: Arc<Mount>,
    /// The script's name in the folder.
    pub name: String,
}

/// The deepest nesting of a value; the other direction has the same
/// (`agent/hatchery/_describe.py`).
const MOST_DEPTH: usize = 100;

fn check_given(name: &str, value: &Value) -> Result<(), InvalidProgram> {
    if !is_name(name) {
        return Err(InvalidProgram::Name(name.to_owned()));
    }
    check_value(name, value)
}

fn check_value(name: &str, value: &Value) -> Result<(), InvalidProgram> {
    match value {
        Value::Json(json) if !is_within(json, MOST_DEPTH) => {
            Err(InvalidProgram::Depth(name.to_owned()))
        }
        Value::Json(json) => number::check(json)
            .map_err(|problem| InvalidProgram::Number { name: name.to_owned(), problem }),
        _ => Ok(()),
    }
}

fn is_within(json: &serde_json::Value, depth: usize) -> bool {
    let is_within = |item| depth > 0 && is_within(item, depth - 1);
    match json {
        serde_json::Value::Array(items) => items.iter().all(is_within),
        serde_json::Value::Object(items) => items.values().all(is_within),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn surroundings_that_no_process_can_have_are_refused() {
        let with = |name: &str, value: &str| Program {
            env: [(name.to_owned(), value.to_owned())].into(),
            ..Program::default()
        };
        assert!(with("A", "b=c").check().is_ok());
        for (name, value) in [("", "b"), ("A=B", "c"), ("A\0", "b"), ("A", "\0")] {
            assert!(with(name, value).check().is_err(), "{name:?} {value:?}");
        }
        let args = Program { args: vec!["a\0".to_owned()], ..Program::default() };
        assert!(args.check().is_err());
    }

    #[test]
    fn an_input_file_is_no_folder_of_another_one() {
        let with = |paths: &[&str]| {
            let files = paths.iter().map(|path| InputFile::new(*path, "").unwrap()).collect();
            Program { files, ..Program::default() }.check()
        };
        assert!(with(&["a", "ab/c", "b/c", "b/d/e", "b-d"]).is_ok());
        assert!(with(&["a", "a"]).is_ok(), "the last one is there");
        let clash = InvalidProgram::Clash { file: "b/c".to_owned(), below: "b/c/d".to_owned() };
        assert_eq!(with(&["b/c/d", "a", "b/c"]), Err(clash));
    }

    #[test]
    fn only_paths_inside_the_workspace_are_taken() {
        for path in ["a", "a/b.csv", "ä b/c"] {
            assert!(InputFile::new(path, "").is_ok(), "{path}");
        }
        for path in ["", "/a", "a/", "a//b", "./a", "../a", "a/../b", "a\0b"] {
            assert!(InputFile::new(path, "").is_err(), "{path:?}");
        }
        assert!(InputFile::new("a".repeat(crate::files::MAX_PATH_BYTES + 1), "").is_err());
        // Names and depths that the workspace refuses are no surprise for the sandbox.
        assert!(InputFile::new("a".repeat(255), "").is_ok());
        assert!(InputFile::new("a".repeat(256), "").is_err());
        assert!(InputFile::new(["d"; 62].join("/"), "").is_ok());
        assert!(InputFile::new(["d"; 63].join("/"), "").is_err());
    }

    #[test]
    fn calls_name_a_module_and_a_function() {
        let call =
            |target| Program { entry: ProgramEntry::Call(Call::new(target)), ..Program::default() };
        for target in ["json:dumps", "os.path:join", "__main__:Class.method"] {
            assert!(call(target).check().is_ok(), "{target}");
        }
        for target in ["json", "json:", ":dumps", "json:dumps()", "a:b:c", "os..path:join", ""] {
            assert!(call(target).check().is_err(), "{target}");
        }
        let mut named = Call::new("json:dumps");
        named.keywords.insert("class".to_owned(), Value::from(1));
        assert!(
            Program { entry: ProgramEntry::Call(named), ..Program::default() }.check().is_err()
        );
    }

    #[test]
    fn variables_have_names_and_an_end() {
        let with = |name: &str, value: serde_json::Value| Program {
            variables: [(name.to_owned(), value.into())].into(),
            ..Program::default()
        };
        let nested = |depth| (0..depth).fold(serde_json::json!(1), |value, _| [value].into());
        assert!(with("x", nested(100)).check().is_ok());
        assert!(with("x", nested(101)).check().is_err());
        assert!(with("x y", nested(0)).check().is_err());
    }
}
