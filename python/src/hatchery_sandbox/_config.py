"""What a pool is started with."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hatchery_sandbox._connection import Connection, SocketConnection
from hatchery_sandbox._functions import Functions
from hatchery_sandbox._job import Limits, given_limits
from hatchery_sandbox._process import ChildProcess, find_binary

PathLike = os.PathLike[str]
Isolation = Literal["threads", "process", "process-strict"]

_QUEUE = 10_000
"""Jobs that may wait in a server by default."""
_MOST_WINDOW = 4096

# The limits of the command line that are sizes, and so need a unit there.
_SIZES = frozenset(("memory", "output", "file_bytes", "source", "result", "display_bytes"))
_TIMES = frozenset(("cpu_time", "grace"))
# Those that only jobs have.
_OF_JOBS = frozenset(
    (
        "threads",
        "network_bytes",
        "function_calls",
        "functions_in_flight",
        "function_argument_bytes",
        "function_result_bytes",
        "result_data",
    )
)


@dataclass(frozen=True)
class SessionSettings:
    """Limits for sessions; `None` leaves a setting at its default."""

    open: int | None = None
    """How many may be open; further ones are refused. Default: 10,000."""
    in_memory: int | None = None
    """How many may be in memory; the longest idle ones beyond that go to disk. Default: 2,000."""
    disk_bytes: int | None = None
    """How much those on disk may take, compressed. Default: 8 GiB."""
    close_after: float | None = None
    """Seconds after which an idle one is closed. Default: never."""


@dataclass(frozen=True)
class PoolConfig:
    """What a pool is started with: all that is pickled of it."""

    workers: int | tuple[int, int] | None = None
    queue: int | None = None
    preload: tuple[str, ...] = ()
    setup: str | None = None
    packages: tuple[str, ...] = ()
    packages_common: bool = False
    requirements: tuple[str, ...] = ()
    package_index: str | None = None
    timeout: float | None = None
    limits: Limits | None = None
    python: str | None = None
    pythons: tuple[tuple[str, str], ...] = ()
    binary: str | None = None
    isolation: str | None = None
    mounts: tuple[tuple[str, str], ...] = ()
    allow_connect: tuple[str, ...] = ()
    egress: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    http_roots: tuple[str, ...] = ()
    sessions: SessionSettings | None = None
    socket: str | None = None
    functions: Functions = field(default=(), hash=False)

    def __post_init__(self) -> None:
        if self.sessions is not None and not isinstance(self.sessions, SessionSettings):
            kind = type(self.sessions).__name__
            raise TypeError(f"sessions must be SessionSettings(…), not {kind}")
        if self.workers is not None and not _is_range(self.workers):
            raise ValueError(
                "workers must be a number from 1, or the least and the most, such as (1, 8), not "
                f"{self.workers!r}"
            )
        self.arguments()  # raises where the pool is made, not where it starts
        if self.queue is not None and self.queue < 1:
            raise ValueError(f"queue must be at least 1, not {self.queue}: no job could run")

    @property
    def job_limits(self) -> dict[str, Any]:
        """The limits that the server takes with each job."""
        limits = given_limits(self.limits)
        return {name: limits[name] for name in limits.keys() & _OF_JOBS}

    def connect(self) -> Connection:
        """Starts a server, or connects to one."""
        if self.socket is not None:
            return SocketConnection(self.socket)
        return ChildProcess([find_binary(self.binary), *self.arguments()])

    def arguments(self) -> list[str]:
        """Returns the arguments of the server."""
        arguments = ["serve", "--stdio"]
        if isinstance(self.workers, tuple):
            arguments.append(f"--workers={self.workers[0]}..{self.workers[1]}")
        elif self.workers is not None:
            arguments.append(f"--workers={self.workers}")
        if self.queue is not None:
            arguments.append(f"--queue={self.queue}")
        for option, values in (
            ("--preload", self.preload),
            ("--package", self.packages),
            ("--packages", ("common",) if self.packages_common else ()),
            ("--requirements", self.requirements),
            ("--package-index", (self.package_index,) if self.package_index else ()),
            ("--setup", (self.setup,) if self.setup else ()),
            ("--python", (self.python,) if self.python else ()),
            ("--python", [f"{name}={path}" for name, path in self.pythons]),
            ("--isolation", (self.isolation,) if self.isolation else ()),
            ("--mount", [f"{folder}={path}" for path, folder in self.mounts]),
            ("--allow-connect", self.allow_connect),
            ("--allow-http", self.egress),
            ("--secret", self.secrets),
            ("--http-root", self.http_roots),
        ):
            # In one argument, since a value may begin as an option does.
            arguments += [f"{option}={value}" for value in values]
        if self.timeout is not None:
            arguments += ["--timeout", _time("timeout", self.timeout)]
        sessions = self.sessions or SessionSettings()
        if sessions.open is not None:
            arguments += ["--sessions", str(sessions.open)]
        if sessions.in_memory is not None:
            arguments += ["--sessions-in-memory", str(sessions.in_memory)]
        if sessions.disk_bytes is not None:
            arguments += ["--sessions-on-disk", f"{sessions.disk_bytes}B"]
        if sessions.close_after is not None:
            arguments += ["--close-sessions-after", _time("close_after", sessions.close_after)]
        for name, value in given_limits(self.limits).items():
            if name in _OF_JOBS:
                continue
            option = f"--{name.replace('_', '-')}"
            if name == "stop_at_output_limit":
                arguments += [option] if value else []
            elif name in _TIMES:
                arguments += [option, _time(name, value)]
            else:
                arguments += [option, f"{value}B" if name in _SIZES else str(value)]
        return arguments

    @property
    def window(self) -> int:
        """How many jobs are sent before one has ended. Others wait in this process, so that the
        server, which others may use, too, doesn't refuse them."""
        queue = _QUEUE if self.queue is None else self.queue
        return max(1, min(queue, _MOST_WINDOW))


def _is_range(workers: int | tuple[int, int]) -> bool:
    ends = workers if isinstance(workers, tuple) else (workers, workers)
    return len(ends) == 2 and all(isinstance(end, int) for end in ends) and 1 <= ends[0] <= ends[1]


def _time(name: str, seconds: float) -> str:
    if not isinstance(seconds, (int, float)):
        raise TypeError(f"{name} must be a number of seconds, not {type(seconds).__name__}")
    if not seconds >= 0 or seconds == float("inf"):
        raise ValueError(f"{name} must be a number of seconds, not {seconds}")
    return f"{round(seconds * 1e9)}ns"


def paths(given: Sequence[str | PathLike] | str | PathLike) -> tuple[str, ...]:
    """Returns one path or several as absolute ones, so that they mean the same in any folder."""
    several = [given] if isinstance(given, (str, os.PathLike)) else given
    return tuple(os.path.abspath(os.fspath(path)) for path in several)


def build(given: str | PathLike) -> str:
    """Returns a build's path as an absolute one, or the name of one that is fetched."""
    name = os.fspath(given)
    return name if name == "pyodide" and not os.path.exists(name) else os.path.abspath(name)
