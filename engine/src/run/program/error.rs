//! The errors of a program's inputs, which are checked before it runs.

/// An input of a program is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidProgram {
    /// An environment variable has an invalid name or value.
    #[error(
        "`{name}` can't be a variable of the environment: its name must not be empty or have a `=`, \
         and neither name nor value may have a NUL"
    )]
    Variable {
        /// Its name.
        name: String,
    },
    /// A variable or an argument of a call has an invalid name.
    #[error("`{name}` can't be a name in a program: use letters, digits and `_`, and no keyword")]
    Name {
        /// The name.
        name: String,
    },
    /// The target of a call is invalid.
    #[error("`{target}` can't be called: write `module:function`, such as `math:sqrt`")]
    Call {
        /// The target.
        target: String,
    },
    /// A variable or an argument is nested too deep.
    #[error("the value of `{name}` is nested too deep: 100 levels are passed")]
    Depth {
        /// Its name.
        name: String,
    },
    /// A variable or an argument has a number that can't be passed exactly.
    #[error("the value of `{name}` has {problem}")]
    Number {
        /// Its name.
        name: String,
        /// What is wrong with the number.
        problem: String,
    },
    /// An argument or the file name has a NUL.
    #[error("`{text}` can't be an argument or a file name, since it has a NUL")]
    Text {
        /// The text.
        text: String,
    },
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
