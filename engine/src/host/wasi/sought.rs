//! The paths that a run looked for in vain, so that advice on a missing file is about what happened.

use std::collections::VecDeque;

/// How many paths are remembered, the latest ones. Imports look for some, too.
const MOST: usize = 64;

/// Paths that were to be read, and weren't there.
#[derive(Debug, Default)]
pub(crate) struct Sought(VecDeque<Box<str>>);

impl Sought {
    /// Notes that nothing was found at this path.
    pub(super) fn miss(&mut self, path: &str) {
        self.forget(path);
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back(path.into());
    }

    /// Notes that something was to be changed or made at this path: an error is about that.
    pub(super) fn forget(&mut self, path: &str) {
        self.0.retain(|missed| &**missed != path);
    }

    /// Returns whether a file was missed that a program calls this, perhaps in another folder.
    pub(crate) fn has_missed(&self, path: &str) -> bool {
        let name = |path: &str| path.trim_end_matches('/').rsplit('/').next().map(str::to_owned);
        self.0.iter().any(|missed| name(missed) == name(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_missed_until_something_else_was_done_with_its_path() {
        let mut sought = Sought::default();
        sought.miss("workspace/d/a.csv");
        assert!(sought.has_missed("a.csv") && sought.has_missed("/workspace/d/a.csv"));
        assert!(!sought.has_missed("d") && !sought.has_missed("b.csv"));
        sought.forget("workspace/d/a.csv");
        assert!(!sought.has_missed("a.csv"));
        (0..=MOST).for_each(|number| sought.miss(&number.to_string()));
        assert!(!sought.has_missed("0") && sought.has_missed("1"));
    }
}
