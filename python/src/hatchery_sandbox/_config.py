"""What a pool is started with."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from hatchery_sandbox._connection import Connection, SocketConnection
from hatchery_sandbox._functions import Functions
from hatchery_sandbox._job import Limits
from hatchery_sandbox._process import ChildProcess, find_binary

PathLike = os.PathLike[str]

_QUEUE = 10_000
"""Jobs that may wait in a server, unless it is told another number."""
_MOST_WINDOW = 4096

# The limits of the command line that are sizes, and so need a unit there.
_SIZES = frozenset(("memory", "output", "file_bytes", "source", "result", "display_bytes"))
_TIMES = frozenset(("cpu_time", "grace"))


@dataclass(frozen=True)
class PoolConfig:
    """What a pool is started with: all that is pickled of it."""

    workers: int | tuple[int, int] | None = None
    queue: int | None = None
    preload: tuple[str, ...] = ()
    setup: str | None = None
    packages: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    timeout: float | None = None
    limits: Limits | None = None
    python: str | None = None
    pythons: tuple[tuple[str, str], ...] = ()
    binary: str | None = None
    socket: str | None = None
    functions: Functions = field(default=(), hash=False)

    def connect(self) -> Connection:
        """Starts a server, or connects to one."""
        if self.socket is not None:
            return SocketConnection(self.socket)
        return ChildProcess([find_binary(self.binary), *self.arguments()])

    def arguments(self) -> list[str]:
        """Returns the arguments of the server."""
        arguments = ["serve", "--stdio"]
        if isinstance(self.workers, tuple):
            arguments += ["--workers", f"{self.workers[0]}..{self.workers[1]}"]
        elif self.workers is not None:
            arguments += ["--workers", str(self.workers)]
        if self.queue is not None:
            arguments += ["--queue", str(self.queue)]
        for option, values in (
            ("--preload", self.preload),
            ("--package", self.packages),
            ("--requirements", self.requirements),
            ("--setup", (self.setup,) if self.setup else ()),
            ("--python", (self.python,) if self.python else ()),
            ("--python", [f"{name}={path}" for name, path in self.pythons]),
        ):
            for value in values:
                arguments += [option, value]
        if self.timeout is not None:
            arguments += ["--timeout", _time("timeout", self.timeout)]
        for name, value in (self.limits or Limits()).given().items():
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


def _time(name: str, seconds: float) -> str:
    if not seconds >= 0 or seconds == float("inf"):
        raise ValueError(f"{name} must be a number of seconds, not {seconds}")
    return f"{round(seconds * 1e9)}ns"


def paths(given: Sequence[str | PathLike] | str | PathLike) -> tuple[str, ...]:
    """Returns one path or several as absolute ones, so that they mean the same in any folder."""
    several = [given] if isinstance(given, (str, os.PathLike)) else given
    return tuple(os.path.abspath(os.fspath(path)) for path in several)
