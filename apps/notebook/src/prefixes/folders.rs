//! What notebooks see in folders of the host: data that their states depend on.
//!
//! Notebooks themselves are no data. They lie in the same folders, their copies are written there while
//! they run, and to change one of them is what states are kept for. But a notebook whose cells name
//! notebooks may read them, so that one runs from its start.

use std::sync::Arc;

use hatchery::Job;
use hatchery::files::FolderDigests;
use replace::UNFINISHED_PREFIX;

use crate::document::Notebook;
use crate::places::{COPY_SUFFIX, RECORD_SUFFIX, SESSION_SUFFIX};

/// How a cell names notebooks.
const NAMES_NOTEBOOKS: &str = "ipynb";
/// The folder beside notebooks where Jupyter keeps their earlier versions.
const CHECKPOINTS: &str = ".ipynb_checkpoints";

/// Reads folders. Clones remember together what they have read.
#[derive(Debug, Clone)]
pub(crate) struct Folders(Arc<FolderDigests>);

impl Default for Folders {
    fn default() -> Self {
        Self(Arc::new(FolderDigests::new(is_of_notebooks)))
    }
}

/// The folders that one notebook sees.
#[derive(Debug)]
pub(crate) struct Seen {
    folders: Folders,
    jobs: Vec<Job>,
}

impl Folders {
    /// Returns what a notebook sees: the folders of these jobs. `None` if they aren't all that it may
    /// read there.
    pub(crate) fn seen(&self, notebook: &Notebook, jobs: [&Job; 2]) -> Option<Seen> {
        let jobs: Vec<Job> = jobs.into_iter().filter(|job| job.has_folders()).cloned().collect();
        let names_notebooks = || notebook.code().any(|cell| cell.source.contains(NAMES_NOTEBOOKS));
        let is_all = jobs.is_empty() || !names_notebooks();
        is_all.then(|| Seen { folders: self.clone(), jobs })
    }
}

impl Seen {
    /// Returns a digest of the folders as they are now. Waits for the file system. `None` if they are
    /// too large.
    pub(crate) fn digest(&self) -> Option<String> {
        self.jobs.iter().map(|job| job.folders_digest(&self.folders.0)).collect()
    }

    /// Does the same beside other tasks.
    pub(crate) async fn digest_soon(self) -> Option<String> {
        if self.jobs.is_empty() {
            return self.digest();
        }
        tokio::task::spawn_blocking(move || self.digest()).await.ok().flatten()
    }
}

/// Returns whether a name is one of a notebook, or of what is written beside it.
fn is_of_notebooks(name: &str) -> bool {
    let suffixes = [COPY_SUFFIX, SESSION_SUFFIX, RECORD_SUFFIX];
    name == CHECKPOINTS
        || name.starts_with(UNFINISHED_PREFIX)
        || suffixes.iter().any(|suffix| name.ends_with(suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notebook(source: &str) -> Notebook {
        let cell = serde_json::json!({ "cell_type": "code", "metadata": {}, "source": source });
        let text = serde_json::json!({
            "nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": [cell],
        });
        Notebook::read(&text.to_string()).unwrap()
    }

    #[test]
    fn what_is_written_beside_notebooks_is_no_data() {
        for name in [
            "a.ipynb",
            "a.executed.ipynb",
            "a.executed.resume.session",
            "a.executed.resume.json",
            ".ipynb_checkpoints",
            ".unfinished-x",
        ] {
            assert!(is_of_notebooks(name), "{name}");
        }
        for name in ["a.py", "a.json", "resume.json", "ipynb", "data.session"] {
            assert!(!is_of_notebooks(name), "{name}");
        }
    }

    #[test]
    fn a_notebook_that_names_notebooks_has_no_digest_of_its_folders() {
        let folder = tempfile::tempdir().unwrap();
        let (folders, none) = (Folders::default(), Job::default());
        let digest = |source: &str, mounts: &Job| {
            folders.seen(&notebook(source), [&none, mounts]).and_then(|seen| seen.digest())
        };
        let mounts = Job::default().mount(folder.path(), "/data").unwrap();
        assert_eq!(digest("%run a.ipynb", &none).unwrap(), "");
        assert_eq!(digest("%run a.ipynb", &mounts), None);
        let first = digest("1", &mounts);
        assert!(first.as_ref().is_some_and(|digest| digest.contains("/data")));
        std::fs::write(folder.path().join("x"), "1").unwrap();
        assert_ne!(digest("1", &mounts), first);
    }
}
