"""Values as plain data: JSON in which containers keep who they are.

Both sides of a grading run have this code. A message has nodes, one for each value that isn't written
directly; `[3]` stands for the fourth node. So lists may share others, hold themselves and be nested as
deep as memory allows. Lists, dictionaries and other values that can change have a number on both sides,
and each message begins with what has changed of them, so that both sides see one list.

The judge's side builds nothing but the types below from what it receives, so that no method of the
candidate's classes ever runs there.
"""

import builtins as _builtins
import json as _json
import sys as _sys
from bisect import bisect_right as _bisect_right
from operator import is_ as _is

# Tests may patch what they are taken from.
_dumps, _loads = _json.dumps, _json.loads
_MISSING = object()
_SMALLEST, _LARGEST = -(1 << 63), (1 << 63) - 1
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
            raise MemoryError(f"tests and a candidate share at most {_MOST_SHARED} lists and the like")
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
            if number in self._entries and self._references(number) <= self._alone and self._is_unchanged(number):
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


class Disorder:
    """Whether a set was made that has its items in another order than on the other side."""

    seen = False


def ordered_set(items):
    """Returns a set with the items in this order, if there can be one."""
    made = set(items)
    if _are_same(list(made), items):
        return made
    hashes = [hash(item) for item in items]
    size = 8
    while size <= 16 * len(items) + 16 and len(items) <= _MOST_ORDERED:
        if len(items) * 5 < size * 3:
            order = _insertions(hashes, size)
            if order is not None:
                made = _inserted([items[place] for place in order], size)
                if _are_same(list(made), items):
                    return made
        size *= 2
    return made


_MOST_ORDERED = 2_000
_LINEAR_PROBES = 9
_UNSIGNED = (1 << _sys.hash_info.width) - 1


def _insertions(hashes, size):
    """Returns an order in which insertions into CPython's table of this size leave items in the order
    of their hashes; `None` if none is found."""
    naturals = [number & size - 1 for number in hashes]
    slots, order, taken = [None] * len(hashes), [], set()
    # Items that were displaced far came after most others.
    steps = [_rising(naturals), range(len(hashes))]
    while len(order) < len(hashes):
        limits, limit = [], size
        for slot in reversed(slots):
            limits.append(limit)
            limit = limit if slot is None else slot
        limits.reverse()
        below, before, step = -1, len(order), set(steps[0])
        for place, number in enumerate(hashes):
            if slots[place] is None and place in step:
                slot = _slot(number, size - 1, taken)
                if below < slot < limits[place]:
                    slots[place] = slot
                    taken.add(slot)
                    order.append(place)
            if slots[place] is not None:
                below = slots[place]
        if len(order) == before:
            if len(steps) == 1:
                return None
            steps.pop(0)
    return order


def _rising(numbers):
    """Returns places of a longest subsequence that never falls."""
    ends, places, before = [], [], [None] * len(numbers)
    for place, number in enumerate(numbers):
        length = _bisect_right(ends, number)
        ends[length : length + 1] = [number]
        places[length : length + 1] = [place]
        before[place] = places[length - 1] if length else None
    found, place = [], places[-1]
    while place is not None:
        found.append(place)
        place = before[place]
    return found


def _slot(number, mask, taken):
    """Returns where CPython puts an item with this hash."""
    slot, rest = number & mask, number & _UNSIGNED
    while True:
        probes = _LINEAR_PROBES if slot + _LINEAR_PROBES <= mask else 0
        for place in range(slot, slot + probes + 1):
            if place not in taken:
                return place
        rest >>= 5
        slot = slot * 5 + 1 + rest & mask


def _inserted(items, size):
    """Returns a set whose table has this size, with items inserted in this order."""
    first = items[: size // 2 - 1]
    # A dictionary makes the table large enough for twice its length at once.
    fillers = [(_MISSING, number) for number in range(max(0, size // 4 + 1 - len(first)))]
    made = set(dict.fromkeys(first + fillers)) if size > 8 else set(first)
    for filler in fillers:
        made.discard(filler)
    for item in items[len(first) :]:
        made.add(item)
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
        "bytearray", lambda value: [bytes(value)], lambda value, parts: _fill_list(value, parts[0]),
        bytes, lambda value, old: value == old, bytearray,
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
    "collections", "OrderedDict", "OrderedDict", _flat,
    lambda value, parts: (value.clear(), value.update(zip(parts[::2], parts[1::2]))),
    lambda: _imported("collections", "OrderedDict")(),
)


def _fill_defaultdict(value, parts):
    value.default_factory = parts[0]
    _fill_dict(value, parts[1:])


_later(
    "collections", "defaultdict", "defaultdict", lambda value: [value.default_factory, *_flat(value)],
    _fill_defaultdict, lambda: _imported("collections", "defaultdict")(),
)
# A bound can't be changed; a deque with one is made when it comes.
_later("collections", "deque", "deque", lambda value: [value.maxlen, *value], None, None)
_BY_NAME["deque"].fill = lambda value, parts: _fill_deque(value, parts[1:])
_later(
    "array", "array", "array.array", lambda value: [value.typecode, *value],
    lambda value, parts: _fill_list(value, _imported("array", "array")(value.typecode, parts[1:])), None,
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


# Arrays of these kinds are written by value; so are arrays of objects, item by item.
_PLAIN_DTYPES = "biufcUSOMm"


def _dtype_kind(value):
    return value.dtype.kind if value.dtype.names is None else "V"


def _array_parts(value):
    kind = value.dtype.kind
    flat = value.reshape(-1)
    items = flat.astype("int64").tolist() if kind in "Mm" else flat.tolist()
    return [value.dtype.str, value.shape, tuple(items)]


def _make_array(parts):
    numpy = __import__("numpy")
    dtype, shape, items = parts
    items = list(items)
    if type(dtype) is not str or dtype[1:2] not in set(_PLAIN_DTYPES):
        raise Malformed("the candidate sent an array of an unknown type")
    shape = tuple(int(length) for length in shape)
    if dtype[1] == "O":
        array = numpy.empty(len(items), dtype=object)
        for place, item in enumerate(items):
            array[place] = item
    elif dtype[1] in "Mm":
        array = numpy.array(items, dtype="int64").astype(dtype)
    else:
        array = numpy.array(items, dtype=dtype)
    return array.reshape(shape)


def _fill_array(value, parts):
    made = _make_array(parts)
    if made.shape != value.shape or made.dtype != value.dtype:
        raise Malformed("the candidate changed the form of an array")
    value[...] = made


def _is_same_array(value, old):
    if value.shape != old.shape or value.dtype != old.dtype:
        return False
    if value.dtype.kind == "O":
        return _are_same(value.reshape(-1).tolist(), old.reshape(-1).tolist())
    return value.tobytes() == old.tobytes()


def _index_parts(index):
    """Returns what an index of pandas consists of; raises `NotPlain` for some."""
    name = type(index).__name__
    if name == "RangeIndex":
        return ("range", index.name, index.start, index.stop, index.step)
    if name == "MultiIndex":
        return ("multi", tuple(index.names), tuple(tuple(item) for item in index.tolist()))
    if name == "PeriodIndex":
        return ("period", index.name, tuple(str(item) for item in index), index.freqstr)
    if name not in ("Index", "DatetimeIndex", "TimedeltaIndex", "CategoricalIndex"):
        raise NotPlain(f"an index of the type `{name}` isn't plain data")
    freq = getattr(index, "freqstr", None)
    return ("plain", index.name, *_column_parts(index), freq)


def _make_index(parts):
    pandas = __import__("pandas")
    kind, name, *rest = parts
    if kind == "range":
        return pandas.RangeIndex(*rest, name=name)
    if kind == "multi":
        return pandas.MultiIndex.from_tuples(list(rest[0]), names=name)
    if kind == "period":
        return pandas.PeriodIndex(list(rest[0]), freq=rest[1], name=name)
    *column, freq = rest
    index = pandas.Index(_make_column(column), name=name)
    if freq is not None:
        index.freq = freq
    return index


_COLUMNS = (
    "bool", "boolean", "float32", "float64", "int8", "int16", "int32", "int64", "object", "str", "string",
    "uint8", "uint16", "uint32", "uint64", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32",
    "UInt64", "Float32", "Float64",
)


def _column_parts(column):
    dtype = str(column.dtype)
    if dtype in _COLUMNS:
        return (dtype, tuple(column.tolist()))
    if dtype.startswith(("datetime64[", "timedelta64[")):
        return (dtype, tuple(column.astype("int64").tolist()))
    if dtype == "category":
        values = column if hasattr(column, "categories") else column.cat
        codes = tuple(int(code) for code in values.codes)
        return ("category", codes, _index_parts(values.categories), bool(values.ordered))
    raise NotPlain(f"a column of the type `{dtype}` isn't plain data")


def _make_column(parts):
    pandas = __import__("pandas")
    dtype, items, *rest = parts
    items = list(items)
    if dtype == "category":
        categories, is_ordered = rest
        made = pandas.Categorical.from_codes(items, categories=_make_index(categories), ordered=is_ordered)
        return pandas.Series(made)
    if type(dtype) is not str or not (dtype in _COLUMNS or dtype.startswith(("datetime64[", "timedelta64["))):
        raise Malformed("the candidate sent a column of an unknown type")
    if dtype in _COLUMNS:
        return pandas.Series(items, dtype=dtype)
    unit, _, zone = dtype.partition("[")[2].rstrip("]").partition(", ")
    made = pandas.Series(items, dtype="int64").astype(f"{dtype.partition('[')[0]}[{unit}]")
    return made.dt.tz_localize("UTC").dt.tz_convert(zone) if zone else made


def _frame_parts(value):
    columns = tuple(_column_parts(value.iloc[:, place]) for place in range(value.shape[1]))
    return [_index_parts(value.index), _index_parts(value.columns), columns]


def _make_frame(parts):
    pandas = __import__("pandas")
    index, columns, made = parts
    index = _make_index(index)
    frame = pandas.DataFrame(dict(enumerate(map(_make_column, made))), index=range(len(index)))
    frame.index, frame.columns = index, _make_index(columns)
    return frame


def _series_parts(value):
    return [_index_parts(value.index), value.name, *_column_parts(value)]


def _make_series(parts):
    index, name, *column = parts
    series = _make_column(column)
    series.index, series.name = _make_index(index), name
    return series


def _is_same_frame(value, old):
    if type(value) is not type(old) or not value.equals(old) or not value.index.equals(old.index):
        return False
    if hasattr(value, "columns"):
        return value.columns.equals(old.columns) and list(value.dtypes) == list(old.dtypes)
    return value.dtype == old.dtype and value.name == old.name


def _copied(value):
    return value.copy()


_FRAMES = {
    "ndarray": _Kind("array", _array_parts, _fill_array, _copied, _is_same_array),
    "DataFrame": _Kind(
        "DataFrame", _frame_parts, lambda value, parts: value._update_inplace(_make_frame(parts)), _copied,
        _is_same_frame,
    ),
    "Series": _Kind(
        "Series", _series_parts, lambda value, parts: value._update_inplace(_make_series(parts)), _copied,
        _is_same_frame,
    ),
}
# What makes values of kinds that can't be made empty, from their parts.
_MAKERS = {
    "set": _make_set,
    "deque": lambda parts: _deque()(parts[1:], parts[0]),
    "array.array": lambda parts: _imported("array", "array")(parts[0], parts[1:]),
    "array": _make_array,
    "DataFrame": _make_frame,
    "Series": _make_series,
}
_BY_NAME |= {kind.name: kind for kind in _FRAMES.values()}


def _imported(module, name):
    found = __import__(module)
    for part in module.split(".")[1:]:
        found = getattr(found, part)
    return getattr(found, name)


class Writer:
    """Writes the values of one message."""

    def __init__(self, shared, opaque):
        self._shared = shared
        # Returns the name and the parts of the node of what isn't plain.
        self._opaque = opaque
        self.nodes = []
        self._places = {}
        self._pending = []
        # What has been written lives until the message is sent, so that ids stay theirs.
        self._held = []
        self._changed = shared.changed()
        self._stale = {id(value) for value in self._changed}

    def message(self, head):
        """Returns the message as text: what has changed, and values at its head."""
        head = [self.value(item) for item in head]
        changed = [self.value(item) for item in self._changed]
        return _dumps(
            [head, self.nodes, changed, self._shared.forgotten()], ensure_ascii=True, separators=(",", ":")
        )

    def value(self, value):
        """Returns what stands for a value."""
        written = self._put(value)
        while self._pending:
            place, item = self._pending.pop()
            self.nodes[place] = self._node(item)
        return written

    def _put(self, value):
        kind = type(value)
        if value is None or kind is str or kind is float or kind is bool:
            return value
        if kind is int and _SMALLEST <= value <= _LARGEST:
            return value
        place = self._places.get(id(value))
        if place is None:
            place = self._places[id(value)] = len(self.nodes)
            self.nodes.append(None)
            self._held.append(value)
            self._pending.append((place, value))
        return [place]

    def _all(self, items):
        return [self._put(item) for item in items]

    def _node(self, value):
        try:
            kind = kind_of(value)
            if kind is not None:
                return self._changeable(kind, value)
            packer = _PACKERS.get(type(value)) or _NAMED.get(_named(type(value))) or _packer_by_base(value)
            name, *parts = (packer or self._opaque)(value)
        except NotPlain:
            name, *parts = self._opaque(value)
        return [name, *self._all(parts)]

    def _changeable(self, kind, value):
        number = self._shared.number_of(value)
        if number is not None and id(value) not in self._stale:
            return ["known", number]
        parts = kind.parts(value)
        number = self._shared.add(value, number)
        return [kind.name, number, *self._all(parts)]


def _packer_by_base(value):
    kind = type(value)
    if kind.__module__ == "numpy" and hasattr(value, "dtype") and hasattr(value, "item"):
        if _dtype_kind(value) in "biufcUS" and kind.__name__ != "ndarray":
            return lambda value: ("scalar", value.dtype.str, value.item())
    if isinstance(value, tuple) and hasattr(kind, "_fields") and kind.__eq__ is tuple.__eq__:
        if type(kind._fields) is tuple and all(type(name) is str for name in kind._fields):
            return lambda value: ("named", kind.__name__, kind.__module__, kind._fields, tuple(tuple.__iter__(value)))
    return None


def _pack_int(value):
    return ("int", hex(value))


def _pack_type(value):
    if value.__module__ == "builtins" and getattr(_builtins, value.__name__, None) is value:
        return ("type", "builtins", value.__name__)
    if (value.__module__, value.__name__) in _NAMED or (value.__module__, value.__name__) in _LATER:
        return ("type", value.__module__, value.__name__)
    raise NotPlain("a class")


def _pack_datetime(value):
    zone = value.tzinfo
    if zone is not None and (type(zone).__module__, type(zone).__qualname__) not in _ZONES:
        raise NotPlain("a time zone")
    return ("datetime", value.replace(tzinfo=None).isoformat(), value.fold, zone)


def _pack_time(value):
    if value.tzinfo is not None:
        raise NotPlain("a time zone")
    return ("time", value.isoformat())


_PACKERS = {
    int: _pack_int,
    tuple: lambda value: ("tuple", *value),
    frozenset: lambda value: ("frozenset", *value),
    complex: lambda value: ("complex", value.real, value.imag),
    bytes: lambda value: ("bytes", value.hex()),
    range: lambda value: ("range", value.start, value.stop, value.step),
    slice: lambda value: ("slice", value.start, value.stop, value.step),
    type(...): lambda value: ("ellipsis",),
    type(NotImplemented): lambda value: ("not implemented",),
    type: _pack_type,
    type({}.keys()): lambda value: ("keys", *value),
    type({}.values()): lambda value: ("values", *value),
    type({}.items()): lambda value: ("items", *value),
}
_ZONES = (("datetime", "timezone"), ("zoneinfo", "ZoneInfo"))
_NAMED = {
    ("decimal", "Decimal"): lambda value: ("Decimal", str(value)),
    ("fractions", "Fraction"): lambda value: ("Fraction", value.numerator, value.denominator),
    ("datetime", "datetime"): _pack_datetime,
    ("datetime", "date"): lambda value: ("date", value.isoformat()),
    ("datetime", "time"): _pack_time,
    ("datetime", "timedelta"): lambda value: ("timedelta", value.days, value.seconds, value.microseconds),
    ("datetime", "timezone"): lambda value: ("timezone", value.utcoffset(None), value.tzname(None)),
    ("zoneinfo", "ZoneInfo"): lambda value: ("ZoneInfo", value.key),
    ("uuid", "UUID"): lambda value: ("UUID", value.int),
    ("pathlib", "PosixPath"): lambda value: ("Path", str(value)),
    ("pathlib._local", "PosixPath"): lambda value: ("Path", str(value)),
    ("re", "Pattern"): lambda value: ("Pattern", value.pattern, int(value.flags)),
}


def _pack_timestamp(value):
    zone = None if value.tz is None else str(value.tz)
    return ("Timestamp", value.unit, int(value.asm8.astype("int64")), zone)


def _pack_index(value):
    return ("Index", _index_parts(value))


_NAMED |= {
    ("pandas", "Timestamp"): _pack_timestamp,
    ("pandas", "Timedelta"): lambda value: ("Timedelta", value.unit, int(value.asm8.astype("int64"))),
    ("pandas", "NaTType"): lambda value: ("NaT",),
    ("pandas", "NAType"): lambda value: ("NA",),
}
for _name in ("", "Range", "Multi", "Datetime", "Timedelta", "Period", "Categorical"):
    _NAMED["pandas", f"{_name}Index"] = _pack_index


def _named(kind):
    """Returns the key of a type in `_NAMED`: what module of pandas has it depends on the version."""
    module = kind.__module__
    return ("pandas" if module.startswith("pandas.") else module, kind.__qualname__)


def _make_datetime(text, fold, zone):
    made = _imported("datetime", "datetime").fromisoformat(text)
    return made.replace(fold=fold, tzinfo=zone)


def _make_timezone(offset, name):
    timezone = _imported("datetime", "timezone")
    made = timezone(offset)
    if not offset:
        made = timezone.utc
    return made if made.tzname(None) == name else timezone(offset, name)


def _make_timestamp(unit, number, zone):
    pandas = __import__("pandas")
    made = pandas.Timestamp(number, unit=unit).as_unit(unit)
    return made if zone is None else made.tz_localize("UTC").tz_convert(zone)


def _make_scalar(dtype, item):
    if type(dtype) is not str or dtype[1:2] not in set("biufcUS") or not dtype[2:].isdigit():
        raise Malformed("the candidate sent a number of an unknown type")
    return __import__("numpy").dtype(dtype).type(item)


def _make_type(module, name):
    if module == "builtins":
        found = vars(_builtins).get(name)
    elif (module, name) in _NAMED or (module, name) in _LATER:
        found = _imported(module, name)
    else:
        found = None
    if not isinstance(found, type):
        raise Malformed("the candidate sent an unknown type")
    return found


_NAMED_TUPLES = {}


def _make_named(name, module, fields, items):
    key = (name, module, tuple(fields))
    kind = _NAMED_TUPLES.get(key)
    if kind is None:
        kind = _imported("collections", "namedtuple")(name, fields, module=module)
        _NAMED_TUPLES[key] = kind
    return kind._make(items)


_UNPACKERS = {
    "int": lambda text: int(text, 16),
    "tuple": lambda *items: items,
    "frozenset": lambda *items: frozenset(_make_set(list(items))),
    "complex": complex,
    "bytes": lambda text: bytes.fromhex(text),
    "range": lambda start, stop, step: range(start, stop, step),
    "slice": slice,
    "ellipsis": lambda: ...,
    "not implemented": lambda: NotImplemented,
    "type": _make_type,
    "keys": lambda *items: dict.fromkeys(items).keys(),
    "values": lambda *items: dict(enumerate(items)).values(),
    "items": lambda *items: dict(items).items(),
    "Decimal": lambda text: _imported("decimal", "Decimal")(text),
    "Fraction": lambda one, other: _imported("fractions", "Fraction")(one, other),
    "datetime": _make_datetime,
    "date": lambda text: _imported("datetime", "date").fromisoformat(text),
    "time": lambda text: _imported("datetime", "time").fromisoformat(text),
    "timedelta": lambda *parts: _imported("datetime", "timedelta")(*parts),
    "timezone": _make_timezone,
    "ZoneInfo": lambda key: _imported("zoneinfo", "ZoneInfo")(key),
    "UUID": lambda number: _imported("uuid", "UUID")(int=number),
    "Path": lambda text: _imported("pathlib", "Path")(text),
    "Pattern": lambda pattern, flags: _imported("re", "compile")(pattern, flags),
    "scalar": _make_scalar,
    "Timestamp": _make_timestamp,
    "Timedelta": lambda unit, number: __import__("pandas").Timedelta(number, unit=unit).as_unit(unit),
    "NaT": lambda: __import__("pandas").NaT,
    "NA": lambda: __import__("pandas").NA,
    "Index": _make_index,
    "named": _make_named,
}


class Reader:
    """Reads the values of one message."""

    def __init__(self, shared, resolve, text):
        self._shared = shared
        # Returns what a node of another kind refers to.
        self._resolve = resolve
        try:
            parsed = _loads(text)
        except (ValueError, RecursionError) as error:
            raise Malformed(f"the candidate sent what is no message: {error}") from None
        if type(parsed) is not list or len(parsed) != 4 or not all(type(part) is list for part in parsed):
            raise Malformed("the candidate sent what is no message")
        self.head, self._nodes, self._changed, self._forgotten = parsed

    def values(self):
        """Returns the values at the message's head, and changes what has changed.

        Raises:
            Malformed: It has another form.
        """
        try:
            return self._values()
        except Malformed:
            raise
        except (TypeError, ValueError, LookupError, OverflowError, ArithmeticError, AttributeError,
                RecursionError) as error:
            raise Malformed(f"the candidate sent what is no value: {error}") from None

    def _values(self):
        self._made = [_MISSING] * len(self._nodes)
        self._unfilled = []
        self._numbered = []
        for place, node in enumerate(self._nodes):
            self._begin(place, node)
        for place in range(len(self._nodes)):
            self._finish(place)
        for value, kind, parts in self._unfilled:
            kind.fill(value, [self._get(part) for part in parts])
        for value, number in self._numbered:
            self._shared.add(value, number)
        for part in self._changed:
            self._get(part)
        for number in self._forgotten:
            self._shared.forget(number)
        return [self._get(part) for part in self.head]

    def _get(self, part):
        if type(part) is list:
            (place,) = part
            return self._made[place]
        if type(part) is dict:
            raise Malformed("the candidate sent what is no value")
        return part

    def _begin(self, place, node):
        """Makes what has to be there before its parts are."""
        if type(node) is not list or not node or type(node[0]) is not str:
            raise Malformed("the candidate sent what is no value")
        name = node[0]
        if name == "known":
            if not self._shared.has(node[1]):
                raise Malformed("the candidate sent what it doesn't have")
            self._made[place] = self._shared.get(node[1])
            return
        kind = _BY_NAME.get(name)
        if kind is None:
            return
        number = node[1]
        if type(number) is not int:
            raise Malformed("the candidate sent what is no value")
        if self._shared.has(number):
            value = self._shared.get(number)
            if getattr(kind_of(value), "name", None) != name:
                raise Malformed("the candidate sent what is no value")
        elif kind.make is not None:
            value = kind.make()
        else:
            return
        self._made[place] = value
        self._unfilled.append((value, kind, node[2:]))
        self._numbered.append((value, number))

    def _finish(self, place):
        """Makes what consists of other values, and these first."""
        stack, open_places = [place], set()
        while stack:
            place = stack[-1]
            if self._made[place] is not _MISSING:
                stack.pop()
                continue
            name, *parts = self._nodes[place]
            needed = [inner for (inner,) in filter(_is_place, parts) if self._made[inner] is _MISSING]
            if not needed:
                stack.pop()
                self._made[place] = self._make(name, parts)
            elif place in open_places:
                raise Malformed("the candidate sent a value that is part of itself")
            else:
                open_places.add(place)
                stack += needed

    def _make(self, name, parts):
        if name in _MAKERS:
            number, *parts = parts
            value = _MAKERS[name]([self._get(part) for part in parts])
            kind_of(value)  # so that its kind is known
            self._numbered.append((value, number))
            return value
        parts = [self._get(part) for part in parts]
        maker = _UNPACKERS.get(name)
        return self._resolve(name, parts) if maker is None else maker(*parts)


def _is_place(part):
    return type(part) is list




def to_text(message):
    """Returns a message without values as text."""
    return _dumps(message, ensure_ascii=True, separators=(",", ":"))


from_text = _loads
