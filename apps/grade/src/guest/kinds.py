"""Values that can change and that both sides of a grading run know by number, so that both see one list."""

import builtins as _builtins
import json as _json
import sys as _sys
from operator import is_ as _is

_MISSING = object()
# Values that both sides know at once.
_MOST_SHARED = 200_000


class NotPlain(Exception):
    """A value that can't be written as plain data."""


class Malformed(BaseException):
    """Received data that isn't the form of any value. No `except Exception` of tests catches it."""


class Shared:
    """Values that can change and that both sides know, by number."""

    def __init__(self, first, step=2):
        self._next, self._step = first, step
        self._entries = {}
        self._numbers = {}
        self._forgotten = []
        # References to a value that nobody else has.
        self._entries[-1] = [[], None]
        self._alone = self._references(-1)
        del self._entries[-1]

    def _references(self, number):
        return _sys.getrefcount(self._entries[number][0])

    def number_of(self, value):
        """Returns the number of a value, or `None`."""
        return self._numbers.get(id(value))

    def add(self, value, number=None):
        """Notes a value as it is now, and returns its number."""
        if number is None:
            number = self._next
            self._next += self._step
        if len(self._entries) >= _MOST_SHARED:
            raise Refused(f"tests and a candidate share at most {_MOST_SHARED} lists and similar objects")
        self._entries[number] = [value, kind_of(value).kept(value)]
        self._numbers[id(value)] = number
        return number

    def get(self, number):
        entry = self._entries.get(number)
        return None if entry is None else entry[0]

    def has(self, number):
        return number in self._entries

    def changed(self):
        """Returns the values that have changed since both sides last agreed, and forgets those that
        nobody here has any more."""
        unseen = list(self._entries)
        while unseen:
            number = unseen.pop()
            if (
                number in self._entries
                and self._references(number) <= self._alone
                and self._is_unchanged(number)
            ):
                unseen += self._within(number)
                self.forget(number)
                self._forgotten.append(number)
        return [self.get(number) for number in self._entries if not self._is_unchanged(number)]

    def _within(self, number):
        """Returns the numbers of what a value consists of."""
        kept = self._entries[number][1]
        found = [self._numbers.get(id(part)) for part in kept] if type(kept) is list else ()
        return [inner for inner in found if inner is not None]

    def _is_unchanged(self, number):
        value, kept = self._entries[number]
        return kind_of(value).is_kept(value, kept)

    def forgotten(self):
        numbers, self._forgotten = self._forgotten, []
        return numbers

    def forget(self, number):
        entry = self._entries.pop(number, None)
        if entry is not None:
            self._numbers.pop(id(entry[0]), None)


class _Kind:
    """How values of a type that can change are written and compared with what they were."""

    def __init__(self, name, parts, fill, kept=None, is_kept=None, make=None):
        self.name = name
        # Values that it consists of, in a list.
        self.parts = parts
        # Makes a value consist of others.
        self.fill = fill
        self.kept = kept or parts
        self.is_kept = is_kept or (lambda value, old: _are_same(parts(value), old))
        self.make = make


def _are_same(one, other):
    return len(one) == len(other) and all(map(_is, one, other))


def _flat(value):
    return [part for pair in dict.items(value) for part in pair]


def _fill_list(value, parts):
    value[:] = parts


def _fill_dict(value, parts):
    places = iter(parts)
    pairs = list(zip(places, places))
    dict.clear(value)
    for key, item in pairs:
        dict.__setitem__(value, key, item)


def _fill_set(value, parts):
    set.clear(value)
    set.update(value, ordered_set(parts))
    Disorder.seen |= not _are_same(list(value), parts)


def _make_set(parts):
    made = ordered_set(parts)
    Disorder.seen |= not _are_same(list(made), parts)
    return made


def _deque():
    return _imported("collections", "deque")


def _fill_deque(value, parts):
    value.clear()
    value.extend(parts)


_KINDS = {
    list: _Kind("list", list, _fill_list, make=list),
    dict: _Kind("dict", _flat, _fill_dict, make=dict),
    set: _Kind("set", list, _fill_set),
    bytearray: _Kind(
        "bytearray",
        lambda value: [bytes(value)],
        lambda value, parts: _fill_list(value, parts[0]),
        bytes,
        lambda value, old: value == old,
        bytearray,
    ),
}
_BY_NAME = {kind.name: kind for kind in _KINDS.values()}
# Kinds of modules that may not be imported, by the name of their type.
_LATER = {}


def _later(module, name, tag, parts, fill, make, kept=None, is_kept=None):
    kind = _Kind(tag, parts, fill, kept, is_kept, make)
    _BY_NAME[tag] = kind
    _LATER[module, name] = kind


_later("collections", "Counter", "Counter", _flat, _fill_dict, lambda: _imported("collections", "Counter")())
_later(
    "collections",
    "OrderedDict",
    "OrderedDict",
    _flat,
    lambda value, parts: (value.clear(), value.update(zip(parts[::2], parts[1::2]))),
    lambda: _imported("collections", "OrderedDict")(),
)


def _fill_defaultdict(value, parts):
    value.default_factory = parts[0]
    _fill_dict(value, parts[1:])


_later(
    "collections",
    "defaultdict",
    "defaultdict",
    lambda value: [value.default_factory, *_flat(value)],
    _fill_defaultdict,
    lambda: _imported("collections", "defaultdict")(),
)
# A bound can't be changed; a deque with one is made when it comes.
_later("collections", "deque", "deque", lambda value: [value.maxlen, *value], None, None)
_BY_NAME["deque"].fill = lambda value, parts: _fill_deque(value, parts[1:])
_later(
    "array",
    "array",
    "array.array",
    lambda value: [value.typecode, *value],
    lambda value, parts: _fill_list(value, _imported("array", "array")(value.typecode, parts[1:])),
    None,
    lambda value: (value.typecode, value.tobytes()),
    lambda value, old: (value.typecode, value.tobytes()) == old,
)


def kind_of(value):
    """Returns how a value that can change is written; `None` for others."""
    kind = type(value)
    found = _KINDS.get(kind)
    if found is None and (kind.__module__, kind.__qualname__) in _LATER:
        _KINDS[kind] = found = _LATER[kind.__module__, kind.__qualname__]
    elif found is None and kind.__module__ in ("numpy", "pandas") and kind.__name__ in _FRAMES:
        if kind.__name__ != "ndarray" or _dtype_kind(value) in _PLAIN_DTYPES:
            _KINDS[kind] = found = _FRAMES[kind.__name__]
    elif found is _FRAMES["ndarray"] and _dtype_kind(value) not in _PLAIN_DTYPES:
        return None
    return found
