"""Values that JSON can't hold, as JSON with tags: the one form of such values on every way between
host and program. `python/src/hatchery_sandbox/_tagged.py` is the same file.

An object with a single key that begins with `$` stands for a value of another type:

    {"$tuple": [...]}  {"$set": [...]}  {"$frozenset": [...]}  {"$range": [start, stop, step]}
    {"$dict": [[key, value], ...]}      a dictionary with keys that aren't texts, or begin with `$`
    {"$int": "0x1f"}                    a whole number beyond 64 bits
    {"$float": "nan"}                   also "inf" and "-inf"
    {"$complex": "1+2j"}  {"$decimal": "1.10"}  {"$uuid": TEXT}  {"$path": TEXT}
    {"$date": ISO}  {"$timedelta": [days, seconds, microseconds]}  {"$zone": ZONE}
    {"$datetime": [ISO, ZONE, fold]}  {"$time": [ISO, ZONE, fold]}
    {"$bytes": DATA}  {"$bytearray": DATA}
    {"$array": {"dtype": "<f8", "shape": [2, 3], "data": DATA}}, or "items" of the dtype "|O"
    {"$frame": {"columns": INDEX, "index": INDEX, "data": [COLUMN, ...], "attrs": {...}}}
    {"$series": {"values": COLUMN, "index": INDEX, "name": ...}}  {"$index": INDEX}
    {"$column": COLUMN}                 an array of pandas
    {"$scalar": COLUMN}                 its only item: a Timestamp, Timedelta, Period or Interval
    {"$na": null}                       `pandas.NA`

DATA is the number of an attachment, or base64. ZONE is a name, the seconds east of UTC, or null.
COLUMN has a `dtype` and `data`, `strings` (null where one is missing) or `items`, and what else the
type needs: `mask` for nullable numbers, `codes`, `categories` and `ordered`, `zone`, `period`, or
`left`, `right` and `closed`. INDEX is a COLUMN with a `name` and maybe a `freq`, a `range`, or
`levels` with `codes` and `names`; that of a frame is null if its rows are numbered from 0.

Nothing is pickled, and input is untrusted.
"""

from __future__ import annotations

import base64
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    Attach = Callable[[int, Callable[[], bytes]], Any]
    """Takes the length of bytes and what makes them, and returns the DATA that stands for them."""

MOST_DEPTH = 100
"""Containers within each other; readers of JSON end soon after that."""

MOST_DIMENSIONS = 32
"""NumPy allows more since version 2."""

SMALLEST_INTEGER, LARGEST_INTEGER = -(1 << 63), (1 << 64) - 1

NULLABLE = {
    **{f"{sign}Int{bits}": f"{sign.lower() or 'i'}{bits // 8}" for sign in ("", "U") for bits in (8, 16, 32, 64)},
    **{f"Float{bits}": f"f{bits // 8}" for bits in (32, 64)},
    "boolean": "?",
}
"""The nullable types of pandas, and what holds their items."""


class Unsupported(Exception):
    """A value has no tagged form. `path` leads to it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.path = ""

    def __str__(self) -> str:
        path = self.path if len(self.path) <= 60 else f"{self.path[:60]}…"
        return f"its part `{path}` {self.args[0]}" if path else f"it {self.args[0]}"


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can hold a text: it has no surrogates."""
    try:
        return text.isascii() or text.encode() is not None
    except UnicodeEncodeError:
        return False


def is_plain(value: Any, depth: int = MOST_DEPTH) -> bool:
    """Whether a value is what JSON holds without tags."""
    kind = type(value)
    if value is None or kind is bool:
        return True
    if kind is str:
        return is_unicode(value)
    if kind is int:
        return bool(SMALLEST_INTEGER <= value <= LARGEST_INTEGER)
    if kind is float:
        return bool(value - value == 0.0)
    if depth == 0:
        return False
    if kind is list:
        return all(is_plain(item, depth - 1) for item in value)
    return kind is dict and all(
        type(key) is str and is_unicode(key) and is_plain(item, depth - 1)
        for key, item in value.items()
    )


def inline(size: int, make: Callable[[], bytes]) -> str:
    """Returns bytes as base64, for what has no attachments."""
    return base64.b64encode(make()).decode()


class Encoder:
    """Turns values into the tagged form."""

    def __init__(self, attach: Attach) -> None:
        self._attach = attach

    def tree(self, value: Any, depth: int = MOST_DEPTH) -> Any:
        """Returns a value as JSON with tags.

        Raises:
            Unsupported: It has no such form.
        """
        kind = type(value)
        if value is None or kind is bool:
            return value
        if issubclass(kind, (str, int, float)):
            return self._scalar(kind, value)
        if depth == 0:
            raise Unsupported(f"is nested more than {MOST_DEPTH} levels deep, or contains itself")
        for base, tag in ((list, ""), (tuple, "$tuple"), (set, "$set"), (frozenset, "$frozenset")):
            if issubclass(kind, base):
                items = self._items(base.__iter__(value), depth - 1)
                return {tag: items} if tag else items
        if issubclass(kind, dict):
            return self._dict(value, depth - 1)
        if issubclass(kind, (bytes, bytearray, memoryview)):
            tag = "$bytearray" if kind is bytearray else "$bytes"
            return {tag: self._attach(memoryview(value).nbytes, lambda: bytes(value))}
        if kind is complex:
            return {"$complex": repr(value).strip("()")}
        if kind is range:
            return {"$range": [self.tree(part, 0) for part in (value.start, value.stop, value.step)]}
        tagged = self._of_module(kind, value, depth)
        if tagged is None:
            raise Unsupported(f"is of the type {kind.__name__}, which can't be passed")
        return tagged

    def _scalar(self, kind: type, value: Any) -> Any:
        if issubclass(kind, str):
            value = str.__str__(value)
            if not is_unicode(value):
                raise Unsupported("is a text with surrogates, which isn't Unicode")
            return value
        if issubclass(kind, int):
            value = int.__pos__(value)
            is_small = SMALLEST_INTEGER <= value <= LARGEST_INTEGER
            return value if is_small else {"$int": hex(value)}
        value = float.__pos__(value)
        return value if value - value == 0.0 else {"$float": repr(value)}

    def _items(self, items: Any, depth: int) -> list[Any]:
        trees: list[Any] = []
        try:
            for item in items:
                trees.append(self.tree(item, depth))
        except Unsupported as error:
            error.path = f"[{len(trees)}]{error.path}"
            raise
        return trees

    def _dict(self, value: Any, depth: int) -> Any:
        pairs: list[tuple[Any, Any]] = []
        key: Any = None
        try:
            for key, item in dict.items(value):
                pairs.append((self.tree(key, depth), self.tree(item, depth)))
        except Unsupported as error:
            error.path = f"[{repr(key):.40}]{error.path}"
            raise
        if all(type(key) is str and not key.startswith("$") for key, _ in pairs):
            return dict(pairs)
        return {"$dict": [list(pair) for pair in pairs]}

    def _of_module(self, kind: type, value: Any, depth: int) -> Any:
        """Returns the form of a value whose type isn't built in; `None` if there is none."""
        modules = sys.modules
        pandas = modules.get("pandas")
        if pandas is not None and (tagged := self._of_pandas(pandas, kind, value, depth)) is not None:
            return tagged
        numpy = modules.get("numpy")
        if numpy is not None and issubclass(kind, numpy.generic):
            item = None if value.dtype.kind in "cMm" else value.item()
            if type(item) in (bool, int, float, str):
                return self.tree(item, 0)
            return {"$array": self._array(numpy, numpy.asarray(value), depth)}
        if numpy is not None and issubclass(kind, numpy.ndarray):
            return {"$array": self._array(numpy, value, depth)}
        if "decimal" in modules and kind is modules["decimal"].Decimal:
            return {"$decimal": str(value)}
        if "uuid" in modules and kind is modules["uuid"].UUID:
            return {"$uuid": str(value)}
        if "pathlib" in modules and issubclass(kind, modules["pathlib"].PurePath):
            return {"$path": self.tree(str(value), 0)}
        return self._time(kind, value) if "datetime" in modules else None

    def _time(self, kind: type, value: Any) -> Any:
        datetime = sys.modules["datetime"]
        if kind is datetime.date:
            return {"$date": value.isoformat()}
        if kind is datetime.timedelta:
            return {"$timedelta": [value.days, value.seconds, value.microseconds]}
        if kind in (datetime.datetime, datetime.time):
            text = value.replace(tzinfo=None).isoformat()
            zone = None if value.tzinfo is None else zone_name(value.tzinfo)
            return {f"${kind.__name__}": [text, zone, value.fold]}
        return {"$zone": zone_name(value)} if issubclass(kind, datetime.tzinfo) else None

    # NumPy

    def _array(self, numpy: Any, array: Any, depth: int) -> Any:
        dtype = array.dtype
        if isinstance(array, numpy.ma.MaskedArray):
            raise Unsupported("is a masked array: pass its `.filled(…)` or its `.data` and `.mask`")
        if dtype.kind == "O" and array.ndim <= MOST_DIMENSIONS:
            items = self._items(array.ravel().tolist(), depth - 1)
            return {"dtype": "|O", "shape": list(array.shape), "items": items}
        if not is_passed(numpy, dtype) or array.ndim > MOST_DIMENSIONS:
            raise Unsupported(
                f"is an array of {dtype}: numbers, dates, texts of a fixed length and objects can be "
                f"passed, in at most {MOST_DIMENSIONS} dimensions; convert it with `.astype(…)`"
            )
        if dtype.str[0] == ">":
            dtype = dtype.newbyteorder("<")
            array = array.astype(dtype)
        data = self._attach(array.nbytes, array.tobytes)
        return {"dtype": dtype.str, "shape": [int(length) for length in array.shape], "data": data}

    # pandas

    def _of_pandas(self, pandas: Any, kind: type, value: Any, depth: int) -> Any:
        if issubclass(kind, pandas.DataFrame):
            told = {"columns": self._index(pandas, value.columns, depth)}
            told["index"] = self._index(pandas, value.index, depth)
            told["data"] = []
            for at, name in enumerate(value.columns):
                told["data"].append(self._named(pandas, value.iloc[:, at], f"[{name!r:.40}]", depth))
            if value.attrs:
                told["attrs"] = self.tree(value.attrs, depth - 1)
            return {"$frame": told}
        if issubclass(kind, pandas.Series):
            told = {"values": self._column(pandas, value, depth), "name": self.tree(value.name, depth - 1)}
            return {"$series": {**told, "index": self._index(pandas, value.index, depth)}}
        if issubclass(kind, pandas.Index):
            return {"$index": self._index(pandas, value, depth)}
        if issubclass(kind, pandas.api.extensions.ExtensionArray):
            return {"$column": self._column(pandas, pandas.Series(value), depth)}
        if value is pandas.NA:
            return {"$na": None}
        scalars = (pandas.Timestamp, pandas.Timedelta, pandas.Period, pandas.Interval, type(pandas.NaT))
        if issubclass(kind, scalars):
            return {"$scalar": self._column(pandas, pandas.Index([value]), depth)}
        return None

    def _index(self, pandas: Any, index: Any, depth: int) -> Any:
        name = self.tree(index.name, depth - 1)
        if isinstance(index, pandas.MultiIndex):
            numpy = sys.modules["numpy"]
            return {
                "levels": [self._index(pandas, level, depth) for level in index.levels],
                "codes": [self._array(numpy, numpy.asarray(codes), 0) for codes in index.codes],
                "names": self._items(index.names, depth - 1),
            }
        if isinstance(index, pandas.RangeIndex):
            return {"range": [index.start, index.stop, index.step], "name": name}
        told = {**self._named(pandas, index, ".index", depth), "name": name}
        if isinstance(index, (pandas.DatetimeIndex, pandas.TimedeltaIndex)) and index.freq is not None:
            told["freq"] = index.freqstr
        return told

    def _named(self, pandas: Any, column: Any, name: str, depth: int) -> Any:
        try:
            return self._column(pandas, column, depth)
        except Unsupported as error:
            error.path = f"{name}{error.path}"
            raise

    def _column(self, pandas: Any, column: Any, depth: int) -> Any:
        numpy, dtype = sys.modules["numpy"], column.dtype
        if isinstance(dtype, numpy.dtype):
            if dtype.kind != "O":
                told = self._array(numpy, column.to_numpy(), 0)
                return {"dtype": told["dtype"], "data": told["data"]}
            return {"dtype": "object", "items": self._items(column.tolist(), depth - 1)}
        name = str(dtype)
        if isinstance(dtype, pandas.StringDtype):
            texts = column.astype(object).where(column.notna(), None).tolist()
            return {"dtype": name, "strings": self._items(texts, 0)}
        if isinstance(dtype, pandas.CategoricalDtype):
            codes = getattr(column, "cat", column).codes
            told = {"codes": self._array(numpy, numpy.asarray(codes), 0), "ordered": dtype.ordered}
            return {"dtype": "category", "categories": self._index(pandas, dtype.categories, depth), **told}
        if isinstance(dtype, pandas.DatetimeTZDtype):
            zone = zone_name(dtype.tz)
            times = pandas.DatetimeIndex(column).tz_convert("UTC").tz_localize(None)
            return {**self._column(pandas, times, 0), "zone": zone}
        if isinstance(dtype, pandas.PeriodDtype):
            ordinals = pandas.PeriodIndex(column).asi8
            return {**self._column(pandas, pandas.Index(ordinals), 0), "period": name[len("period[") : -1]}
        if isinstance(dtype, pandas.IntervalDtype):
            ends = pandas.IntervalIndex(column)
            told = {side: self._index(pandas, getattr(ends, side), depth) for side in ("left", "right")}
            return {"dtype": "interval", "closed": dtype.closed, **told}
        if name in NULLABLE:
            mask = numpy.asarray(column.isna())
            items = column.to_numpy(NULLABLE[name], na_value=0)
            mask = self._array(numpy, mask, 0)["data"]
            return {"dtype": name, "data": self._array(numpy, items, 0)["data"], "mask": mask}
        raise Unsupported(f"is a column of {name}: convert it with `.astype(…)`")


class Decoder:
    """Turns the tagged form into values. What can't be read raises an exception of any type."""

    def __init__(self, attachments: Sequence[bytes | bytearray] = ()) -> None:
        self._attachments = attachments

    def value(self, tree: Any) -> Any:
        """Returns the value for JSON with tags."""
        if type(tree) is list:
            return [self.value(item) for item in tree]
        if type(tree) is not dict:
            return tree
        if len(tree) == 1:
            [(tag, told)] = tree.items()
            if tag.startswith("$"):
                return self._tagged(tag, told)
        return {key: self.value(item) for key, item in tree.items()}

    def _tagged(self, tag: str, told: Any) -> Any:
        containers: dict[str, Any] = {"$tuple": tuple, "$set": set, "$frozenset": frozenset, "$range": lambda ends: range(*ends)}
        if tag in containers:
            return containers[tag](self.value(told))
        if tag == "$dict":
            return {self.value(key): self.value(item) for key, item in told}
        if tag == "$int":
            return int(told, 16)
        if tag in ("$float", "$complex"):
            return float(told) if tag == "$float" else complex(told)
        if tag in ("$bytes", "$bytearray"):
            return (bytes if tag == "$bytes" else bytearray)(self._data(told))
        texts = {"$decimal": ("decimal", "Decimal"), "$uuid": ("uuid", "UUID"), "$path": ("pathlib", "Path")}
        if tag in texts:
            module, name = texts[tag]
            return getattr(_library(module), name)(told)
        if tag in ("$date", "$timedelta", "$datetime", "$time", "$zone"):
            return self._time(tag, told)
        if tag == "$array":
            return self._array(told)[()] if told["shape"] == [] else self._array(told)
        pandas = _library("pandas")
        if tag == "$frame":
            return self._frame(pandas, told)
        if tag == "$series":
            index, name = self._index(pandas, told["index"]), self.value(told["name"])
            return self._series(pandas, told["values"], index, name)
        if tag == "$index":
            return self._index(pandas, told)
        if tag == "$column":
            return self._column(pandas, told)
        if tag == "$scalar":
            return self._index(pandas, {"name": None, **told})[0]
        if tag == "$na":
            return pandas.NA
        raise ValueError(f"there is no tag `{tag:.40}`")

    def _data(self, told: int | str) -> bytes | bytearray:
        if isinstance(told, str):
            return base64.b64decode(told, validate=True)
        return self._attachments[told]

    def _time(self, tag: str, told: Any) -> Any:
        datetime = _library("datetime")
        if tag == "$date":
            return datetime.date.fromisoformat(told)
        if tag == "$timedelta":
            return datetime.timedelta(*told)
        if tag == "$zone":
            return zone_of(told)
        text, zone, fold = told
        kind = datetime.datetime if tag == "$datetime" else datetime.time
        return kind.fromisoformat(text).replace(tzinfo=zone_of(zone), fold=fold)

    def _array(self, told: Any) -> Any:
        numpy = _library("numpy")
        if told["dtype"] == "|O":
            array = numpy.empty(len(told["items"]), object)
            for at, item in enumerate(told["items"]):
                array[at] = self.value(item)
            return array.reshape(told["shape"])
        dtype = numpy.dtype(str(told["dtype"]))
        if not is_passed(numpy, dtype):
            raise ValueError(f"arrays of {dtype} can't be passed")
        array = numpy.frombuffer(self._data(told["data"]), dtype)
        array = array.reshape(told["shape"]) if "shape" in told else array
        return array if array.flags.writeable else array.copy()

    def _frame(self, pandas: Any, told: Any) -> Any:
        index = None if told["index"] is None else self._index(pandas, told["index"])
        columns = {
            at: self._series(pandas, column, index, None) for at, column in enumerate(told["data"])
        }
        frame = pandas.DataFrame(columns, index=index)
        frame.columns = self._index(pandas, told["columns"])
        frame.attrs = self.value(told.get("attrs", {}))
        return frame

    def _series(self, pandas: Any, told: Any, index: Any, name: Any) -> Any:
        # The type is given, since pandas would guess that of objects.
        column = self._column(pandas, told)
        return pandas.Series(column, index=index, name=name, dtype=column.dtype)

    def _index(self, pandas: Any, told: Any) -> Any:
        if "levels" in told:
            levels = [self._index(pandas, level) for level in told["levels"]]
            codes = [self._array(codes) for codes in told["codes"]]
            return pandas.MultiIndex(levels, codes, names=self.value(told["names"]))
        name = self.value(told.get("name"))
        if "range" in told:
            start, stop, step = told["range"]
            return pandas.RangeIndex(start, stop, step, name=name)
        column = self._column(pandas, told)
        index = pandas.Index(column, name=name, dtype=column.dtype)
        if "freq" in told:
            index.freq = told["freq"]
        return index

    def _column(self, pandas: Any, told: Any) -> Any:
        """Returns the items of a column as an array of NumPy or pandas."""
        name = told["dtype"]
        if name == "object":
            shape = [len(told["items"])]
            return self._array({"dtype": "|O", "shape": shape, "items": told["items"]})
        if "strings" in told:
            return self._strings(pandas, name, told["strings"])
        if name == "category":
            codes, categories = self._array(told["codes"]), self._index(pandas, told["categories"])
            return pandas.Categorical.from_codes(codes, categories, bool(told["ordered"]))
        if name == "interval":
            left, right = (self._index(pandas, told[side]) for side in ("left", "right"))
            return pandas.arrays.IntervalArray.from_arrays(left, right, told["closed"])
        if name in NULLABLE:
            items = self._array({"dtype": _library("numpy").dtype(NULLABLE[name]).str, "data": told["data"]})
            column = pandas.array(items, dtype=name)
            column[self._array({"dtype": "|b1", "data": told["mask"]})] = pandas.NA
            return column
        items = self._array({"dtype": name, "data": told["data"]})
        if "zone" in told:
            times, zone = pandas.DatetimeIndex(items).tz_localize("UTC"), zone_of(told["zone"])
            # For a name, pandas before version 3 has classes of its own.
            return times.tz_convert(told["zone"] if isinstance(told["zone"], str) else zone).array
        if "period" in told:
            return pandas.arrays.PeriodArray(items, dtype=pandas.PeriodDtype(told["period"]))
        return items

    def _strings(self, pandas: Any, name: str, texts: list[str | None]) -> Any:
        if not all(type(text) in (str, type(None)) for text in texts):
            raise ValueError("a column of texts has other items")
        if name == "str" and int(pandas.__version__.partition(".")[0]) < 3:
            return self._column(pandas, {"dtype": "object", "items": texts})
        return pandas.array(texts, dtype="str" if name == "str" else "string")


def is_passed(numpy: Any, dtype: Any) -> bool:
    """Whether the items of an array can be passed as raw bytes."""
    if dtype.kind in "US":
        return bool(dtype.itemsize)
    if dtype.kind in "Mm":
        unit, count = numpy.datetime_data(dtype)
        return bool(count == 1 and unit != "generic")
    sizes = {"b": 1, "i": 8, "u": 8, "f": 8, "c": 16}
    return dtype.kind in sizes and bool(dtype.itemsize <= sizes[dtype.kind])


def zone_name(zone: Any) -> str | float:
    """Returns the name of a time zone, or how many seconds it is east of UTC."""
    name = getattr(zone, "key", None) or getattr(zone, "zone", None)
    if isinstance(name, str):
        return name
    if type(zone) is not _library("datetime").timezone:
        raise Unsupported(f"has a time zone of the type {type(zone).__name__}, which has no name")
    seconds = zone.utcoffset(None).total_seconds()
    return int(seconds) if seconds == int(seconds) else float(seconds)


def zone_of(name: str | float | None) -> Any:
    """Returns the time zone for a name or a number of seconds; `None` for none."""
    if name is None:
        return None
    if isinstance(name, str):
        return _library("zoneinfo").ZoneInfo(name)
    datetime = _library("datetime")
    return datetime.timezone(datetime.timedelta(seconds=name)) if name else datetime.timezone.utc


def _library(name: str) -> Any:
    """Returns a module that is imported only where values need it."""
    try:
        return __import__(name)
    except ImportError as error:
        raise ImportError(f"a value needs {name}, which can't be imported: {error}") from None
