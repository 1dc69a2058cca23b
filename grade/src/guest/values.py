"""Values as plain data: JSON in which an object with one key is a value of another type.

Both sides of a grading run have this code. The judge's side builds nothing but the types below from
what it receives, so that no method of the candidate's classes ever runs there.
"""

import json as _json

# Deeper values don't cross.
_DEEPEST = 100
_SMALLEST, _LARGEST = -(1 << 63), (1 << 63) - 1


class NotPlain(Exception):
    """A value that can't be written as plain data."""


class Malformed(BaseException):
    """Received data that isn't the form of any value. No `except Exception` of tests catches it."""


def pack(value, opaque=None, depth=_DEEPEST):
    """Returns the value as plain data. `opaque` describes what isn't plain; without it that is an
    error."""
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is float:
        return value
    if kind is int:
        return value if _SMALLEST <= value <= _LARGEST else {"int": hex(value)}
    if depth == 0:
        raise NotPlain(f"it is nested more than {_DEEPEST} deep")
    packer = _PACKERS.get(kind)
    if packer is not None:
        return packer(value, opaque, depth - 1)
    return _pack_other(kind, value, opaque, depth)


def _items(value, opaque, depth):
    return [pack(item, opaque, depth) for item in value]


def _pairs(value, opaque, depth):
    return [[pack(key, opaque, depth), pack(item, opaque, depth)] for key, item in value.items()]


_PACKERS = {
    list: _items,
    tuple: lambda value, opaque, depth: {"tuple": _items(value, opaque, depth)},
    set: lambda value, opaque, depth: {"set": _items(value, opaque, depth)},
    frozenset: lambda value, opaque, depth: {"frozenset": _items(value, opaque, depth)},
    dict: lambda value, opaque, depth: {"dict": _pairs(value, opaque, depth)},
    complex: lambda value, opaque, depth: {"complex": [value.real, value.imag]},
    bytes: lambda value, opaque, depth: {"bytes": value.hex()},
    bytearray: lambda value, opaque, depth: {"bytearray": value.hex()},
    range: lambda value, opaque, depth: {"range": [hex(n) for n in (value.start, value.stop, value.step)]},
}


def _pack_other(kind, value, opaque, depth):
    """Packs types of modules that may not be imported, then subclasses, then what isn't plain."""
    module, name = kind.__module__, kind.__qualname__
    packer = _NAMED.get((module, name))
    if packer is not None:
        return packer(value, opaque, depth - 1)
    if module == "numpy":
        packed = _pack_array(name, value, opaque, depth - 1)
        if packed is not None:
            return packed
    if module.partition(".")[0] == "pandas" and name in ("DataFrame", "Series"):
        packed = _pack_frame(name, value, opaque, depth - 1)
        if packed is not None:
            return packed
    if kind is type and value.__module__ == "builtins":
        return {"type": value.__name__}
    for base in (bool, int, float, str, list, tuple, set, frozenset, dict, bytes, bytearray, complex):
        if isinstance(value, base):
            return pack(_as_base(base, value), opaque, depth)
    if opaque is None:
        raise NotPlain(f"an object of the type `{name}` isn't plain data")
    return opaque(value)


def _as_base(base, value):
    if base is str:
        return str.__str__(value)
    if base is int:
        return int.__int__(value)
    if base is float:
        return float.__float__(value)
    if base is dict:
        return dict(dict.items(value))
    return base(value)


def _pack_array(name, value, opaque, depth):
    dtype = getattr(value, "dtype", None)
    if dtype is None or dtype.kind not in "biufcUSmM" or dtype.kind in "mM":
        return None
    if name == "ndarray":
        return {"array": [dtype.str, list(value.shape), _items(value.reshape(-1).tolist(), opaque, depth)]}
    return {"scalar": [dtype.str, pack(value.item(), opaque, depth)]}


# Types of columns that cross.
_COLUMNS = (
    "bool", "float32", "float64", "int8", "int16", "int32", "int64", "object", "str", "string", "uint8",
    "uint16", "uint32", "uint64",
)


def _pack_frame(name, value, opaque, depth):
    """Packs a frame or a series of plain columns; returns `None` for others."""
    axes = [value.index] + ([value.columns] if name == "DataFrame" else [])
    if any(type(axis).__name__ not in ("Index", "RangeIndex") for axis in axes):
        return None
    parts = [value.iloc[:, place] for place in range(value.shape[1])] if name == "DataFrame" else [value]
    columns = [_pack_column(part, opaque, depth) for part in (*axes, *parts)]
    if None in columns:
        return None
    return {name: [columns, None if name == "DataFrame" else pack(value.name, None, depth)]}


def _pack_column(column, opaque, depth):
    if str(column.dtype) not in _COLUMNS:
        return None
    try:
        return [str(column.dtype), _items(column.tolist(), None, depth), pack(column.name, None, depth)]
    except NotPlain:
        return None


def _unpack_frame(content, resolve, depth, is_series):
    columns, name = content
    pandas = __import__("pandas")
    made = [_unpack_column(pandas, column, resolve, depth) for column in columns]
    index = pandas.Index(made[0])
    if is_series:
        series = made[1]
        series.index, series.name = index, _unpack(name, resolve, depth)
        return series
    frame = pandas.DataFrame(dict(enumerate(made[2:])))
    frame.index, frame.columns = index, pandas.Index(made[1])
    return frame


def _unpack_column(pandas, column, resolve, depth):
    dtype, items, name = column
    if dtype not in _COLUMNS:
        raise Malformed("the candidate sent a column of an unknown type")
    series = pandas.Series(_list(items, resolve, depth), dtype=dtype)
    series.name = _unpack(name, resolve, depth)
    return series


_NAMED = {
    ("collections", "deque"): lambda value, opaque, depth: {
        "deque": [_items(value, opaque, depth), value.maxlen]
    },
    ("collections", "Counter"): lambda value, opaque, depth: {"Counter": _pairs(value, opaque, depth)},
    ("collections", "OrderedDict"): lambda value, opaque, depth: {
        "OrderedDict": _pairs(value, opaque, depth)
    },
    ("collections", "defaultdict"): lambda value, opaque, depth: {
        "defaultdict": _pairs(value, opaque, depth)
    },
    ("decimal", "Decimal"): lambda value, opaque, depth: {"Decimal": str(value)},
    ("fractions", "Fraction"): lambda value, opaque, depth: {
        "Fraction": [hex(value.numerator), hex(value.denominator)]
    },
    ("datetime", "datetime"): lambda value, opaque, depth: {"datetime": value.isoformat()},
    ("datetime", "date"): lambda value, opaque, depth: {"date": value.isoformat()},
    ("datetime", "time"): lambda value, opaque, depth: {"time": value.isoformat()},
    ("datetime", "timedelta"): lambda value, opaque, depth: {
        "timedelta": [value.days, value.seconds, value.microseconds]
    },
}


def unpack(packed, resolve=None, depth=_DEEPEST):
    """Returns the value of plain data. `resolve` returns what opaque ones refer to.

    Raises:
        Malformed: It has another form.
    """
    try:
        return _unpack(packed, resolve, depth)
    except Malformed:
        raise
    except (TypeError, ValueError, LookupError, OverflowError, ArithmeticError, RecursionError) as error:
        raise Malformed(f"the candidate sent what is no value: {error}") from None


def _unpack(packed, resolve, depth):
    kind = type(packed)
    if packed is None or kind is bool or kind is str or kind is int or kind is float:
        return packed
    if depth == 0:
        raise Malformed(f"a value is nested more than {_DEEPEST} deep")
    if kind is list:
        return [_unpack(item, resolve, depth - 1) for item in packed]
    if kind is not dict or len(packed) != 1:
        raise Malformed("the candidate sent what is no value")
    ((name, content),) = packed.items()
    unpacker = _UNPACKERS.get(name)
    if unpacker is not None:
        return unpacker(content, resolve, depth - 1)
    if resolve is None:
        raise Malformed(f"the candidate sent what is no value: `{name[:40]}`")
    return resolve(name, content)


def _list(content, resolve, depth):
    if type(content) is not list:
        raise Malformed("the candidate sent what is no value")
    return [_unpack(item, resolve, depth) for item in content]


def _dict(content, resolve, depth):
    return {_unpack(key, resolve, depth): _unpack(item, resolve, depth) for key, item in content}


def _imported(module, name):
    return getattr(__import__(module), name)


def _array(content, resolve, depth):
    dtype, shape, items = content
    _check_dtype(dtype)
    array = __import__("numpy").array(_list(items, resolve, depth), dtype=dtype)
    return array.reshape([int(length) for length in shape])


def _scalar(content, resolve, depth):
    dtype, item = content
    _check_dtype(dtype)
    return __import__("numpy").dtype(dtype).type(_unpack(item, resolve, depth))


def _check_dtype(dtype):
    if type(dtype) is not str or dtype[1:2] not in set("biufcUS") or not dtype[2:].isdigit():
        raise Malformed("the candidate sent an array of an unknown type")


def _type(content, resolve, depth):
    found = vars(__import__("builtins")).get(content)
    if not isinstance(found, type):
        raise Malformed("the candidate sent an unknown type")
    return found


_UNPACKERS = {
    "int": lambda content, resolve, depth: int(content, 16),
    "tuple": lambda content, resolve, depth: tuple(_list(content, resolve, depth)),
    "set": lambda content, resolve, depth: set(_list(content, resolve, depth)),
    "frozenset": lambda content, resolve, depth: frozenset(_list(content, resolve, depth)),
    "dict": _dict,
    "complex": lambda content, resolve, depth: complex(*content),
    "bytes": lambda content, resolve, depth: bytes.fromhex(content),
    "bytearray": lambda content, resolve, depth: bytearray.fromhex(content),
    "range": lambda content, resolve, depth: range(*(int(number, 16) for number in content)),
    "deque": lambda content, resolve, depth: _imported("collections", "deque")(
        _list(content[0], resolve, depth), content[1]
    ),
    "Counter": lambda content, resolve, depth: _imported("collections", "Counter")(
        _dict(content, resolve, depth)
    ),
    "OrderedDict": lambda content, resolve, depth: _imported("collections", "OrderedDict")(
        _dict(content, resolve, depth)
    ),
    "defaultdict": lambda content, resolve, depth: _imported("collections", "defaultdict")(
        None, _dict(content, resolve, depth)
    ),
    "Decimal": lambda content, resolve, depth: _imported("decimal", "Decimal")(content),
    "Fraction": lambda content, resolve, depth: _imported("fractions", "Fraction")(
        *(int(number, 16) for number in content)
    ),
    "datetime": lambda content, resolve, depth: _imported("datetime", "datetime").fromisoformat(content),
    "date": lambda content, resolve, depth: _imported("datetime", "date").fromisoformat(content),
    "time": lambda content, resolve, depth: _imported("datetime", "time").fromisoformat(content),
    "timedelta": lambda content, resolve, depth: _imported("datetime", "timedelta")(*content),
    "array": _array,
    "scalar": _scalar,
    "type": _type,
    "DataFrame": lambda content, resolve, depth: _unpack_frame(content, resolve, depth, False),
    "Series": lambda content, resolve, depth: _unpack_frame(content, resolve, depth, True),
}


def to_text(message):
    """Returns a message as text, in ASCII, so that every text of Python crosses unchanged."""
    return _json.dumps(message, ensure_ascii=True, separators=(",", ":"))


def from_text(text):
    """Returns the message of a text.

    Raises:
        Malformed: It isn't JSON.
    """
    try:
        return _json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"the candidate sent what is no message: {error}") from None
