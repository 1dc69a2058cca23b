//! Namespaces: of users, networks, mounts, IPC and process ids.
//!
//! Every user may make a user namespace, if the system allows that. With one, a process may make
//! the others.

use std::fs;
use std::io;

use rustix::process::{getegid, geteuid};
use rustix::thread::UnshareFlags;

use super::sys;
use crate::confinement::{ConfineError, Separation};
use crate::report::{Layer, Report};

/// Gives the calling process an empty root, and namespaces of its own where its parent has made none
/// for it. Returns whether it has a user namespace that no other process is in.
pub(super) fn enter(shared: Option<&Separation>, report: &mut Report) -> bool {
    let users = enter_user(false);
    let has_own_users = users.is_ok();
    if let Some(shared) = shared {
        // Its own user namespace is a second one: for a limit, and for the right to have mounts.
        report.layers.extend(shared.report.layers.clone());
        enter_mounts(report);
        return has_own_users;
    }
    report.record(Layer::UserNamespace, users);
    enter_network_and_ipc(report);
    enter_mounts(report);
    let pids: Result<(), _> = Err("a process keeps its id: its parent has to call `separate`");
    report.record(Layer::PidNamespace, pids);
    has_own_users
}

/// Makes namespaces for this process and its children. Returns the child that keeps that of process
/// ids, if it was granted.
pub(super) fn make_shared(report: &mut Report) -> Result<Option<u32>, ConfineError> {
    report.record(Layer::UserNamespace, enter_user(true));
    enter_network_and_ipc(report);
    let pids = unshare(UnshareFlags::NEWPID);
    let is_granted = pids.is_ok();
    report.record(Layer::PidNamespace, pids);
    if !is_granted {
        return Ok(None);
    }
    let forked = sys::fork_sleeper();
    forked.map(Some).map_err(|source| ConfineError::Step { step: "fork a process", source })
}

fn enter_network_and_ipc(report: &mut Report) {
    report.record(Layer::NetworkNamespace, unshare(UnshareFlags::NEWNET));
    report.record(Layer::IpcNamespace, unshare(UnshareFlags::NEWIPC));
}

/// Gives the calling process an empty root in a mount namespace of its own.
fn enter_mounts(report: &mut Report) {
    let mounts = unshare(UnshareFlags::NEWNS)
        .and_then(|()| sys::enter_empty_root().map_err(|error| text("an empty root", &error)));
    report.record(Layer::MountNamespace, mounts);
}

/// Enters a new user namespace. Only with ids of its own there can the process make further ones.
fn enter_user(has_ids: bool) -> Result<(), String> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    unshare(UnshareFlags::NEWUSER)?;
    if !has_ids {
        return Ok(());
    }
    let write = |file: &str, line: String| {
        fs::write(format!("/proc/self/{file}"), line).map_err(|error| text("ids", &error))
    };
    // Without this, a user could leave groups that deny access.
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("{user} {user} 1"))?;
    write("gid_map", format!("{group} {group} 1"))
}

fn unshare(flags: UnshareFlags) -> Result<(), String> {
    sys::unshare(flags).map_err(|error| text("it", &error))
}

/// Says what to do about the errors that a system's settings cause.
fn text(what: &str, error: &io::Error) -> String {
    let advice = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "; unprivileged user namespaces may be switched off here, see the sysctls \
             `kernel.unprivileged_userns_clone` and `kernel.apparmor_restrict_unprivileged_userns`, \
             or the container's seccomp profile"
        }
        Some(libc::ENOSPC) => "; see the sysctls `user.max_*_namespaces`",
        Some(libc::EINVAL | libc::ENOSYS) => "; the kernel may have been built without it",
        _ => "",
    };
    format!("the kernel refuses {what}: {error}{advice}")
}
