"""Inspects the notebook's variables: `%who`, `%whos`, and `name?`."""

import inspect
import re

from hatchery_notebook.execution import namespace

# Longer texts are shortened to their beginning and end.
LONGEST = 50


def variables(hidden, kinds=""):
    """Returns the names of the program's variables, sorted; only of these types, if given."""
    names, kinds = namespace(), kinds.split()
    found = sorted(
        name for name, value in names.items()
        if not name.startswith("_") and (name not in hidden or hidden[name] is not value)
    )
    return [name for name in found if not kinds or type(names[name]).__name__ in kinds]


def who(hidden, line):
    found = variables(hidden, line)
    if not found:
        return print(nothing(line))
    for at, name in enumerate(found, 1):
        print(f"{name}\t", end=" ")
        if at % 9 == 0:
            print()
    print()


def nothing(line):
    return "No variables match your requested type." if line else "Interactive namespace is empty."


def whos(hidden, line):
    found = variables(hidden, line)
    if not found:
        return print(nothing(line))
    names = namespace()
    rows = [(name, type_of(names[name]), said_of(names[name])) for name in found]
    widths = [max(len(row[at]) for row in rows) for at in (0, 1)]
    widths = [max(widths[0], len("Variable")), max(widths[1], len("Type"))]
    heading = f"{'Variable':{widths[0]}}   {'Type':{widths[1]}}    Data/Info"
    print(f"{heading}\n{'-' * len(heading)}")
    for name, kind, text in rows:
        print(f"{name:{widths[0]}}   {kind:{widths[1]}}    {text}")


def type_of(value):
    return type(value).__name__


def said_of(value):
    """Returns what `%whos` prints about a value."""
    kind = type_of(value)
    if kind in ("dict", "list", "tuple"):
        return f"n={len(value)}"
    if kind == "ndarray":
        shape = "x".join(map(str, value.shape))
        size = f"{value.size} elems, type `{value.dtype}`, {value.nbytes} bytes"
        return f"{shape}: {size}{in_units(value.nbytes)}"
    if kind in ("DataFrame", "Series"):
        return f"Shape: {value.shape}"
    text = str(value).replace("\n", "\\n")
    return text if len(text) < LONGEST else f"{text[:25]}<...>{text[-25:]}"


def in_units(size):
    """Returns a large size in larger units, to append."""
    if size < 100_000:
        return ""
    return f" ({size / 1024} kb)" if size < 1 << 20 else f" ({size / (1 << 20)} Mb)"


def reset(hidden, line):
    """Deletes the program's variables."""
    names = namespace()
    for name in variables(hidden):
        del names[name]


def reset_selective(hidden, pattern):
    names, matches = namespace(), re.compile(pattern).search
    for name in variables(hidden):
        if matches(name):
            del names[name]


def describe(name, with_source=False):
    """Prints information about an object, as `name?` does."""
    try:
        value = eval(name.strip(), namespace())
    except (NameError, AttributeError):
        return print(f"Object `{name.strip()}` not found.")
    try:
        print(f"Signature: {name.strip()}{inspect.signature(value)}")
    except (TypeError, ValueError):
        pass
    print(f"Type:      {type(value).__name__}")
    if with_source:
        try:
            return print(f"Source:\n{inspect.getsource(value)}")
        except (OSError, TypeError):
            pass
    print(f"Docstring: {inspect.getdoc(value) or '<no docstring>'}")
