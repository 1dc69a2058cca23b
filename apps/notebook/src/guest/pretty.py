"""Formats objects as text, wrapped like IPython.

A printer records texts, groups and breaks, and lays them out at the end: a group that fits stays on
one line, otherwise each of its parts gets its own line.
"""

import collections
import inspect
import os
import re
import sys
import types
from contextlib import contextmanager

WIDTH = 79
# Longer sequences are cut after this many items.
MOST_ITEMS = 1000
PLAIN_MODULES = (None, "builtins", "exceptions")


class Break:
    """A place where a line may break, or must."""

    def __init__(self, text, indentation, is_hard):
        self.text, self.indentation, self.is_hard = text, indentation, is_hard


class Group:
    """Texts, breaks and groups; either all of its own breaks are taken or none."""

    def __init__(self):
        self.parts = []
        self.width = 0
        self.has_hard_break = False

    def add(self, part):
        self.parts.append(part)
        if isinstance(part, Break):
            self.width += len(part.text)
            self.has_hard_break |= part.is_hard
        elif isinstance(part, Group):
            self.width += part.width
            self.has_hard_break |= part.has_hard_break
        else:
            self.width += len(part)

    def start(self):
        """Returns the width before the first possible break, and whether there is one."""
        width = 0
        for part in self.parts:
            if isinstance(part, Break):
                return width, True
            if isinstance(part, Group):
                inner, is_over = part.start()
                width += inner
                if is_over:
                    return width, True
            else:
                width += len(part)
        return width, False


class Printer:
    """The `p` of `_repr_pretty_(self, p, cycle)` and of functions given to `for_type`."""

    def __init__(self, printers=None, max_width=WIDTH, max_seq_length=MOST_ITEMS):
        self.type_pprinters = printers if printers is not None else {}
        self.max_width, self.max_seq_length = max_width, max_seq_length
        self.indentation = 0
        self.stack = []
        self.groups = [Group()]

    def text(self, text):
        self.groups[-1].add(str(text))

    def breakable(self, sep=" "):
        self.groups[-1].add(Break(sep, self.indentation, False))

    def break_(self):
        self.groups[-1].add(Break("", self.indentation, True))

    def begin_group(self, indent=0, open=""):
        if open:
            self.text(open)
        self.groups.append(Group())
        self.indentation += indent

    def end_group(self, dedent=0, close=""):
        self.indentation -= dedent
        group = self.groups.pop()
        self.groups[-1].add(group)
        if close:
            self.text(close)

    @contextmanager
    def group(self, indent=0, open="", close=""):
        self.begin_group(indent, open)
        try:
            yield
        finally:
            self.end_group(indent, close)

    @contextmanager
    def indent(self, indent):
        self.indentation += indent
        try:
            yield
        finally:
            self.indentation -= indent

    def flush(self):
        """Does nothing: the layout happens at the end."""

    def pretty(self, value):
        """Adds an object, formatted by the nearest of its classes that has a way to do it."""
        identity = id(value)
        is_cycle = identity in self.stack
        self.stack.append(identity)
        self.begin_group()
        try:
            return way_of(value, self.type_pprinters)(value, self, is_cycle)
        finally:
            self.end_group()
            self.stack.pop()

    def items(self, values):
        """Yields the first items; adds `...` if there are more."""
        for at, value in enumerate(values):
            if self.max_seq_length and at >= self.max_seq_length:
                self.text(",")
                self.breakable()
                self.text("...")
                return
            if at:
                self.text(",")
                self.breakable()
            yield value

    def getvalue(self):
        lines = []
        lay_out(self.groups[0], lines, 0, 0, self.max_width)
        return "".join(lines)


def lay_out(group, lines, column, behind, width):
    """Writes a group; `behind` is the width of what follows without a break. Returns the column of
    its end."""
    is_flat = not group.has_hard_break and column + group.width + behind <= width
    parts = group.parts
    for at, part in enumerate(parts):
        if isinstance(part, Break):
            if is_flat:
                lines.append(part.text)
                column += len(part.text)
            else:
                lines.append("\n" + " " * part.indentation)
                column = part.indentation
        elif isinstance(part, Group):
            follows = 0 if is_flat else until_break(parts[at + 1 :], behind)
            column = lay_out(part, lines, column, follows, sys.maxsize if is_flat else width)
        else:
            lines.append(part)
            column += len(part)
    return column


def until_break(parts, behind):
    """Returns the width of these parts, and of what is behind them, up to the next possible
    break."""
    width = 0
    for part in parts:
        if isinstance(part, Break):
            return width
        if isinstance(part, Group):
            inner, is_over = part.start()
            width += inner
            if is_over:
                return width
        else:
            width += len(part)
    return width + behind


def pretty(value, printers=None):
    printer = Printer(printers)
    printer.pretty(value)
    return printer.getvalue()


def way_of(value, printers):
    """Returns the function that formats an object: one given for its class, ours, or its own."""
    for kind in mro_of(value):
        function = printers.get(kind) or WAYS.get(kind)
        if function is not None:
            return function
        names = vars(kind)
        if callable(names.get("_repr_pretty_")):
            return lambda value, printer, cycle: value._repr_pretty_(printer, cycle)
        if kind is not object and callable(names.get("__repr__")):
            return as_repr
    return as_object


def mro_of(value):
    kind = type(value)
    try:
        return inspect.getmro(kind)
    except AttributeError:
        return (kind,)


def as_repr(value, printer, cycle):
    for at, line in enumerate(repr(value).splitlines() or [""]):
        if at:
            printer.break_()
        printer.text(line)


def as_object(value, printer, cycle):
    with printer.group(1, "<", ">"):
        printer.pretty(type(value))
        printer.text(f" at 0x{id(value):x}" + (" ..." if cycle else ""))


def has_own_repr(value, base):
    kind = type(value)
    return kind is not base and kind.__repr__ is not base.__repr__


def sequence(base, opening, closing):
    def show(value, printer, cycle):
        if has_own_repr(value, base):
            return printer.text(repr(value))
        if cycle:
            return printer.text(f"{opening}...{closing}")
        with printer.group(len(opening), opening, closing):
            for item in printer.items(value):
                printer.pretty(item)
            if base is tuple and len(value) == 1:
                printer.text(",")

    return show


def unordered(base, opening, closing):
    def show(value, printer, cycle):
        if has_own_repr(value, base):
            return printer.text(repr(value))
        if cycle:
            return printer.text(f"{opening}...{closing}")
        if not value:
            return printer.text(f"{base.__name__}()")
        items = in_order(value) if len(value) < printer.max_seq_length else value
        with printer.group(len(opening), opening, closing):
            for item in printer.items(items):
                printer.pretty(item)

    return show


def in_order(values):
    """Sorts values by their own order, else by type and text."""
    try:
        return sorted(values)
    except Exception:
        try:
            return sorted(values, key=lambda value: (str(type(value)), str(value)))
        except Exception:
            return values


def mapping(base, opening="{", closing="}"):
    def show(value, printer, cycle):
        if base is not None and has_own_repr(value, base):
            return printer.text(repr(value))
        if cycle:
            return printer.text("{...}")
        with printer.group(len(opening), opening, closing):
            for key in printer.items(value):
                printer.pretty(key)
                printer.text(": ")
                printer.pretty(value[key])

    return show


def call(printer, name, *arguments, **keywords):
    """Prints a call that creates the object."""
    with printer.group(len(name) + 1, f"{name}(", ")"):
        is_first = True
        for keyword, argument in [(None, one) for one in arguments] + list(keywords.items()):
            if not is_first:
                printer.text(",")
                printer.breakable()
            is_first = False
            prefix = f"{keyword}=" if keyword else ""
            with printer.group(len(prefix), prefix):
                printer.pretty(argument)


def called(arguments_of):
    """Prints an object as a call of its class with these arguments."""

    def show(value, printer, cycle):
        name = type(value).__name__
        if cycle:
            return printer.text(f"{name}(...)")
        arguments, keywords = arguments_of(value)
        call(printer, name, *arguments, **keywords)

    return show


def as_type(value, printer, cycle):
    reprs = [kind for kind in type(value).__mro__ if "__repr__" in vars(kind)]
    if reprs[:1] != [type]:
        return as_repr(value, printer, cycle)
    printer.text(qualified(value))


def qualified(value):
    name = getattr(value, "__qualname__", None) or value.__name__
    module = getattr(value, "__module__", None)
    return name if module in PLAIN_MODULES else f"{module}.{name}"


def as_function(value, printer, cycle):
    try:
        signature = str(inspect.signature(value))
    except (TypeError, ValueError):
        signature = ""
    printer.text(f"<function {qualified(value)}{signature}>")


def as_exception(value, printer, cycle):
    name = qualified(type(value))
    if cycle:
        return printer.text(f"{name}(...)")
    call(printer, name, *getattr(value, "args", ()))


def as_super(value, printer, cycle):
    with printer.group(8, "<super: ", ">"):
        printer.pretty(value.__thisclass__)
        printer.text(",")
        printer.breakable()
        printer.pretty(value.__self__)


def as_pattern(value, printer, cycle):
    flags = "|".join(f"re.{flag.name}" for flag in sorted(re.RegexFlag(value.flags), key=lambda one: one.name))
    pattern = repr(value.pattern)
    raw = pattern if "\\" not in pattern else pattern.replace("\\\\", "\\")
    call(printer, "re.compile", Raw(f"r{raw}"), *([Raw(flags)] if flags else []))


def as_namespace(value, printer, cycle):
    name = "namespace" if type(value) is types.SimpleNamespace else type(value).__name__
    if cycle:
        return printer.text(f"{name}(...)")
    call(printer, name, **vars(value))


class Raw:
    """Text that is printed in a call as it is."""

    def __init__(self, text):
        self._text = text

    def _repr_pretty_(self, printer, cycle):
        printer.text(self._text)


def counted(value):
    return ([dict(value.most_common())] if value else []), {}


def queued(value):
    return [list(value)], {} if value.maxlen is None else {"maxlen": value.maxlen}


WAYS = {
    list: sequence(list, "[", "]"),
    tuple: sequence(tuple, "(", ")"),
    set: unordered(set, "{", "}"),
    frozenset: unordered(frozenset, "frozenset({", "})"),
    dict: mapping(dict),
    types.MappingProxyType: lambda value, printer, cycle: call(printer, "mappingproxy", dict(value)),
    type(os.environ): mapping(type(os.environ), "environ{", "}"),
    collections.OrderedDict: called(lambda value: ([list(value.items())] if value else [], {})),
    collections.defaultdict: called(lambda value: ([value.default_factory, dict(value)], {})),
    collections.Counter: called(counted),
    collections.deque: called(queued),
    collections.UserDict: called(lambda value: ([value.data], {})),
    collections.UserList: called(lambda value: ([value.data], {})),
    collections.UserString: called(lambda value: ([value.data], {})),
    types.SimpleNamespace: as_namespace,
    type: as_type,
    types.FunctionType: as_function,
    types.BuiltinFunctionType: as_function,
    BaseException: as_exception,
    super: as_super,
    re.Pattern: as_pattern,
}
for _kind in (int, float, str, bytes, types.MethodType, slice, range):
    WAYS[_kind] = as_repr
