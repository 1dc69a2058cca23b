"""A sandbox for LangChain's Deep Agents: files, and commands that run Python among them.

```
from hatchery_sandbox.deepagents import HatcherySandbox

agent = create_deep_agent(model, backend=HatcherySandbox(pool))
```

`execute` runs commands of the sandbox's shell, which has the usual programs for files and texts, and Python.
A program that isn't there ends with the code 127.
"""

from __future__ import annotations

import base64
import uuid
from typing import Any

from deepagents.backends.protocol import (
    DeleteResult,
    EditResult,
    ExecuteResponse,
    FileData,
    FileDownloadResponse,
    FileInfo,
    FileUploadResponse,
    GlobResult,
    GrepResult,
    LsResult,
    ReadResult,
    SandboxBackendProtocol,
    WriteResult,
)
from deepagents.backends.utils import (
    InvalidGlobPatternError,
    _get_backend_read_file_type,
    _glob_search_files,
    create_file_data,
    grep_matches_from_files,
    perform_string_replacement,
    slice_read_response,
)

from hatchery_sandbox._job import Limits
from hatchery_sandbox._pool import Pool
from hatchery_sandbox._shared import agents_pool
from hatchery_sandbox._workspace import ROOT, Workspace, relative

_MOST_BINARY_BYTES = 500 * 1024
"""What a model may read of a file that isn't text."""
_MOST_OUTPUT_BYTES = 10 << 20


class HatcherySandbox(SandboxBackendProtocol):
    """The files of one agent, and commands that run among them, each in a fresh interpreter.

    Files are in this process, and their paths begin with `/workspace`, where commands find them. The methods
    for files take other absolute paths as if they did.
    """

    def __init__(
        self, pool: Pool | None = None, files: dict[str, bytes] | None = None, **options: Any
    ) -> None:
        """
        Args:
            pool: The pool to use, which stays open. Default: one of this process, shared by all.
            files: Files to begin with, by their absolute paths.
            options: Those of jobs, such as `timeout` in seconds.
        """
        self._pool = pool
        self._options = options
        self._id = f"hatchery-{uuid.uuid4().hex[:12]}"
        self._workspace = Workspace()
        for path, contents in (files or {}).items():
            self._workspace.files[relative(path)] = contents

    @property
    def id(self) -> str:
        """A name that no other sandbox has."""
        return self._id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a command.

        Args:
            command: What the shell runs, in `/workspace`.
            timeout: Seconds that it may take. With `None` and 0: those of the options, or the pool's.

        Raises:
            PoolError: The sandbox failed.
        """
        options = {"limits": Limits(output=_MOST_OUTPUT_BYTES), **self._options}
        if timeout:
            options["timeout"] = timeout
        job = self._workspace.job(["sh", "-c", command])
        outcome = (self._pool or agents_pool()).run(job, **options)
        ended = self._workspace.finish(outcome)
        output = ended.stdout
        if ended.stderr:
            output += f"{'' if not output or output.endswith(chr(10)) else chr(10)}{ended.stderr}"
        return ExecuteResponse(output=output, exit_code=ended.code, truncated=outcome.truncated)

    def ls(self, path: str) -> LsResult:
        """Lists what is directly in a folder; there is nothing in one that doesn't exist."""
        folder = relative(path)
        prefix = "" if folder == "." else f"{folder}/"
        entries = []
        for name, is_dir in self._workspace.names(folder).items():
            contents = self._workspace.files.get(f"{prefix}{name}", b"")
            entries.append(_info(f"{prefix}{name}", is_dir, len(contents)))
        return LsResult(entries=entries)

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        """Returns lines of a text, or the whole of a picture and the like."""
        contents = self._workspace.files.get(relative(file_path))
        if contents is None:
            return ReadResult(error=f"File '{file_path}': file_not_found")
        data = _data(contents)
        if data["encoding"] == "utf-8" and _get_backend_read_file_type(file_path) == "text":
            page: ReadResult = slice_read_response(data, offset, limit)
            if page.next_offset is not None and page.file_data is not None:
                page.file_data["content"] = page.file_data["content"].removesuffix("\n")
            return page
        if len(contents) > _MOST_BINARY_BYTES:
            told = f"Binary file exceeds maximum preview size of {_MOST_BINARY_BYTES} bytes"
            return ReadResult(error=f"File '{file_path}': {told}")
        return ReadResult(file_data=FileData(content=_base64(contents), encoding="base64"))

    def write(self, file_path: str, content: str) -> WriteResult:
        """Writes a file, in place of one that is there, and makes the folders that it needs."""
        path = relative(file_path)
        if self._workspace.is_folder(path):
            return WriteResult(error=f"Error: '{file_path}' is a directory")
        self._workspace.files[path] = content.encode()
        return WriteResult(path=file_path)

    def edit(
        self, file_path: str, old_string: str, new_string: str, replace_all: bool = False
    ) -> EditResult:
        """Replaces a text in a file, which has it once, or everywhere."""
        path = relative(file_path)
        contents = self._workspace.files.get(path)
        if contents is None:
            return EditResult(error=f"Error: File '{file_path}' not found")
        data = _data(contents)
        if data["encoding"] != "utf-8":
            return EditResult(error="Error: Cannot edit binary files with text replacements.")
        count = data["content"].count(old_string) if old_string else 0
        if count > 1 and not replace_all:
            told = f"Error: String '{old_string}' appears multiple times in file ({count})."
            return EditResult(error=f"{told} Use replace_all=True, or give more of its surroundings.")
        replaced = perform_string_replacement(data["content"], old_string, new_string, replace_all)
        if isinstance(replaced, str):
            return EditResult(error=replaced)
        self._workspace.files[path] = replaced[0].encode()
        return EditResult(path=file_path, occurrences=replaced[1])

    def delete(self, file_path: str) -> DeleteResult:
        """Deletes a file, or a folder with all that is in it."""
        if not self._workspace.remove(relative(file_path)):
            return DeleteResult(error=f"Error: File '{file_path}' not found")
        return DeleteResult(path=file_path)

    def grep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> GrepResult:
        """Finds lines with a text in files that are texts."""
        found: GrepResult = grep_matches_from_files(
            self._texts(), pattern, _absolute(path), glob, max_count=max_count
        )
        return found

    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        """Finds files by a pattern of their paths."""
        files = self._workspace.files
        try:
            # It looks at the names alone.
            named: dict[str, Any] = {f"{ROOT}/{name}": {} for name in files}
            found = _glob_search_files(named, pattern, _absolute(path))
        except InvalidGlobPatternError as error:
            return GlobResult(error=str(error))
        names = [] if found == "No files found" else map(relative, found.split("\n"))
        return GlobResult(matches=[_info(name, False, len(files[name])) for name in names])

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Writes files; each response says what was wrong with its path."""
        responses = []
        for path, contents in files:
            error = self._path_error(path)
            if error is None:
                self._workspace.files[relative(path)] = contents
            responses.append(FileUploadResponse(path=path, error=error))
        return responses

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Returns the contents of files; each response says what was wrong with its path."""
        responses = []
        for path in paths:
            contents = None
            error = self._path_error(path)
            if error is None:
                contents = self._workspace.files.get(relative(path))
                error = "file_not_found" if contents is None else None
            responses.append(FileDownloadResponse(path=path, content=contents, error=error))
        return responses

    def _path_error(self, path: str) -> Any:
        if not path.startswith("/") or "\0" in path:
            return "invalid_path"
        return "is_directory" if self._workspace.is_folder(relative(path)) else None

    def _texts(self) -> dict[str, Any]:
        files = self._workspace.files
        data = {f"{ROOT}/{name}": _data(contents) for name, contents in files.items()}
        return {name: each for name, each in data.items() if each["encoding"] == "utf-8"}


def _info(name: str, is_dir: bool, size: int) -> FileInfo:
    return FileInfo(path=f"{ROOT}/{name}", is_dir=is_dir, size=size)


def _absolute(path: str | None) -> str:
    name = relative(path or ROOT)
    return ROOT if name == "." else f"{ROOT}/{name}"


def _data(contents: bytes) -> Any:
    try:
        return create_file_data(contents.decode())
    except UnicodeDecodeError:
        return create_file_data(_base64(contents), encoding="base64")


def _base64(contents: bytes) -> str:
    return base64.b64encode(contents).decode()
