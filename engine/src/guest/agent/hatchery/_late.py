"""Modules of the package that run only when they are first needed.

These are the event loop, which needs asyncio, and modules that adapt modules of Python to the
sandbox when a program imports them. For example, asyncio gets our event loop, since its own needs
sockets. Modules that a build lacks have stand-ins, which are found only if nothing else is.
"""

import sys
from _frozen_importlib import ModuleSpec

from hatchery._display import find_after

# What the names of code for stand-ins begin with.
STAND_INS = "hatchery.stand_ins/"
# The module of asyncio that chooses the event loop. It is imported last.
LOOPS = "asyncio.unix_events"
# Which of our modules adapts a module, through its table `ADAPT`, if it has one.
ADAPTED = {
    LOOPS: "hatchery._loop",
    "_socket": "hatchery._sockets",
    "select": "hatchery._sockets",
    "socket": "hatchery._network",
    "ssl": "hatchery._tls",
    "tarfile": "hatchery._archives",
    "tqdm.std": "hatchery._threads",
    "matplotlib": "hatchery._threads",
    "anyio._backends._asyncio": "hatchery._threads",
    "PIL.JpegImagePlugin": "hatchery._jpeg",
    "_pytest.faulthandler": "hatchery._pytest",
    "zipfile": "hatchery._archives",
    "hashlib": "hatchery._hashes",
    "numpy": "hatchery._arrays",
    "numpy._core._type_aliases": "hatchery._integers",
    "numpy._core.arrayprint": "hatchery._integers",
    "numpy.random.mtrand": "hatchery._integers",
    "scipy.signal._peak_finding": "hatchery._integers",
    "sklearn.utils._random": "hatchery._integers",
    "asyncio": "hatchery._system",
    "ctypes": "hatchery._system",
    "signal": "hatchery._signals",
    "multiprocessing.context": "hatchery._processes",
    "multiprocessing.process": "hatchery._processes",
    "multiprocessing.pool": "hatchery._processes",
    "concurrent.futures.process": "hatchery._processes",
    "mmap": "hatchery._mmap",
    "subprocess": "hatchery._subprocess",
    "warnings": "hatchery._warnings",
}
# Packages whose compiled modules `None` of the table of this module adapts, if nothing else does.
COMPILED, OF_COMPILED = ("pandas", "scipy", "sklearn", "statsmodels"), "hatchery._integers"


def packed(code):
    """Returns code as few bytes, for `unpacked`."""
    import marshal

    data = marshal.dumps(code)
    try:
        import zlib
    except ImportError:
        return data
    return zlib.compress(data)


def unpacked(data):
    import marshal

    if data[:1] == b"x":  # zlib's first byte
        import zlib

        data = zlib.decompress(data)
    return marshal.loads(data)


class CodeFinder:
    """Finds modules whose code is already here."""

    def __init__(self, codes, folder=""):
        self._codes, self._folder = codes, folder

    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self, origin="built-in") if self._folder + name in self._codes else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        code = self._codes[self._folder + module.__name__]
        exec(unpacked(code) if type(code) is bytes else code, module.__dict__)


class LateFinder(CodeFinder):
    """Finds modules of the package, and intercepts imports of modules to adapt."""

    # The modules that the image has hidden (`hatchery._hidden`), if it has some.
    hidden = None

    def find_spec(self, name, path=None, target=None):
        is_adapted = name in ADAPTED
        is_hidden = self.hidden is not None and name in self.hidden.modules and target is None
        if not is_hidden and not is_adapted and name.partition(".")[0] not in COMPILED:
            return super().find_spec(name)
        spec = super().find_spec(name) or find_after(self, name, path, target)
        if is_hidden and spec is not None and self.hidden.has(name, spec):
            spec.loader = self.hidden.loader(spec.loader)
        elif spec is not None and hasattr(spec.loader, "exec_module"):
            if is_adapted or spec.origin == "built-in" and name.partition(".")[0] in COMPILED:
                spec.loader = AdaptingLoader(spec.loader)
        return spec


class AdaptingLoader:
    """Loads a module with another loader, then adapts it."""

    def __init__(self, loader):
        self._loader = loader

    def __getattr__(self, name):
        # Those who only ask for the spec read the source through it.
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        adapt(module)


def adapt(module):
    """Adapts a module that was imported."""
    name = ADAPTED.get(module.__name__, OF_COMPILED)
    try:
        __import__(name)
    except ImportError:
        return  # the program removed our package
    changes = getattr(sys.modules[name], "ADAPT", {})
    change = changes.get(module.__name__, changes.get(None))
    if change is not None:
        change(module)


def install(codes):
    """Lets imports find these modules, which are given as code by name."""
    sys.meta_path.insert(0, LateFinder(codes))
    sys.meta_path.append(CodeFinder(codes, STAND_INS))
    if sys.platform == "emscripten":
        # Pyodide's own `_ssl` does no TLS.
        name = f"{STAND_INS}_ssl"
        sys.meta_path.insert(1, CodeFinder({name: codes[name]}, STAND_INS))
    for name in ("signal", "warnings"):  # CPython itself may have imported them
        if name in sys.modules:
            adapt(sys.modules[name])
