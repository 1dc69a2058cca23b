//! What to run, and how.

use std::sync::Arc;

use hatchery::record::RecordFolder;
use hatchery::{Hatchery, Job, Limits, Session};

use crate::document::{CodeCell, Notebook};
use crate::event::Observer;
use crate::guest::{self, Prepared};
use crate::places::Places;
use crate::prefixes::{self, Key, PrefixCache, chain, folders_digest, folders_of};

/// A notebook to run.
#[derive(Debug)]
#[non_exhaustive]
pub struct Task {
    /// Its place among the notebooks of the command, for the [`Observer`].
    pub index: usize,
    /// The notebook.
    pub notebook: Notebook,
    /// Where its outputs go. No two notebooks of a pool may have the same places.
    pub places: Places,
    /// A job whose folders the notebook gets, and which isn't run: see [`Job::beside`].
    pub folders: Job,
}

impl Task {
    /// Describes a notebook that gets no folder.
    pub fn new(index: usize, notebook: Notebook, places: Places) -> Self {
        Self { index, notebook, places, folders: Job::default() }
    }
}

/// What all notebooks of a command have in common.
#[derive(Debug)]
#[non_exhaustive]
pub struct Settings {
    /// The pool in which they run.
    pub pool: Hatchery,
    /// The limits of each cell.
    pub limits: Limits,
    /// A job whose folders all notebooks get, and which isn't run: see [`Job::mount`]. Default:
    /// none.
    pub mounts: Job,
    /// Whether a notebook continues from its saved session, if it has one that fits. Default: no.
    pub resumes: bool,
    /// Whether notebooks continue after cells that raise. Default: no.
    pub allows_errors: bool,
    /// Whether copies are written, and sessions of notebooks that don't complete. Default: yes.
    pub writes: bool,
    /// The states after cells that notebooks take over, and to which they add theirs. Default: none,
    /// so every cell runs. Notebooks that may connect to something always run from their start. So do
    /// those that get folders of more than 10,000 files or 1 GiB.
    pub prefixes: Option<PrefixCache>,
    /// Where each session is recorded. It then can't continue from states or saved sessions. Default:
    /// nowhere.
    pub record: Option<RecordFolder>,
    /// Receives the progress. Default: nobody.
    pub observer: Arc<dyn Observer>,
    prepared: Prepared,
    /// The input files in each workspace, and a digest of their names and contents.
    inputs: Job,
    pub(crate) input_digest: String,
}

impl Settings {
    /// Describes notebooks with these limits for each cell.
    pub fn new(pool: Hatchery, limits: Limits) -> Self {
        Self {
            pool,
            limits,
            mounts: Job::default(),
            resumes: false,
            allows_errors: false,
            writes: true,
            prefixes: None,
            record: None,
            observer: Arc::new(()),
            prepared: Prepared::default(),
            inputs: Job::default(),
            input_digest: digest(&[]),
        }
    }

    /// Puts files into each notebook's workspace: their names there, and their contents.
    ///
    /// # Errors
    /// A name isn't one of a plain file below the workspace.
    pub fn inputs(self, files: Vec<(String, Vec<u8>)>) -> Result<Self, hatchery::Error> {
        let input_digest = digest(&files);
        let mut inputs = Job::default();
        for (name, contents) in files {
            inputs = inputs.input(name, contents)?;
        }
        Ok(Self { inputs, input_digest, ..self })
    }

    /// Tells the prefixes which notebooks will run, so that they know which states several of them
    /// need. Without it, each notebook runs all cells that no earlier command has run. Reads the
    /// folders of the notebooks.
    pub fn announce(&self, tasks: &[Task]) {
        if let Some(prefixes) = &self.prefixes {
            for task in tasks {
                let jobs = self.folders(task);
                let seen = jobs.and_then(|jobs| folders_digest(&jobs, &prefixes.folders));
                prefixes.shared.expect(&self.keys(task, seen.as_deref()));
            }
        }
    }

    /// Returns jobs with the folders that a notebook sees. `None` if its states can't be shared.
    fn folders(&self, task: &Task) -> Option<Vec<Job>> {
        if self.resumes || self.pool.allows_connections() {
            return None;
        }
        folders_of(&task.notebook, [&task.folders, &self.mounts])
    }

    /// Returns a digest of what a notebook sees now. `None` if its states can't be shared.
    pub(crate) async fn look(&self, task: &Task) -> Option<String> {
        let folders = Arc::clone(&self.prefixes.as_ref()?.folders);
        let jobs = self.folders(task)?;
        if jobs.is_empty() {
            return Some(String::new());
        }
        let digest = tokio::task::spawn_blocking(move || folders_digest(&jobs, &folders));
        digest.await.ok().flatten()
    }

    /// Returns the keys of the states after each of the notebook's cells, as far as these can be
    /// shared.
    pub(crate) fn keys(&self, task: &Task, seen: Option<&str>) -> Vec<Key> {
        let Some(seen) = seen else { return Vec::new() };
        let limits = format!("{:?}", self.limits);
        let begin = [self.image(), &self.input_digest, &limits, seen];
        chain(&task.notebook, self.allows_errors, &begin)
    }

    /// Returns the first job of a fresh session.
    pub(crate) async fn begin(&self, session: &Session, task: &Task) -> Job {
        let first = self.prepared.first_job(&self.pool, session, &self.limits).await;
        first.with_files_of(&task.folders).with_files_of(&self.mounts).with_files_of(&self.inputs)
    }

    /// Returns the first job of a session that continues from a saved state.
    pub(crate) fn resume(&self, task: &Task) -> Job {
        guest::resume(&self.limits).with_files_of(&task.folders).with_files_of(&self.mounts)
    }

    /// Returns the limits of a cell, whose tag lowers the time.
    pub(crate) fn limits_of(&self, cell: &CodeCell) -> Limits {
        let wall_time = cell.time_limit.unwrap_or(self.limits.wall_time);
        Limits { wall_time: wall_time.min(self.limits.wall_time), ..self.limits.clone() }
    }

    /// Returns the key of the image from which sessions begin.
    pub(crate) fn image(&self) -> &str {
        self.pool.image().map_or("", |image| image.key.as_str())
    }
}

/// Returns a digest of the names and contents of input files.
fn digest(files: &[(String, Vec<u8>)]) -> String {
    let parts = files.iter().flat_map(|(name, contents)| [name.as_bytes(), contents]);
    prefixes::digest(parts).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_differ_by_name_and_contents() {
        let of = |files: &[(&str, &str)]| {
            let owned = |(name, contents): &(&str, &str)| {
                ((*name).to_owned(), contents.as_bytes().to_vec())
            };
            digest(&files.iter().map(owned).collect::<Vec<_>>())
        };
        assert_eq!(of(&[("x", "1")]), of(&[("x", "1")]));
        assert_ne!(of(&[("x", "1")]), of(&[("y", "1")]));
        assert_ne!(of(&[("x", "1")]), of(&[("x", "2")]));
        assert_ne!(of(&[("x", "1")]), of(&[("x1", "")]));
    }
}
