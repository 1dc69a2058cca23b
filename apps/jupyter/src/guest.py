"""The kernel's side in its sessions: runs cells, evaluates expressions, asks for input.

Installed as the module `hatchery_jupyter`, after the package `hatchery_notebook`.
"""

import builtins
import sys

import hatchery_notebook
from hatchery import host
from hatchery_notebook.errors import UsageError
from hatchery_notebook.execution import namespace
from hatchery_notebook.shell import get_ipython

# Magics that the kernel carries out between cells.
OWN = ("fork", "switch", "sessions", "checkpoint", "restore")

may_ask = False


class StdinNotImplementedError(NotImplementedError):
    """The front end takes no input."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._hatchery_remedy = "input"


def run(written, number, stores_history, is_silent, asks):
    """Runs a cell, given its source as written."""
    global may_ask
    may_ask = asks
    hatchery_notebook.run_cell(written, number, stores_history, is_silent)


def about():
    return {"version": sys.version.partition(" ")[0]}


def evaluate(expressions):
    """Returns what user expressions show, by their names."""
    return {name: evaluated(text) for name, text in expressions.items()}


def evaluated(text):
    try:
        value = eval(text, namespace())
        data, metadata = get_ipython().display_formatter.format(value)
    except Exception as error:
        import traceback

        lines = traceback.format_exception(error)
        kind = type(error).__name__
        return {"status": "error", "ename": kind, "evalue": str(error), "traceback": lines}
    return {"status": "ok", "data": {name: form(data[name]) for name in data}, "metadata": metadata}


def form(data):
    if not isinstance(data, bytes):
        return data
    import base64

    return base64.b64encode(data).decode()


def ask(prompt, is_password):
    """Asks the front end for a line."""
    if not may_ask:
        raise StdinNotImplementedError("input was asked for, but this front end doesn't take any")
    sys.stdout.flush()
    sys.stderr.flush()
    host.announce_input(prompt=str(prompt), password=is_password)
    line = sys.stdin.readline()
    if not line:
        raise EOFError("EOF when reading a line")
    return line.removesuffix("\n")


def read_line(prompt="", /):
    """Asks the user for a line of text."""
    return ask(prompt, False)


def read_password(prompt="Password: ", stream=None, *, echo_char=None):
    """Asks the user for a password."""
    return ask(prompt, True)


def refuse(name):
    def magic(line):
        raise UsageError(f"`%{name}` needs a cell of its own, since it is for the whole session")

    return magic


def begin():
    import getpass

    read_line.__name__ = read_line.__qualname__ = "input"
    read_password.__name__ = read_password.__qualname__ = "getpass"
    builtins.input = read_line
    getpass.getpass = read_password
    for name in OWN:
        get_ipython().register_magic_function(refuse(name), magic_name=name)


begin()
