"""Functions of Python's library that the build lacks.

A fact that a program asks for has the answer of a machine with one process. A function that can't
work is there, too, so that programs can import, look up and mock it; calling it raises an `OSError`
that says why. What is missing beyond that is added to the tables at the end.
"""

import _thread
import errno
import operator
import os
import sys
import time

from hatchery import _dates, _frames, _paths
from hatchery._locks import put
from hatchery._packages import _NO_NETWORK
from hatchery._packages import _NO_PROCESSES as NO_PROCESSES

NO_NETWORK = f"{_NO_NETWORK}: give the program its data beforehand, such as files"
NO_ALARM = "the sandbox has no timers that interrupt a program: limit the job's time instead"
NO_TLS = "the build has no TLS, so nothing connects that way"
NO_PIPES = "the sandbox has no pipes and copies no descriptors: use io.BytesIO, a file or a queue"
NO_TERMINAL = "the sandbox has no terminal"
NO_OTHERS = "the sandbox has one user, who owns every file"
# The owner of every file here, according to `stat`, and what `os.getpid` says elsewhere.
OWNER = 0
# What programs see of the disk: the default of the limit on files (`Limits::file_bytes` and `file_count`).
DISK_BYTES, DISK_FILES, BLOCK = 256 << 20, 10_000, 4096
# Where programs can write.
WRITABLE = ("/workspace", "/tmp", "/home")
PORTS = {
    "ftp": 21, "ssh": 22, "telnet": 23, "smtp": 25, "domain": 53, "http": 80, "pop3": 110, "ntp": 123,
    "imap": 143, "ldap": 389, "https": 443, "imaps": 993, "pop3s": 995, "mysql": 3306, "postgresql": 5432,
}
# What classes for TLS take beside what those without take.
OPTIONS = ("context", "ssl_context", "check_hostname", "key_file", "cert_file", "keyfile", "certfile")
PROTOCOLS = {"ip": 0, "icmp": 1, "tcp": 6, "udp": 17, "ipv6": 41}


def refusal(name, reason):
    """Returns a function that can't work."""

    def refused(*args, **kwargs):
        raise OSError(errno.ENOSYS, reason)

    refused.__name__ = refused.__qualname__ = name
    return refused


def answer(value):
    return lambda *args: value


def own(*owners):
    """Accepts the one owner, and -1 for no change."""
    if not set(map(operator.index, owners)) <= {-1, OWNER}:
        raise PermissionError(errno.EPERM, NO_OTHERS)


def chown(path, uid, gid, *, dir_fd=None, follow_symlinks=True):
    os.stat(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
    own(uid, gid)


def kill(pid, signal):
    if operator.index(pid) not in (0, os.getpid()):
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
    if signal:
        import signal as signals

        signals.raise_signal(signal)


def no_children(*args):
    raise ChildProcessError(errno.ECHILD, os.strerror(errno.ECHILD))


class Mask:
    """The mode mask of new files. Files have no modes here, so it is only stored."""

    def __init__(self):
        self.value = 0o022

    def __call__(self, mask):
        before, self.value = self.value, operator.index(mask) & 0o777
        return before


def exit_code(status):
    return -(status & 0x7F) if status & 0x7F else status >> 8 & 0xFF


def nice(increment):
    nice.value = min(max(nice.value + operator.index(increment), -20), 19)
    return nice.value


nice.value = 0


def statvfs(path):
    os.stat(path)
    used = files = 0
    for root in WRITABLE:
        for folder, _, names in os.walk(root):
            files += 1 + len(names)
            used += sum(os.lstat(os.path.join(folder, name)).st_size for name in names)
    free, nodes = max(DISK_BYTES - used, 0) // BLOCK, max(DISK_FILES - files, 0)
    return os.statvfs_result((BLOCK, BLOCK, DISK_BYTES // BLOCK, free, free, DISK_FILES, nodes, nodes, 0, 255))


def get_terminal_size(fd=1):
    raise OSError(errno.ENOTTY, NO_TERMINAL)


def tzset():
    if os.environ.get("TZ", "UTC").strip(":") not in ("", "UTC", "UTC0", "GMT", "GMT0", "Etc/UTC"):
        raise OSError(errno.ENOSYS, "the sandbox's local time is UTC: use zoneinfo for other zones")


def alarm(seconds):
    if seconds:
        raise OSError(errno.ENOSYS, NO_ALARM)
    return 0


def setitimer(which, seconds, interval=0.0):
    alarm(seconds)
    return 0.0, 0.0


def looked_up(numbers, what):
    def look_up(name, protocol=None):
        if name not in numbers:
            raise OSError(f"{what} not found")
        return numbers[name]

    return look_up


def secured(base, name, port):
    """Returns a class that a module has only together with `ssl`. It never connects."""

    def __init__(self, *args, **options):
        base.__init__(self, *args, **{name: options[name] for name in options if name not in OPTIONS})

    def refuse(self, *args, **kwargs):
        raise OSError(errno.ENETUNREACH, NO_NETWORK if is_unconnected() else NO_TLS)

    # The methods with which the modules connect.
    methods = dict.fromkeys(("connect", "_create_socket", "_get_socket"), refuse)
    return type(name, (base,), {
        "__init__": __init__, "__module__": base.__module__, "default_port": port, "port": port, **methods
    })


def is_unconnected():
    import _socket

    return not hasattr(_socket, "socketpair")


# What programs see of this process and its machine, by module.
FACTS = {
    "os": {
        **dict.fromkeys(("getuid", "geteuid", "getgid", "getegid"), answer(OWNER)),
        **dict.fromkeys(("getresuid", "getresgid"), answer((OWNER,) * 3)),
        **dict.fromkeys(("getpgrp", "getpgid", "getsid", "getppid"), answer(1)),
        **dict.fromkeys(("wait", "waitpid", "wait3", "wait4", "waitid"), no_children),
        **dict.fromkeys(("setuid", "setgid", "seteuid", "setegid", "setreuid", "setregid"), own),
        "chown": chown, "lchown": chown, "fchown": lambda fd, uid, gid: own(uid, gid), "kill": kill, "nice": nice, "statvfs": statvfs,
        "fstatvfs": statvfs, "get_terminal_size": get_terminal_size, "getgroups": answer([OWNER]),
        "getloadavg": answer((0.0, 0.0, 0.0)), "sched_getaffinity": lambda pid: {0}, "sched_yield": answer(None),
        "register_at_fork": lambda *, before=None, after_in_child=None, after_in_parent=None: None,
        "getrandom": lambda size, flags=0: os.urandom(size), "getpriority": answer(0), "sync": answer(None),
        "umask": Mask(), "WNOHANG": 1, "P_WAIT": 0, "P_NOWAIT": 1, "waitstatus_to_exitcode": exit_code,
        "WIFEXITED": lambda status: status & 0x7F == 0, "WEXITSTATUS": lambda status: status >> 8 & 0xFF,
        "WIFSIGNALED": lambda status: 0 < status & 0x7F < 0x7F, "WTERMSIG": lambda status: status & 0x7F,
    },
    "time": {"thread_time": time.process_time, "thread_time_ns": time.process_time_ns, "tzset": tzset},
    "signal": {
        "SIGALRM": 14, "ITIMER_REAL": 0, "ITIMER_VIRTUAL": 1, "ITIMER_PROF": 2, "alarm": alarm,
        "setitimer": setitimer, "getitimer": answer((0.0, 0.0)),
    },
    "_thread": {"get_native_id": os.getpid},
    "socket": {
        "getservbyname": looked_up(PORTS, "service/proto"),
        "getservbyport": looked_up({port: name for name, port in PORTS.items()}, "port/proto"),
        "getprotobyname": looked_up(PROTOCOLS, "protocol"),
    },
}
# The functions that can't work, by module and reason.
REFUSED = {
    "os": {
        NO_PROCESSES: "system fork forkpty execv execve execl execle execlp execlpe execvp execvpe killpg"
        " posix_spawn posix_spawnp spawnl spawnle spawnlp spawnlpe spawnv spawnve spawnvp spawnvpe setsid"
        " setpgid pidfd_open",
        # Not `mkfifo` and `mknod`: where they are there, `tarfile` fails for members that need them.
        NO_PIPES: "pipe pipe2 dup dup2",
        NO_TERMINAL: "getlogin ttyname openpty ctermid tcgetpgrp tcsetpgrp",
        NO_OTHERS: "setgroups initgroups chroot",
    },
    "signal": {NO_ALARM: "pause sigwait pthread_sigmask siginterrupt pthread_kill"},
    "asyncio": {NO_NETWORK: "open_unix_connection start_unix_server"},
}
# The same for functions that are there, and fail without saying why.
FAILING = {
    # What `multiprocessing` has is made of these methods.
    "multiprocessing.context": (
        "BaseContext", "Barrier BoundedSemaphore Condition Event JoinableQueue Lock Manager Pipe Pool Queue RLock"
        " Semaphore SimpleQueue"
    ),
    "multiprocessing.process": ("BaseProcess", "start"),
    "concurrent.futures.process": ("ProcessPoolExecutor", "__init__"),
}
# The classes for TLS, by module: what each derives from, and its port.
SECURED = {
    "http.client": ("HTTPSConnection", "HTTPConnection", 443),
    "smtplib": ("SMTP_SSL", "SMTP", 465),
    "imaplib": ("IMAP4_SSL", "IMAP4", 993),
    "poplib": ("POP3_SSL", "POP3", 995),
    "ftplib": ("FTP_TLS", "FTP", 21),
}


def adapt(module):
    """Adds what a module lacks."""
    names = dict(FACTS.get(module.__name__, ()))
    for reason, refused in REFUSED.get(module.__name__, {}).items():
        names |= {name: refusal(name, reason) for name in refused.split()}
    name, base, port = SECURED.get(module.__name__, ("", "", 0))
    if hasattr(module, base) and not hasattr(module, name):
        names[name] = secured(getattr(module, base), name, port)
        if name == "HTTPSConnection":
            # `urllib.request` asks it for the handler of such addresses.
            module._create_https_context = answer(None)
    for name, value in names.items():
        if not hasattr(module, name):
            setattr(module, name, value)
    kind, failing = FAILING.get(module.__name__, ("", ""))
    if hasattr(module, kind):
        for name in failing.split():
            setattr(getattr(module, kind), name, refusal(name, NO_PROCESSES))


def install():
    for other in (_frames, _dates, _paths):
        other.install()
    for name in ("os", "time", "_thread"):
        adapt(__import__(name))
    # Modules pass it to `os.register_at_fork`.
    for lock in (_thread.LockType, _thread.RLock):
        if not hasattr(lock, "_at_fork_reinit"):
            put(lock, {"_at_fork_reinit": refusal("_at_fork_reinit", NO_PROCESSES)})
    if "signal" in sys.modules:
        adapt(sys.modules["signal"])
    # There is no executable, which Python expresses by an empty string: programs that would read or
    # start it do without.
    sys.executable = ""


def adapt_ctypes(module):
    """Gives the class of libraries, which loads none here, the attributes by which tests imitate it."""
    kind = getattr(module, "CDLL", None)
    if isinstance(kind, type) and not hasattr(kind, "_name"):
        kind._name, kind._handle = "<uninitialized>", 0


ADAPT = dict.fromkeys(("asyncio", "signal", *SECURED, *FAILING), adapt) | {"ctypes": adapt_ctypes}
