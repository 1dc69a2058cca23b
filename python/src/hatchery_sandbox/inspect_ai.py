"""A sandbox of Inspect AI: evaluations run the Python that models write, with `sandbox="hatchery"`.

Commands run in the sandbox's shell, which has the usual programs for files and texts, and Python, each in a
fresh interpreter. The files of a sample stay.

`sandbox=("hatchery", "numpy,pandas")` names modules to import beforehand.
"""

from __future__ import annotations

import errno
from typing import Any

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
from hatchery_sandbox._workspace import Workspace, relative

_MOST_OUTPUT_BYTES = 10 << 20
_MOST_SECONDS = 86400.0
"""The time of a command without a timeout."""

_pools: dict[str, AsyncPool] = {}


@sandboxenv(name="hatchery")
class HatcherySandboxEnvironment(SandboxEnvironment):
    """The files of one sample, and commands that run among them."""

    def __init__(self, pool: AsyncPool) -> None:
        super().__init__()
        self._pool = pool
        self._workspace = Workspace()

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
        outcome = await self._pool.run(
            self._workspace.job(cmd, input or "", cwd),
            env=env or {},
            timeout=_MOST_SECONDS if timeout is None else float(timeout),
            limits=Limits(output=_MOST_OUTPUT_BYTES, source=64 << 20),
        )
        self._workspace.take(outcome)
        result = _result(outcome)
        if "/" in cmd[0] and result.stderr.startswith(f"sh: {cmd[0]}: "):
            raise PermissionError(errno.EACCES, "it is no program that can run here", cmd[0])
        return result

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Writes a file, and makes the folders that it needs.

        Raises:
            IsADirectoryError: There is a folder.
        """
        path = relative(file)
        if self._workspace.is_folder(path):
            raise IsADirectoryError(errno.EISDIR, "it is a directory", file)
        self._workspace.files[path] = contents.encode() if isinstance(contents, str) else contents

    async def read_file(self, file: str, text: bool = True) -> Any:
        """Returns the contents of a file.

        Raises:
            FileNotFoundError, IsADirectoryError: There is none, or a folder.
            UnicodeDecodeError: It isn't text.
            OutputLimitExceededError: It has more than 100 MiB.
        """
        path = relative(file)
        if self._workspace.is_folder(path):
            raise IsADirectoryError(errno.EISDIR, "it is a directory", file)
        if path not in self._workspace.files:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", file)
        contents = self._workspace.files[path]
        if len(contents) > SandboxEnvironmentLimits.MAX_READ_FILE_SIZE:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        return contents.decode() if text else contents


def _pool(preload: str) -> AsyncPool:
    if preload not in _pools:
        modules = [name.strip() for name in preload.split(",") if name.strip()]
        _pools[preload] = AsyncPool(preload=modules)
    return _pools[preload]


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
