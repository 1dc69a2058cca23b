"""Modules that an image has imported, but that no program sees before it imports them.

`hide` imports them once. Each runs as if it were the first: it finds in `sys.modules`, and in the packages
around it, only what its own imports have brought. So it is known what an import of each brings. Then all are
removed from `sys.modules`, and what they did elsewhere is undone: filters of warnings, finders, variables of
the environment, exit functions.

When a program imports one of them, it is put back, with all that its import brings, and nothing runs. It
runs again instead if something that its import depends on is no longer as it was: a module with its
name that is found earlier, an entry of `sys.modules`, a finder, a variable that it reads.
"""

import atexit
import builtins
import importlib
import os
import sys
import time
import warnings
import weakref
from _frozen_importlib import ModuleSpec

from hatchery._display import find_after

# What can't run twice in a process.
ONCE = "numpy"
# Files of the working directory that modules read when they are imported.
READ_FILES = {"matplotlibrc": "matplotlib"}


class Recorder:
    """Finds modules through the other finders, and records what their imports bring and do."""

    def __init__(self):
        self.base = dict(sys.modules)
        self.modules, self.specs, self.origins = {}, {}, {}
        # By name: the modules that it asks for, in order; what else it does.
        self.needs, self.effects = {}, {}
        # The modules that read a variable of the environment.
        self.readers = {}
        # What was in `sys.modules` at the end of a module's import, or when it last waited for another.
        self._views = {}
        self.running = []
        # Modules whose packages don't bring them, with their packages' names for them.
        self.loose, self._children = {}, {}
        # Those whose names were taken from their packages.
        self.taken = set()
        # Modules that were put into `sys.modules` without an import, as compiled code does.
        self._put = []
        # Modules that add names to themselves when one asks for these, with the names that they began with.
        self._lazy = []
        self._recorded = set()
        # What `sys.modules` had when it was last set here.
        self._seen = self.base

    def find_spec(self, name, path=None, target=None):
        # Its importer has removed it, and wants another one.
        is_again = name in self._seen and name not in sys.modules
        if name in self.modules and not is_again:
            return ModuleSpec(name, self)
        spec = find_after(self, name, path, target)
        if spec is not None and not is_again and hasattr(spec.loader, "exec_module"):
            spec.loader = RecordingLoader(spec.loader, self)
        return spec

    def create_module(self, spec):
        return self.modules[spec.name]

    def exec_module(self, module):
        """Makes a module visible that was imported elsewhere."""
        name = module.__spec__.name
        put_spec(module, self.specs[name])
        if self.running:
            self.needs[self.running[-1]].append(name)
        view = sys.modules | self._views.get(name, {})
        # What importers have replaced or removed since stays so.
        for other, one in self._seen.items():
            now = sys.modules.get(other, view)
            if now is view:
                view.pop(other, None)
            elif now is not one:
                view[other] = now
        self.see(view)

    def run(self, module, execute):
        name, modules = module.__spec__.name, sys.modules
        outer = dict(modules)
        if self.running:
            self._views[self.running[-1]] = outer
        parent, _, child = name.rpartition(".")
        self.modules[name], self.specs[name] = module, module.__spec__
        self.origins[name] = module.__spec__.origin
        self.needs[name] = [parent] if parent in self.modules else []
        package = self.modules.get(parent) or self.base.get(parent)
        if package is not None:
            self.loose[name] = package.__dict__, child, module
            self._children.setdefault(parent, []).append(name)
        self.running.append(name)
        before, begun = world(), self.base | self._views.get(parent, {}) | {name: module}
        self.see(begun)
        try:
            execute(module)
        except BaseException:
            self.running.pop()
            self._leave(name, outer, modules.copy(), before)
            for kept in self.modules, self.specs, self.loose, self._views:
                kept.pop(name, None)
            needs, effects = self.needs.pop(name), self.effects.pop(name, [])
            if self.running:
                self.needs[self.running[-1]] += needs
                self.effects.setdefault(self.running[-1], []).extend(effects)
            raise
        self.running.pop()
        inner = dict(modules)
        # It may have replaced itself.
        self.modules[name] = one = inner.get(name, module)
        self.specs[name] = getattr(one, "__spec__", None)
        for other in sorted(inner.keys() - self.modules.keys() - self.base.keys()):
            self._put.append(other)
            one = self.modules[other] = inner[other]
            self.specs[other] = getattr(one, "__spec__", None)
            self.needs[other], self._views[other] = [], {other: one}
        self.needs[name] += [other for other in self._put if other in inner and other not in begun]
        if "__getattr__" in module.__dict__:
            self._lazy.append((module.__dict__, set(module.__dict__)))
        self._views[name] = inner
        for other in self._children.pop(name, ()):
            if other in inner:
                self.loose.pop(other, None)
        self._leave(name, outer, inner, before)
        if self.running:
            self.needs[self.running[-1]].append(name)

    def _leave(self, name, outer, inner, before):
        """Goes back to the importer, which now sees what the import has brought."""
        for apply, argument in differences(before, world()):
            key = argument if apply is set_variable else id(argument)
            if key not in self._recorded:
                self._recorded.add(key)
                self.add_effect(name, apply, argument)
        self.see(outer | inner)

    def add_effect(self, name, apply, argument):
        self.effects.setdefault(name, []).append((apply, argument))

    def see(self, view):
        """Makes these the visible modules: also in their packages, which lose what was asked for."""
        self._seen = view
        changed = self.loose.keys() & (sys.modules.keys() ^ view.keys())
        sys.modules.clear()
        sys.modules.update(view)
        for names, first in self._lazy:
            for name in names.keys() - first:
                if name[0] != "_" and type(names[name]) is not type(sys):
                    del names[name]
        for name in changed:
            names, child, module = self.loose[name]
            if name not in view and names.get(child) is module:
                del names[child]
                self.taken.add(name)
            elif name in view and name in self.taken:
                # Unless the package itself has deleted the name.
                names.setdefault(child, module)
                self.taken.remove(name)


class RecordingLoader:
    def __init__(self, loader, recorder):
        self._loader, self._recorder = loader, recorder

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__loader__ = module.__spec__.loader = self._loader
        self._recorder.run(module, self._loader.exec_module)


def put_spec(module, spec):
    try:
        module.__spec__ = spec
        module.__loader__ = spec.loader
    except AttributeError:
        pass  # it isn't a module


def filters():
    return warnings._get_filters() if hasattr(warnings, "_get_filters") else warnings.filters


def world():
    """Returns what imports change outside of modules."""
    return list(filters()), list(sys.meta_path), dict(os.environ._data)


def differences(before, after):
    """Yields what was added between, as functions that add it again, with their arguments."""
    old = {id(item) for item in before[0]}
    places = [place for place, item in enumerate(after[0]) if id(item) in old]
    for place, item in reversed([*enumerate(after[0])]):
        if id(item) not in old and place <= max(places, default=place):
            yield add_filter, item
    for item in after[0][max(places, default=len(after[0])) + 1 :]:
        yield append_filter, item
    for finder in after[1]:
        if not any(finder is one for one in before[1]):
            yield (add_first if finder is after[1][0] else add_last), finder
    for item in after[2].items() - before[2].items():
        yield set_variable, item


def add_filter(item):
    warnings._add_filter(*item, append=False)


def append_filter(item):
    warnings._add_filter(*item, append=True)


def add_first(finder):
    sys.meta_path.insert(0, finder)


def add_last(finder):
    sys.meta_path.append(finder)


def set_variable(item):
    name, value = map(os.fsdecode, item)
    os.environ[name] = value


def add_exit(item):
    function, args, kwargs = item
    atexit.register(function, *args, **kwargs)


def hide(names, before_hiding, folders):
    """Imports modules, except those that can't be imported, and hides them.

    Removes files that they leave in these folders, which are the guest's alone.
    """
    recorder, before, files = Recorder(), world(), files_in(folders)
    register, get = atexit.register, os._Environ.__getitem__

    def register_later(function, *args, **kwargs):
        # That of finalisers is for all modules.
        if recorder.running and getattr(function, "__self__", None) is not weakref.finalize:
            recorder.add_effect(recorder.running[-1], add_exit, (function, args, kwargs))
            return function
        return register(function, *args, **kwargs)

    def get_recorded(self, name):
        if recorder.running:
            recorder.readers.setdefault(name, set()).add(recorder.running[-1])
        return get(self, name)

    add_first(recorder)
    atexit.register, os._Environ.__getitem__ = register_later, get_recorded
    try:
        for name in names:
            try:
                importlib.import_module(name)
            except Exception:
                pass  # this build lacks it, or what it needs
            recorder.see(recorder.base)
    finally:
        atexit.register, os._Environ.__getitem__ = register, get
    recorder.see(recorder.base | recorder.modules)
    before_hiding()
    recorder.see(recorder.base)
    for path in files_in(folders) - files:
        os.remove(path)
    filters()[:], sys.meta_path[:] = before[:2]
    warnings._filters_mutated()
    for name in os.environ._data.keys() - before[2].keys():
        del os.environ[os.fsdecode(name)]
    return Hidden(recorder)


def files_in(folders):
    return {f"{top}/{file}" for folder in folders for top, _, files in os.walk(folder) for file in files}


class Hidden:
    """The modules that are hidden, and those that were shown again."""

    def __init__(self, recorder):
        self.modules, self.specs, self._needs = recorder.modules, recorder.specs, recorder.needs
        self._effects, self._origins = recorder.effects, recorder.origins
        self._loose = {name: recorder.loose[name] for name in recorder.taken & recorder.loose.keys()}
        self._readers, self._variables = recorder.readers, {name: os.environ.get(name) for name in recorder.readers}
        # What every import depends on.
        self._fixed = {name: one for name, one in recorder.base.items() if name != "__main__"}
        self._finders, self._hooks, self._import = list(sys.meta_path), list(sys.path_hooks), builtins.__import__
        # The first entry is the working directory.
        self._library = sys.path[1:]
        on_path = {name for name, spec in self.specs.items() if getattr(spec, "has_location", False)}
        self._shadows = {name.partition(".")[0]: name.partition(".")[0] for name in on_path} | READ_FILES

    def has(self, name, spec):
        """Whether the module that was found is the hidden one, and its import would do the same again."""
        self._forget(self._changed())
        is_same = self._origins.get(name) == spec.origin
        if not is_same:
            self._forget({name})
        return is_same and name in self.modules

    def loader(self, loader):
        return HiddenLoader(loader, self)

    def show(self, name):
        """Puts back what an import of a module brings, and then the module."""
        modules, waiting, begun = sys.modules, [name], set()
        while waiting:
            one = waiting.pop()
            if one is not None and one not in begun and one in self.modules:
                begun.add(one)
                waiting += (one, None)
                waiting += reversed(self._needs[one])
            elif one is None:
                self._put(waiting.pop())
        self._fixed.update((one, modules[one]) for one in begun)
        self._finders = list(sys.meta_path)
        return modules[name]

    def _put(self, name):
        module = sys.modules[name] = self.modules.pop(name)
        loose = self._loose.get(name)
        if loose is not None:
            loose[0][loose[1]] = module
        for apply, argument in self._effects.get(name, ()):
            apply(argument)
            if apply is set_variable:
                self._variables[os.fsdecode(argument[0])] = os.fsdecode(argument[1])
        if name == "logging":
            module._startTime = time.time_ns()

    def _changed(self):
        """Returns the hidden modules whose imports would no longer do what they did."""
        modules = sys.modules
        is_same = (
            self._fixed.items() <= modules.items()
            and self._finders == sys.meta_path
            and self._hooks == sys.path_hooks
            and builtins.__import__ is self._import
        )
        shadows = self._shadowed() if is_same else None
        if shadows is None:
            return set(self.modules)
        changed = set()
        if len(modules) > len(self._fixed) + 1:
            # More than these and `__main__`.
            changed.update(name for name in modules.keys() - self._fixed.keys() if name in self.modules)
        for variable, value in self._variables.items():
            if os.environ.get(variable) != value:
                changed |= self._readers[variable]
        if shadows:
            changed.update(name for name in self.modules if name.partition(".")[0] in shadows)
        return changed

    def _forget(self, changed):
        """Forgets these modules, and those that depend on them."""
        changed = {name for name in changed if name in self.modules}
        while changed:
            for name in changed:
                if name.partition(".")[0] != ONCE:
                    self.modules.pop(name, None)
            changed = {
                name for name in self.modules
                if name.partition(".")[0] != ONCE and not changed.isdisjoint(self._needs[name])
            }

    def _shadowed(self):
        """Returns the hidden modules that are found elsewhere first; `None` if the path has changed."""
        try:
            begin = sys.path.index(self._library[0])
        except ValueError:
            return None
        if sys.path[begin : begin + len(self._library)] != self._library:
            return None
        found = set()
        for folder in sys.path[:begin]:
            try:
                found.update(name.partition(".")[0] for name in os.listdir(folder or "."))
            except NotADirectoryError:
                return None  # an archive
            except (OSError, TypeError, ValueError):
                pass
        return {self._shadows[name] for name in found & self._shadows.keys()}


class HiddenLoader:
    """Loads a hidden module: shows it."""

    def __init__(self, loader, hidden):
        self._loader, self._hidden = loader, hidden

    def __getattr__(self, name):
        # Those who only ask for the spec read the source through it.
        return getattr(self._loader, name)

    def __repr__(self):
        return repr(self._loader)

    @property
    def __class__(self):
        return type(self._loader)

    def create_module(self, spec):
        return self._hidden.show(spec.name)

    def exec_module(self, module):
        put_spec(module, self._hidden.specs[module.__spec__.name])
