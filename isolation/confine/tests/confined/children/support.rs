//! Children that are forked, and what became of them.

use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU32;

use confine::{ConfineError, Confinement, RefusedCall, Report};
pub(crate) use test_support::raw::raw;

/// The user and group "nobody".
pub(crate) const NOBODY: u32 = 65_534;

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// By itself.
    Exit(i32),
    /// By this signal.
    Signal(i32),
}

/// Memory that a process shares with its children.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) refused: AtomicU32,
    pub(crate) words: [AtomicU32; 8],
}

/// Maps shared memory, full of zeroes, that stays until the process ends.
pub(crate) fn shared() -> &'static Shared {
    let (read_write, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let pages =
        unsafe { libc::mmap(std::ptr::null_mut(), size_of::<Shared>(), read_write, flags, -1, 0) };
    assert_ne!(pages, libc::MAP_FAILED);
    // SAFETY: mapped, aligned to a page, and zeroes are a value of these words. It is never unmapped.
    unsafe { &*pages.cast::<Shared>() }
}

impl Shared {
    /// The refused call's name.
    pub(crate) fn refused(&self) -> Option<String> {
        RefusedCall::read(&self.refused).map(|call| call.to_string())
    }
}

/// Runs `work` in a child, which exits with what it returns.
pub(crate) fn start(work: impl FnOnce() -> i32) -> i32 {
    // SAFETY: this process has one thread.
    let child = unsafe { libc::fork() };
    assert_ne!(child, -1, "{}", std::io::Error::last_os_error());
    if child == 0 {
        // The usual one opens files for a backtrace, which would hide the message.
        std::panic::set_hook(Box::new(|info| eprintln!("{info}")));
        let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(101);
        // SAFETY: ends the child without running what the parent has registered for its own end.
        unsafe { libc::_exit(code) }
    }
    child
}

/// Waits for a child.
pub(crate) fn wait(child: i32) -> End {
    let mut status = 0;
    // SAFETY: the status is ours to write.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child, "{}", std::io::Error::last_os_error());
    if libc::WIFSIGNALED(status) {
        End::Signal(libc::WTERMSIG(status))
    } else {
        End::Exit(libc::WEXITSTATUS(status))
    }
}

/// Runs `work` in a child to its end.
pub(crate) fn run(work: impl FnOnce() -> i32) -> End {
    wait(start(work))
}

/// Makes this process an ordinary user's, if it is root's.
pub(crate) fn become_nobody() {
    if raw(libc::SYS_geteuid, []) == 0 {
        assert_eq!(raw(libc::SYS_setgroups, [0, 0]), 0);
        assert_eq!(raw(libc::SYS_setresgid, [NOBODY.into(); 3]), 0);
        assert_eq!(raw(libc::SYS_setresuid, [NOBODY.into(); 3]), 0);
        // As a program that was started by that user.
        assert_eq!(raw(libc::SYS_prctl, [libc::PR_SET_DUMPABLE.into(), 1, 0, 0, 0]), 0);
    }
}

thread_local! {
    /// The process that forks, as children of it know it.
    static PARENT: Cell<u32> = const { Cell::new(0) };
}

/// Notes that this process forks children that confine themselves.
pub(crate) fn be_parent() {
    PARENT.set(std::process::id());
}

/// What a child of this process asks for, without any descriptor.
pub(crate) fn of_child() -> Confinement<'static> {
    Confinement::of_child(PARENT.get())
}

/// Confines this process.
pub(crate) fn confine(confinement: &Confinement<'_>) -> Result<Report, ConfineError> {
    // SAFETY: these children own no descriptor that they use or close afterwards without having kept
    // it, since they leave by `_exit`.
    unsafe { confine::confine(confinement) }
}

/// Confines this process, with nothing but a word for the refused call, or ends it.
pub(crate) fn confine_bare(shared: &'static Shared) {
    let confinement = Confinement { refused: Some(&shared.refused), ..of_child() };
    confine(&confinement).expect("a child of this test can be confined");
}

/// A descriptor that isn't owned.
pub(crate) fn borrowed(number: i32) -> BorrowedFd<'static> {
    // SAFETY: the tests keep these open.
    unsafe { BorrowedFd::borrow_raw(number) }
}

/// Nanoseconds of the monotonic clock.
pub(crate) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
