"""Functions of Python's library that the build lacks.

A fact that a program asks for has the answer of a machine with one process. A function that can't
work is there, too, so that programs can import, look up and mock it; calling it raises an `OSError`
that says why. What is missing beyond that is added to the tables at the end.
"""

import _thread
import errno
import functools
import operator
import os
import sys
import time

from hatchery import _dates, _frames, _paths, _waits
from hatchery._host import bridge
from hatchery._packages import _NO_NETWORK
from hatchery._packages import _NO_PROCESSES as NO_PROCESSES
from hatchery._wire import DUPLICATE

NO_NETWORK = f"{_NO_NETWORK}: give the program its data beforehand, such as files"
NO_TERMINAL = "the sandbox has no terminal"
NO_OTHERS = "the sandbox has one user, who owns every file"
# The owner of every file here, according to `stat`, and what `os.getpid` says elsewhere.
OWNER, OWNER_NAME = 0, "root"
# What programs see of the disk: the default of the limit on files (`Limits::file_bytes` and `file_count`).
DISK_BYTES, DISK_FILES, BLOCK = 256 << 20, 10_000, 4096
# Where programs can write.
WRITABLE = ("/workspace", "/tmp", "/home")
PORTS = {
    "ftp": 21, "ssh": 22, "telnet": 23, "smtp": 25, "domain": 53, "http": 80, "pop3": 110, "ntp": 123,
    "imap": 143, "ldap": 389, "https": 443, "imaps": 993, "pop3s": 995, "mysql": 3306, "postgresql": 5432,
}
PROTOCOLS = {"ip": 0, "icmp": 1, "tcp": 6, "udp": 17, "ipv6": 41}


def refusal(name, reason):
    """Returns a function that can't work."""

    def refused(*args, **kwargs):
        raise OSError(errno.ENOSYS, reason)

    refused.__name__ = refused.__qualname__ = name
    return refused


def answer(value):
    return lambda *args: value


def entry(entries, field, kind, value, what):
    """Returns what `pwd` or `grp` knows of a user or a group."""
    if not isinstance(value, kind):
        raise TypeError(f"argument must be {kind.__name__}, not {type(value).__name__}")
    for one in entries:
        if one[field] == value:
            return one
    raise KeyError(f"{what} not found: {value!r}")


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


def system(command):
    from hatchery import _subprocess

    return _subprocess.system(command)


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


def nameless(*flags):
    """Returns descriptors of a file without a name, one of them opened with each of the flags."""
    import tempfile

    descriptor, path = tempfile.mkstemp()
    try:
        return descriptor, *(os.open(path, flag) for flag in flags)
    finally:
        os.unlink(path)


def pipe(flags=0):
    """Returns both ends of a pipe, which is a file: it ends where nothing is left to read."""
    write, read = nameless(os.O_RDONLY)
    return read, write


# In place of a descriptor: asks for the host's number of the one that was synchronised last.
SYNCED = -2


def duplicate(fd, to=-1):
    """Returns a copy of a descriptor of the host, which the build's C library can't make."""
    numbers = fd.to_bytes(4, "little", signed=True) + to.to_bytes(4, "little", signed=True)
    copy = int.from_bytes(bridge._call(DUPLICATE + numbers), "little", signed=True)
    if copy < 0:
        raise OSError(-copy, os.strerror(-copy))
    return copy


def host_number(fd):
    try:
        os.fsync(fd)
    except OSError:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None
    return duplicate(SYNCED)


@functools.cache
def renumbers():
    """Whether the build numbers descriptors in its own way, as one does that has files inside."""
    file = os.open(os.devnull, os.O_RDONLY)
    try:
        return host_number(file) != file
    finally:
        os.close(file)


def dup(fd, /):
    if not renumbers():
        return duplicate(operator.index(fd))
    copy = os.open(os.devnull, os.O_RDONLY)
    try:
        duplicate(host_number(fd), host_number(copy))
    except OSError:
        os.close(copy)
        raise
    return copy


def dup2(fd, fd2, inheritable=True):
    if operator.index(fd2) < 0:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    if not renumbers():
        return duplicate(operator.index(fd), fd2)
    # Such a build chooses its numbers, so `fd2` has to be open.
    duplicate(host_number(fd), host_number(fd2))
    return fd2


def sched_setaffinity(pid, mask):
    if 0 not in map(operator.index, mask):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


def readv(fd, buffers):
    total = 0
    for buffer in map(memoryview, buffers):
        read = os.read(fd, buffer.nbytes)
        buffer.cast("B")[: len(read)] = read
        total += len(read)
        if len(read) < buffer.nbytes:
            break
    return total


def sendfile(out_fd, in_fd, offset, count):
    # Copies a part, as Linux may: a program may ask for more than its memory holds.
    count = min(count, 8 << 20)
    data = os.read(in_fd, count) if offset is None else os.pread(in_fd, count, offset)
    return os.write(out_fd, data)


def posix_fallocate(fd, offset, len):
    os.ftruncate(fd, max(os.fstat(fd).st_size, offset + len))


class Clocks:
    """Functions of `time` for the clocks of CPU time, which the C library doesn't name.

    There, a clock is a pointer to its number (wasi-libc's `struct __clockid`).
    """

    OF_CPU = 2, 3  # Linux's numbers of `CLOCK_PROCESS_CPUTIME_ID` and `CLOCK_THREAD_CPUTIME_ID`
    NUMBER = (2).to_bytes(4, "little")  # WASI's number of the first one

    def __init__(self, module):
        if sys.platform == "wasi":
            clock = id(self.NUMBER) + bytes.__basicsize__ - 1
            for unit in ("", "_ns"):
                read = functools.partial(getattr(module, f"clock_gettime{unit}"), clock)
                cpu = _paths.like(getattr(module, f"process_time{unit}"), read)
                for name in ("process_time", "thread_time"):
                    setattr(module, name + unit, cpu)
        for name, cpu in {
            "clock_gettime": module.process_time, "clock_gettime_ns": module.process_time_ns,
            "clock_getres": lambda: time.get_clock_info("process_time").resolution,
        }.items():
            setattr(module, name, self.reading(getattr(module, name), cpu))
        module.get_clock_info = self.describing(module.get_clock_info)

    def reading(self, plain, cpu):
        return _paths.like(plain, lambda clk_id, /: cpu() if clk_id in self.OF_CPU else plain(clk_id))

    def describing(self, plain):
        return _paths.like(plain, lambda name, /: plain("process_time" if name == "thread_time" else name))


def tzset():
    if os.environ.get("TZ", "UTC").strip(":") not in ("", "UTC", "UTC0", "GMT", "GMT0", "Etc/UTC"):
        raise OSError(errno.ENOSYS, "the sandbox's local time is UTC: use zoneinfo for other zones")


def looked_up(numbers, what):
    def look_up(name, protocol=None):
        if name not in numbers:
            raise OSError(f"{what} not found")
        return numbers[name]

    return look_up


# What programs see of this process and its machine, by module.
FACTS = {
    "os": {
        **dict.fromkeys(("getuid", "geteuid", "getgid", "getegid"), answer(OWNER)),
        **dict.fromkeys(("getresuid", "getresgid"), answer((OWNER,) * 3)),
        **dict.fromkeys(("getpgrp", "getpgid", "getsid", "getppid"), answer(1)),
        **dict.fromkeys(("wait", "waitpid", "wait3", "wait4", "waitid"), no_children),
        **dict.fromkeys(("setuid", "setgid", "seteuid", "setegid", "setreuid", "setregid"), own),
        "chown": chown, "lchown": chown, "fchown": lambda fd, uid, gid: own(uid, gid), "kill": kill, "nice": nice, "statvfs": statvfs,
        "fstatvfs": statvfs, "pipe": pipe, "pipe2": pipe, "memfd_create": lambda name, flags=0: nameless()[0],
        "readv": readv, "writev": lambda fd, buffers: os.write(fd, b"".join(buffers)), "sendfile": sendfile,
        "posix_fallocate": posix_fallocate, "lockf": lambda fd, command, len: os.fstat(fd) and None,
        "F_ULOCK": 0, "F_LOCK": 1, "F_TLOCK": 2, "F_TEST": 3, "get_terminal_size": get_terminal_size, "getgroups": answer([OWNER]),
        "getloadavg": answer((0.0, 0.0, 0.0)), "sched_getaffinity": lambda pid: {0}, "sched_setaffinity": sched_setaffinity, "sched_yield": answer(None),
        **dict.fromkeys(("sched_get_priority_max", "sched_get_priority_min", "sched_getscheduler"), answer(0)),
        "SCHED_OTHER": 0, "SCHED_FIFO": 1, "SCHED_RR": 2, "SCHED_BATCH": 3, "SCHED_IDLE": 5, "PRIO_PROCESS": 0,
        "PRIO_PGRP": 1, "PRIO_USER": 2, "setpriority": lambda which, who, priority: nice(priority - nice(0)) and None,
        "register_at_fork": lambda *, before=None, after_in_child=None, after_in_parent=None: None,
        "getrandom": lambda size, flags=0: os.urandom(size), "getpriority": lambda which, who: nice(0), "sync": answer(None),
        "umask": Mask(), "system": system, "WNOHANG": 1, "WUNTRACED": 2, "WEXITED": 4, "WSTOPPED": 2, "WCONTINUED": 8, "WNOWAIT": 1 << 24,
        "P_WAIT": 0, "P_NOWAIT": 1, "P_NOWAITO": 1, "P_ALL": 0, "P_PID": 1, "P_PGID": 2, "waitstatus_to_exitcode": exit_code,
        "WIFEXITED": lambda status: status & 0x7F == 0, "WEXITSTATUS": lambda status: status >> 8 & 0xFF,
        "WIFSIGNALED": lambda status: 0 < status & 0x7F < 0x7F, "WTERMSIG": lambda status: status & 0x7F,
        "WCOREDUMP": lambda status: status & 0x80 != 0, "WIFSTOPPED": lambda status: status & 0xFF == 0x7F,
        "WSTOPSIG": lambda status: status >> 8 & 0xFF, "WIFCONTINUED": lambda status: status == 0xFFFF,
    },
    "time": {"thread_time": time.process_time, "thread_time_ns": time.process_time_ns, "tzset": tzset},
    "_thread": {"get_native_id": os.getpid},
    "socket": {
        "AF_UNIX": 1, "SOCK_RAW": 3, "SO_DEBUG": 1, "SO_REUSEADDR": 2, "SO_ERROR": 4, "SO_DONTROUTE": 5,
        "SO_BROADCAST": 6, "SO_SNDBUF": 7, "SO_RCVBUF": 8, "SO_KEEPALIVE": 9, "SO_OOBINLINE": 10, "SO_LINGER": 13,
        "SO_REUSEPORT": 15, "SO_RCVTIMEO": 20, "SO_SNDTIMEO": 21, "MSG_OOB": 1, "MSG_DONTROUTE": 4,
        "MSG_DONTWAIT": 0x40, "MSG_NOSIGNAL": 0x4000, "if_nameindex": answer([(1, "lo")]),
        "getservbyname": looked_up(PORTS, "service/proto"),
        "getservbyport": looked_up({port: name for name, port in PORTS.items()}, "port/proto"),
        "getprotobyname": looked_up(PROTOCOLS, "protocol"),
    },
}
# The functions that can't work, by module and reason.
REFUSED = {
    "os": {
        NO_PROCESSES: "fork forkpty execv execve execl execle execlp execlpe execvp execvpe killpg"
        " posix_spawn posix_spawnp spawnl spawnle spawnlp spawnlpe spawnv spawnve spawnvp spawnvpe setsid"
        " setpgid pidfd_open",
        # Not `mkfifo` and `mknod`: where they are there, `tarfile` fails for members that need them.
        NO_TERMINAL: "getlogin ttyname openpty ctermid tcgetpgrp tcsetpgrp",
        NO_OTHERS: "setgroups initgroups chroot",
    },
    "asyncio": {NO_NETWORK: "open_unix_connection start_unix_server"},
}
# The same for functions that are there, and fail without saying why (`_processes.py`).
FAILING = {
    "multiprocessing.process": ("BaseProcess", "start"),
    "multiprocessing.context": (
        "BaseContext", "Barrier BoundedSemaphore Condition Event JoinableQueue Lock Manager Pipe Pool Queue RLock"
        " Semaphore SimpleQueue"
    ),
    "concurrent.futures.process": ("ProcessPoolExecutor", "__init__"),
}
# The modules that have the transports of clients of HTTP where there is JavaScript, by client.
FETCHING = {"httpx": "httpx._transports.jsfetch", "httpx2": "httpx2_jsfetch"}


def adapt(module):
    """Adds what a module lacks."""
    names = dict(FACTS.get(module.__name__, ()))
    for reason, refused in REFUSED.get(module.__name__, {}).items():
        names |= {name: refusal(name, reason) for name in refused.split()}
    for name, value in names.items():
        if not hasattr(module, name):
            setattr(module, name, value)
    kind, failing = FAILING.get(module.__name__, ("", ""))
    if hasattr(module, kind):
        for name in failing.split():
            setattr(getattr(module, kind), name, refusal(name, NO_PROCESSES))


def adapt_pathlib(module):
    """Lets paths know their owners, if CPython imported the module before it could find `pwd`."""
    if getattr(module, "pwd", "") is not None:
        return

    def owner(self, *, follow_symlinks=True):
        import pwd

        return pwd.getpwuid(self.stat(follow_symlinks=follow_symlinks).st_uid).pw_name

    def group(self, *, follow_symlinks=True):
        import grp

        return grp.getgrgid(self.stat(follow_symlinks=follow_symlinks).st_gid).gr_name

    module.Path.owner, module.Path.group = owner, group


def install():
    adapt_pathlib(sys.modules.get("pathlib"))
    for other in (_frames, _dates, _paths):
        other.install()
    for name in ("os", "time", "_thread"):
        adapt(__import__(name))
    try:
        os.close(os.dup(1))
    except (AttributeError, OSError):
        os.dup, os.dup2 = dup, dup2
    if not hasattr(time, "CLOCK_PROCESS_CPUTIME_ID"):
        time.CLOCK_PROCESS_CPUTIME_ID, time.CLOCK_THREAD_CPUTIME_ID = Clocks.OF_CPU
        time.CLOCK_MONOTONIC_RAW = time.CLOCK_BOOTTIME = time.CLOCK_MONOTONIC
        Clocks(time)
    # Modules pass it to `os.register_at_fork`.
    for lock in (_thread.LockType, _thread.RLock):
        if not hasattr(lock, "_at_fork_reinit"):
            _waits.put(lock, {"_at_fork_reinit": refusal("_at_fork_reinit", NO_PROCESSES)})
    if sys.platform == "emscripten":
        without_javascript()
    time.sleep = _waits.sleep
    # There is no executable, which Python expresses by an empty string: programs that would read or
    # start it do without.
    sys.executable = ""


def without_javascript():
    """Lets libraries do without JavaScript, which builds by Emscripten usually have."""
    # With it, urllib3 would ask JavaScript instead of the module `socket`.
    module = sys.modules["urllib3.contrib.emscripten"] = type(sys)("urllib3.contrib.emscripten")
    module.inject_into_urllib3 = answer(None)
    for client, name in FETCHING.items():
        module = sys.modules[name] = type(sys)(name)
        module.__getattr__ = functools.partial(by_sockets, client)


def by_sockets(client, name):
    """Returns a client's transport over sockets in place of one that asks JavaScript."""
    if "JavascriptFetch" not in name:
        raise AttributeError(name)
    transports = __import__(f"{client}._transports.default", fromlist=["default"])
    return getattr(transports, name.replace("JavascriptFetch", "HTTP"))


def adapt_ctypes(module):
    """Gives the class of libraries, which loads none here, the attributes by which tests imitate it."""
    kind = getattr(module, "CDLL", None)
    if isinstance(kind, type) and not hasattr(kind, "_name"):
        kind._name, kind._handle = "<uninitialized>", 0


ADAPT = {"asyncio": adapt, "ctypes": adapt_ctypes}
