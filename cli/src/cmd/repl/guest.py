"""Lists names in a session, for completion at the prompt.

Installed in each session as the module `hatchery_prompt`. Names are looked up without running code
of the program: no property, no `__getattr__`, no `__dir__`.
"""

import builtins
import keyword
import sys
import types

# Attributes that C types compute without running code of a program.
COMPUTED = (types.GetSetDescriptorType, types.MemberDescriptorType)
MISSING = object()
MOST_NAMES = 1000

ancestors_of = type.__dict__["__mro__"].__get__
names_of_class = type.__dict__["__dict__"].__get__
names_of_module = types.ModuleType.__dict__["__dict__"].__get__


def complete(dotted):
    """Returns the names that the last part of a dotted name could become, sorted."""
    *path, begun = dotted.split(".")
    names = top_names()
    if path:
        value = names.get(path[0], MISSING)
        for name in path[1:]:
            value = attribute_of(value, name)
        names = attributes_of(value)
    found = {name for name in names if type(name) is str and name.startswith(begun)}
    if not path:
        found |= {word for word in keyword.kwlist if word.startswith(begun)}
    if not begun.startswith("_"):
        found = {name for name in found if not name.startswith("_")}
    return sorted(name for name in found if name.isidentifier())[:MOST_NAMES]


def top_names():
    return {**builtins.__dict__, **names_of_module(sys.modules["__main__"])}


def attributes_of(value):
    """Returns the attributes by name; those of the value itself come before those of its class."""
    if value is MISSING:
        return {}
    kinds = [type(value)]
    if issubclass(type(value), type):
        kinds.append(value)
    names = {}
    for kind in kinds:
        for one in reversed(ancestors_of(kind)):
            names.update(names_of_class(one))
    names.update(own_names(value))
    return names


def own_names(value):
    """Returns the `__dict__` of a value that is not a class."""
    if issubclass(type(value), type):
        return {}
    for one in ancestors_of(type(value)):
        found = names_of_class(one).get("__dict__")
        if found is not None:
            own = found.__get__(value) if type(found) in COMPUTED else None
            return own if type(own) is dict else {}
    return {}


def attribute_of(value, name):
    """Returns an attribute, if that needs no code of the program."""
    found = attributes_of(value).get(name, MISSING)
    if type(found) in COMPUTED and name not in own_names(value):
        try:
            return found.__get__(value)
        except Exception:
            return MISSING
    return MISSING if type(found) is property else found
