"""A server of this process: finds the binary `hatchery`, starts it, and ends it."""

from __future__ import annotations

import fcntl
import importlib.metadata
import logging
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from hatchery_sandbox._connection import Connection, Descriptor, wait_for_room
from hatchery_sandbox._errors import StartError

logger = logging.getLogger("hatchery_sandbox")

BINARY_VARIABLE = "HATCHERY_BINARY"
_NAME = "hatchery"
_RUNTIME = "hatchery-sandbox-runtime"
_PIPE_BYTES = 1 << 20
_KEPT_LINES = 20
_PATIENCE_SECONDS = 1.0
"""How long a start takes before it is worth telling."""
_USAGE = 2
"""The code of a server that couldn't use its arguments."""
_INVALID = re.compile(r"invalid value '(.*)' for '--([a-z-]+)[^']*':?\s*(.*)", re.DOTALL)
_END_SECONDS = 10.0
"""How long a server may take to end after a request."""


def find_binary(explicit: str | os.PathLike[str] | None = None) -> str:
    """Returns the path of the binary: the one given, that of the environment variable
    `HATCHERY_BINARY`, of the runtime's wheel, or on the PATH.

    Raises:
        StartError: There is none.
    """
    for name, path in (("binary=", explicit), (BINARY_VARIABLE, os.environ.get(BINARY_VARIABLE))):
        if path:
            if _is_program(Path(path)):
                return os.fspath(path)
            raise StartError(f"`{os.fspath(path)}`, given by {name}, is not a program")
    for candidate in _installed():
        if _is_program(candidate):
            return str(candidate)
    if found := shutil.which(_NAME):
        return found
    raise StartError(
        f"there is no binary `{_NAME}`: install the wheel {_RUNTIME}, put the binary on the PATH, "
        f"or name it with {BINARY_VARIABLE} or binary=…"
    )


def _installed() -> Iterator[Path]:
    """Yields where the runtime's wheel may have put the binary."""
    try:
        files = importlib.metadata.files(_RUNTIME) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    yield from (Path(str(file.locate())) for file in files if file.name == _NAME)
    # A virtual environment's own scripts; not those of the system, where another `hatchery` may be.
    if sys.prefix != sys.base_prefix:
        yield Path(sysconfig.get_path("scripts"), _NAME)
        yield Path(sys.executable).parent / _NAME


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


class ChildProcess(Connection):
    """A server that this process has started. It ends when this process does, however that ends,
    because its standard input ends then."""

    def __init__(self, command: Sequence[str]) -> None:
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                # Ctrl-C is for this process, which decides what it means for jobs.
                start_new_session=True,
            )
        except OSError as error:
            raise StartError(f"`{command[0]}` can't be started: {error}") from None
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        assert stdin and stdout and stderr, "they are pipes"
        # From here on the descriptors are ours, to be closed without locks after a fork.
        writer, reader, errors = (os.dup(pipe.fileno()) for pipe in (stdin, stdout, stderr))
        for pipe in (stdin, stdout, stderr):
            pipe.close()
        self._process.stdin = self._process.stdout = self._process.stderr = None
        for pipe_end in (writer, reader):
            _enlarge(pipe_end)
        os.set_blocking(writer, False)
        self.descriptor = reader
        # Those that are open: a number that was closed may soon be somebody else's.
        self._writer, self._reader = Descriptor(writer), Descriptor(reader)
        self._errors = _Errors(errors)

    def write(self, data: bytes | memoryview) -> int:
        return os.write(self._writer.number, data)

    def wait_for_room(self) -> None:
        wait_for_room(self._writer.number)

    def end(self) -> None:
        self._writer.close()

    def disturb(self) -> None:
        # By the pid, since `Popen` takes a lock.
        if self._process.returncode is None:
            try:
                os.kill(self._process.pid, 15)
            except ProcessLookupError:
                pass

    def close(self) -> str:
        self.end()
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._reader.close()
        said = self._errors.last()
        if code == _USAGE and said:
            return in_words(said)
        how = f"was killed by signal {-code}" if code < 0 else f"ended with the code {code}"
        return f"the server {how}{': ' if said else ''}{said}"

    def is_ready(self) -> None:
        """Says that the server has started."""
        self._errors.is_starting = False

    def forget(self) -> None:
        for descriptor in (self._writer, self._reader, self._errors.descriptor):
            descriptor.close()
        # It is the parent's child, not this process's.
        self._process.returncode = 0


def in_words(said: str) -> str:
    """Returns what a server said of its arguments last, by the names that they have in Python."""
    begin = max(said.rfind(f"\n{prefix}: ") for prefix in ("hatchery", "error")) + 1
    said = said[begin:].partition(": ")[2].partition("\n\nFor more information")[0]
    if match := _INVALID.fullmatch(said):
        value, option, why = match.groups()
        return f"`{option.replace('-', '_')}` can't be `{value}`: {why.strip('[]')}"
    return said


class _Errors:
    """Reads a server's standard error: tells of a slow start, logs, and keeps the last lines."""

    def __init__(self, descriptor: int) -> None:
        self.is_starting = True
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._started = time.monotonic()
        self.descriptor = Descriptor(descriptor)
        self._thread = threading.Thread(target=self._read, name="hatchery-errors", daemon=True)
        self._thread.start()

    def last(self) -> str:
        """Returns the last lines, once the stream has ended."""
        self._thread.join(_END_SECONDS)
        return "\n".join(self._lines)

    def _read(self) -> None:
        number = self.descriptor.number
        with open(number, encoding="utf-8", errors="replace", closefd=False) as stream:
            for line in stream:
                line = line.rstrip("\n")
                self._lines.append(line)
                logger.info("%s", line)
                if self.is_starting and time.monotonic() - self._started > _PATIENCE_SECONDS:
                    print(line, file=sys.stderr, flush=True)
        self.descriptor.close()


def _enlarge(descriptor: int) -> None:
    """Gives a pipe more room, where the system allows it."""
    size = getattr(fcntl, "F_SETPIPE_SZ", 1031)
    try:
        fcntl.fcntl(descriptor, size, _PIPE_BYTES)
    except OSError:
        pass
