//! The errors of a program's inputs, which are checked before it runs.

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
    /// The name of a variable or of an argument of a call.
    #[error("`{name}` can't be a name in a program: use letters, digits and `_`, and no keyword")]
    Name {
        /// The name.
        name: String,
    },
    /// What a job calls.
    #[error("`{target}` can't be called: write `module:function`, such as `math:sqrt`")]
    Call {
        /// What was given.
        target: String,
    },
    /// A variable or an argument holds lists or objects in too many others.
    #[error("the value of `{name}` is nested too deep: 100 levels are passed")]
    Depth {
        /// Its name.
        name: String,
    },
    /// A variable or an argument has a number that Python would be given as another one.
    #[error("the value of `{name}` has {problem}")]
    Number {
        /// Its name.
        name: String,
        /// What is wrong with the number.
        problem: String,
    },
    /// An argument or the file name.
    #[error("`{text}` can't be an argument or a file name, since it has a NUL")]
    Text {
        /// The text.
        text: String,
    },
    /// An input file is to be where another one needs a folder.
    #[error("`{file}` can't be both an input file and the folder of `{below}`: rename one of them")]
    Clash {
        /// The file.
        file: String,
        /// The other one.
        below: String,
    },
}

/// A path can't be where a folder is mounted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{path}` can't be where a folder is mounted: use an absolute path such as /data, \
     without `..` or empty parts, and not /tmp, /home, /workspace, /script, /beside or /usr"
)]
pub struct BadMountPath {
    /// The path that was given.
    pub path: String,
}
