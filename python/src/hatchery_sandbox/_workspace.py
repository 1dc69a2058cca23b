"""Files that live on this side, and the commands that run among them, for frameworks whose sandbox is a
folder and a command line.

There is no shell and no other program: commands are `python` and `python3` with `-c CODE`, `FILE`,
`-m MODULE` or `-`, and some small ones for files, such as `rm`. A line for a shell may hold one of these,
with a here-document. Each program runs in a fresh interpreter; the files stay.
"""

from __future__ import annotations

import errno
import posixpath
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass

from hatchery_sandbox._job import Job
from hatchery_sandbox._outcome import Outcome

ROOT = "/workspace"
"""Where programs find the files."""
_HERE_DOCUMENT = re.compile(
    r"(?P<line>[^\n]*?)\s*<<\s*(['\"]?)(?P<end>\w+)\2\n(?P<typed>(?:.*\n)??)(?P=end)\s*", re.S
)
_OPERATORS = "();<>|&\n"


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
        return path == "." or path in self.folders or any(
            name.startswith(f"{path}/") for name in [*self.files, *self.folders]
        )

    def start(
        self, command: list[str], typed: str | bytes = "", cwd: str | None = None
    ) -> Job | CommandResult:
        """Returns the job of a program, or the result of a small command, which has run.

        Args:
            command: The words of the command, or a shell with `-c` and a line.
            typed: Standard input.
            cwd: The current folder. Default: the root.
        """
        if command[0] in ("bash", "sh") and len(command) >= 3 and re.fullmatch("-l?c", command[-2]):
            try:
                command, here = _words(command[-1])
            except ValueError as error:
                return CommandResult(127, "", f"{error}\n")
            typed = typed if here is None else here
        name, *args = command or ["true"]
        if name in ("python", "python3"):
            return self._program(args, typed.decode() if isinstance(typed, bytes) else typed, cwd)
        small = _Small(self, cwd, typed.encode() if isinstance(typed, str) else typed)
        run: Callable[[list[str]], str] | None = getattr(small, f"do_{name}", None)
        if run is None:
            return CommandResult(127, "", f"{name}: there are no programs here but Python\n")
        try:
            return CommandResult(0, run(args), "")
        except OSError as error:
            return CommandResult(1, "", f"{name}: {error}\n")

    def take(self, outcome: Outcome) -> None:
        """Takes over the files that a program changed."""
        for path, file in outcome.files.items():
            if file.data is None:
                self.files.pop(path, None)
            else:
                self.files[path] = file.data

    def finish(self, outcome: Outcome) -> CommandResult:
        """Takes over the files that a program changed, and returns how it ended as a command: with the
        code 124 if it took too long.

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

    def _program(self, args: list[str], typed: str, cwd: str | None) -> Job:
        program, argv, stdin = _program(args, typed)
        inner = relative(cwd or ".")
        folders = sorted({*self.folders, inner} - {"."})
        if folders:
            made = f"import os; [os.makedirs(folder, exist_ok=True) for folder in {folders!r}]"
            entered = f"; os.chdir({inner!r})"
            program = f"{made}{entered}\nexec(compile({program!r}, '<string>', 'exec'))"
        return Job(program, args=argv, stdin=stdin, files=self.files)


def relative(path: str) -> str:
    """Returns a path as the files have it: from the current folder of programs, which is `/workspace`. What
    is elsewhere is there, too, since programs can't write elsewhere."""
    absolute = posixpath.normpath(posixpath.join(ROOT, path)).replace("//", "/")
    if absolute == ROOT or absolute.startswith(f"{ROOT}/"):
        absolute = absolute[len(ROOT) :]
    return absolute.lstrip("/") or "."


def _words(line: str) -> tuple[list[str], str | None]:
    """Returns the words of a line for a shell, and its here-document.

    Raises:
        ValueError: It needs a shell.
    """
    here = _HERE_DOCUMENT.fullmatch(line.strip())
    typed = None
    if here is not None:
        line, typed = here["line"], here["typed"]
    lexer = shlex.shlex(line.strip(), posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t", True, ""
    try:
        words = list(lexer)
    except ValueError as error:
        raise ValueError(f"the command can't be read: {error}") from None
    used = next((word for word in words if word.strip(_OPERATORS) == ""), None)
    if used is None and words and words[0] not in ("python", "python3"):
        used = next((sign for sign in "$`*?" if any(sign in word for word in words)), None)
    if used is not None and words:
        what = "several lines" if used.startswith("\n") else f"`{used}`"
        raise ValueError(
            f"there is no shell here that could run {what}; give one command at a time: "
            "`python3 FILE`, `python3 -c CODE`, or one of ls, cat, rm, mkdir, touch, wc, echo"
        )
    return words, typed


def _program(args: list[str], typed: str) -> tuple[str, list[str], str]:
    """Returns the program, its arguments, and what is left of standard input."""
    if not args or args[0] == "-":
        return typed, args[1:], ""
    if args[0] == "-c" and len(args) > 1:
        return args[1], args[2:], typed
    if args[0] == "-m" and len(args) > 1:
        run = f"import runpy; runpy.run_module({args[1]!r}, run_name='__main__', alter_sys=True)"
        return run, args[2:], typed
    path = args[0]
    if path.startswith("/"):
        path = f"{ROOT}/{relative(path)}"
    run = f"import os, runpy, sys; sys.path.insert(0, os.path.dirname(os.path.abspath({path!r})))\n"
    run += f"sys.argv[0] = {path!r}; runpy.run_path({path!r}, run_name='__main__')"
    return run, args[1:], typed


class _Small:
    """Small programs for files; each returns what it prints."""

    def __init__(self, workspace: Workspace, cwd: str | None, typed: bytes) -> None:
        self._workspace = workspace
        self._files = workspace.files
        self._folders = workspace.folders
        self._typed = typed
        self._cwd = cwd or ""

    def _path(self, path: str) -> str:
        return relative(posixpath.join(self._cwd, path))

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
        self._folders.discard(".")
        return ""

    def do_touch(self, args: list[str]) -> str:
        for arg in args:
            self._files.setdefault(self._path(arg), b"")
        return ""

    def do_chmod(self, args: list[str]) -> str:
        # Rights aren't kept, since there is one user.
        for arg in args[1:]:
            if self._path(arg) not in self._files and not self._workspace.is_folder(self._path(arg)):
                raise FileNotFoundError(errno.ENOENT, "there is no such file", arg)
        return ""

    def do_pwd(self, args: list[str]) -> str:
        inner = self._path(".")
        return f"{ROOT}\n" if inner == "." else f"{ROOT}/{inner}\n"

    def do_true(self, args: list[str]) -> str:
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
