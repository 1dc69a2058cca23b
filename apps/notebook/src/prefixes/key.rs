//! The digest of all that a state after a cell depends on.

use crate::document::Notebook;
use crate::guest;

/// The version of what is kept under a key. It changes whenever the same cells would give other
/// outputs or another state.
const VERSION: u32 = 2;

/// The tag of a cell that runs always, and with it all that follow.
const FRESH: &str = "fresh";

/// The key of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key(blake3::Hash);

impl Key {
    /// Returns the key as a name of a file.
    pub(crate) fn name(self) -> String {
        self.0.to_hex().to_string()
    }

    /// Returns the key of the state after a cell that runs in this state.
    fn then(self, parts: &[&str]) -> Self {
        of(self.0.as_bytes(), parts)
    }
}

/// Returns the keys of the states after each cell, up to the first one with the tag `fresh`.
/// `begin` is what the state before the first cell depends on.
pub(crate) fn chain(notebook: &Notebook, allows_errors: bool, begin: &[&str]) -> Vec<Key> {
    let ours = [&VERSION.to_string(), env!("CARGO_PKG_VERSION"), guest::digest()];
    let mut key = of(b"hatchery notebook", &ours).then(begin);
    let cells = notebook.code().take_while(|cell| !cell.has_tag(FRESH));
    let keys = cells.map(|cell| {
        let may_raise = allows_errors || cell.may_raise();
        let time_limit = cell.time_limit.map(|time| format!("{time:?}")).unwrap_or_default();
        key = key.then(&[&cell.source, if may_raise { "may raise" } else { "" }, &time_limit]);
        key
    });
    keys.collect()
}

fn of(before: &[u8], parts: &[&str]) -> Key {
    let mut hasher = blake3::Hasher::new();
    for part in [before].into_iter().chain(parts.iter().map(|part| part.as_bytes())) {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    Key(hasher.finalize())
}

#[cfg(test)]
impl Key {
    /// Returns a key for tests.
    pub(crate) fn named(name: &str) -> Self {
        of(b"test", &[name])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_depends_on_all_cells_before_it() {
        let [one, two] = ["1", "2"].map(Key::named);
        assert_eq!(one.then(&["a", "b"]), one.then(&["a", "b"]));
        let others = [one.then(&["a", "c"]), one.then(&["ab", ""]), two.then(&["a", "b"])];
        assert!(others.iter().all(|other| *other != one.then(&["a", "b"])));
        assert_eq!(one.name().len(), 64);
    }
}
