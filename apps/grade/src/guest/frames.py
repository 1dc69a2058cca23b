"""Arrays and frames of NumPy and pandas, which are imported only where they are used."""

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
    "bool",
    "boolean",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "object",
    "str",
    "string",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "UInt8",
    "UInt16",
    "UInt32",
    "UInt64",
    "Float32",
    "Float64",
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
        "DataFrame",
        _frame_parts,
        lambda value, parts: value._update_inplace(_make_frame(parts)),
        _copied,
        _is_same_frame,
    ),
    "Series": _Kind(
        "Series",
        _series_parts,
        lambda value, parts: value._update_inplace(_make_series(parts)),
        _copied,
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
