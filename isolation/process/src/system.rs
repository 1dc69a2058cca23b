//! System calls without a safe interface elsewhere.
#![expect(unsafe_code, reason = "forks, signals, and descriptors by number")]

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::time::Duration;
use std::{io, ptr};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::process::{Pid, WaitOptions};

/// The length of a page.
const PAGE: usize = 4096;

/// Returns the descriptors 0 and 1, which were made for this process by the one that started it.
/// Called once, before anything else runs here that could use them.
pub(crate) fn inherited() -> (OwnedFd, OwnedFd) {
    // SAFETY: nobody else owns them, by the rule above.
    unsafe { (OwnedFd::from_raw_fd(0), OwnedFd::from_raw_fd(1)) }
}

/// Ends the process at once.
pub(crate) fn end(code: i32) -> ! {
    // SAFETY: ends the process without running anything else of it.
    unsafe { libc::_exit(code) }
}

/// Ignores the signals that ask a process to end, here and in children that are forked from now on.
///
/// A terminal sends SIGINT and SIGHUP to all processes of a command, a service manager SIGTERM. They
/// are for the process that started this one, which may want to finish its jobs first.
pub(crate) fn leave_ending_to_parent() {
    for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP, libc::SIGTERM] {
        // SAFETY: installs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Forks this process, which has one thread. Returns the child's id; in the child, `None`.
pub(crate) fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: with one thread, no lock is held that the child would wait for.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        // It is 0 in the child.
        pid => Ok(Pid::from_raw(pid)),
    }
}

/// Reaps a child that has ended, if there is one, and says how it ended.
pub(crate) fn reap() -> Option<(Pid, String)> {
    let (child, status) = rustix::process::wait(WaitOptions::NOHANG).ok()??;
    Some((child, how(status.as_raw())))
}

/// Says how a process with this status has ended.
pub(crate) fn how(status: libc::c_int) -> String {
    if !libc::WIFSIGNALED(status) {
        return format!("it exited with code {}", libc::WEXITSTATUS(status));
    }
    let name = match libc::WTERMSIG(status) {
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGILL => "SIGILL",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGABRT => "SIGABRT",
        libc::SIGKILL => "SIGKILL",
        libc::SIGSYS => "SIGSYS",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGTERM => "SIGTERM",
        other => return format!("it was killed by signal {other}"),
    };
    format!("it was killed by {name}")
}

/// Waits until one of these can be read or has ended, and returns which; none after `time`.
pub(crate) fn wait_readable<const N: usize>(
    descriptors: [BorrowedFd<'_>; N],
    time: Option<Duration>,
) -> io::Result<[bool; N]> {
    let mut waits = descriptors.each_ref().map(|one| PollFd::new(one, PollFlags::IN));
    let time = time.and_then(|time| time.try_into().ok());
    match rustix::event::poll(&mut waits, time.as_ref()) {
        Ok(_) => Ok(waits.map(|wait| !wait.revents().is_empty())),
        Err(Errno::INTR) => Ok([false; N]),
        Err(error) => Err(error.into()),
    }
}

/// Becomes readable when children have ended.
pub(crate) struct EndedChildren(OwnedFd);

impl EndedChildren {
    /// Takes the signal that says so for this, from now on.
    pub(crate) fn watch() -> io::Result<Self> {
        let set = Self::signals();
        // SAFETY: the pointers are to the set, and null for what isn't wanted.
        let made = unsafe {
            libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if made < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was just made, and nobody else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(made) }))
    }

    /// Gives the signal back, in a child.
    pub(crate) fn forget() {
        let set = Self::signals();
        // SAFETY: the pointers are to the set, and null for what isn't wanted.
        unsafe { libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()) };
    }

    /// Makes it unreadable until further children have ended.
    pub(crate) fn clear(&self) -> io::Result<()> {
        let mut bytes = [0; 128];
        loop {
            match rustix::io::read(&self.0, &mut bytes) {
                Ok(0) | Err(Errno::AGAIN) => return Ok(()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn signals() -> libc::sigset_t {
        // SAFETY: the set is initialised before it is used.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, libc::SIGCHLD);
            set
        }
    }
}

impl AsFd for EndedChildren {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A word, alone in its page, that this process shares with a child that it forks.
#[derive(Debug)]
pub(crate) struct SharedWord(NonNull<AtomicU32>);

impl SharedWord {
    /// Maps a page for it. It is 0.
    pub(crate) fn new() -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: makes a new mapping, wherever there is room.
        let page = unsafe { mmap_anonymous(ptr::null_mut(), PAGE, access, MapFlags::SHARED) }?;
        NonNull::new(page.cast()).map(Self).ok_or_else(|| io::Error::other("a page at zero"))
    }

    /// Returns the word.
    pub(crate) fn get(&self) -> &AtomicU32 {
        // SAFETY: the page is zero, aligned, mapped until this is dropped, and only accessed so.
        unsafe { self.0.as_ref() }
    }

    /// Keeps the word for as long as the process lives.
    pub(crate) fn keep(self) -> &'static AtomicU32 {
        let word = ManuallyDrop::new(self).0;
        // SAFETY: as in `get`, and it is never dropped.
        unsafe { word.as_ref() }
    }
}

impl Drop for SharedWord {
    fn drop(&mut self) {
        // SAFETY: this owns the page, and lends the word no longer than it lives.
        unsafe { libc::munmap(self.0.as_ptr().cast(), PAGE) };
    }
}

/// Returns the descriptors from 3 on that are open files or files without a name. Folders and those
/// in `but` aren't among them.
pub(crate) fn open_files(but: &[BorrowedFd<'_>]) -> io::Result<Vec<BorrowedFd<'static>>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let Some(number) = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok())
        else {
            continue;
        };
        if number < 3 || but.iter().any(|one| one.as_raw_fd() == number) {
            continue;
        }
        // SAFETY: it is open, except for that of this listing, which the next line finds closed or
        // a folder.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        let Ok(stat) = rustix::fs::fstat(descriptor) else { continue };
        let kind = rustix::fs::FileType::from_raw_mode(stat.st_mode);
        if !matches!(kind, rustix::fs::FileType::Directory | rustix::fs::FileType::Socket) {
            found.push(descriptor);
        }
    }
    Ok(found)
}
