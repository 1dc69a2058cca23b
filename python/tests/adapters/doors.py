"""The recipes of the guide's page on doors, which tests run as they stand there."""

import os
import re
import sys
import types
from pathlib import Path

from hatchery_sandbox._process import find_binary

PAGE = Path(__file__).parents[3] / "docs/guide/which-door.md"
_RECIPE = re.compile(r"^\$ cat > (\w+)\.py <<'END'\n(.*?)^END$", re.MULTILINE | re.DOTALL)


def names():
    """Returns the names of all recipes."""
    return [name for name, _ in _RECIPE.findall(PAGE.read_text(encoding="utf-8"))]


def source(name):
    """Returns a recipe as text."""
    return dict(_RECIPE.findall(PAGE.read_text(encoding="utf-8")))[name]


def run(name, monkeypatch):
    """Runs a recipe with the program `hatchery` on the path, and returns it as a module."""
    folder = os.path.dirname(find_binary(None))
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    module = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    exec(compile(source(name), f"{name}.py", "exec"), vars(module))
    return module
