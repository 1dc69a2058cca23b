//! The system call that a worker was killed for, as its parent reads it.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

/// The system call that the kernel refused to a worker, which then ended with `SIGSYS`.
///
/// The worker writes it into memory that it shares with its parent. A guest that runs code of its
/// own there can write anything. So this explains an end to a reader, and decides nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefusedCall(u32);

impl RefusedCall {
    /// Reads what the worker wrote into the word that
    /// [`Confinement::refused`](crate::Confinement::refused) named; `None` if that is nothing.
    pub fn read(word: &AtomicU32) -> Option<Self> {
        word.load(Ordering::Acquire).checked_sub(1).map(Self)
    }

    /// Writes a refused call into the shared word, as the worker does, unless there is one already. A
    /// number of -1 stays unknown.
    pub fn write(number: u32, word: &AtomicU32) {
        let value = number.wrapping_add(1);
        // Only the first counts, so it doesn't matter whether this one was written.
        let _ = word.compare_exchange(0, value, Ordering::Release, Ordering::Relaxed);
    }
}

/// The name of the system call, or its number.
impl fmt::Display for RefusedCall {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match name_of(self.0) {
            Some(name) => formatter.write_str(name),
            None => write!(formatter, "system call {}", self.0),
        }
    }
}

/// Those from 0 on, in order.
const FIRST: &str = "\
    read write open close stat fstat lstat poll lseek mmap mprotect munmap brk rt_sigaction \
    rt_sigprocmask rt_sigreturn ioctl pread64 pwrite64 readv writev access pipe select \
    sched_yield mremap msync mincore madvise shmget shmat shmctl dup dup2 pause nanosleep \
    getitimer alarm setitimer getpid sendfile socket connect accept sendto recvfrom sendmsg \
    recvmsg shutdown bind listen getsockname getpeername socketpair setsockopt getsockopt clone \
    fork vfork execve exit wait4 kill uname semget semop semctl shmdt msgget msgsnd msgrcv \
    msgctl fcntl flock fsync fdatasync truncate ftruncate getdents getcwd chdir fchdir rename \
    mkdir rmdir creat link unlink symlink readlink chmod fchmod chown fchown lchown umask \
    gettimeofday getrlimit getrusage sysinfo times ptrace getuid syslog getgid setuid setgid \
    geteuid getegid setpgid getppid getpgrp setsid setreuid setregid getgroups setgroups \
    setresuid getresuid setresgid getresgid getpgid setfsuid setfsgid getsid capget capset \
    rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_sigsuspend sigaltstack utime mknod uselib \
    personality ustat statfs fstatfs sysfs getpriority setpriority sched_setparam sched_getparam \
    sched_setscheduler sched_getscheduler sched_get_priority_max sched_get_priority_min \
    sched_rr_get_interval mlock munlock mlockall munlockall vhangup modify_ldt pivot_root \
    _sysctl prctl arch_prctl adjtimex setrlimit chroot sync acct settimeofday mount umount2 \
    swapon swapoff reboot sethostname setdomainname iopl ioperm create_module init_module \
    delete_module get_kernel_syms query_module quotactl nfsservctl getpmsg putpmsg afs_syscall \
    tuxcall security gettid readahead setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr \
    listxattr llistxattr flistxattr removexattr lremovexattr fremovexattr tkill time futex \
    sched_setaffinity sched_getaffinity set_thread_area io_setup io_destroy io_getevents \
    io_submit io_cancel get_thread_area lookup_dcookie epoll_create epoll_ctl_old epoll_wait_old \
    remap_file_pages getdents64 set_tid_address restart_syscall semtimedop fadvise64 \
    timer_create timer_settime timer_gettime timer_getoverrun timer_delete clock_settime \
    clock_gettime clock_getres clock_nanosleep exit_group epoll_wait epoll_ctl tgkill utimes \
    vserver mbind set_mempolicy get_mempolicy mq_open mq_unlink mq_timedsend mq_timedreceive \
    mq_notify mq_getsetattr kexec_load waitid add_key request_key keyctl ioprio_set ioprio_get \
    inotify_init inotify_add_watch inotify_rm_watch migrate_pages openat mkdirat mknodat \
    fchownat futimesat newfstatat unlinkat renameat linkat symlinkat readlinkat fchmodat \
    faccessat pselect6 ppoll unshare set_robust_list get_robust_list splice tee sync_file_range \
    vmsplice move_pages utimensat epoll_pwait signalfd timerfd_create eventfd fallocate \
    timerfd_settime timerfd_gettime accept4 signalfd4 eventfd2 epoll_create1 dup3 pipe2 \
    inotify_init1 preadv pwritev rt_tgsigqueueinfo perf_event_open recvmmsg fanotify_init \
    fanotify_mark prlimit64 name_to_handle_at open_by_handle_at clock_adjtime syncfs sendmmsg \
    setns getcpu process_vm_readv process_vm_writev kcmp finit_module sched_setattr \
    sched_getattr renameat2 seccomp getrandom memfd_create kexec_file_load bpf execveat \
    userfaultfd membarrier mlock2 copy_file_range preadv2 pwritev2 pkey_mprotect pkey_alloc \
    pkey_free statx io_pgetevents rseq \
    uretprobe uprobe";

/// The number of the first of `LATER`: from there on, all architectures share their numbers.
const LATER_FROM: u32 = 424;

/// Those from `LATER_FROM` on, in order, up to Linux 6.18.
const LATER: &str = "\
    pidfd_send_signal io_uring_setup io_uring_enter io_uring_register open_tree move_mount \
    fsopen fsconfig fsmount fspick pidfd_open clone3 close_range openat2 pidfd_getfd faccessat2 \
    process_madvise epoll_pwait2 mount_setattr quotactl_fd landlock_create_ruleset \
    landlock_add_rule landlock_restrict_self memfd_secret process_mrelease futex_waitv \
    set_mempolicy_home_node cachestat fchmodat2 map_shadow_stack futex_wake futex_wait \
    futex_requeue statmount listmount lsm_get_self_attr lsm_set_self_attr lsm_list_modules mseal \
    setxattrat getxattrat listxattrat removexattrat open_tree_attr file_getattr file_setattr";

/// Returns the name of a system call; `None` if the number belongs to none that is listed.
pub(crate) fn name_of(number: u32) -> Option<&'static str> {
    let (names, index) = match number.checked_sub(LATER_FROM) {
        Some(index) => (LATER, index),
        None => (FIRST, number),
    };
    names.split_ascii_whitespace().nth(usize::try_from(index).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_refused_call_is_read() {
        let word = AtomicU32::new(0);
        assert_eq!(RefusedCall::read(&word), None);
        RefusedCall::write(u32::MAX, &word);
        assert_eq!(RefusedCall::read(&word), None);
        for number in [257, 41] {
            RefusedCall::write(number, &word);
        }
        assert_eq!(RefusedCall::read(&word).unwrap().to_string(), "openat");
    }

    #[test]
    fn every_number_has_a_text() {
        let text = |number| RefusedCall(number).to_string();
        assert_eq!([text(0), text(334), text(424)], ["read", "rseq", "pidfd_send_signal"]);
        assert_eq!([text(435), text(462)], ["clone3", "mseal"]);
        assert_eq!([text(337), text(423)], ["system call 337", "system call 423"]);
        assert_eq!(text(u32::MAX - 1), "system call 4294967294");
    }
}
