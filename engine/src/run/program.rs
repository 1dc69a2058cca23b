//! What a run is given: source and surroundings.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::files::mount::Mount;
use crate::files::path::{BadPath, check_path};
use crate::places::{BESIDE_FOLDER, SCRIPT_FOLDER, WORKSPACE};
use crate::run::functions::{HostFunctions, Recording};
use crate::run::value::Variables;
pub use entry::{Call, Entry, Script};
pub use error::{BadMountPath, BadProgram};

mod entry;
mod error;

/// One program with everything that it is given.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// Python source; empty for a call.
    pub source: String,
    /// What of it runs.
    pub entry: Entry,
    /// Variables that it finds in its main module. In a session they stay.
    pub variables: Variables,
    /// The name that tracebacks and `__file__` carry. Without one, tracebacks say `<job>` and
    /// there is no `__file__`.
    pub filename: Option<String>,
    /// `sys.argv[1:]`.
    pub args: Vec<String>,
    /// The environment, in addition to the few variables that CPython itself needs.
    pub env: BTreeMap<String, String>,
    /// Standard input; it ends after these bytes.
    pub stdin: Vec<u8>,
    /// The function of the host that gives standard input in place of these bytes: a text each time
    /// that the program reads on, which is empty at the end, or `None`, which raises
    /// `KeyboardInterrupt`. The program's wall time stands still while it waits for that.
    pub stdin_function: Option<String>,
    /// Files put into the workspace before the program begins.
    pub files: Vec<InputFile>,
    /// Folders of the host that the program can read.
    pub mounts: Vec<MountedFolder>,
    /// A folder of the host whose files and folders the program finds in its workspace too, to read.
    pub beside: Option<Arc<Mount>>,
    /// Where the source lies, if it is a script beside modules that it imports.
    pub script: Option<Script>,
    /// The working directory, an absolute path; the workspace without one. In a session a job
    /// without one begins where the last one ended.
    pub workdir: Option<String>,
    /// Whether the value that it ends in is `_` for later jobs of its session, as at Python's own
    /// prompt.
    pub is_prompt: bool,
    /// Whether the program can change no file at all.
    pub is_read_only: bool,
    /// Whether what the program did to files is kept also if it failed. Else that is undone, input
    /// files included.
    pub keeps_files: bool,
    /// A clock and random numbers that are the same at every run. An interpreter keeps the ones
    /// that it began with: in a session the first job decides.
    pub deterministic: Option<Deterministic>,
    /// Functions of the host that the program can call.
    pub functions: HostFunctions,
    /// Whether the outcome has a recording of its calls.
    pub records_calls: bool,
    /// The recording that answers its calls, in place of the host.
    pub replays: Option<Arc<Recording>>,
}

/// A folder of the host that a program can read.
#[derive(Debug, Clone)]
pub struct MountedFolder {
    /// Where the program finds it: an absolute path.
    pub path: String,
    /// The folder.
    pub folder: Arc<Mount>,
}

/// Makes a run the same every time: its clock, and every source of random numbers that a guest
/// has. The order of sets is the image's, and the same at every run anyway. Sleeping moves the clock on and takes no time. What a mounted folder
/// holds and what `stat` says of it are the host's, whatever the seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deterministic {
    /// Determines every random number.
    pub seed: u64,
    /// What the clock shows as the interpreter starts, in nanoseconds since 1970.
    pub start: u64,
}

impl Deterministic {
    /// Noon on 1 January 2026, UTC, unless the caller has another wish.
    pub const DEFAULT_START: u64 = 1_767_268_800_000_000_000;

    /// A run with this seed, which starts at [`Self::DEFAULT_START`].
    pub fn new(seed: u64) -> Self {
        Self { seed, start: Self::DEFAULT_START }
    }
}

impl Program {
    /// Whether a process could be started with these surroundings.
    ///
    /// # Errors
    /// An environment name is empty or has a `=`, a text has a NUL, a variable or a call has a name
    /// that is none, or a value that is nested too deep or has a number that can't be passed as it
    /// is, or an input file is below another one.
    pub fn check(&self) -> Result<(), BadProgram> {
        for (name, value) in &self.env {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return Err(BadProgram::Variable { name: name.clone() });
            }
        }
        self.variables.iter().try_for_each(|(name, value)| entry::check_given(name, value))?;
        if let Entry::Call(call) = &self.entry {
            call.check()?;
        }
        match self.args.iter().chain(&self.filename).find(|text| text.contains('\0')) {
            Some(text) => Err(BadProgram::Text { text: text.clone() }),
            None => self.check_files(),
        }
    }

    fn check_files(&self) -> Result<(), BadProgram> {
        let paths: HashSet<_> = self.files.iter().map(|file| &*file.path).collect();
        let mut clashes = paths.iter().filter_map(|below| {
            let folders = below.match_indices('/').map(|(end, _)| &below[..end]);
            folders.into_iter().find(|folder| paths.contains(folder)).zip(Some(below))
        });
        match clashes.next() {
            Some((file, below)) => {
                Err(BadProgram::Clash { file: file.to_owned(), below: (*below).to_owned() })
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

/// Where nothing can be mounted, as programs need what is there; below `/usr` nothing can be either.
const TAKEN: [&str; 6] = ["/usr", "/tmp", "/home", "/workspace", SCRIPT_FOLDER, BESIDE_FOLDER];

impl MountedFolder {
    /// A folder that the program finds at `path`, such as `/data`.
    ///
    /// # Errors
    /// The path is not absolute, has a part that is empty, `.` or `..`, or is one that programs
    /// need: `/tmp`, `/home`, `/workspace`, `/script`, `/beside`, and what is below `/usr`.
    pub fn new(path: impl Into<String>, folder: Arc<Mount>) -> Result<Self, BadMountPath> {
        let path = path.into();
        let is_taken = |taken: &str| {
            let below = path.strip_prefix(taken);
            below.is_some_and(|rest| rest.is_empty() || (taken == "/usr" && rest.starts_with('/')))
        };
        match path.strip_prefix('/').map(check_path) {
            Some(Ok(())) if !TAKEN.iter().any(|taken| is_taken(taken)) => Ok(Self { path, folder }),
            _ => Err(BadMountPath { path }),
        }
    }
}

impl InputFile {
    /// A file at `path`, relative to the workspace.
    ///
    /// # Errors
    /// The path is empty, absolute, too long, or has a part that is empty, `.` or `..`.
    pub fn new(path: impl Into<String>, contents: impl Into<Vec<u8>>) -> Result<Self, BadPath> {
        let path = path.into();
        check_path(&path)?;
        Ok(Self { path, contents: Arc::new(contents.into()) })
    }
}

/// The absolute path of a working directory: below the workspace, unless it is absolute itself.
///
/// # Errors
/// The path is empty, too long, or has a part that is empty, `.` or `..`.
pub fn workdir(path: &str) -> Result<String, BadPath> {
    match path.strip_prefix('/') {
        Some(below) => check_path(below).map(|()| path.to_owned()),
        None => check_path(path).map(|()| format!("{WORKSPACE}/{path}")),
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
        let clash = BadProgram::Clash { file: "b/c".to_owned(), below: "b/c/d".to_owned() };
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
        assert!(InputFile::new("a".repeat(crate::files::path::MAX_PATH_BYTES + 1), "").is_err());
    }
}
