//! No test hook: a source is what the interpreter runs.

/// Leaves a source alone.
pub(crate) fn pass(_source: &mut String) {}
