//! What the table of system calls says of each.

/// A system call that a confined process may make.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Call {
    /// Its name, as Linux has it.
    pub name: &'static str,
    /// Its number.
    pub number: u32,
    /// What the kernel does.
    pub answer: Answer,
    /// It gets the answer if one of these rules holds, or if there is none. Otherwise the kernel ends
    /// the process.
    pub rules: &'static [Rule],
    /// The same in words; empty if there are no rules.
    pub when: &'static str,
    /// What a worker needs it for.
    pub reason: &'static str,
}

/// What the kernel does at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It carries the call out.
    Run,
    /// It does nothing, and returns this error.
    Fail(u16),
}

/// Conditions that hold together.
pub type Rule = &'static [Argument];

/// A condition on one argument.
#[derive(Debug, Clone, Copy)]
pub struct Argument {
    /// Its place, from 0 on.
    pub index: u8,
    /// What it must be.
    pub is: Is,
}

/// What an argument must be. Except for `Null`, this is about its lower 32 bits: Linux reads no more of
/// these arguments, or fails if more are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Is {
    /// This value.
    Equal(u32),
    /// Any other value than this.
    Not(u32),
    /// At most this value, without a sign.
    AtMost(u32),
    /// This value, in the bits of the mask.
    Masked {
        /// The bits that count.
        mask: u32,
        /// What they must be.
        value: u32,
    },
    /// No pointer, in all 64 bits.
    Null,
    /// The id of the process itself.
    OwnProcess,
}
