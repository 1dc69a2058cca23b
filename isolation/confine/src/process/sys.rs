//! System calls that have no safe form, or none in rustix without features that others would get.
#![expect(unsafe_code, reason = "system calls; every block says why it holds")]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use rustix::fs::FileType;
use rustix::process::{PidfdFlags, Signal};
use rustix::thread::UnshareFlags;

use crate::confinement::ConfineError;

/// Turns -1 into the error of the thread.
fn checked<T: Into<i64> + Copy>(result: T) -> io::Result<T> {
    if result.into() == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Refuses a process with several threads.
pub(super) fn check_single_thread() -> Result<(), ConfineError> {
    // Unsharing the memory of threads does nothing but fail if there are others.
    const CLONE_VM: UnshareFlags = UnshareFlags::from_bits_retain(libc::CLONE_VM as u32);
    unshare(CLONE_VM).map_err(|_| ConfineError::Threads)
}

/// Gives the process namespaces of its own.
pub(super) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    assert!(!flags.contains(UnshareFlags::FILES), "descriptors stay shared");
    // SAFETY: descriptors aren't unshared, as just asserted.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

/// Has the C library allocate from one heap. It opens a file when it shrinks another one, and reads
/// the number of CPUs from a file when it decides how many to have. Either ends a confined process.
///
/// The heaps that exist stay in use, also those of threads that have ended, and children inherit
/// them. So a process that forks others that [`confine`](super::confine) itself calls this before it
/// starts its first thread.
pub fn use_one_heap() {
    // SAFETY: takes no pointers.
    let done = unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    assert_eq!(done, 1, "the C library knows this parameter");
}

/// Has the C library of a program that starts often take blocks of megabytes from its heap. It maps each
/// instead until it has freed one, and the kernel clears the pages of each. These are the sizes that
/// it arrives at by itself (mallopt(3), "dynamic mmap threshold").
pub fn reuse_large_blocks() {
    for (parameter, bytes) in
        [(libc::M_MMAP_THRESHOLD, 32 << 20), (libc::M_TRIM_THRESHOLD, 64 << 20)]
    {
        // SAFETY: takes no pointers.
        let done = unsafe { libc::mallopt(parameter, bytes) };
        assert_eq!(done, 1, "the C library knows this parameter");
    }
}

/// Undoes a mode for old programs, in which whatever is readable is executable, too.
pub(super) fn forbid_implied_exec() -> io::Result<()> {
    const ASK: libc::c_ulong = 0xffff_ffff;
    // SAFETY: takes no pointers.
    let personality = checked(unsafe { libc::personality(ASK) })?;
    if personality & libc::READ_IMPLIES_EXEC != 0 {
        let without = personality & !libc::READ_IMPLIES_EXEC;
        // SAFETY: takes no pointers; mappings stay as they are.
        checked(unsafe { libc::personality(without as libc::c_ulong) })?;
    }
    Ok(())
}

/// Returns what a descriptor leads to.
pub(super) fn file_type(descriptor: RawFd) -> io::Result<FileType> {
    // SAFETY: borrowed for one call, which fails if it isn't open.
    let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
    Ok(FileType::from_raw_mode(rustix::fs::fstat(descriptor)?.st_mode))
}

/// Returns whether a socket can reach no one but the process at its other end.
pub(super) fn is_unix_connection(socket: RawFd) -> io::Result<bool> {
    let is_unix = option(socket, libc::SO_DOMAIN)? == libc::AF_UNIX;
    let kind = option(socket, libc::SO_TYPE)?;
    let is_open = option(socket, libc::SO_ACCEPTCONN)? == 0;
    if !is_unix || !is_open || ![libc::SOCK_STREAM, libc::SOCK_SEQPACKET].contains(&kind) {
        return Ok(false);
    }
    // SAFETY: all zeroes are a value of this plain structure.
    let mut name: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    let mut len = size_of_val(&name) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to the name, and the length.
    let named = checked(unsafe { libc::getpeername(socket, (&raw mut name).cast(), &raw mut len) });
    Ok(named.is_ok())
}

fn option(socket: RawFd, option: i32) -> io::Result<i32> {
    let mut value = 0i32;
    let mut len = size_of_val(&value) as libc::socklen_t;
    let (to, length) = ((&raw mut value).cast(), &raw mut len);
    // SAFETY: the kernel writes at most `len` bytes to the value, and the length.
    checked(unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, option, to, length) })?;
    Ok(value)
}

/// The numbers of standard input, output and error.
pub(super) const STANDARD: [RawFd; 3] = [0, 1, 2];

/// Closes all descriptors but these, which are in order. The standard ones stay taken, so that no later
/// descriptor gets output that was meant for them: they read as empty, and fail to be written to as if
/// they were closed.
///
/// # Safety
/// Nothing uses or closes one of those any more.
pub(super) unsafe fn close_others(kept: &[RawFd]) -> io::Result<()> {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two numbers.
    checked(unsafe { libc::pipe2(ends.as_mut_ptr(), 0) })?;
    for number in STANDARD.into_iter().filter(|number| !kept.contains(number)) {
        // SAFETY: takes no pointers; nothing uses what has this number, by the caller's promise.
        checked(unsafe { libc::dup2(ends[0], number) })?;
    }
    let first = STANDARD.len() as u32;
    let others = kept.iter().map(|number| number.cast_unsigned()).filter(|number| *number >= first);
    let mut next = first;
    for number in others.chain([u32::MAX]) {
        if next < number {
            // SAFETY: takes no pointers; the rest is the caller's promise. The last number belongs to
            // no descriptor, so the range may end before it. glibc has a function for it from 2.34 on,
            // and the wheel needs 2.28.
            checked(unsafe { libc::syscall(libc::SYS_close_range, next, number - 1, 0) })?;
        }
        next = number.saturating_add(1);
    }
    Ok(())
}

/// Replaces the root of the process, in a mount namespace of its own, by an empty folder that can't be
/// written to.
pub(super) fn enter_empty_root() -> io::Result<()> {
    // Nothing that is mounted here shows elsewhere.
    let private = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: the path ends in zero, and null is allowed for what this change doesn't use.
    checked(unsafe { libc::mount(ptr::null(), c"/".as_ptr(), ptr::null(), private, ptr::null()) })?;
    let root = empty_folder()?;
    let attach = [root.as_raw_fd() as libc::c_long, libc::c_long::from(libc::AT_FDCWD)];
    // SAFETY: both paths end in zero; the first is empty, as the flag says.
    checked(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            attach[0],
            c"".as_ptr(),
            attach[1],
            c"/".as_ptr(),
            libc::MOVE_MOUNT_F_EMPTY_PATH,
        )
    })?;
    rustix::process::fchdir(&root)?;
    // The old root ends up on top of the new one, and is taken away.
    rustix::process::pivot_root(c".", c".")?;
    // SAFETY: the path ends in zero.
    checked(unsafe { libc::umount2(c".".as_ptr(), libc::MNT_DETACH) })?;
    Ok(rustix::process::chdir(c"/")?)
}

/// Creates an empty file system that is mounted nowhere yet.
fn empty_folder() -> io::Result<OwnedFd> {
    let none = 0 as libc::c_long;
    // SAFETY: the name ends in zero.
    let system =
        owned(unsafe { libc::syscall(libc::SYS_fsopen, c"tmpfs".as_ptr(), libc::FSOPEN_CLOEXEC) })?;
    let set = |command: u32, key: Option<&CStr>, value: Option<&CStr>| {
        let text = |text: Option<&CStr>| text.map_or(ptr::null(), CStr::as_ptr);
        // SAFETY: the texts end in zero, or are null where the command takes none.
        checked(unsafe {
            libc::syscall(
                libc::SYS_fsconfig,
                system.as_raw_fd() as libc::c_long,
                libc::c_long::from(command),
                text(key),
                text(value),
                none,
            )
        })
    };
    for (key, value) in [(c"size", c"4096"), (c"nr_inodes", c"2"), (c"mode", c"0555")] {
        set(libc::FSCONFIG_SET_STRING, Some(key), Some(value))?;
    }
    set(libc::FSCONFIG_CMD_CREATE, None, None)?;
    let attributes = libc::MOUNT_ATTR_RDONLY
        | libc::MOUNT_ATTR_NOSUID
        | libc::MOUNT_ATTR_NODEV
        | libc::MOUNT_ATTR_NOEXEC;
    // SAFETY: takes no pointers.
    owned(unsafe {
        libc::syscall(
            libc::SYS_fsmount,
            system.as_raw_fd() as libc::c_long,
            libc::FSMOUNT_CLOEXEC,
            attributes,
        )
    })
}

fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    let number = RawFd::try_from(checked(result)?).map_err(io::Error::other)?;
    // SAFETY: the kernel has just opened it for this caller.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Forks a child that sleeps until this process ends, and is killed then. It has no descriptors.
pub(super) fn fork_sleeper() -> io::Result<u32> {
    let parent = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
    // SAFETY: this process has one thread, as the caller checked, so the child has whatever the parent
    // has, and no lock that a missing thread holds.
    match checked(unsafe { libc::fork() })? {
        0 => sleep_until_killed(&parent),
        child => Ok(child.cast_unsigned()),
    }
}

/// What the child does. It never returns, so it drops nothing of the parent's.
fn sleep_until_killed(parent: &OwnedFd) -> ! {
    let dies = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let mut polled = libc::pollfd { fd: parent.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, which the kernel may write to. It asks whether the parent has ended
    // before that would have killed this process.
    let has_ended = unsafe { libc::poll(&raw mut polled, 1, 0) } != 0;
    if dies.is_err() || has_ended {
        // SAFETY: ends this process without running anything of the parent's.
        unsafe { libc::_exit(1) }
    }
    // SAFETY: this process uses no descriptor any more.
    let _ = unsafe { close_others(&[]) };
    loop {
        // SAFETY: takes no pointers.
        unsafe { libc::pause() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_whether_there_are_other_threads() {
        // The test runs in a thread beside the main one.
        assert!(matches!(check_single_thread(), Err(ConfineError::Threads)));
    }
}
