"""A code interpreter and a sandbox for the OpenAI Agents SDK, both on this machine.

```
from hatchery_sandbox.openai_agents import HatcherySandboxClient, python_tool

agent = Agent("analyst", tools=[python_tool(session)])
run = RunConfig(sandbox=SandboxRunConfig(client=HatcherySandboxClient(pool)))  # for a SandboxAgent
```

The sandbox's commands run in its shell, which has the usual programs for files and texts, and Python. A
program that isn't there ends with the code 127.
"""

from __future__ import annotations

import base64
import io
import tarfile
import uuid
from pathlib import Path
from typing import Any, Literal

from agents import FunctionTool, ToolOutputImage, ToolOutputText, function_tool
from agents.sandbox.errors import (
    ExecNonZeroError,
    ExecTimeoutError,
    ExecTransportError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.files import EntryKind, FileEntry
from agents.sandbox.manifest import Manifest
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.manager import Instrumentation
from agents.sandbox.session.sandbox_client import BaseSandboxClient, BaseSandboxClientOptions
from agents.sandbox.session.sandbox_session import SandboxSession
from agents.sandbox.session.sandbox_session_state import SandboxSessionState
from agents.sandbox.session.workspace_payloads import coerce_write_payload
from agents.sandbox.snapshot import resolve_snapshot
from agents.sandbox.types import ExecResult, Permissions

from hatchery_sandbox._async import AsyncPool, AsyncSession
from hatchery_sandbox._describe import TOOL_DESCRIPTION, describe
from hatchery_sandbox._errors import PoolError
from hatchery_sandbox._shared import async_agents_pool
from hatchery_sandbox._workspace import CommandResult, Workspace, relative


def python_tool(
    runner: AsyncPool | AsyncSession,
    name: str = "run_python",
    *,
    limit: int | None = 10_000,
    **options: Any,
) -> FunctionTool:
    """Returns a tool that runs programs, in place of the hosted `CodeInterpreterTool`. Figures that they
    show become images for the model.

    Args:
        runner: A pool, where each call starts fresh, or a session, whose variables stay.
        name: What the model calls it.
        limit: The most characters that a call returns.
        options: Those of jobs, such as `timeout` in seconds.
    """

    async def run(code: str) -> Any:
        outcome = await runner.run(code, **options)
        if outcome.status == "sandbox_failed":
            outcome.raise_for_status()
        text = describe(outcome, limit)
        if not outcome.figures:
            return text
        images = [ToolOutputImage(image_url=_data_url(figure)) for figure in outcome.figures]
        return [ToolOutputText(text=text), *images]

    # What raises here is no error of the program, and ends the agent's run.
    return function_tool(
        run, name_override=name, description_override=TOOL_DESCRIPTION, failure_error_function=None
    )


class HatcherySandboxOptions(BaseSandboxClientOptions):
    """Options of a new session: there are none yet."""

    type: Literal["hatchery"] = "hatchery"


class HatcherySandboxState(SandboxSessionState):
    """What is stored of a session; its files are in its snapshot, if it has one."""

    type: Literal["hatchery"] = "hatchery"


class HatcherySandboxSession(BaseSandboxSession):
    """The files of one session, and commands that run among them, each in a fresh interpreter.

    Files are in this process, under the root of the manifest, `/workspace`. There is one user.
    """

    state: HatcherySandboxState

    def __init__(self, state: HatcherySandboxState, pool: AsyncPool | None, options: Any) -> None:
        self.state = state
        self._pool = pool
        self._options = options
        self._workspace = Workspace()
        self._is_running = False

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:
        words = [str(word) for word in command]
        job = self._workspace.job(words, cwd=self.state.manifest.root)
        options = dict(self._options)
        if timeout is not None:
            options["timeout"] = timeout
        env = await self.state.manifest.environment.resolve()
        try:
            outcome = await (self._pool or async_agents_pool()).run(job, env=env, **options)
            ended = self._workspace.finish(outcome)
        except PoolError as error:
            raise ExecTransportError(command=command, cause=error) from error
        if outcome.timed_out:
            raise ExecTimeoutError(command=command, timeout_s=timeout)
        return _exec_result(ended)

    async def read(self, path: Path, *, user: Any = None) -> io.IOBase:
        """Returns the contents of a file."""
        contents = self._workspace.files.get(self._name(path, user))
        if contents is None:
            raise WorkspaceReadNotFoundError(path=path)
        return io.BytesIO(contents)

    async def write(self, path: Path, data: io.IOBase, *, user: Any = None) -> None:
        """Writes a file, and makes the folders that it needs."""
        name = self._name(path, user)
        if self._workspace.is_folder(name):
            raise WorkspaceArchiveWriteError(path=path, message=f"it is a directory: {path}")
        self._workspace.files[name] = coerce_write_payload(path=path, data=data).stream.read()

    async def ls(self, path: Path | str, *, user: Any = None) -> list[FileEntry]:
        """Lists what is directly in a folder."""
        folder = self._name(path, user)
        if not self._workspace.is_folder(folder):
            told = CommandResult(1, "", f"ls: {path}: there is no such folder\n")
            raise ExecNonZeroError(_exec_result(told), command=("ls", str(path)))
        return [self._entry(folder, name) for name in self._workspace.names(folder)]

    async def mv(self, source: Path | str, destination: Path | str, *, user: Any = None) -> None:
        """Renames a file, in place of one that is there."""
        old, new = self._name(source, user), self._name(destination, user)
        if old not in self._workspace.files or self._workspace.is_folder(new):
            told = CommandResult(1, "", f"mv: {source} or {destination} is no file\n")
            raise ExecNonZeroError(_exec_result(told), command=("mv", str(source), str(destination)))
        self._workspace.files[new] = self._workspace.files.pop(old)

    async def same_file(
        self, left: Path | str, right: Path | str, *, follow_symlinks: bool = True, user: Any = None
    ) -> bool:
        """Whether two paths are of the same file; there are no links."""
        return self._name(left, user) == self._name(right, user)

    async def running(self) -> bool:
        """Whether it was started and not shut down."""
        return self._is_running

    async def persist_workspace(self) -> io.IOBase:
        """Returns the files as an archive of tar."""
        archive = io.BytesIO()
        root = relative(self.state.manifest.root)
        skipped = [path.as_posix() for path in self._persist_workspace_skip_relpaths()]
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for name, contents in sorted(self._workspace.files.items()):
                inner = name if root == "." else name.removeprefix(f"{root}/")
                if not any(inner == path or inner.startswith(f"{path}/") for path in skipped):
                    member = tarfile.TarInfo(inner)
                    member.size = len(contents)
                    tar.addfile(member, io.BytesIO(contents))
        archive.seek(0)
        return archive

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Adds the files of an archive."""
        root = self.state.manifest.root
        try:
            with tarfile.open(fileobj=data, mode="r:*") as tar:
                for member in tar:
                    opened = tar.extractfile(member) if member.isfile() else None
                    if opened is not None:
                        path = f"{root}/{member.name}"
                        self._workspace.files[self._name(path, None)] = opened.read()
        except tarfile.TarError as error:
            raise WorkspaceArchiveWriteError(path=Path(root), cause=error) from error

    async def _after_start(self) -> None:
        self._is_running = True

    async def _after_shutdown(self) -> None:
        self._is_running = False

    def _should_compute_snapshot_fingerprint_on_persist(self) -> bool:
        return False

    async def _can_skip_snapshot_restore_on_resume(self, *, is_running: bool) -> bool:
        return is_running and self._workspace_state_preserved_on_start()

    def _name(self, path: Path | str, user: Any) -> str:
        if user is not None:
            raise ValueError("a sandbox of Hatchery has one user; give no user")
        return relative(str(self.normalize_path(path)))

    def _entry(self, folder: str, name: str) -> FileEntry:
        inner = name if folder == "." else f"{folder}/{name}"
        contents = self._workspace.files.get(inner)
        is_folder = contents is None
        return FileEntry(
            path=f"{self.state.manifest.root}/{inner}",
            permissions=Permissions.from_str("drwxr-xr-x" if is_folder else "-rw-r--r--"),
            owner="user",
            group="user",
            size=len(contents or b""),
            kind=EntryKind.DIRECTORY if is_folder else EntryKind.FILE,
        )


class HatcherySandboxClient(BaseSandboxClient[HatcherySandboxOptions]):
    """Creates sessions, which share a pool."""

    backend_id = "hatchery"
    supports_default_options = True

    def __init__(
        self,
        pool: AsyncPool | None = None,
        *,
        instrumentation: Instrumentation | None = None,
        **options: Any,
    ) -> None:
        """
        Args:
            pool: The pool to use, which stays open. Default: one of this process, shared by all.
            instrumentation: As other clients of the SDK take it.
            options: Those of jobs, such as `timeout` in seconds.
        """
        self._pool = pool
        self._instrumentation = instrumentation or Instrumentation()
        self._options = options
        self._dependencies = None

    async def create(
        self,
        *,
        snapshot: Any = None,
        manifest: Manifest | None = None,
        options: HatcherySandboxOptions | None = None,
    ) -> SandboxSession:
        """Returns a new session."""
        manifest = Manifest() if manifest is None else manifest
        self._validate_manifest_for_create(manifest)
        session_id = uuid.uuid4()
        state = HatcherySandboxState(
            session_id=session_id,
            manifest=manifest,
            snapshot=resolve_snapshot(snapshot, str(session_id)),
        )
        return await self.resume(state)

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """Returns a session for a stored state, whose files come from its snapshot."""
        if not isinstance(state, HatcherySandboxState):
            raise TypeError(f"it is no state of this client: {type(state).__name__}")
        inner = HatcherySandboxSession(state, self._pool, self._options)
        return self._wrap_session(inner, instrumentation=self._instrumentation)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """Nothing is left of a session but its object."""
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        """Returns a state that was stored."""
        return self._deserialize_session_state_payload(payload, HatcherySandboxState)


def _exec_result(ended: CommandResult) -> ExecResult:
    stdout, stderr = ended.stdout.encode(), ended.stderr.encode()
    return ExecResult(stdout=stdout, stderr=stderr, exit_code=ended.code)


def _data_url(figure: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(figure).decode()}"
