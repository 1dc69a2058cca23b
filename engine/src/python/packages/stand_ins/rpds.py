"""The machine code of rpds-py, in Python: the same values. A change copies what the other shares."""

import collections.abc as _abc

__all__ = ["HashTrieMap", "HashTrieSet", "List", "Stack", "Queue"]


def _hash(parts, what):
    for name, part in parts:
        try:
            hash(part)
        except Exception:
            raise TypeError(f"Unhashable type {what.format(name)}: {part!r}") from None


class _Values(_abc.ValuesView):
    def __repr__(self):
        return f"values_view([{', '.join(map(repr, self))}])"


class _Keys(_abc.KeysView):
    def __and__(self, other):
        return HashTrieSet(key for key in other if key in self._mapping)

    def __or__(self, other):
        return HashTrieMap.fromkeys([*self, *other]).keys()

    intersection, union = __and__, __or__

    def __repr__(self):
        return f"keys_view({{{', '.join(map(repr, self))}}})"


class _Items(_abc.ItemsView):
    def __and__(self, other):
        return HashTrieSet(item for item in other if isinstance(item, tuple) and item in self)

    def __or__(self, other):
        return HashTrieSet([*self, *other])

    intersection, union = __and__, __or__

    def __repr__(self):
        return f"items_view([{', '.join(map(repr, self))}])"


class _Value:
    __slots__ = ("_inner",)

    def __init_subclass__(cls):
        cls.__module__ = "rpds"

    @classmethod
    def _of(cls, inner):
        value = cls.__new__(cls)
        value._inner = inner
        return value

    def __len__(self):
        return len(self._inner)

    def __iter__(self):
        return iter(self._inner)

    def __reduce__(self):
        return type(self), (list(self),)


class HashTrieMap(_Value):
    __slots__ = ()

    def __new__(cls, value=None, **more):
        self = object.__new__(cls)
        self._inner = dict(() if value is None else cls._pairs(value), **more)
        return self

    @staticmethod
    def _pairs(value):
        return value.items() if isinstance(value, _abc.Mapping) else value

    @classmethod
    def convert(cls, value):
        return value if isinstance(value, HashTrieMap) else cls(value)

    @classmethod
    def fromkeys(cls, keys, val=None):
        return cls._of(dict.fromkeys(keys, val))

    def __contains__(self, key):
        return key in self._inner

    def __getitem__(self, key):
        return self._inner[key]

    def __eq__(self, other):
        return self._inner == other._inner if isinstance(other, HashTrieMap) else NotImplemented

    def __hash__(self):
        _hash(self._inner.items(), "in HashTrieMap of key {!r}")
        return hash(frozenset(self._inner.items()))

    def __repr__(self):
        return f"HashTrieMap({self._inner!r})"

    def __reduce__(self):
        return type(self), (list(self._inner.items()),)

    def get(self, key, default=None):
        return self._inner.get(key, default)

    def keys(self):
        return _Keys(self)

    def values(self):
        return _Values(self)

    def items(self):
        return _Items(self)

    def insert(self, key, value):
        return self._of(self._inner | {key: value})

    def remove(self, key):
        inner = self._inner.copy()
        del inner[key]
        return self._of(inner)

    def discard(self, key):
        return self.remove(key) if key in self._inner else self

    def update(self, *maps, **more):
        inner = self._inner.copy()
        for value in maps:
            inner.update(self._pairs(value))
        inner.update(more)
        return self._of(inner)


_abc.Mapping.register(HashTrieMap)


class HashTrieSet(_Value):
    __slots__ = ()

    def __new__(cls, value=None):
        self = object.__new__(cls)
        self._inner = frozenset(() if value is None else value)
        return self

    def __contains__(self, value):
        return value in self._inner

    def __eq__(self, other):
        return isinstance(other, _abc.Set) and self._inner == frozenset(other)

    def __lt__(self, other):
        return isinstance(other, _abc.Set) and self._inner < frozenset(other)

    def __le__(self, other):
        return isinstance(other, _abc.Set) and self._inner <= frozenset(other)

    def __gt__(self, other):
        return isinstance(other, _abc.Set) and self._inner > frozenset(other)

    def __ge__(self, other):
        return isinstance(other, _abc.Set) and self._inner >= frozenset(other)

    def __hash__(self):
        return hash(self._inner)

    def __repr__(self):
        return f"HashTrieSet({{{', '.join(map(repr, self))}}})"

    def __and__(self, other):
        return self._with(self._inner.intersection, other)

    def __or__(self, other):
        return self._with(self._inner.union, other)

    def __sub__(self, other):
        return self._with(self._inner.difference, other)

    def __xor__(self, other):
        return self._with(self._inner.symmetric_difference, other)

    def _with(self, operation, other):
        return self._of(operation(other._inner)) if isinstance(other, HashTrieSet) else NotImplemented

    def intersection(self, other):
        return self & other

    def union(self, other):
        return self | other

    def difference(self, other):
        return self - other

    def symmetric_difference(self, other):
        return self ^ other

    def insert(self, value):
        return self._of(self._inner | {value})

    def remove(self, value):
        if value not in self._inner:
            raise KeyError(value)
        return self.discard(value)

    def discard(self, value):
        return self._of(self._inner - {value})

    def update(self, *iterables):
        return self._of(self._inner.union(*iterables))


_abc.Set.register(HashTrieSet)


class _Elements(_Value):
    """A sequence, whose first element is the one that is taken next."""

    __slots__ = ()

    def __new__(cls, *elements):
        self = object.__new__(cls)
        self._inner = tuple(elements[0] if len(elements) == 1 else elements)
        return self

    def __eq__(self, other):
        return self._inner == other._inner if type(other) is type(self) else NotImplemented

    def __hash__(self):
        _hash(enumerate(self), f"at {{}} element in {type(self).__name__}")
        return hash(self._inner)

    def __repr__(self):
        return f"{type(self).__name__}({list(self._inner)!r})"

    def _first(self, otherwise):
        if not self._inner:
            raise IndexError(otherwise)
        return self._inner[0]

    def _rest(self, otherwise):
        self._first(otherwise)
        return self._of(self._inner[1:])


class List(_Elements):
    __slots__ = ()
    _EMPTY = "empty list has no first element"

    def __new__(cls, *elements):
        if len(elements) == 1:
            reversed(elements[0])  # what can't be isn't taken
        return super().__new__(cls, *elements)

    def __reversed__(self):
        return self._of(self._inner[::-1])

    @property
    def first(self):
        return self._first(self._EMPTY)

    @property
    def rest(self):
        return self._of(self._inner[1:])

    def push_front(self, other):
        return self._of((other, *self._inner))

    def drop_first(self):
        return self._rest(self._EMPTY)


class Stack(_Elements):
    """A stack, whose top comes first in its iterations and last in its `repr`."""

    __slots__ = ()

    def __new__(cls, *elements):
        self = super().__new__(cls, *elements)
        self._inner = self._inner[::-1]
        return self

    def __repr__(self):
        return f"Stack({list(self._inner[::-1])!r})"

    def __reduce__(self):
        return type(self), (list(self._inner[::-1]),)

    def peek(self):
        return self._first("peeked an empty stack")

    def pop(self):
        return self._rest("popped an empty stack")

    def push(self, other):
        return self._of((other, *self._inner))


class Queue(_Elements):
    __slots__ = ()

    def is_empty(self):
        return not self._inner

    def peek(self):
        return self._first("peeked an empty queue")

    def enqueue(self, value):
        return self._of((*self._inner, value))

    def dequeue(self):
        return self._rest("dequeued an empty queue")
