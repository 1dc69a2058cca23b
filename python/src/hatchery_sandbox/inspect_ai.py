"""A sandbox of Inspect AI: evaluations run the Python that models write, with `sandbox="hatchery"`.

There is no shell and no other program: commands are `python` and `python3` with `-c CODE`, `FILE`,
`-m MODULE` or `-`, the same in `bash --login -c "python3 -"`, and ten small ones for files, such as
`rm`. Each runs in a fresh interpreter; the files of a sample stay.

`sandbox=("hatchery", "numpy,pandas")` names modules to import beforehand.
"""

from __future__ import annotations

import errno
import posixpath
import shlex
from collections.abc import Callable
from typing import Any

import anyio
from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentLimits,
    SandboxUserUnsupportedError,
    sandboxenv,
)

from hatchery_sandbox._async import AsyncPool
from hatchery_sandbox._errors import PoolError
from hatchery_sandbox._job import Limits
from hatchery_sandbox._outcome import Outcome

_MOST_OUTPUT_BYTES = 10 << 20
_MOST_SECONDS = 86400.0
"""The time of a command without a timeout."""

_pools: dict[str, AsyncPool] = {}


@sandboxenv(name="hatchery")
class HatcherySandboxEnvironment(SandboxEnvironment):
    """The files of one sample, and programs that run among them."""

    def __init__(self, pool: AsyncPool) -> None:
        super().__init__()
        self._pool = pool
        self._files: dict[str, bytes] = {}
        self._folders: set[str] = set()

    @classmethod
    async def sample_init(
        cls, task_name: str, config: Any, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        """Gives each sample an environment without files; the processes of all share a pool."""
        return {"default": cls(_pool(config if isinstance(config, str) else ""))}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: Any,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        """Only the files of a sample remain here."""

    @classmethod
    async def task_cleanup(cls, task_name: str, config: Any, cleanup: bool) -> None:
        """Ends the pools."""
        while _pools:
            _pools.popitem()[1].close()

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Runs a command.

        Raises:
            TimeoutError: It took more than `timeout` seconds.
            OutputLimitExceededError: It wrote more than 10 MiB.
        """
        if user is not None:
            raise SandboxUserUnsupportedError("a sandbox of Hatchery has one user; give no user")
        name, *args = _unwrapped(cmd)
        if name in ("python", "python3"):
            text = input.decode() if isinstance(input, bytes) else input or ""
            return await self._python(args, text, cwd, env or {}, timeout)
        if "/" in name:
            raise PermissionError(errno.EACCES, "there are no programs here but Python", name)
        typed = input.encode() if isinstance(input, str) else input or b""
        small = _Small(self._files, self._folders, cwd, typed)
        if name == "sleep":
            with anyio.fail_after(timeout):
                await anyio.sleep(float(args[0]))
            return ExecResult(True, 0, "", "")
        run: Callable[[list[str]], str] | None = getattr(small, f"do_{name}", None)
        if run is None:
            return ExecResult(False, 127, "", f"{name}: there are no programs here but Python\n")
        try:
            return ExecResult(True, 0, run(args), "")
        except OSError as error:
            return ExecResult(False, 1, "", f"{name}: {error}\n")

    async def _python(
        self, args: list[str], typed: str, cwd: str | None, env: dict[str, str], timeout: int | None
    ) -> ExecResult[str]:
        program, argv, stdin = _program(args, typed)
        if cwd is not None:
            where = f"import os; os.makedirs({cwd!r}, exist_ok=True); os.chdir({cwd!r})\n"
            program = f"{where}exec(compile({program!r}, '<string>', 'exec'))"
        outcome = await self._pool.run(
            program,
            args=argv,
            stdin=stdin,
            env=env,
            files=self._files,
            timeout=_MOST_SECONDS if timeout is None else float(timeout),
            limits=Limits(output=_MOST_OUTPUT_BYTES, source=64 << 20),
        )
        for path, file in outcome.files.items():
            if file.data is None:
                self._files.pop(path, None)
            else:
                self._files[path] = file.data
        return _result(outcome)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Writes a file, and makes the folders that it needs.

        Raises:
            IsADirectoryError: There is a folder.
        """
        path = _relative(file)
        if self._is_folder(path):
            raise IsADirectoryError(errno.EISDIR, "it is a directory", file)
        self._files[path] = contents.encode() if isinstance(contents, str) else contents

    async def read_file(self, file: str, text: bool = True) -> Any:
        """Returns the contents of a file.

        Raises:
            FileNotFoundError, IsADirectoryError: There is none, or a folder.
            UnicodeDecodeError: It isn't text.
            OutputLimitExceededError: It has more than 100 MiB.
        """
        path = _relative(file)
        if self._is_folder(path):
            raise IsADirectoryError(errno.EISDIR, "it is a directory", file)
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", file)
        contents = self._files[path]
        if len(contents) > SandboxEnvironmentLimits.MAX_READ_FILE_SIZE:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        return contents.decode() if text else contents

    def _is_folder(self, path: str) -> bool:
        return path in self._folders or any(name.startswith(f"{path}/") for name in self._files)


def _pool(preload: str) -> AsyncPool:
    if preload not in _pools:
        modules = [name.strip() for name in preload.split(",") if name.strip()]
        _pools[preload] = AsyncPool(preload=modules)
    return _pools[preload]


def _relative(path: str) -> str:
    return posixpath.normpath(path).lstrip("/")


def _unwrapped(command: list[str]) -> list[str]:
    """Returns what a shell would start, if that is Python alone."""
    is_shell = command[0] in ("bash", "sh") and len(command) >= 3 and command[-2] == "-c"
    if is_shell:
        words = shlex.split(command[-1])
        if words and words[0] in ("python", "python3"):
            return words
    return command


def _program(args: list[str], typed: str) -> tuple[str, list[str], str]:
    """Returns the program, its arguments, and what is left of standard input."""
    if not args or args[0] == "-":
        return typed, args[1:], ""
    if args[0] == "-c" and len(args) > 1:
        return args[1], args[2:], typed
    if args[0] == "-m" and len(args) > 1:
        run = f"import runpy; runpy.run_module({args[1]!r}, run_name='__main__', alter_sys=True)"
        return run, args[2:], typed
    path = _relative(args[0])
    run = f"import runpy, sys; sys.argv[0] = {path!r}; runpy.run_path({path!r}, run_name='__main__')"
    return run, args[1:], typed


def _result(outcome: Outcome) -> ExecResult[str]:
    hit = outcome.limit
    if outcome.truncated or (hit and hit.limit == "output"):
        raise OutputLimitExceededError("10 MiB", outcome.stdout)
    if outcome.timed_out:
        raise TimeoutError(outcome.message)
    if outcome.status == "sandbox_failed":
        raise PoolError(outcome.message or "the sandbox failed")
    code = 0 if outcome.success else outcome.exit_code or 1
    errors = outcome.stderr
    if outcome.exception is not None:
        errors += outcome.exception.traceback
    elif not outcome.success and outcome.message:
        errors += f"{outcome.message}\n"
    return ExecResult(outcome.success, code, outcome.stdout, errors)


class _Small:
    """Small programs for files; each returns what it prints."""

    def __init__(
        self, files: dict[str, bytes], folders: set[str], cwd: str | None, typed: bytes
    ) -> None:
        self._files = files
        self._folders = folders
        self._typed = typed
        self._cwd = cwd or ""

    def _path(self, path: str) -> str:
        return _relative(posixpath.join(self._cwd, path))

    def _under(self, path: str) -> list[str]:
        prefix = f"{path}/"
        return [name for name in [*self._files, *self._folders] if name.startswith(prefix)]

    def do_rm(self, args: list[str]) -> str:
        options = "".join(arg for arg in args if arg.startswith("-"))
        for arg in (arg for arg in args if not arg.startswith("-")):
            path = self._path(arg)
            inner = self._under(path)
            if inner and "r" not in options:
                raise IsADirectoryError(errno.EISDIR, "it is a folder", arg)
            found = self._files.pop(path, None) is not None or path in self._folders or inner
            self._folders.discard(path)
            for name in inner:
                self._files.pop(name, None)
                self._folders.discard(name)
            if not found and "f" not in options:
                raise FileNotFoundError(errno.ENOENT, "there is no such file", arg)
        return ""

    def do_rmdir(self, args: list[str]) -> str:
        for arg in args:
            if self._under(self._path(arg)):
                raise OSError(errno.ENOTEMPTY, "it isn't empty", arg)
            self._folders.discard(self._path(arg))
        return ""

    def do_mkdir(self, args: list[str]) -> str:
        self._folders.update(self._path(arg) for arg in args if not arg.startswith("-"))
        return ""

    def do_touch(self, args: list[str]) -> str:
        for arg in args:
            self._files.setdefault(self._path(arg), b"")
        return ""

    def do_cat(self, args: list[str]) -> str:
        if not args:
            return self._typed.decode(errors="replace")
        missing = [arg for arg in args if self._path(arg) not in self._files]
        if missing:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", missing[0])
        return "".join(self._files[self._path(arg)].decode(errors="replace") for arg in args)

    def do_ls(self, args: list[str]) -> str:
        paths = [arg for arg in args if not arg.startswith("-")] or ["."]
        names: set[str] = set()
        for arg in paths:
            path = self._path(arg)
            if path in self._files:
                names.add(arg)
                continue
            start = 0 if path == "." else len(path) + 1
            inner = [*self._files, *self._folders] if path == "." else self._under(path)
            if not inner and path != "." and path not in self._folders:
                raise FileNotFoundError(errno.ENOENT, "there is no such file", arg)
            names.update(name[start:].partition("/")[0] for name in inner)
        return "".join(f"{name}\n" for name in sorted(names))

    def do_wc(self, args: list[str]) -> str:
        path = next((arg for arg in args if not arg.startswith("-")), "")
        if path and self._path(path) not in self._files:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", path)
        contents = self._files[self._path(path)] if path else self._typed
        counts = {
            "-l": contents.count(b"\n"),
            "-w": len(contents.split()),
            "-c": len(contents),
        }
        asked = [str(counts[arg]) for arg in args if arg in counts]
        return f"{' '.join(asked or map(str, counts.values()))} {path}".rstrip() + "\n"

    def do_echo(self, args: list[str]) -> str:
        if args[:1] == ["-n"]:
            return " ".join(args[1:])
        return " ".join(args) + "\n"

    def do_printf(self, args: list[str]) -> str:
        text = args[0].encode().decode("unicode_escape") if args else ""
        if "%s" not in text:
            return text
        # The format is used again for what is left, as the real one does.
        return "".join(text.replace("%s", arg) for arg in args[1:] or [""])
