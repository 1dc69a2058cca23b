//! A list whose clones share it until one of them changes: every reset copies a table of descriptors,
//! and few runs change theirs.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

#[derive(Debug, Clone)]
pub(super) struct List<T>(Arc<Vec<T>>);

impl<T: Clone> List<T> {
    /// Returns a copy that shares nothing with this list.
    pub(super) fn detached(&self) -> Self {
        Self(Arc::new(self.0.to_vec()))
    }
}

impl<T> From<Vec<T>> for List<T> {
    fn from(items: Vec<T>) -> Self {
        Self(Arc::new(items))
    }
}

impl<T> Deref for List<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T: Clone> DerefMut for List<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        Arc::make_mut(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detached_list_is_shared_with_nobody() {
        let list = List::from(vec![1]);
        let (copy, detached) = (list.clone(), list.detached());
        assert_eq!((copy.to_vec(), detached.to_vec()), (vec![1], vec![1]));
        assert_eq!([&list, &detached].map(|list| Arc::strong_count(&list.0)), [2, 1]);
    }
}
