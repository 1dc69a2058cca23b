//! The fields of a job, by name.

use std::fmt;

/// A field of a [`Job`](crate::Job).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Field {
    /// `id`
    Id,
    /// `code`
    Code,
    /// `file`
    File,
    /// `call`
    Call,
    /// `variables`
    Variables,
    /// `args`
    Args,
    /// `env`
    Env,
    /// `stdin`
    Stdin,
    /// `files`
    Files,
    /// `timeout`
    Timeout,
    /// `limits`
    Limits,
    /// `deterministic`
    Deterministic,
    /// `tenant`
    Tenant,
    /// `priority`
    Priority,
    /// `deadline`
    Deadline,
    /// `python`
    Python,
}

impl Field {
    /// Every field.
    pub const ALL: [Self; 16] = [
        Self::Id,
        Self::Code,
        Self::File,
        Self::Call,
        Self::Variables,
        Self::Args,
        Self::Env,
        Self::Stdin,
        Self::Files,
        Self::Timeout,
        Self::Limits,
        Self::Deterministic,
        Self::Tenant,
        Self::Priority,
        Self::Deadline,
        Self::Python,
    ];

    /// Returns its name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Code => "code",
            Self::File => "file",
            Self::Call => "call",
            Self::Variables => "variables",
            Self::Args => "args",
            Self::Env => "env",
            Self::Stdin => "stdin",
            Self::Files => "files",
            Self::Timeout => "timeout",
            Self::Limits => "limits",
            Self::Deterministic => "deterministic",
            Self::Tenant => "tenant",
            Self::Priority => "priority",
            Self::Deadline => "deadline",
            Self::Python => "python",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.name() == name)
    }

    /// Returns why some callers may not use it.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Id => "the result answers this one job and needs no name",
            Self::Code => "the program is given in another way",
            Self::File => {
                "it would be read on the machine that runs the job; send the program's text"
            }
            Self::Call => "send a program that calls the function",
            Self::Variables | Self::Args | Self::Env | Self::Stdin | Self::Files => {
                "programs get no inputs in this way"
            }
            Self::Timeout | Self::Limits => "the pool's operator sets the limits",
            Self::Deterministic => "the pool's operator decides on clocks and random numbers",
            Self::Python => "the pool's operator decides which Python runs",
            Self::Tenant | Self::Priority | Self::Deadline => {
                "the pool's operator decides whose job it is and how urgent"
            }
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
