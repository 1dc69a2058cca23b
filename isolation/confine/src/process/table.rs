//! The system calls that a worker makes while it runs guests, each with its reason.
//!
//! Any other call ends the process. Calls whose arguments decide what they do have conditions. A
//! descriptor needs none: no call here opens a file by name, so a process has only those of its
//! parent.

use linux_raw_sys::general::{
    CLOCK_TAI, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, MADV_GUARD_INSTALL, MADV_GUARD_REMOVE,
    pm_scan_arg,
};
use linux_raw_sys::ioctl::UFFDIO_REGISTER;
use rustix::ioctl::opcode;

use crate::call::Answer::{Fail, Run};
use crate::call::Is::{AtMost, Equal, Masked, Not, Null, OwnProcess};
use crate::call::{Argument, Call, Is, Rule};

/// The flags with which glibc starts a thread, and musl, which sets one more that means nothing.
const THREAD: u32 = (libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM
    | libc::CLONE_SETTLS
    | libc::CLONE_PARENT_SETTID
    | libc::CLONE_CHILD_CLEARTID) as u32;

/// Says how a futex's word is shared and which clock counts.
const FUTEX_FLAGS: u32 = (libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) as u32;
/// Reads the auxiliary vector of the process itself.
const PR_GET_AUXV: u32 = 0x4155_5856;
const PAGEMAP_SCAN: u32 = opcode::read_write::<pm_scan_arg>(b'f', 16);
const MEMFD_FLAGS: u32 = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | libc::MFD_NOEXEC_SEAL;
const NOT_EXECUTABLE: Is = Masked { mask: libc::PROT_EXEC as u32, value: 0 };
const PUNCH_HOLE: u32 = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;

const fn argument(index: u8, is: Is) -> Argument {
    Argument { index, is }
}

const fn equal(index: u8, value: i32) -> Argument {
    argument(index, Equal(value as u32))
}

const fn futex(operation: i32) -> Argument {
    argument(1, Masked { mask: !FUTEX_FLAGS, value: operation as u32 })
}

const fn call(name: &'static str, number: i64, reason: &'static str) -> Call {
    Call { name, number: number as u32, answer: Run, rules: &[], when: "", reason }
}

const fn when(call: Call, when: &'static str, rules: &'static [Rule]) -> Call {
    Call { when, rules, ..call }
}

/// The system calls that a confined process may make, in the order of their numbers.
pub const CALLS: &[Call] = &[
    call("read", libc::SYS_read, "takes what the parent or a kept file has"),
    call("write", libc::SYS_write, "wakes the parent, and logs"),
    call("close", libc::SYS_close, "gives a descriptor back"),
    call("fstat", libc::SYS_fstat, "asks how long a memory file is; it takes no path"),
    call("poll", libc::SYS_poll, "waits for the parent with a deadline"),
    call("lseek", libc::SYS_lseek, "reads the tables of the compiled module when a guest traps"),
    when(
        call("mmap", libc::SYS_mmap, "maps a guest's memory, states and stacks"),
        "without `PROT_EXEC`",
        &[&[argument(2, NOT_EXECUTABLE)]],
    ),
    when(
        call("mprotect", libc::SYS_mprotect, "grows a guest's memory, and takes it away"),
        "without `PROT_EXEC`",
        &[&[argument(2, NOT_EXECUTABLE)]],
    ),
    call("munmap", libc::SYS_munmap, "gives memory back"),
    call("brk", libc::SYS_brk, "is the allocator's heap"),
    when(
        call("rt_sigaction", libc::SYS_rt_sigaction, "catches the faults that are a guest's traps"),
        "for any signal but `SIGSYS`",
        &[&[argument(0, Not(libc::SIGSYS as u32))]],
    ),
    call(
        "rt_sigprocmask",
        libc::SYS_rt_sigprocmask,
        "blocks signals while a thread starts or ends",
    ),
    call("rt_sigreturn", libc::SYS_rt_sigreturn, "ends a signal handler"),
    when(
        call("ioctl", libc::SYS_ioctl, "finds the pages that a guest wrote to"),
        "`PAGEMAP_SCAN` and `UFFDIO_REGISTER`, which put no bytes into memory",
        &[&[argument(1, Equal(PAGEMAP_SCAN))], &[argument(1, Equal(UFFDIO_REGISTER))]],
    ),
    call("pread64", libc::SYS_pread64, "reads a kept file, such as the page map"),
    call("pwrite64", libc::SYS_pwrite64, "writes pages of a session into a memory file"),
    call("sched_yield", libc::SYS_sched_yield, "lets another thread run while this one spins"),
    when(
        call("mremap", libc::SYS_mremap, "grows large blocks of the allocator"),
        "without `MREMAP_FIXED`, so that no code moves to a chosen address",
        &[&[equal(3, 0)], &[equal(3, libc::MREMAP_MAYMOVE)]],
    ),
    when(
        call(
            "madvise",
            libc::SYS_madvise,
            "gives pages back, asks for them early, keeps huge ones out, guards stacks",
        ),
        "`MADV_WILLNEED`, `MADV_POPULATE_WRITE`, `MADV_DONTNEED`, `MADV_FREE`, `MADV_NOHUGEPAGE`, \
         `MADV_GUARD_INSTALL`, `MADV_GUARD_REMOVE`",
        &[
            &[equal(2, libc::MADV_WILLNEED)],
            &[equal(2, libc::MADV_POPULATE_WRITE)],
            &[equal(2, libc::MADV_DONTNEED)],
            &[equal(2, libc::MADV_FREE)],
            &[equal(2, libc::MADV_NOHUGEPAGE)],
            &[argument(2, Equal(MADV_GUARD_INSTALL))],
            &[argument(2, Equal(MADV_GUARD_REMOVE))],
        ],
    ),
    call("getpid", libc::SYS_getpid, "tells a process from its copy after a fork"),
    when(
        call("sendto", libc::SYS_sendto, "writes to the parent's socket"),
        "without an address",
        &[&[argument(4, Null)]],
    ),
    when(
        call("recvfrom", libc::SYS_recvfrom, "reads from the parent's socket"),
        "without an address",
        &[&[argument(4, Null)]],
    ),
    call("sendmsg", libc::SYS_sendmsg, "hands a memory file to the parent"),
    call("recvmsg", libc::SYS_recvmsg, "takes a memory file from the parent"),
    when(
        call("clone", libc::SYS_clone, "starts the thread that watches over time limits"),
        "with the flags of a thread",
        &[&[argument(0, Equal(THREAD))]],
    ),
    call("exit", libc::SYS_exit, "ends a thread"),
    when(
        call("fcntl", libc::SYS_fcntl, "duplicates a descriptor, and seals a memory file"),
        "`F_GETFD`, `F_DUPFD_CLOEXEC`, `F_ADD_SEALS`, `F_GET_SEALS`",
        &[
            &[equal(1, libc::F_GETFD)],
            &[equal(1, libc::F_DUPFD_CLOEXEC)],
            &[equal(1, libc::F_ADD_SEALS)],
            &[equal(1, libc::F_GET_SEALS)],
        ],
    ),
    call("ftruncate", libc::SYS_ftruncate, "gives a memory file its length"),
    call("getrusage", libc::SYS_getrusage, "counts page faults, which tell whether a guest wrote"),
    call("sigaltstack", libc::SYS_sigaltstack, "gives fault handlers a stack"),
    when(
        call(
            "prctl",
            libc::SYS_prctl,
            "names a thread, and finds where the kernel lends its clock",
        ),
        "`PR_SET_NAME`, `PR_GET_AUXV`",
        &[&[equal(0, libc::PR_SET_NAME)], &[argument(0, Equal(PR_GET_AUXV))]],
    ),
    call("gettid", libc::SYS_gettid, "names a thread to the kernel"),
    when(
        call("futex", libc::SYS_futex, "waits for threads and for the parent"),
        "`FUTEX_WAIT`, `FUTEX_WAKE`, `FUTEX_WAIT_BITSET`, `FUTEX_WAKE_BITSET`",
        &[
            &[futex(libc::FUTEX_WAIT)],
            &[futex(libc::FUTEX_WAKE)],
            &[futex(libc::FUTEX_WAIT_BITSET)],
            &[futex(libc::FUTEX_WAKE_BITSET)],
        ],
    ),
    call("sched_getaffinity", libc::SYS_sched_getaffinity, "is part of the start of a thread"),
    call(
        "restart_syscall",
        libc::SYS_restart_syscall,
        "resumes a wait after the process was stopped",
    ),
    when(
        call("clock_gettime", libc::SYS_clock_gettime, "measures a run's time and CPU time"),
        "clocks of the system, of this process and of its threads, not of other processes",
        &[&[argument(0, AtMost(CLOCK_TAI))], &[argument(0, Masked { mask: 7, value: 6 })]],
    ),
    call("clock_nanosleep", libc::SYS_clock_nanosleep, "sleeps for a guest"),
    call("exit_group", libc::SYS_exit_group, "ends the process"),
    when(
        call("tgkill", libc::SYS_tgkill, "raises a signal in this process, as `abort` does"),
        "to the process itself",
        &[&[argument(0, OwnProcess)]],
    ),
    Call {
        answer: Fail(libc::ENOSYS as u16),
        ..call("newfstatat", libc::SYS_newfstatat, "as `statx`, which it stands in for")
    },
    call("ppoll", libc::SYS_ppoll, "waits for the parent with a deadline"),
    call("set_robust_list", libc::SYS_set_robust_list, "is part of the start of a thread"),
    when(
        call("fallocate", libc::SYS_fallocate, "gives pages of a memory file back"),
        "`FALLOC_FL_PUNCH_HOLE` with `FALLOC_FL_KEEP_SIZE`",
        &[&[argument(1, Equal(PUNCH_HOLE))]],
    ),
    when(
        call("prlimit64", libc::SYS_prlimit64, "asks whether a memory file may be so long"),
        "to read the process's own limits",
        &[&[equal(0, 0), argument(2, Null)]],
    ),
    call("getrandom", libc::SYS_getrandom, "seeds a guest and hash tables"),
    when(
        call("memfd_create", libc::SYS_memfd_create, "holds a session's state"),
        "for ordinary files that can be sealed",
        &[&[argument(1, Masked { mask: !MEMFD_FLAGS, value: 0 })]],
    ),
    Call {
        answer: Fail(libc::ENOSYS as u16),
        ..call("statx", libc::SYS_statx, "takes paths; reading a whole file needs no length")
    },
    call("rseq", libc::SYS_rseq, "is part of the start of a thread"),
    Call {
        answer: Fail(libc::ENOSYS as u16),
        ..call(
            "clone3",
            libc::SYS_clone3,
            "keeps its flags in memory, where no filter sees them; the C library then uses `clone`",
        )
    },
];
