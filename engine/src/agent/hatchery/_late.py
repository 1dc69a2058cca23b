"""Modules of the package that are run only when they are first imported.

That is the event loop, which needs asyncio; and asyncio is given that event loop when a program
imports it, since the one that it has wants sockets.
"""

import sys
from _frozen_importlib import ModuleSpec

# The module of asyncio that says which event loop there is, and is imported last.
LOOPS = "asyncio.unix_events"


class LateFinder:
    """Finds modules whose code is here already, and sees asyncio come."""

    def __init__(self, codes):
        self._codes = codes

    def find_spec(self, name, path=None, target=None):
        if name in self._codes:
            return ModuleSpec(name, self)
        if name != LOOPS:
            return None
        for finder in sys.meta_path:
            # As imports do: a program's finder may lack the method.
            find = getattr(finder, "find_spec", None) if finder is not self else None
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                spec.loader = LoopsLoader(spec.loader)
                return spec
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        exec(self._codes[module.__name__], module.__dict__)


class LoopsLoader:
    """Loads a module as another loader does, and has `_loop` put its event loop there."""

    def __init__(self, loader):
        self._loader = loader

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        import hatchery._loop


def install(codes):
    """Has imports find these modules, which come as code by name."""
    sys.meta_path.insert(0, LateFinder(codes))
