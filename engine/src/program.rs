//! What a run is given: source and surroundings.

use std::collections::BTreeMap;

/// One program with everything that it is given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Program {
    /// Python source.
    pub source: String,
    /// The name that tracebacks and `__file__` carry. Without one, tracebacks say `<job>` and
    /// there is no `__file__`.
    pub filename: Option<String>,
    /// `sys.argv[1:]`.
    pub args: Vec<String>,
    /// The environment, in addition to the few variables that CPython itself needs.
    pub env: BTreeMap<String, String>,
    /// Standard input; it ends after these bytes.
    pub stdin: Vec<u8>,
    /// Files put into the workspace before the program begins.
    pub files: Vec<InputFile>,
}

/// A program is given something that no process could be given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadProgram {
    /// The name or the value of a variable.
    #[error(
        "`{name}` can't be a variable of the environment: its name must not be empty or have a `=`, \
         and neither name nor value may have a NUL"
    )]
    Variable {
        /// Its name.
        name: String,
    },
    /// An argument or the file name.
    #[error("`{text}` can't be an argument or a file name, since it has a NUL")]
    Text {
        /// The text.
        text: String,
    },
}

impl Program {
    /// Whether a process could be started with these surroundings.
    ///
    /// # Errors
    /// An environment name is empty or has a `=`, or a text has a NUL.
    pub fn check(&self) -> Result<(), BadProgram> {
        for (name, value) in &self.env {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return Err(BadProgram::Variable { name: name.clone() });
            }
        }
        match self.args.iter().chain(&self.filename).find(|text| text.contains('\0')) {
            Some(text) => Err(BadProgram::Text { text: text.clone() }),
            None => Ok(()),
        }
    }
}

/// A file that a program finds in its workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputFile {
    /// Path relative to the workspace, with `/` between its parts.
    pub path: String,
    /// The contents.
    pub contents: Vec<u8>,
}

/// A path can't name a file of the workspace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{path}` can't name a file in the workspace: use a relative path of at most {MAX_PATH_BYTES} \
     bytes without `..`, empty parts or NUL"
)]
pub struct BadPath {
    /// The path that was given.
    pub path: String,
}

/// The longest path in a workspace, in bytes.
pub const MAX_PATH_BYTES: usize = 1024;

impl InputFile {
    /// A file at `path`, relative to the workspace.
    ///
    /// # Errors
    /// The path is empty, absolute, too long, or has a part that is empty, `.` or `..`.
    pub fn new(path: impl Into<String>, contents: impl Into<Vec<u8>>) -> Result<Self, BadPath> {
        let path = path.into();
        check_path(&path)?;
        Ok(Self { path, contents: contents.into() })
    }
}

/// Whether `path` names a file inside of a workspace, whatever folder that is put into.
///
/// # Errors
/// The path is empty, absolute, too long, or has a part that is empty, `.` or `..`.
pub fn check_path(path: &str) -> Result<(), BadPath> {
    let plain = |part: &str| !matches!(part, "" | "." | "..");
    if path.len() > MAX_PATH_BYTES || path.contains('\0') || !path.split('/').all(plain) {
        return Err(BadPath { path: path.to_owned() });
    }
    Ok(())
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
    fn only_paths_inside_the_workspace_are_taken() {
        for path in ["a", "a/b.csv", "ä b/c"] {
            assert!(InputFile::new(path, "").is_ok(), "{path}");
        }
        for path in ["", "/a", "a/", "a//b", "./a", "../a", "a/../b", "a\0b"] {
            assert!(InputFile::new(path, "").is_err(), "{path:?}");
        }
        assert!(InputFile::new("a".repeat(MAX_PATH_BYTES + 1), "").is_err());
    }
}
