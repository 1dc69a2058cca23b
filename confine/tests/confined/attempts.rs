//! What native code in a worker would try, each as a bare system call in a child of its own.

use std::ffi::CStr;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::atomic::Ordering;

use confine::CALLS;

use crate::support::{End, become_nobody, confine_bare, raw, run, shared};

/// One thing to try.
struct Attempt {
    /// What it would do.
    what: &'static str,
    /// The system call, by name and number.
    name: &'static str,
    number: libc::c_long,
    arguments: Vec<i64>,
    /// Whether it succeeds in a process that isn't confined, and changes nothing there.
    is_harmless: bool,
}

impl Attempt {
    fn make(&self) -> i64 {
        let mut six = [0; 6];
        six[..self.arguments.len()].copy_from_slice(&self.arguments);
        raw(self.number, six)
    }
}

/// Things to aim at, which stay while the attempts are made.
struct Targets {
    parent: i64,
    /// Zeroes, a page of them aligned to pages.
    page: i64,
    _tcp: TcpListener,
    inet_address: i64,
    _unix: UnixListener,
    unix_address: i64,
}

fn text(text: &CStr) -> i64 {
    text.as_ptr().addr() as i64
}

/// Memory that stays until the process ends.
fn kept<T>(value: T) -> i64 {
    std::ptr::from_mut(Box::leak(Box::new(value))).expose_provenance() as i64
}

fn targets() -> Targets {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port();
    let inet = libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
        sin_zero: [0; 8],
    };
    // SAFETY: all zeroes are a value of this plain structure.
    let mut unix: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    unix.sun_family = libc::AF_UNIX as u16;
    let path = std::env::temp_dir().join(format!("confine-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).unwrap();
    let bytes = path.as_os_str().as_encoded_bytes();
    unix.sun_path.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from as libc::c_char);
    Targets {
        parent: std::process::id().into(),
        page: kept(Aligned { _bytes: [0; 16_384] }),
        _tcp: tcp,
        inet_address: kept(inet),
        _unix: listener,
        unix_address: kept(unix),
    }
}

#[repr(align(4096))]
struct Aligned {
    _bytes: [u8; 16_384],
}

impl Drop for Targets {
    fn drop(&mut self) {
        let path = std::env::temp_dir().join(format!("confine-{}", std::process::id()));
        let _ = std::fs::remove_file(path);
    }
}

macro_rules! attempts {
    ($($mark:ident $what:literal $name:ident($($argument:expr),* $(,)?);)*) => {
        vec![$(Attempt {
            what: $what,
            name: stringify!($name).trim_start_matches("SYS_"),
            number: libc::$name,
            arguments: vec![$(i64::from($argument)),*],
            is_harmless: stringify!($mark) == "harmless",
        }),*]
    };
}

#[expect(clippy::too_many_lines, reason = "a list")]
fn attempts(targets: &Targets) -> Vec<Attempt> {
    let Targets { parent, page, inet_address, unix_address, .. } = *targets;
    let here = libc::AT_FDCWD;
    let passwd = text(c"/etc/passwd");
    let executable = libc::PROT_READ | libc::PROT_EXEC;
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let environment = kept(std::ffi::CString::new(format!("/proc/{parent}/environ")).unwrap());
    // SAFETY: a C string that was leaked.
    let environment = unsafe {
        (*std::ptr::with_exposed_provenance::<std::ffi::CString>(environment as usize)).as_ptr()
    };
    let environment = environment.addr() as i64;
    attempts![
        // Files.
        harmless "open a file" SYS_open(passwd, 0);
        harmless "open a file at a folder" SYS_openat(here, passwd, 0);
        harmless "open a file, with conditions" SYS_openat2(here, passwd, page, 24);
        harmless "read the parent's environment" SYS_openat(here, environment, 0);
        hostile "create a file" SYS_creat(text(c"/tmp/confine-created"), 0o600);
        harmless "ask about a file" SYS_stat(passwd, page);
        harmless "ask about a link" SYS_lstat(passwd, page);
        harmless "ask about a file at a folder" SYS_newfstatat(here, passwd, page, 0);
        harmless "ask about a file in detail" SYS_statx(here, passwd, 0, 0x7ff, page);
        harmless "ask whether a file is there" SYS_access(passwd, 0);
        harmless "ask whether a file is there, at a folder" SYS_faccessat2(here, passwd, 0, 0);
        harmless "read a link" SYS_readlink(text(c"/proc/self/exe"), page, 4096);
        harmless "ask for the folder" SYS_getcwd(page, 4096);
        harmless "change the folder" SYS_chdir(text(c"/"));
        hostile "remove a file" SYS_unlink(text(c"/tmp/confine-created"));
        hostile "rename a file" SYS_rename(text(c"/tmp/confine-a"), text(c"/tmp/confine-b"));
        hostile "make a folder" SYS_mkdir(text(c"/tmp/confine-made"), 0o700);
        hostile "make a link" SYS_symlink(passwd, text(c"/tmp/confine-link"));
        hostile "make a device" SYS_mknod(text(c"/tmp/confine-null"), 0o20666, 0x103);
        hostile "change a mode" SYS_chmod(text(c"/tmp/confine-a"), 0o777);
        hostile "change an owner" SYS_chown(text(c"/tmp/confine-a"), 0, 0);
        hostile "set an attribute" SYS_setxattr(text(c"/tmp/confine-a"), text(c"user.a"), page, 1, 0);
        hostile "make a handle of a file" SYS_name_to_handle_at(here, passwd, page, page, 0);
        hostile "open a file by its handle" SYS_open_by_handle_at(here, page, 0);
        harmless "watch files" SYS_inotify_init1(0);
        hostile "watch all files" SYS_fanotify_init(0, 0);
        // Mounts and roots.
        hostile "mount" SYS_mount(text(c"none"), text(c"/tmp"), text(c"tmpfs"), 0, 0);
        hostile "unmount" SYS_umount2(text(c"/"), libc::MNT_DETACH);
        hostile "open a file system" SYS_fsopen(text(c"tmpfs"), 0);
        hostile "move a mount" SYS_move_mount(0, text(c""), 0, text(c"/"), 4);
        hostile "take a tree of mounts" SYS_open_tree(here, text(c"/"), 1);
        hostile "change a mount" SYS_mount_setattr(here, text(c"/"), 0, page, 32);
        hostile "change the root mount" SYS_pivot_root(text(c"."), text(c"."));
        hostile "change the root" SYS_chroot(text(c"/"));
        harmless "leave a namespace" SYS_unshare(libc::CLONE_NEWUSER);
        hostile "enter a namespace" SYS_setns(0, 0);
        // Networks and sockets.
        harmless "open a TCP socket" SYS_socket(libc::AF_INET, libc::SOCK_STREAM, 0);
        harmless "open a Unix socket" SYS_socket(libc::AF_UNIX, libc::SOCK_STREAM, 0);
        hostile "open a packet socket" SYS_socket(libc::AF_PACKET, libc::SOCK_RAW, 0x300);
        harmless "make a pair of sockets" SYS_socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, page);
        hostile "connect to loopback" SYS_connect(3, inet_address, 16);
        hostile "connect to a Unix socket" SYS_connect(3, unix_address, 110);
        hostile "bind to a port" SYS_bind(3, inet_address, 16);
        hostile "listen" SYS_listen(3, 1);
        hostile "accept" SYS_accept4(3, 0, 0, 0);
        hostile "send to an address" SYS_sendto(3, page, 1, 0, inet_address, 16);
        hostile "receive with the address" SYS_recvfrom(3, page, 1, 0, page, page);
        // Programs and processes.
        hostile "run a program" SYS_execve(text(c"/bin/sh"), 0, 0);
        hostile "run a program at a folder" SYS_execveat(here, text(c"/bin/sh"), 0, 0, 0);
        harmless "fork" SYS_fork();
        hostile "fork, sharing memory" SYS_vfork();
        harmless "fork by clone" SYS_clone(libc::SIGCHLD, 0, 0, 0, 0);
        hostile "start a process in a new namespace" SYS_clone(libc::CLONE_NEWUSER | libc::SIGCHLD, 0, 0, 0, 0);
        harmless "signal the parent" SYS_kill(parent, 0);
        hostile "kill the parent" SYS_kill(parent, libc::SIGKILL);
        hostile "kill everything" SYS_kill(-1, libc::SIGKILL);
        hostile "kill the parent's thread" SYS_tgkill(parent, parent, libc::SIGKILL);
        hostile "kill a thread" SYS_tkill(parent, libc::SIGKILL);
        hostile "queue a signal" SYS_rt_sigqueueinfo(parent, libc::SIGKILL, page);
        harmless "get hold of the parent" SYS_pidfd_open(parent, 0);
        hostile "signal the parent by descriptor" SYS_pidfd_send_signal(3, libc::SIGKILL, 0, 0);
        hostile "take the parent's descriptor" SYS_pidfd_getfd(3, 0, 0);
        hostile "trace the parent" SYS_ptrace(libc::PTRACE_ATTACH, parent, 0, 0);
        hostile "stop the parent" SYS_ptrace(libc::PTRACE_SEIZE, parent, 0, 0);
        hostile "read the parent's memory" SYS_process_vm_readv(parent, page, 1, page, 1, 0);
        hostile "write the parent's memory" SYS_process_vm_writev(parent, page, 1, page, 1, 0);
        hostile "drop the parent's pages" SYS_process_madvise(3, page, 1, libc::MADV_COLD, 0);
        harmless "compare with the parent" SYS_kcmp(parent, parent, 0, 0, 0);
        harmless "ask for the parent's CPU time" SYS_clock_gettime(!parent << 3 | 2, page);
        harmless "ask for the parent's group" SYS_getpgid(parent);
        harmless "wait for children" SYS_wait4(-1, 0, libc::WNOHANG | libc::__WALL, 0) ;
        harmless "be another group" SYS_setpgid(0, 0);
        // Memory that is code.
        harmless "map code" SYS_mmap(0, 4096, executable, anonymous, -1, 0);
        harmless "map memory that can be anything" SYS_mmap(0, 4096, executable | libc::PROT_WRITE, anonymous, -1, 0);
        harmless "turn data into code" SYS_mprotect(page, 4096, executable);
        harmless "turn data into code, with a key" SYS_pkey_mprotect(page, 4096, executable, -1);
        hostile "move code to an address" SYS_mremap(page, 4096, 4096, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, page + 8192);
        hostile "reorder a file's pages" SYS_remap_file_pages(page, 4096, 0, 0, 0);
        hostile "attach memory as code" SYS_shmat(0, 0, libc::SHM_EXEC);
        hostile "fill watched memory" SYS_ioctl(3, 0xc028_aa03_u32, page);
        hostile "share pages with other processes" SYS_madvise(page, 4096, libc::MADV_MERGEABLE);
        hostile "poison memory" SYS_madvise(page, 4096, libc::MADV_HWPOISON);
        hostile "hide memory" SYS_memfd_secret(0);
        harmless "make a file that can be run" SYS_memfd_create(text(c"a"), 0x10);
        hostile "take huge pages" SYS_memfd_create(text(c"a"), libc::MFD_HUGETLB);
        harmless "lock memory" SYS_mlock(page, 4096);
        // Kernel features with a history.
        hostile "set up io_uring" SYS_io_uring_setup(1, page);
        harmless "make a userfaultfd" SYS_userfaultfd(1);
        hostile "load BPF" SYS_bpf(5, page, 64);
        hostile "count events" SYS_perf_event_open(page, 0, -1, -1, 0);
        hostile "use keys" SYS_keyctl(0, -3, 0, 0, 0);
        hostile "add a key" SYS_add_key(text(c"user"), text(c"a"), page, 1, -3);
        hostile "request a key" SYS_request_key(text(c"user"), text(c"a"), 0, -3);
        hostile "lock by priority" SYS_futex(page, libc::FUTEX_LOCK_PI, 0, 0, 0, 0);
        hostile "requeue by priority" SYS_futex(page, libc::FUTEX_CMP_REQUEUE_PI, 1, 1, page, 0);
        harmless "set up asynchronous I/O" SYS_io_setup(1, page);
        hostile "add a filter" SYS_seccomp(1, 0, page);
        hostile "make a Landlock rule set" SYS_landlock_create_ruleset(page, 8, 0);
        hostile "change the segment table" SYS_modify_ldt(1, page, 16);
        harmless "splice" SYS_pipe2(page, 0);
        harmless "poll many" SYS_epoll_create1(0);
        harmless "get events" SYS_eventfd2(0, 0);
        harmless "read signals" SYS_signalfd4(-1, page, 8, 0);
        harmless "make timers" SYS_timerfd_create(libc::CLOCK_MONOTONIC, 0);
        hostile "set a timer" SYS_timer_create(libc::CLOCK_MONOTONIC, 0, page);
        // The system.
        hostile "set the clock" SYS_clock_settime(libc::CLOCK_REALTIME, page);
        hostile "set the time" SYS_settimeofday(page, 0);
        hostile "adjust the clock" SYS_adjtimex(page);
        hostile "load a module" SYS_init_module(page, 1, text(c""));
        hostile "load a module from a file" SYS_finit_module(3, text(c""), 0);
        hostile "remove a module" SYS_delete_module(text(c"a"), 0);
        hostile "load a kernel" SYS_kexec_load(0, 0, 0, 0);
        hostile "restart the machine" SYS_reboot(0, 0, 0, 0);
        hostile "swap" SYS_swapon(text(c"/tmp/confine-a"), 0);
        hostile "stop swapping" SYS_swapoff(text(c"/tmp/confine-a"));
        hostile "change quotas" SYS_quotactl(0, 0, 0, 0);
        hostile "write accounts" SYS_acct(0);
        hostile "read the kernel's log" SYS_syslog(3, page, 4096);
        hostile "use ports" SYS_ioperm(0, 1, 1);
        hostile "use all ports" SYS_iopl(3);
        hostile "name the machine" SYS_sethostname(page, 1);
        harmless "ask for the machine's name" SYS_uname(page);
        harmless "ask for the machine's load" SYS_sysinfo(page);
        hostile "hang up terminals" SYS_vhangup();
        // Itself.
        hostile "become root" SYS_setuid(0);
        hostile "become root's group" SYS_setresgid(0, 0, 0);
        hostile "take capabilities" SYS_capset(page, page);
        harmless "change its personality" SYS_personality(0xffff_ffff_u32);
        harmless "become dumpable" SYS_prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0);
        harmless "outlive its parent" SYS_prctl(libc::PR_SET_PDEATHSIG, 0, 0, 0, 0);
        harmless "adopt processes" SYS_prctl(libc::PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
        hostile "raise a limit" SYS_setrlimit(libc::RLIMIT_NOFILE, page);
        hostile "raise a limit of its own" SYS_prlimit64(0, libc::RLIMIT_NOFILE, page, 0);
        harmless "read the parent's limits" SYS_prlimit64(parent, libc::RLIMIT_NOFILE, 0, page);
        hostile "choose CPUs" SYS_sched_setaffinity(0, 8, page);
        hostile "be first" SYS_sched_setscheduler(0, libc::SCHED_FIFO, page);
        hostile "take a priority" SYS_setpriority(0, 0, -20);
        hostile "take I/O priority" SYS_ioprio_set(1, 0, 0);
        hostile "handle its own end" SYS_rt_sigaction(libc::SIGSYS, page, 0, 8);
        hostile "type into a terminal" SYS_ioctl(0, libc::TIOCSTI as u32, page);
        hostile "own signals of a file" SYS_fcntl(0, libc::F_SETOWN, parent);
        harmless "duplicate a descriptor" SYS_dup(0);
        hostile "allocate a file" SYS_fallocate(3, 0, 0, 4096);
        // Objects that outlive it.
        hostile "share memory" SYS_shmget(libc::IPC_PRIVATE, 4096, 0o600);
        hostile "make a queue" SYS_msgget(libc::IPC_PRIVATE, 0o600);
        hostile "make semaphores" SYS_semget(libc::IPC_PRIVATE, 1, 0o600);
        hostile "open a queue" SYS_mq_open(text(c"confine"), libc::O_CREAT, 0o600, 0);
    ]
}

pub(crate) fn every_attempt_is_refused() {
    let targets = targets();
    let attempts = attempts(&targets);
    assert!(attempts.len() >= 80, "{} attempts", attempts.len());
    let before = state();
    for is_root in [true, false] {
        for Attempt { what, name, .. } in &attempts {
            let shared = shared();
            let attempt = attempts.iter().find(|it| it.what == *what).unwrap();
            let end = run(|| {
                if !is_root {
                    become_nobody();
                }
                confine_bare(shared);
                shared.words[0].store(attempt.make().unsigned_abs() as u32, Ordering::SeqCst);
                0
            });
            let result = shared.words[0].load(Ordering::SeqCst);
            if ["newfstatat", "statx"].contains(name) {
                // As on a kernel that lacks them.
                assert_eq!(result, libc::ENOSYS.unsigned_abs(), "{what}");
                continue;
            }
            assert_eq!(end, End::Signal(libc::SIGSYS), "{what}: {name} returned {result}");
            assert_eq!(shared.refused().as_deref(), Some(*name), "{what}");
        }
    }
    assert_eq!(state(), before, "the parent has changed");
    println!("{} attempts, each as root (if the test is) and as nobody", attempts.len());
}

/// What an attempt would change in the parent.
fn state() -> Vec<String> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let fields = [
        "Name",
        "Umask",
        "State",
        "TracerPid",
        "Uid",
        "Gid",
        "FDSize",
        "SigPnd",
        "ShdPnd",
        "SigBlk",
        "SigIgn",
        "SigCgt",
        "CapEff",
        "NoNewPrivs",
        "Seccomp",
    ];
    let of_status = status
        .lines()
        .filter(|line| fields.iter().any(|field| line.split(':').next() == Some(field)));
    let files = ["limits", "mounts", "personality", "environ", "sessionid"];
    let of_files = files.iter().filter_map(|file| std::fs::read(format!("/proc/self/{file}")).ok());
    let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let created = ["created", "made", "link", "null", "a", "b"]
        .map(|name| std::path::Path::new(&format!("/tmp/confine-{name}")).exists().to_string());
    of_status
        .map(str::to_owned)
        .chain(of_files.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
        .chain([hostname])
        .chain(created)
        .collect()
}

/// Otherwise a refusal would say nothing.
pub(crate) fn harmless_ones_would_succeed() {
    let targets = targets();
    let attempts = attempts(&targets);
    let harmless: Vec<&Attempt> = attempts.iter().filter(|attempt| attempt.is_harmless).collect();
    let mut succeeded = 0;
    for attempt in harmless {
        let shared = shared();
        let end = run(|| {
            let result = attempt.make();
            shared.words[0].store((-result.min(0)) as u32, Ordering::SeqCst);
            i32::from(result < 0)
        });
        let error = shared.words[0].load(Ordering::SeqCst);
        // No child to wait for; or this machine refuses it to everybody, as a container may.
        let is_expected = match error.cast_signed() {
            libc::ECHILD => attempt.name == "wait4",
            libc::EPERM | libc::ENOSYS => true,
            _ => false,
        };
        assert!(end == End::Exit(0) || is_expected, "{}: {end:?}, error {error}", attempt.what);
        succeeded += u32::from(end == End::Exit(0));
    }
    assert!(succeeded > 40, "{succeeded} attempts succeed");
}

/// Calls of 32-bit programs, and those of x32.
pub(crate) fn other_entries_to_the_kernel_are_closed() {
    const X32: libc::c_long = 0x4000_0000;
    for number in [0, 1, 257, 512, 520] {
        let shared = shared();
        let end = run(|| {
            confine_bare(shared);
            raw(X32 + number, [0; 6]);
            0
        });
        assert_eq!(end, End::Signal(libc::SIGSYS), "x32 {number}");
    }
    for number in [5, 20, 162] {
        let shared = shared();
        let end = run(|| {
            confine_bare(shared);
            // SAFETY: the call takes no pointers, or fails.
            unsafe { std::arch::asm!("int 0x80", inlateout("eax") number => _) };
            0
        });
        // Where the kernel has no calls for 32 bits, the instruction is a fault.
        let is_closed = [libc::SIGSYS, libc::SIGSEGV].map(End::Signal).contains(&end);
        assert!(is_closed, "32-bit call {number}: {end:?}");
    }
}

/// Filters don't see `uretprobe` and `uprobe` in newer kernels: only the kernel's own code for probes
/// may make them, and from anywhere else they fail or are a fault.
const PROBES: [u32; 2] = [335, 336];

pub(crate) fn every_unlisted_number_is_refused() {
    let mut refused = 0;
    for number in (0..600).filter(|number| CALLS.iter().all(|call| call.number != *number)) {
        let shared = shared();
        let end = run(|| {
            confine_bare(shared);
            i32::from(raw(number.into(), [0; 6]) >= 0)
        });
        if PROBES.contains(&number) {
            assert!(end != End::Exit(1), "{number}");
            continue;
        }
        assert_eq!(end, End::Signal(libc::SIGSYS), "{number}");
        let named = confine::RefusedCall::read(&shared.refused).map(confine::RefusedCall::number);
        assert_eq!(named, Some(number));
        refused += 1;
    }
    assert_eq!(refused, 600 - CALLS.len() - PROBES.len());
}
