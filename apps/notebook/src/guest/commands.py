"""`!command`, `%%bash` and their kin: commands of the sandbox's shell."""

import re
import shlex
import subprocess
import sys

from hatchery_notebook.errors import UsageError
from hatchery_notebook.execution import namespace
from hatchery_notebook.packages import pip

INSTALLERS = ("pip", "conda", "mamba", "uv")
# Cell magics that give their cell to a program, and line magics that are commands.
SCRIPTS = ("bash", "sh", "python", "python3")
ALIASES = ("cat", "cp", "ls", "mkdir", "mv", "rm", "rmdir")
# `{expression}`, and the name of a variable after `$`.
EXPANDED = re.compile(r"\{\{|\}\}|\{([^{}]+)\}|\$(\$?)([A-Za-z_][\w.]*)")
PYTHON = ("python", "python3")


class SList(list):
    """The lines that a command wrote."""

    l = list = property(lambda self: self)
    n = nlstr = property("\n".join)
    s = spstr = property(" ".join)

    def grep(self, pattern, prune=False, field=None):
        def fits(line):
            words = line.split()
            text = line if field is None else words[field] if -len(words) <= field < len(words) else ""
            return bool(pattern(text) if callable(pattern) else re.search(pattern, text, re.I)) != prune

        return SList(filter(fits, self))

    def fields(self, *numbers):
        rows = [line.split() for line in self]
        return SList(" ".join(row[at] for at in numbers if -len(row) <= at < len(row)) for row in rows) if numbers else rows


def expanded(command):
    """Puts values of the notebook into a command; what has no value stays as it is."""
    names = namespace()

    def value(found):
        expression, is_kept, name = found.groups()
        if expression is not None:
            return str(eval(expression, names))
        if name is None:
            return found[0][0]
        try:
            return "$" + name if is_kept else str(eval(name, names))
        except Exception:
            return found[0]

    try:
        return EXPANDED.sub(value, command)
    except Exception:
        return command


def install(command):
    """Runs a command that installs packages, if it is one. Returns whether it is."""
    words = command.split()
    words = words[words[:1] and words[0] in PYTHON :]
    words = words[words[:1] == ["-m"] :]
    is_one = len(words) > 1 and words[0].rstrip("3") in INSTALLERS and words[1] not in ("list", "freeze", "show")
    if is_one:
        pip("!" + words[0], " ".join(words[1:]))
    return is_one


def system(command):
    """`!command`, of which both streams are standard output, as on IPython's terminal."""
    if install(command):
        return
    command, out = expanded(command), None
    if sys.stdout is not sys.__stdout__:
        out = subprocess.PIPE  # it is captured
    ended = subprocess.run(command, shell=True, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
    if out is not None:
        sys.stdout.write(ended.stdout.decode(errors="replace"))
    namespace()["_exit_code"] = ended.returncode


def getoutput(command, split=True):
    """`!!command`, and `lines = !command`."""
    if install(command):
        return SList()
    given = {"shell": True, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    ended = subprocess.run(expanded(command), **given)
    text = ended.stdout.decode(errors="replace")
    return SList(text.splitlines()) if split else text


def script(program):
    """`%%bash` and the like: gives the cell to a program."""

    def magic(line, cell):
        words, names, raises = shlex.split(line), {}, True
        while words and words[0].startswith("--"):
            option, sign, value = words.pop(0)[2:].partition("=")
            if option in ("out", "err") and (sign or words):
                names[option] = value if sign else words.pop(0)
            elif option in ("raise-error", "no-raise-error"):
                raises = option == "raise-error"
            else:
                raise UsageError(f"`%%{program or 'script'}` takes `--out NAME`, `--err NAME` and `--no-raise-error`, not `--{option}`")
        command = [program, *words] if program else words
        if not command:
            raise UsageError("`%%script` needs a program, such as `%%script bash`")
        is_captured = names or sys.stdout is not sys.__stdout__ or sys.stderr is not sys.__stderr__
        ended = subprocess.run(command, input=cell.encode(), capture_output=bool(is_captured))
        for option, data, stream in ("out", ended.stdout, sys.stdout), ("err", ended.stderr, sys.stderr):
            text = (data or b"").decode(errors="replace")
            if option in names:
                namespace()[names[option]] = text
            else:
                stream.write(text)
        if ended.returncode and raises:
            raise subprocess.CalledProcessError(ended.returncode, cell, ended.stdout, ended.stderr)

    return magic


def line_magics():
    magics = {name: lambda line, name=name: system(f"{name} {line}") for name in ALIASES}
    return magics | dict.fromkeys(("system", "sx"), getoutput)


def cell_magics():
    magics = {name: script(name) for name in SCRIPTS}
    whole = lambda line, cell: getoutput(f"{line}\n{cell}" if line else cell)
    return magics | {"script": script(None), "system": whole, "sx": whole}
