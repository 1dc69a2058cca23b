"""What psutil asks of a platform: the sandbox, with one process and one processor.

Its memory is WebAssembly's: at most 4 GiB, of which a job's limit may leave less. What isn't known is
refused as access to it.
"""

import collections
import enum
import functools
import os
import resource
import sys
import threading
import time
import types

from . import _ntuples as ntp
from ._common import STATUS_RUNNING, AccessDenied, NoSuchProcess, usage_percent
from ._psposix import disk_usage  # part of the platform

__extra__all__ = ["PROCFS_PATH", "IOPRIO_CLASS_NONE", "IOPRIO_CLASS_RT", "IOPRIO_CLASS_BE", "IOPRIO_CLASS_IDLE"]
IOPriority = enum.IntEnum("IOPriority", "IOPRIO_CLASS_NONE IOPRIO_CLASS_RT IOPRIO_CLASS_BE IOPRIO_CLASS_IDLE", start=0)
globals().update(IOPriority.__members__)
AF_LINK = 17
_MEMORY_BYTES = 4 << 30
ntp.scputimes = collections.namedtuple(
    "scputimes", "user nice system idle iowait irq softirq steal guest guest_nice"
)
cext = types.SimpleNamespace(version=722, check_pid_range=lambda pid: pid.to_bytes(4, signed=True), set_debug=bool)


def _used_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _idle_time():
    return max(0.0, time.clock_gettime(time.CLOCK_MONOTONIC) - time.process_time() - _ahead)


# By how much CPU time is ahead: it began before the clock.
_ahead = min(0.0, time.clock_gettime(time.CLOCK_MONOTONIC) - time.process_time())


def pids():
    return [os.getpid()]


def pid_exists(pid):
    return pid == os.getpid()


def ppid_map():
    return {os.getpid(): os.getppid()}


def virtual_memory():
    used = min(_used_bytes(), _MEMORY_BYTES)
    free = _MEMORY_BYTES - used
    return ntp.svmem(_MEMORY_BYTES, free, usage_percent(used, _MEMORY_BYTES, round_=1), used, free, *[0] * 6)


def swap_memory():
    return ntp.sswap(0, 0, 0, 0.0, 0, 0)


def cpu_times():
    return ntp.scputimes(time.process_time(), 0.0, 0.0, _idle_time(), *[0.0] * 6)


def per_cpu_times():
    return [cpu_times()]


def cpu_count_logical():
    return os.cpu_count()


def cpu_count_cores():
    return os.cpu_count()


def cpu_stats():
    return ntp.scpustats(0, 0, 0, 0)


def boot_time():
    return time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)


def _nothing(*arguments, **named):
    """There are no devices, partitions, networks and users."""
    return []


cpu_freq = disk_partitions = net_connections = net_if_addrs = users = _nothing


def _no_counters(*arguments, **named):
    return {}


disk_io_counters = net_io_counters = net_if_stats = _no_counters


def _refused(what):
    def method(self, *arguments, **named):
        raise AccessDenied(self.pid, msg=f"the sandbox has no {what}")

    return method


def _of_running(function):
    @functools.wraps(function)
    def method(self, *arguments, **named):
        if not pid_exists(self.pid):
            raise NoSuchProcess(self.pid)
        return function(self, *arguments, **named)

    return method


class Process:
    __slots__ = ("_cache", "_name", "_ppid", "pid")

    def __init__(self, pid):
        self.pid, self._name, self._ppid = pid, None, None

    def oneshot_enter(self):
        pass

    oneshot_exit = oneshot_enter
    cpu_affinity_set = _refused("choice of processors")
    io_counters = _refused("counters of input and output")
    ionice_get = ionice_set = nice_set = _refused("priorities")
    memory_maps = _refused("maps of memory")
    num_ctx_switches = _refused("counters of switches")
    open_files = _refused("list of open files")
    wait = _refused("processes to wait for")

    @_of_running
    def create_time(self, monotonic=False):
        return 0.0 if monotonic else boot_time()

    @_of_running
    def memory_info(self):
        used = _used_bytes()
        return ntp.pmem(used, used, 0, 0, 0, used, 0)

    def memory_full_info(self):
        memory = self.memory_info()
        return ntp.pfullmem(*memory, memory.rss, memory.rss, 0)

    @_of_running
    def cmdline(self):
        return ["python", *sys.argv]

    def threads(self):
        times = self.cpu_times()
        return [ntp.pthread(thread.native_id, times.user, 0.0) for thread in threading.enumerate()]


for _name, _answer in {
    "name": lambda: "python",
    "exe": lambda: "",
    "ppid": os.getppid,
    "status": lambda: STATUS_RUNNING,
    "cwd": os.getcwd,
    "cpu_times": lambda: ntp.pcputimes(time.process_time(), 0.0, 0.0, 0.0, 0.0),
    "cpu_num": lambda: 0,
    "cpu_affinity_get": lambda: [0],
    "environ": lambda: dict(os.environ),
    "gids": lambda: ntp.pgids(os.getgid(), os.getegid(), os.getegid()),
    "uids": lambda: ntp.puids(os.getuid(), os.geteuid(), os.geteuid()),
    "net_connections": lambda kind="inet": [],
    "nice_get": lambda: 0,
    "num_fds": lambda: len(os.listdir("/dev/fd")),
    "num_threads": threading.active_count,
    "terminal": lambda: None,
}.items():
    setattr(Process, _name, _of_running(lambda self, *arguments, _answer=_answer: _answer(*arguments)))
