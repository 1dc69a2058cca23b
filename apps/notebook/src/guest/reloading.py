"""`%autoreload`: reloads modules whose files have changed, before a cell runs.

Functions and classes of a reloaded module stay the same objects with new contents, so that names
that were imported from it, and instances, see the change.
"""

import contextlib
import importlib
import os
import sys
import traceback
import types

from hatchery_notebook.errors import UsageError

MODES = {"0": "off", "1": "explicit", "2": "all", "3": "all", "complete": "all"}
# Where modules are that never change.
FIXED = ("/usr/", "/hatchery-packages/", "<")
TAKEN = ("__code__", "__defaults__", "__kwdefaults__", "__doc__")


class Reloader:
    """Which modules are reloaded, and what their files were like when they were loaded."""

    def __init__(self):
        self.mode = "off"
        self.named, self.skipped, self.seen = set(), set(), {}

    def autoreload(self, line):
        word = line.split("-")[0].strip().lower()
        if word in ("", "now"):
            return self.reload(is_wanted=lambda name: True)
        mode = MODES.get(word, word)
        if mode not in MODES.values():
            raise UsageError("write `%autoreload` with `off`, `explicit`, `all` or `now`")
        self.mode = mode
        self.reload(is_wanted=lambda name: False)

    def aimport(self, line):
        """Imports modules into the notebook that `%autoreload explicit` reloads; `-` excludes one."""
        for word in line.replace(",", " ").split():
            if word.startswith("-"):
                self.skipped.add(word[1:])
                continue
            self.named.add(word)
            module = importlib.import_module(word)
            top = word.partition(".")[0]
            sys.modules["__main__"].__dict__[top] = sys.modules.get(top, module)

    def before_cell(self):
        if self.mode != "off":
            self.reload(lambda name: self.mode == "all" or name in self.named)

    def reload(self, is_wanted):
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if name == "__main__" or not isinstance(file, str) or file.startswith(FIXED):
                continue
            try:
                status = os.stat(file)
            except OSError:
                continue
            state = status.st_mtime_ns, status.st_size
            before = self.seen.setdefault(name, state)
            if before != state and name not in self.skipped and is_wanted(name):
                self.seen[name] = state
                reload(module)


def reload(module):
    names = vars(module)
    before = dict(names)
    try:
        importlib.invalidate_caches()
        importlib.reload(module)
    except Exception as error:
        why = "".join(traceback.format_exception_only(error)).strip()
        print(f"[autoreload of {module.__name__} failed: {why}]", file=sys.stderr)
        return
    for name, old in before.items():
        if getattr(old, "__module__", None) == module.__name__ and adopt(old, names.get(name)):
            names[name] = old


def adopt(old, new):
    """Gives a function or class the contents of another. Returns whether it could."""
    if old is new or type(old) is not type(new):
        return False
    if isinstance(old, types.FunctionType):
        if len(old.__code__.co_freevars) != len(new.__code__.co_freevars):
            return False
        for part in TAKEN:
            setattr(old, part, getattr(new, part))
        return True
    if not isinstance(old, type):
        return False
    for name in vars(old).keys() - vars(new).keys():
        delattr(old, name)
    for name, part in list(vars(new).items()):
        if name in ("__dict__", "__weakref__") or adopt(vars(old).get(name), part):
            continue
        for cell in getattr(part, "__closure__", None) or ():
            # For `super()`.
            with contextlib.suppress(ValueError):
                if cell.cell_contents is new:
                    cell.cell_contents = old
        with contextlib.suppress(AttributeError, TypeError):
            setattr(old, name, part)
    return True
