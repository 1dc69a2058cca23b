//! An exception as the guest describes it: texts, frames, and chained exceptions.

use serde::{Deserialize, Serialize};

use crate::limits::advice::{Advice, Interface};

/// The most exceptions of a chain and its groups, and frames of all of them. The last is the most
/// notes of each. `agent/hatchery/_describe.py` has the same numbers.
const MOST_EXCEPTIONS: usize = 50;
const MOST_FRAMES: usize = 500;
const MOST_NOTES: usize = 100;

/// The most bytes of advice; names in it are short.
const MOST_ADVICE_BYTES: usize = 4 << 10;

/// An exception that ended a program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Exception {
    /// The name of its type, with the module unless that is `builtins` or `__main__`.
    #[serde(rename = "type")]
    pub type_name: String,
    /// `str()` of the exception.
    pub message: String,
    /// The traceback as Python prints it, with the whole chain and without frames of the agent.
    /// Empty for a chained exception or a group's member, whose text is in the first traceback.
    /// Also empty if the program's own `sys.excepthook` has reported it.
    #[serde(default)]
    pub traceback: String,
    /// The notes of `add_note`; at most 100.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The frames that it passed, from the outermost call to the one that raised; at most 500 in
    /// the chain. The middle of a deep recursion and frames of the agent are left out.
    #[serde(default)]
    pub frames: Vec<StackFrame>,
    /// The exception that `raise … from` named.
    #[serde(default)]
    pub cause: Option<Box<Exception>>,
    /// The exception being handled when it was raised, unless it has a cause or says `from None`.
    /// Chains end at the 50th exception.
    #[serde(default)]
    pub context: Option<Box<Exception>>,
    /// The members of an `ExceptionGroup`.
    #[serde(default)]
    pub group: Vec<Exception>,
    /// The position of a `SyntaxError` in the source.
    #[serde(default)]
    pub syntax: Option<Box<SyntaxPosition>>,
    /// What [`Outcome::word_for`](super::Outcome::word_for) adds to the traceback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) advice: Option<Advice>,
}

/// A frame that an exception passed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct StackFrame {
    /// The file, or the name that the job gave its source, such as `<job>`.
    pub file: String,
    /// The line, counted from 1.
    #[serde(default)]
    pub line: Option<u32>,
    /// The line that the expression ends on.
    #[serde(default)]
    pub end_line: Option<u32>,
    /// Where the expression begins in its line, in bytes of UTF-8, counted from 0.
    #[serde(default)]
    pub column: Option<u32>,
    /// Where it ends in its last line, likewise.
    #[serde(default)]
    pub end_column: Option<u32>,
    /// The function, or `<module>`.
    pub function: String,
    /// The line of source without its indentation, if the source is known.
    #[serde(default)]
    pub source_line: Option<String>,
}

/// The position of a `SyntaxError`, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct SyntaxPosition {
    /// The file, or the name that the job gave its source.
    #[serde(default)]
    pub file: Option<String>,
    /// The line, counted from 1.
    #[serde(default)]
    pub line: Option<u32>,
    /// The character in the line, counted from 1.
    #[serde(default)]
    pub column: Option<u32>,
    /// The line of source.
    #[serde(default)]
    pub text: Option<String>,
}

impl Exception {
    /// Creates an exception with these three texts only.
    pub fn new(
        type_name: impl Into<String>,
        message: impl Into<String>,
        traceback: impl Into<String>,
    ) -> Self {
        Self {
            type_name: type_name.into(),
            message: message.into(),
            traceback: traceback.into(),
            ..Self::default()
        }
    }

    /// Adds the advice to the traceback, where a note of the exception would be.
    pub(super) fn word_for(&mut self, interface: Interface) {
        if let Some(advice) = self.advice.take() {
            self.traceback.push_str(&advice.worded_for(interface));
            self.traceback.push('\n');
        }
    }

    /// Returns whether an honest agent sends this much. Each of the first three texts has at most
    /// `cap` bytes, and so have all others together.
    pub(crate) fn is_within(&self, cap: usize) -> bool {
        let mut sizes = Sizes::default();
        sizes.add_details(self);
        [&self.type_name, &self.message, &self.traceback].iter().all(|text| text.len() <= cap)
            && self.advice.as_ref().is_none_or(|advice| advice.bytes() <= MOST_ADVICE_BYTES)
            && sizes.bytes <= cap
            && sizes.exceptions <= MOST_EXCEPTIONS
            && sizes.frames <= MOST_FRAMES
            && sizes.most_notes <= MOST_NOTES
    }
}

#[derive(Default)]
struct Sizes {
    bytes: usize,
    exceptions: usize,
    frames: usize,
    most_notes: usize,
}

impl Sizes {
    fn add(&mut self, exception: &Exception) {
        self.bytes +=
            exception.type_name.len() + exception.message.len() + exception.traceback.len();
        self.bytes += exception.advice.as_ref().map_or(0, Advice::bytes);
        self.add_details(exception);
    }

    /// Adds everything except the first three texts. The depth of the JSON bounds the depth here.
    fn add_details(&mut self, exception: &Exception) {
        let Exception { notes, frames, cause, context, group, syntax, .. } = exception;
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        self.exceptions += 1;
        self.frames += frames.len();
        self.most_notes = self.most_notes.max(notes.len());
        self.bytes += notes.iter().map(String::len).sum::<usize>();
        for StackFrame { file, function, source_line, .. } in frames {
            self.bytes += file.len() + function.len() + length(source_line);
        }
        if let Some(syntax) = syntax {
            self.bytes += length(&syntax.file) + length(&syntax.text);
        }
        let linked = cause.iter().chain(context).map(|boxed| &**boxed);
        linked.chain(group).for_each(|linked| self.add(linked));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_counts_towards_the_limit() {
        let long = || "x".repeat(60);
        let linked = || Box::new(Exception::new("E", long(), ""));
        let base = Exception::new("E", long(), long());
        assert!(base.is_within(60) && !base.is_within(59));
        let frame = StackFrame { file: long(), ..StackFrame::default() };
        let syntax = SyntaxPosition { text: Some(long()), ..SyntaxPosition::default() };
        for exception in [
            Exception { notes: vec![long(), long()], ..base.clone() },
            Exception { frames: vec![frame.clone(), frame.clone()], ..base.clone() },
            Exception { cause: Some(linked()), context: Some(linked()), ..base.clone() },
            Exception { group: vec![*linked(), *linked()], ..base.clone() },
            Exception { syntax: Some(syntax.into()), notes: vec![long()], ..base.clone() },
        ] {
            assert!(exception.is_within(122) && !exception.is_within(119), "{exception:?}");
        }
        for (exception, expected) in [
            (Exception { notes: vec![String::new(); 100], ..base.clone() }, true),
            (Exception { notes: vec![String::new(); 101], ..base.clone() }, false),
            (Exception { frames: vec![StackFrame::default(); 501], ..base.clone() }, false),
            (Exception { group: vec![Exception::default(); 49], ..base.clone() }, true),
            (Exception { group: vec![Exception::default(); 50], ..base.clone() }, false),
        ] {
            assert_eq!(exception.is_within(1000), expected);
        }
    }
}
