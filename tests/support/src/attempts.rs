//! What native code in a worker would try, each as a bare system call.
//!
//! Tests of two crates make these attempts: `confine` in children of their own, and `process` in
//! workers of a pool.
#![expect(unsafe_code, reason = "zeroes as a value of a plain structure")]

use std::ffi::{CStr, CString};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use crate::raw::raw;

/// One thing to try.
pub struct Attempt {
    /// What it would do.
    pub what: &'static str,
    /// The system call, by name and number.
    pub name: &'static str,
    number: libc::c_long,
    arguments: Vec<i64>,
    /// Whether it succeeds in a process that isn't confined, and changes nothing there.
    pub is_harmless: bool,
}

impl Attempt {
    /// Makes the system call; errors are negative.
    pub fn make(&self) -> i64 {
        let mut six = [0; 6];
        six[..self.arguments.len()].copy_from_slice(&self.arguments);
        raw(self.number, six)
    }

    /// Returns what is expected where the system call doesn't end the process: it fails as on a kernel
    /// that lacks it.
    pub fn is_missing(&self) -> bool {
        ["newfstatat", "statx"].contains(&self.name)
    }
}

/// Sockets to aim at.
pub struct Listeners {
    tcp: TcpListener,
    _unix: UnixListener,
    path: PathBuf,
}

impl Listeners {
    pub fn open() -> Self {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let path = std::env::temp_dir().join(format!("confine-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let unix = UnixListener::bind(&path).unwrap();
        Self { tcp, _unix: unix, path }
    }

    pub fn port(&self) -> u16 {
        self.tcp.local_addr().unwrap().port()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Things to aim at, in memory that stays until the process ends.
pub struct Targets {
    /// The process to aim at.
    process: i64,
    /// Zeroes, pages of them.
    page: i64,
    inet_address: i64,
    unix_address: i64,
    environment: i64,
    command_line: i64,
    memory: i64,
    descriptors: i64,
}

impl Targets {
    /// Takes a process and the sockets of [`Listeners`].
    pub fn new(process: u32, port: u16, path: &Path) -> Self {
        let inet = libc::sockaddr_in {
            sin_family: libc::AF_INET as u16,
            sin_port: port.to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
            sin_zero: [0; 8],
        };
        // SAFETY: all zeroes are a value of this plain structure.
        let mut unix: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        unix.sun_family = libc::AF_UNIX as u16;
        let bytes = path.as_os_str().as_encoded_bytes();
        unix.sun_path.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from as libc::c_char);
        let file = |name: &str| {
            text(Box::leak(
                CString::new(format!("/proc/{process}/{name}")).unwrap().into_boxed_c_str(),
            ))
        };
        Self {
            process: process.into(),
            page: kept(Aligned { _bytes: [0; 16_384] }),
            inet_address: kept(inet),
            unix_address: kept(unix),
            environment: file("environ"),
            command_line: file("cmdline"),
            memory: file("mem"),
            descriptors: file("fd"),
        }
    }
}

fn text(text: &CStr) -> i64 {
    text.as_ptr().addr() as i64
}

/// Memory that stays until the process ends.
fn kept<T>(value: T) -> i64 {
    std::ptr::from_mut(Box::leak(Box::new(value))).expose_provenance() as i64
}

#[repr(align(4096))]
struct Aligned {
    _bytes: [u8; 16_384],
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
pub fn attempts(targets: &Targets) -> Vec<Attempt> {
    let Targets { process, page, inet_address, unix_address, .. } = *targets;
    let Targets { environment, command_line, memory, descriptors, .. } = *targets;
    let here = libc::AT_FDCWD;
    let passwd = text(c"/etc/passwd");
    let executable = libc::PROT_READ | libc::PROT_EXEC;
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    attempts![
        // Files.
        harmless "open a file" SYS_open(passwd, 0);
        harmless "open a file at a folder" SYS_openat(here, passwd, 0);
        harmless "open a file, with conditions" SYS_openat2(here, passwd, page, 24);
        harmless "read the parent's environment" SYS_openat(here, environment, 0);
        harmless "read the parent's arguments" SYS_openat(here, command_line, 0);
        harmless "open the parent's memory" SYS_openat(here, memory, libc::O_RDWR);
        harmless "list the parent's descriptors" SYS_open(descriptors, libc::O_DIRECTORY);
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
        harmless "signal the parent" SYS_kill(process, 0);
        hostile "kill the parent" SYS_kill(process, libc::SIGKILL);
        hostile "kill everything" SYS_kill(-1, libc::SIGKILL);
        hostile "kill the parent's thread" SYS_tgkill(process, process, libc::SIGKILL);
        hostile "kill a thread" SYS_tkill(process, libc::SIGKILL);
        hostile "queue a signal" SYS_rt_sigqueueinfo(process, libc::SIGKILL, page);
        harmless "get hold of the parent" SYS_pidfd_open(process, 0);
        hostile "signal the parent by descriptor" SYS_pidfd_send_signal(3, libc::SIGKILL, 0, 0);
        hostile "take the parent's descriptor" SYS_pidfd_getfd(3, 0, 0);
        hostile "trace the parent" SYS_ptrace(libc::PTRACE_ATTACH, process, 0, 0);
        hostile "stop the parent" SYS_ptrace(libc::PTRACE_SEIZE, process, 0, 0);
        hostile "read the parent's memory" SYS_process_vm_readv(process, page, 1, page, 1, 0);
        hostile "write the parent's memory" SYS_process_vm_writev(process, page, 1, page, 1, 0);
        hostile "drop the parent's pages" SYS_process_madvise(3, page, 1, libc::MADV_COLD, 0);
        harmless "compare with the parent" SYS_kcmp(process, process, 0, 0, 0);
        harmless "ask for the parent's CPU time" SYS_clock_gettime(!process << 3 | 2, page);
        harmless "ask for the parent's group" SYS_getpgid(process);
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
        harmless "read the parent's limits" SYS_prlimit64(process, libc::RLIMIT_NOFILE, 0, page);
        hostile "choose CPUs" SYS_sched_setaffinity(0, 8, page);
        hostile "be first" SYS_sched_setscheduler(0, libc::SCHED_FIFO, page);
        hostile "take a priority" SYS_setpriority(0, 0, -20);
        hostile "take I/O priority" SYS_ioprio_set(1, 0, 0);
        hostile "handle its own end" SYS_rt_sigaction(libc::SIGSYS, page, 0, 8);
        hostile "type into a terminal" SYS_ioctl(0, libc::TIOCSTI as u32, page);
        hostile "own signals of a file" SYS_fcntl(0, libc::F_SETOWN, process);
        harmless "duplicate a descriptor" SYS_dup(0);
        hostile "allocate a file" SYS_fallocate(3, 0, 0, 4096);
        // Objects that outlive it.
        hostile "share memory" SYS_shmget(libc::IPC_PRIVATE, 4096, 0o600);
        hostile "make a queue" SYS_msgget(libc::IPC_PRIVATE, 0o600);
        hostile "make semaphores" SYS_semget(libc::IPC_PRIVATE, 1, 0o600);
        hostile "open a queue" SYS_mq_open(text(c"confine"), libc::O_CREAT, 0o600, 0);
    ]
}

/// What an attempt would change in the parent.
pub fn state() -> Vec<String> {
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
