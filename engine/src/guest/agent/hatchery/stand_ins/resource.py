"""What the program has used, and limits that are only stored: those of the job apply.

The numbers are Linux's.
"""

import collections
import time

RLIMITS = "CPU FSIZE DATA STACK CORE RSS NPROC NOFILE MEMLOCK AS LOCKS SIGPENDING MSGQUEUE NICE RTPRIO RTTIME".split()
globals().update({f"RLIMIT_{name}": number for number, name in enumerate(RLIMITS) if name != "LOCKS"})
RLIMIT_OFILE = RLIMIT_NOFILE
RLIM_INFINITY = -1
RUSAGE_SELF, RUSAGE_CHILDREN, RUSAGE_THREAD = 0, -1, 1
PAGE_BYTES = 4096

error = OSError
_FIELDS = "utime stime maxrss ixrss idrss isrss minflt majflt nswap inblock oublock msgsnd msgrcv nsignals nvcsw nivcsw"
struct_rusage = collections.namedtuple(
    "struct_rusage", [f"ru_{name}" for name in _FIELDS.split()], module="resource"
)
_limits = [(RLIM_INFINITY, RLIM_INFINITY)] * len(RLIMITS)
_most_kibibytes = 0


def getrusage(who, /):
    global _most_kibibytes
    if who not in (RUSAGE_SELF, RUSAGE_CHILDREN, RUSAGE_THREAD):
        raise ValueError("invalid who parameter")
    if who == RUSAGE_CHILDREN:
        return struct_rusage(0.0, 0.0, *[0] * 14)
    # The memory begins at address 0, and a large block is beyond the small ones.
    _most_kibibytes = max(_most_kibibytes, id(bytes(1 << 20)) >> 10)
    return struct_rusage(time.process_time(), 0.0, _most_kibibytes, *[0] * 13)


def getpagesize():
    return PAGE_BYTES


def getrlimit(resource, /):
    if not 0 <= resource < len(_limits):
        raise ValueError("invalid resource specified")
    return _limits[resource]


def setrlimit(resource, limits, /):
    getrlimit(resource)
    soft, hard = map(int, limits)
    if hard != RLIM_INFINITY and not 0 <= soft <= hard:
        raise ValueError("current limit exceeds maximum limit")
    _limits[resource] = soft, hard


def prlimit(pid, resource, limits=None, /):
    before = getrlimit(resource)
    if limits is not None:
        setrlimit(resource, limits)
    return before
