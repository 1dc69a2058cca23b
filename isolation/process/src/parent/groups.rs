//! Control groups: where the kernel bounds what all processes of a worker take, whatever they do.
//!
//! ```text
//! the delegated group/     no process, once there are groups below it
//!   main/                  this process, if it was alone in the delegated group
//!   hatchery-PID-N/        a pool's workers together; memory.max is the pool's limit
//!     worker-1/            one worker: memory.max, memory.oom.group, pids.max
//! ```
//!
//! A worker enters its group before it maps an interpreter. The kernel ends a worker that exceeds
//! its limit. The group counts that, which shows the cause.
//!
//! A group is removed with its worker. A killed process leaves its folder unlocked; the next
//! process that uses the delegated group removes it.
//!
//! - `place.rs`: which group was delegated.
//! - `files.rs`: the files of a hierarchy, with the kernel behind them.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use files::{Claim, Files};
use place::{GroupLocation, Version};

pub(crate) use files::Kernel;

mod files;
mod place;
#[cfg(test)]
mod tests;

/// What the names of folders with a pool's groups begin with.
const POOL: &str = "hatchery-";

/// How long the processes of a group may take to end that were killed.
const ENDING: Duration = Duration::from_secs(2);

/// How many names are tried for a folder. Somebody who cleans up can take a new one for a leftover.
const ATTEMPTS: u32 = 64;

/// What the kernel is to allow the workers of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// The memory of all of them together, and so of each, in bytes.
    pub(crate) memory_bytes: u64,
    pub(crate) threads: u64,
}

/// The groups of a pool's workers. They are removed when this is dropped.
#[derive(Debug)]
pub(crate) struct WorkerGroups {
    files: Arc<dyn Files>,
    version: Version,
    folder: PathBuf,
    bounds: Bounds,
    /// Groups of workers that had been killed and were about to end.
    left: Mutex<Vec<PathBuf>>,
    /// Without one, another process may remove the folder.
    _claim: Claim,
}

impl WorkerGroups {
    /// Makes the folder for a pool's groups where the system lets this process have some. Removes
    /// what others have left there. The error says why there can be none.
    pub(crate) fn new(files: Arc<dyn Files>, bounds: Bounds) -> Result<Self, String> {
        let place = GroupLocation::find(&*files)?;
        remove_leftovers(&*files, &place);
        let (folder, claim) = claim_folder(&*files, &place.folder).map_err(|error| {
            format!("no group can be made in {}: {error}", shown(&place.folder))
        })?;
        let version = place.version;
        let left = Mutex::default();
        let groups = Self { files, version, folder, bounds, left, _claim: claim };
        groups.bound(&groups.folder).and_then(|()| groups.divide()).map_err(|error| {
            format!("the group {} can't be limited: {error}", shown(&groups.folder))
        })?;
        Ok(groups)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn make(self: &Arc<Self>, worker: u64) -> io::Result<WorkerGroup> {
        let is_busy = |error: io::Error| error.kind() == io::ErrorKind::ResourceBusy;
        self.left.lock().retain(|group| self.files.remove(group).is_err_and(is_busy));
        let folder = self.folder.join(format!("worker-{worker}"));
        self.files.make(&folder)?;
        // From here on it is removed if it can't be used.
        let group = WorkerGroup { groups: Arc::clone(self), folder };
        self.bound(&group.folder)?;
        if self.version == Version::TWO {
            // All of a worker ends, or nothing.
            self.files.write(&group.folder.join("memory.oom.group"), "1")?;
            // Not every hierarchy has it, and limits bound the threads as well.
            let threads = self.bounds.threads.to_string();
            self.ignore(self.files.write(&group.folder.join("pids.max"), &threads));
        }
        Ok(group)
    }

    /// Limits the memory of a group.
    fn bound(&self, group: &Path) -> io::Result<()> {
        let bytes = self.bounds.memory_bytes;
        let is_bound = i64::try_from(bytes).is_ok();
        let limit = if is_bound { bytes.to_string() } else { self.version.no_limit.to_owned() };
        self.files.write(&group.join(self.version.limit_file), &limit)?;
        if self.version == Version::TWO {
            // Without it, what doesn't fit would fill the swap space. It is there where that is counted.
            self.ignore(self.files.write(&group.join("memory.swap.max"), &limit));
        }
        Ok(())
    }

    /// Lets groups below the folder have limits of their own.
    fn divide(&self) -> io::Result<()> {
        if self.version == Version::ONE {
            return Ok(());
        }
        let control = self.folder.join("cgroup.subtree_control");
        self.files.write(&control, "+memory")?;
        self.ignore(self.files.write(&control, "+pids"));
        Ok(())
    }

    fn ignore(&self, result: io::Result<()>) {
        if let Err(error) = result {
            tracing::debug!(folder = %self.folder.display(), %error, "a control group has no such limit");
        }
    }
}

impl Drop for WorkerGroups {
    fn drop(&mut self) {
        remove_with_content(&*self.files, &self.folder, Some(ENDING));
    }
}

/// The group of a worker. It is removed when this is dropped, which is to be after the worker's end.
#[derive(Debug)]
pub(crate) struct WorkerGroup {
    groups: Arc<WorkerGroups>,
    folder: PathBuf,
}

/// Takes this process through the entrance of a group, which is closed behind it.
pub(crate) fn enter(entrance: OwnedFd) -> io::Result<()> {
    // 0 is the writing process.
    File::from(entrance).write_all(b"0")
}

impl WorkerGroup {
    /// Opens the file by which a process enters the group.
    pub(crate) fn entrance(&self) -> io::Result<OwnedFd> {
        self.groups.files.open(&self.folder.join("cgroup.procs"))
    }

    /// Returns whether the kernel's out-of-memory killer has ended a process of this group, as words
    /// that follow how it ended.
    pub(crate) fn out_of_memory(&self) -> Option<String> {
        let events = self.folder.join(self.groups.version.events_file);
        let events = self.groups.files.read(&events).ok()?;
        let killed = events.lines().find_map(|line| line.strip_prefix("oom_kill "))?;
        let mebibytes = self.groups.bounds.memory_bytes >> 20;
        (killed.trim().parse::<u64>().ok()? > 0).then(|| {
            format!(
                "by the kernel's out-of-memory killer: worker processes may have {mebibytes} MiB"
            )
        })
    }
}

impl Drop for WorkerGroup {
    fn drop(&mut self) {
        // What isn't empty yet is removed later: after the end of a helper, its workers end.
        if let Err(error) = self.groups.files.remove(&self.folder) {
            tracing::debug!(group = %self.folder.display(), %error, "a control group is left for later");
            self.groups.left.lock().push(std::mem::take(&mut self.folder));
        }
    }
}

/// Makes a folder for a pool's groups that nobody else has.
fn claim_folder(files: &dyn Files, delegated: &Path) -> io::Result<(PathBuf, Claim)> {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let number = LAST.fetch_add(1, Ordering::Relaxed);
        let folder = delegated.join(format!("{POOL}{}-{number}", std::process::id()));
        match files.make(&folder) {
            // A process with the same id in another namespace, or before this one, had this name.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = Some(error),
            Err(error) => return Err(error),
            Ok(()) => match files.claim(&folder)? {
                Some(claim) => return Ok((folder, claim)),
                // Somebody took it for a leftover.
                None => last = None,
            },
        }
    }
    Err(last.unwrap_or_else(|| io::Error::other("another process removes each new group")))
}

/// Removes the folders of pools whose process has ended.
fn remove_leftovers(files: &dyn Files, place: &GroupLocation) {
    let Ok(groups) = files.groups_in(&place.folder) else { return };
    let is_pool = |group: &PathBuf| {
        group.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(POOL))
    };
    for folder in groups.into_iter().filter(is_pool) {
        if let Ok(Some(_claim)) = files.claim(&folder) {
            remove_with_content(files, &folder, None);
        }
    }
}

/// Ends what is left in the groups of a folder, and removes them; tries that for this time.
fn remove_with_content(files: &dyn Files, folder: &Path, time: Option<Duration>) {
    let deadline = time.map(|time| Instant::now() + time);
    loop {
        for group in files.groups_in(folder).unwrap_or_default() {
            // Version 1 has no such file. A process that was killed may take a moment to end.
            let _ = files.write(&group.join("cgroup.kill"), "1");
            let _ = files.remove(&group);
        }
        match files.remove(folder) {
            Ok(()) => return,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) if deadline.is_none_or(|deadline| Instant::now() >= deadline) => {
                tracing::debug!(folder = %folder.display(), %error, "control groups are left");
                return;
            }
            Err(_) => thread::yield_now(),
        }
    }
}

fn shown(path: &Path) -> String {
    format!("`{}`", path.display())
}
