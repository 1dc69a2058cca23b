//! Which control group was delegated to this process, so that it may make groups in it.
//!
//! A group belongs to its manager, so being able to write to it, as root can, isn't enough. The
//! operator names one (`$HATCHERY_CGROUP`), or the service manager marks one as delegated
//! (systemd's `Delegate=`). Or the process is in a container, which starts in one.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use super::files::Files;
use super::shown;

/// The group that this process moves to if it is alone in the delegated one.
const MAIN: &str = "main";

/// A version of the interface, by the names that differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    /// The file with a group's limit on memory.
    pub(super) limit_file: &'static str,
    /// What that has without a limit.
    pub(super) no_limit: &'static str,
    /// The file that counts what the out-of-memory killer did.
    pub(super) events_file: &'static str,
}

impl Version {
    /// A hierarchy of the memory controller alone.
    pub(super) const ONE: Self = Self {
        limit_file: "memory.limit_in_bytes",
        no_limit: "-1",
        events_file: "memory.oom_control",
    };
    /// One hierarchy for all controllers.
    pub(super) const TWO: Self =
        Self { limit_file: "memory.max", no_limit: "max", events_file: "memory.events" };
}

/// A group in which this process may make groups, with the memory controller.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GroupLocation {
    pub(super) version: Version,
    pub(super) folder: PathBuf,
}

impl GroupLocation {
    /// Finds the group, and lets groups below it have limits. The error says why there is none.
    pub(super) fn find(files: &dyn Files) -> Result<Self, String> {
        let Some(wanted) = files.wanted() else { return Self::delegated(files) };
        if wanted == OsStr::new("off") {
            return Err("`$HATCHERY_CGROUP` is `off`".to_owned());
        }
        let has = |file| files.read(&wanted.join(file)).is_ok();
        if has(Version::ONE.limit_file) {
            return Ok(Self { version: Version::ONE, folder: wanted });
        }
        if !has("cgroup.controllers") {
            let wanted = shown(&wanted);
            return Err(format!(
                "{wanted}, which `$HATCHERY_CGROUP` names, isn't a control group with the memory \
                 controller"
            ));
        }
        divide(files, &wanted, false)?;
        Ok(Self { version: Version::TWO, folder: wanted })
    }

    /// Finds the group of version 2 that was delegated: that of this process, or the one above.
    fn delegated(files: &dyn Files) -> Result<Self, String> {
        let read = files.own().map_err(|error| format!("this system has no `/proc`: {error}"))?;
        let (mount, own) = own_group(&read.0, &read.1)
            .ok_or("this process sees no control groups of version 2 (`cgroup2`)")?;
        let outer = own.parent().filter(|_| own != mount);
        let begins_container = |group: &Path| {
            // The root of the system isn't a group like others.
            group == mount && files.read(&group.join("cgroup.type")).is_ok()
        };
        let is_delegated = |group: &&Path| files.is_marked(group) || begins_container(group);
        let found = outer.into_iter().chain([&*own]).find(is_delegated).ok_or_else(|| {
            format!(
                "the group {} wasn't delegated to this process: run it as a service with \
                 `Delegate=memory pids`, or name a group by `$HATCHERY_CGROUP`",
                shown(&own)
            )
        })?;
        divide(files, found, found == own)?;
        Ok(Self { version: Version::TWO, folder: found.to_owned() })
    }
}

/// Returns where version 2 is mounted and the group of this process there.
fn own_group(groups: &str, mounts: &str) -> Option<(PathBuf, PathBuf)> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let (root, mount) = mounts.lines().find_map(|line| {
        let (fields, system) = line.split_once(" - ")?;
        let mut fields = fields.split(' ').skip(3);
        let (root, mount) = (fields.next()?, fields.next()?);
        (system.split(' ').next() == Some("cgroup2")).then_some((root, mount))
    })?;
    // A path that leads out of what is mounted begins with `/..`, and has no folder here.
    let below = Path::new(path).strip_prefix(root).ok()?;
    let is_outside = below.components().any(|part| part == std::path::Component::ParentDir);
    (!is_outside).then(|| (PathBuf::from(mount), Path::new(mount).join(below)))
}

/// Lets groups below this one have limits. `is_own` if this process is in it. It then moves, since
/// a group with limits below it can have no processes.
fn divide(files: &dyn Files, group: &Path, is_own: bool) -> Result<(), String> {
    let read = files.read(&group.join("cgroup.controllers"));
    if !read.is_ok_and(|all| all.split_whitespace().any(|one| one == "memory")) {
        return Err(format!("the group {} has no memory controller", shown(group)));
    }
    let control = group.join("cgroup.subtree_control");
    let mut enabled = files.write(&control, "+memory");
    if enabled.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy) {
        if !is_own || !move_to_main(files, group) {
            return Err(format!(
                "there are processes in the group {}, so it can't be divided: start this program in \
                 a group below it, as systemd's `DelegateSubgroup=` does",
                shown(group)
            ));
        }
        enabled = files.write(&control, "+memory");
    }
    enabled.map_err(|error| format!("the group {} can't be divided: {error}", shown(group)))?;
    // Limits bound the threads as well.
    if let Err(error) = files.write(&control, "+pids") {
        tracing::debug!(group = %group.display(), %error, "groups don't bound threads");
    }
    Ok(())
}

/// Moves this process to a group below its own if it is alone there.
fn move_to_main(files: &dyn Files, group: &Path) -> bool {
    let own = std::process::id().to_string();
    let Ok(processes) = files.read(&group.join("cgroup.procs")) else { return false };
    if processes.lines().any(|process| process != own) {
        return false;
    }
    let main = group.join(MAIN);
    // It may be there from before.
    let _ = files.make(&main);
    files.write(&main.join("cgroup.procs"), &own).is_ok()
}
