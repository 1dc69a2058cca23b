"""Files that live on this side, and the commands that run among them, for frameworks whose sandbox is a
folder and a command line.

Each command runs in the sandbox's shell, in a fresh interpreter, which is given the files and whose changes
of files are taken over.
"""

from __future__ import annotations

import posixpath
import shlex
from dataclasses import dataclass

from hatchery_sandbox._job import Job
from hatchery_sandbox._outcome import Outcome

ROOT = "/workspace"
"""Where programs find the files."""
_FOLDERS = ".hatchery-folders"
"""The file with which a job says which folders there are."""


@dataclass(frozen=True)
class CommandResult:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str


class Workspace:
    """The files of one sandbox."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        """By their paths, without a leading slash."""
        self.folders: set[str] = set()
        """Folders that commands made."""

    def is_folder(self, path: str) -> bool:
        """Whether there is a folder of this path, as `relative` returns it."""
        return path == "." or path in self.folders or bool(self._under(path))

    def names(self, folder: str) -> dict[str, bool]:
        """Returns the names directly in a folder, and whether each is a folder."""
        prefix = "" if folder == "." else f"{folder}/"
        found: dict[str, bool] = {}
        for path in [*self.files, *self.folders]:
            if path.startswith(prefix):
                name, slash, _ = path[len(prefix) :].partition("/")
                found[name] = found.get(name, False) or bool(slash) or path in self.folders
        return dict(sorted(found.items()))

    def remove(self, path: str) -> bool:
        """Removes a file, or a folder with all that is in it. Returns whether there was one."""
        inner = self._under(path)
        is_there = path in self.files or path in self.folders or bool(inner)
        for name in [path, *inner]:
            self.files.pop(name, None)
            self.folders.discard(name)
        return is_there

    def job(self, command: list[str], typed: str | bytes = "", cwd: str | None = None) -> Job:
        """Returns the job of a command.

        Args:
            command: The words of the command, such as those of a shell with `-c` and a line.
            typed: Standard input, in UTF-8.
            cwd: The current folder, which is made if it is missing. Default: the root.
        """
        inner = relative(cwd or ".")
        made = sorted({*self.folders, inner} - {"."})
        lines = [f"mkdir -p {shlex.join(made)}"] if made else []
        lines += [
            f"cd {shlex.quote(inner)}",
            shlex.join(command) or ":",
            "set -- $?",
            f"find {ROOT} -type d > {ROOT}/{_FOLDERS}",
            "exit $1",
        ]
        return Job.shell("\n".join(lines), stdin=typed, files=self.files)

    def take(self, outcome: Outcome) -> None:
        """Takes over the files and folders that a command changed."""
        for path, file in outcome.files.items():
            if path == _FOLDERS:
                lines = (file.data or b"").decode(errors="surrogateescape").splitlines()
                self.folders = {relative(line) for line in lines} - {"."}
            elif file.data is None:
                self.files.pop(path, None)
            else:
                self.files[path] = file.data

    def finish(self, outcome: Outcome) -> CommandResult:
        """Takes over what a command changed, and returns how it ended: with the code 124 if it took too
        long.

        Raises:
            PoolError: The sandbox failed.
        """
        if outcome.status in ("sandbox_failed", "not_run"):
            outcome.raise_for_status()
        self.take(outcome)
        errors = outcome.stderr
        if outcome.exception is not None:
            errors += outcome.exception.traceback
        elif not outcome.success and outcome.message:
            errors += f"{outcome.message}\n"
        code = 0 if outcome.success else 124 if outcome.timed_out else outcome.exit_code or 1
        return CommandResult(code, outcome.stdout, errors)

    def _under(self, path: str) -> list[str]:
        return [name for name in [*self.files, *self.folders] if name.startswith(f"{path}/")]


def relative(path: str) -> str:
    """Returns a path as the files have it: from the current folder of programs, which is `/workspace`. What
    is elsewhere is there, too, since programs can't write elsewhere."""
    absolute = posixpath.normpath(posixpath.join(ROOT, path)).replace("//", "/")
    if absolute == ROOT or absolute.startswith(f"{ROOT}/"):
        absolute = absolute[len(ROOT) :]
    return absolute.lstrip("/") or "."
